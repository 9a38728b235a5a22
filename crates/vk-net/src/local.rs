//! Whether an address is this host's own, as the kernel sees it.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::error::NetError;
use crate::netlink::{ERROR, GET_ROUTES, HEADER, NEW_ROUTE, message};

/// Request, of one thing.
const REQUEST: u16 = 1;
/// The family, lengths and so on of a route.
const ROUTE: usize = 12;
/// An answer is far shorter.
const PACKET: usize = 16 << 10;
/// Messages of others that may come before the answer.
const MESSAGES_MAX: usize = 16;

/// Whether what is sent to an address from this network namespace stays on this host: it is an
/// address of an interface, one of a local route, or a broadcast address. One that no route leads to
/// is not.
///
/// The kernel is asked where it would send it to; whether a socket can be bound to an address says
/// nothing of it where `ip_nonlocal_bind` is set.
///
/// # Errors
/// The kernel cannot be asked.
pub fn is_local(address: IpAddr) -> Result<bool, NetError> {
    let failed = |e: Errno| NetError::io("ask the kernel for the way to an address")(e.into());
    let flags = SocketFlags::CLOEXEC;
    // Without a protocol it is that of routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
    let socket = socket.map_err(failed)?;
    bind(&socket, &SocketAddrNetlink::new(0, 0)).map_err(failed)?;
    send(&socket, &request(address), SendFlags::empty()).map_err(failed)?;
    let mut buffer = vec![0; PACKET];
    for _ in 0..MESSAGES_MAX {
        let (_, length) = match recv(&socket, &mut buffer[..], RecvFlags::TRUNC) {
            Err(Errno::INTR) => continue,
            received => received.map_err(failed)?,
        };
        let packet = buffer.get(..length);
        let packet = packet.ok_or(NetError::Netlink("a packet larger than any can be"))?;
        if let Some(answer) = read(packet)? {
            return Ok(answer);
        }
    }
    Err(NetError::Netlink("it does not tell the way to an address"))
}

fn request(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(v4) => (AddressFamily::INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AddressFamily::INET6, v6.octets().to_vec()),
    };
    let bytes = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes();
    let whole = HEADER + ROUTE + 4 + octets.len();
    let mut out = u32::try_from(whole)
        .unwrap_or(u32::MAX)
        .to_ne_bytes()
        .to_vec();
    out.extend(GET_ROUTES.to_ne_bytes());
    out.extend(REQUEST.to_ne_bytes());
    out.extend([0; 8]);
    let bits = u8::try_from(octets.len() * 8).unwrap_or(u8::MAX);
    out.extend([u8::try_from(family.as_raw()).unwrap_or(0), bits]);
    out.extend([0; ROUTE - 2]);
    // RTA_DST
    out.extend(bytes(4 + octets.len()));
    out.extend(1_u16.to_ne_bytes());
    out.extend(octets);
    out
}

/// What a packet says of the way; none where it says nothing of it.
fn read(mut packet: &[u8]) -> Result<Option<bool>, NetError> {
    const SHORT: NetError = NetError::Netlink("a message cut short");
    while !packet.is_empty() {
        let (message, rest) = message(packet).ok_or(SHORT)?;
        packet = rest;
        match message.kind {
            // RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST
            NEW_ROUTE => return Ok(Some(matches!(message.body.get(7), Some(2..=4)))),
            ERROR => {
                let code = message.body.first_chunk().ok_or(SHORT)?;
                let code = Errno::from_raw_os_error(i32::from_ne_bytes(*code).wrapping_neg());
                return match code {
                    // No way leads there, or one that goes nowhere.
                    Errno::NETUNREACH
                    | Errno::HOSTUNREACH
                    | Errno::ACCESS
                    | Errno::INVAL
                    | Errno::AFNOSUPPORT
                    | Errno::OPNOTSUPP => Ok(Some(false)),
                    other => {
                        let what = "ask the kernel for the way to an address";
                        Err(NetError::io(what)(other.into()))
                    }
                };
            }
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut out = length.to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend([0; 10]);
        out.extend(body);
        out
    }

    #[test]
    fn the_kernels_answer_is_read() {
        for (kind, local) in [(1, false), (2, true), (3, true), (4, true), (6, false)] {
            let mut body = [0; ROUTE];
            body[7] = kind;
            assert_eq!(
                read(&packet(NEW_ROUTE, &body)).unwrap(),
                Some(local),
                "{kind}"
            );
        }
        let error = |errno: Errno| packet(ERROR, &(-errno.raw_os_error()).to_ne_bytes());
        assert_eq!(read(&error(Errno::NETUNREACH)).unwrap(), Some(false));
        assert!(read(&error(Errno::PERM)).is_err());
        assert_eq!(read(&packet(1, &[])).unwrap(), None);
        let whole = packet(NEW_ROUTE, &[0; ROUTE]);
        for length in 1..HEADER {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn loopback_is_local_and_addresses_of_documentation_are_not() {
        let up = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap_or_default();
        if up.trim() != "0x9" {
            return;
        }
        let is = |text: &str| is_local(text.parse().unwrap()).unwrap();
        assert!(is("127.0.0.1") && is("127.8.8.8"));
        assert!(!is("192.0.2.7") && !is("2001:db8::1"));
    }
}
