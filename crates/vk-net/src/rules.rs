//! What may pass, as text for `nft -f -`.

use std::fmt::Write;

use crate::plan::Plan;
use crate::prefix::{Prefix, merged};

/// The bridge.
pub(crate) const BRIDGE: &str = "br0";
/// The VM's tap.
pub(crate) const TAP: &str = "tap0";
/// The way out: pasta's interface in the namespace.
pub(crate) const UPLINK: &str = "up0";

/// What no job reaches, whatever the host has: this host and its loopback, link-local (clouds'
/// metadata services among it: 169.254.169.254), multicast, reserved and broadcast; and the metadata
/// services that have ordinary addresses (Alibaba's, Azure's host).
const NEVER: [&str; 7] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "100.100.100.200/32",
    "168.63.129.16/32",
];

/// The whole table. `host` is what the host has at this moment.
///
/// The denials stand before what is established, so that an address that becomes the host's is
/// denied in the middle of a connection too. No IPv6 passes at all.
pub(crate) fn ruleset(plan: &Plan, host: &[Prefix]) -> String {
    let never = NEVER.join(", ");
    let (bridge, guest, outside) = (plan.bridge, plan.guest, plan.outside());
    let mut text = format!(
        "table inet vk {{
    set never {{
        type ipv4_addr
        flags interval
        elements = {{ {never}, {outside} }}
    }}
    set host {{
        type ipv4_addr
        flags interval
    }}
    chain input {{
        type filter hook input priority filter; policy drop;
        iifname \"lo\" accept
        iifname \"{BRIDGE}\" ip saddr {guest} ip daddr {bridge} udp dport 53 accept
        iifname \"{BRIDGE}\" ip saddr {guest} ip daddr {bridge} tcp dport 53 accept
        iifname \"{BRIDGE}\" ip saddr {guest} ip daddr {bridge} icmp type echo-request accept
        iifname \"{UPLINK}\" ct state established,related accept
        iifname \"{BRIDGE}\" meta nfproto ipv4 reject with icmp type admin-prohibited
    }}
    chain forward {{
        type filter hook forward priority filter; policy drop;
        iifname \"{BRIDGE}\" ip saddr != {guest} drop
        iifname \"{BRIDGE}\" ip daddr @never reject with icmp type admin-prohibited
        iifname \"{BRIDGE}\" ip daddr @host reject with icmp type admin-prohibited
        iifname \"{BRIDGE}\" oifname \"{UPLINK}\" meta nfproto ipv4 accept
        iifname \"{UPLINK}\" oifname \"{BRIDGE}\" ip saddr @host drop
        iifname \"{UPLINK}\" oifname \"{BRIDGE}\" ct state established,related accept
    }}
    chain out {{
        type nat hook postrouting priority srcnat; policy accept;
        oifname \"{UPLINK}\" masquerade
    }}
}}
"
    );
    text.push_str(&update(host));
    text
}

/// Makes the host's set what the host has now, at once and whole.
pub(crate) fn update(host: &[Prefix]) -> String {
    let mut text = String::from("flush set inet vk host\n");
    let host = merged(host.to_vec());
    if !host.is_empty() {
        let elements: Vec<_> = host.iter().map(ToString::to_string).collect();
        let elements = elements.join(", ");
        // A String takes all that is written.
        let _ = writeln!(text, "add element inet vk host {{ {elements} }}");
    }
    text
}

/// The bridge and the tap's place in it, as text for `ip -batch -`.
pub(crate) fn links(plan: &Plan) -> String {
    let (bridge, length) = (plan.bridge, plan.prefix_len);
    format!(
        "link set lo up
link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0
addr add {bridge}/{length} dev {BRIDGE}
link set {TAP} master {BRIDGE}
link set {TAP} up
link set {BRIDGE} up
"
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn plan() -> Plan {
        Plan::choose(&[]).unwrap()
    }

    #[test]
    fn denials_stand_before_anything_that_is_let_through() {
        let text = ruleset(&plan(), &[Prefix::of(Ipv4Addr::new(192, 0, 2, 2))]);
        let forward = text.split("chain forward").nth(1).unwrap();
        let forward = forward.split("chain out").next().unwrap();
        let first_accept = forward.find("accept").unwrap();
        for denied in ["policy drop", "ip daddr @never", "ip daddr @host"] {
            assert!(forward.find(denied).unwrap() < first_accept, "{denied}");
        }
        assert!(
            text.contains("add element inet vk host { 192.0.2.2/32 }"),
            "{text}"
        );
        assert!(
            !text.contains("nfproto ipv6 accept") && !text.contains("ip6"),
            "{text}"
        );
    }

    #[test]
    fn an_update_replaces_the_whole_set() {
        let one = Prefix::of(Ipv4Addr::new(10, 0, 0, 1));
        let whole = Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap();
        assert_eq!(
            update(&[one, whole, one]),
            "flush set inet vk host\nadd element inet vk host { 10.0.0.0/8 }\n"
        );
        assert_eq!(update(&[]), "flush set inet vk host\n");
    }
}
