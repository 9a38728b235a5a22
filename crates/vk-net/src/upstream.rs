//! Which resolvers the host asks.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

/// The host's list.
const LIST: &str = "/etc/resolv.conf";
/// No list is longer.
const LIST_MAX: u64 = 64 << 10;
/// As many as the host's own library asks.
const SERVERS_MAX: usize = 3;
const PORT: u16 = 53;

/// The host's resolvers at this moment, in its order; read anew for every question, for a host that
/// moves gets others.
pub(crate) fn servers() -> Vec<SocketAddr> {
    let mut text = Vec::new();
    let read = File::open(LIST).and_then(|file| file.take(LIST_MAX).read_to_end(&mut text));
    match read {
        Ok(_) => parse(&String::from_utf8_lossy(&text)),
        Err(_) => Vec::new(),
    }
}

fn parse(list: &str) -> Vec<SocketAddr> {
    list.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            if words.next() != Some("nameserver") {
                return None;
            }
            // A scope ("fe80::1%eth0") is a link's matter: such a server is passed over.
            let address: IpAddr = words.next()?.parse().ok()?;
            Some(SocketAddr::new(address, PORT))
        })
        .take(SERVERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_servers_are_asked() {
        let list = "# by hand\nsearch a.example\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\n\
                    nameserver ::1 # local\noptions edns0\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n";
        let servers: Vec<_> = parse(list).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["127.0.0.53:53", "[::1]:53", "192.0.2.1:53"]);
        assert!(parse("nameserver\nnameserver x\n").is_empty());
    }
}
