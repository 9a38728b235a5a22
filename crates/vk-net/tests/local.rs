//! Which addresses are the host's, on a host that may bind what is not its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::process::Command;

use vk_net::is_local;

/// Says that this process is inside the namespace.
const INSIDE: &str = "VK_TEST_INSIDE";

/// A network namespace of its own, as its own root: nothing of the host changes.
const HOST: &str = "set -e
ip link set lo up
ip address add 198.51.100.7/32 dev lo
ip -6 address add 2001:db8::7/128 dev lo
ip link add vk0 type bridge
ip link set vk0 up
ip address add 192.0.2.1/24 dev vk0
ip route add local 203.0.113.0/24 dev lo
ip route add default via 192.0.2.254
echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind
exec \"$0\" \"$@\"";

#[test]
fn an_address_is_the_hosts_by_the_kernels_word_and_not_by_bind() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let name = "an_address_is_the_hosts_by_the_kernels_word_and_not_by_bind";
    let test = std::env::current_exe().unwrap();
    let run = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", HOST])
        .arg(test)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{said}");
}

fn inside() {
    let is = |text: &str| is_local(text.parse().unwrap()).unwrap();
    for own in [
        "127.0.0.1",
        "198.51.100.7",
        "192.0.2.1",
        "192.0.2.255",
        // A route of its own makes a whole network the host's.
        "203.0.113.200",
        "::1",
        "2001:db8::7",
    ] {
        assert!(is(own), "{own} is the host's");
    }
    for other in ["198.51.100.8", "192.0.2.2", "8.8.8.8", "2001:db8::8"] {
        // Every address can be bound here.
        let bound = std::net::UdpSocket::bind((other, 0)).is_ok();
        assert!(bound || other.contains(':'), "{other}");
        assert!(!is(other), "{other} is another host's");
    }
}
