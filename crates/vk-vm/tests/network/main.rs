//! A guest with a network: what it reaches, what it cannot, and that all of it ends with it.
//!
//! The host it runs on is a network namespace that the tests make for themselves, with a lab beside
//! it; one session in it serves all tests, and each looks at its own part.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]

#[path = "../support/mod.rs"]
mod support;

mod session;
#[allow(dead_code, reason = "the tests of fleets use more of it")]
mod world;

use session::session;

/// What a guest saw that asked an address; `None` where the tests cannot run.
fn asked(case: &str) -> Option<String> {
    let all = session()?;
    let answer = all.get(case);
    Some(
        answer
            .unwrap_or_else(|| panic!("no {case} in {all:#?}"))
            .clone(),
    )
}

fn is_reached(case: &str, by: &str) {
    if let Some(answer) = asked(case) {
        assert_eq!(answer, by, "{case}");
    }
}

/// The guest reached nothing, and nobody was reached by it; the session has seen that the same place
/// answers the host itself.
fn is_denied(case: &str) {
    if let Some(answer) = asked(case) {
        assert_eq!(answer, "denied", "{case}");
    }
}

#[test]
fn a_guest_reaches_the_lab() {
    is_reached("lab", "lab");
}

#[test]
fn a_guest_reaches_a_package_mirror_by_its_name() {
    is_reached("mirror", "mirror");
    // Too long for a packet: the answer comes by TCP.
    is_reached("resolver-tcp", "answered");
}

#[test]
fn a_guest_does_not_reach_the_hosts_main_address() {
    is_denied("main");
}

#[test]
fn a_guest_does_not_reach_a_second_address_of_the_host() {
    is_denied("second");
}

#[test]
fn a_guest_does_not_reach_a_server_of_the_host_that_listens_everywhere() {
    for case in ["bridge", "uplink", "beyond", "unspecified"] {
        is_denied(case);
    }
}

#[test]
fn a_guest_does_not_reach_the_hosts_loopback() {
    is_denied("loopback");
}

#[test]
fn a_guest_does_not_reach_link_local_addresses() {
    is_denied("link-local");
}

#[test]
fn a_guest_does_not_reach_the_metadata_service() {
    is_denied("metadata");
    // Those of clouds that have ordinary addresses.
    is_denied("cloud-0");
    is_denied("cloud-1");
}

#[test]
fn a_guest_does_not_reach_the_host_by_ipv6() {
    is_denied("ipv6");
    is_denied("ipv6-forced");
}

#[test]
fn a_guest_does_not_reach_a_resolver_of_the_hosts_itself() {
    is_denied("resolver");
    is_denied("resolver-udp");
}

#[test]
fn a_guest_does_not_ping_the_host_while_it_pings_others() {
    is_reached("ping-lab", "answered");
    is_denied("ping-main");
    is_denied("ping-second");
}

#[test]
fn what_a_resolver_tells_its_own_host_alone_is_refused_to_a_guest() {
    for case in ["transfer", "changes", "chaos"] {
        is_reached(&format!("resolver-{case}"), "refused");
    }
    is_reached("resolver-inner", "0");
}

#[test]
fn a_guest_that_takes_another_address_reaches_nothing_until_it_has_its_own_again() {
    is_denied("spoofed");
    is_reached("spoofed-no-more", "lab");
}

#[test]
fn an_address_that_becomes_the_hosts_is_denied_in_mid_connection() {
    is_denied("mid-connection");
}

/// DISP-57
#[test]
fn what_a_network_uses_is_its_vms() {
    is_reached("usage", "all");
}

#[test]
fn an_address_that_becomes_the_hosts_is_denied_and_one_that_it_loses_is_not() {
    is_reached("before", "lab");
    is_denied("while");
    is_reached("after", "lab");
}

#[test]
fn resolv_conf_names_the_resolver_and_the_guest_has_nothing_but_its_interface() {
    is_reached("resolv.conf", "nameserver 198.18.254.1");
    is_reached("interfaces", "eth0 lo");
}

/// The walls stay as they are without a network.
#[test]
fn qemu_has_no_rights_and_a_network_namespace_without_the_tap() {
    is_reached("rights", "none");
    is_reached("namespace", "its own");
}

#[test]
fn nothing_is_left_of_a_network_whose_vm_was_stopped() {
    is_reached("stopped", "nothing is left");
}

#[test]
fn a_network_that_is_killed_ends_its_vm_and_leaves_nothing() {
    for victim in ["pasta", "keeper", "qemu", "holder"] {
        is_reached(&format!("killed-{victim}"), "nothing is left");
    }
}
