//! Ports for servers that tests start later, and start again.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where Linux says from which ports it picks for whoever names none.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// What it picks from where that cannot be read.
const EPHEMERAL_BY_DEFAULT: RangeInclusive<u16> = 32768..=60999;
/// The lowest port given: below it are the well-known ones.
const LOWEST: u16 = 10240;

/// Ports that this process asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// A port of the loopback address that nobody listens on, and that the kernel gives to nobody: it is
/// none of those from which it picks for a connection or a server that names none. So a server can
/// be started on it later, be killed, and be started on it again.
///
/// Within a process no port is given twice. Two processes begin at different places.
///
/// # Panics
///
/// Where every port is taken.
#[must_use]
#[allow(
    clippy::panic,
    reason = "for tests, which can do nothing without a port"
)]
pub fn free() -> u16 {
    let text = fs::read_to_string(EPHEMERAL).unwrap_or_default();
    let ports = given_by_nobody(&range(&text).unwrap_or(EPHEMERAL_BY_DEFAULT));
    let of_this_process = std::process::id().wrapping_mul(64);
    for _ in 0..ports.len() {
        let number = of_this_process.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed));
        let place = usize::try_from(number).unwrap_or(0) % ports.len().max(1);
        let port = ports.get(place).copied();
        if let Some(port) = port.filter(|port| is_free(*port)) {
            return port;
        }
    }
    panic!("every port of the loopback address outside of {EPHEMERAL} is taken");
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Reads the two ends, `32768 60999`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ends = text.split_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

fn given_by_nobody(ephemeral: &RangeInclusive<u16>) -> Vec<u16> {
    (LOWEST..=u16::MAX)
        .filter(|port| !ephemeral.contains(port))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_none_that_the_kernel_gives_and_none_is_given_twice() {
        let text = fs::read_to_string(EPHEMERAL).unwrap();
        let ephemeral = range(&text).unwrap();
        let (one, other) = (free(), free());
        assert_ne!(one, other);
        assert!(!ephemeral.contains(&one) && !ephemeral.contains(&other));
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_free() {
        let port = free();
        assert!(is_free(port));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(!is_free(port));
        drop(listener);
        assert!(is_free(port));
    }

    #[test]
    fn the_kernels_range_is_read_and_left_out() {
        assert_eq!(range("32768\t60999\n"), Some(32768..=60999));
        assert_eq!(range("32768"), None);
        assert_eq!(range(""), None);
        let ports = given_by_nobody(&(10241..=65534));
        assert_eq!(ports, [10240, 65535]);
    }
}
