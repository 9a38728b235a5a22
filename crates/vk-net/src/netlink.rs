//! The kernel's list of addresses and routes, and word of its changes: as much of rtnetlink as that
//! takes.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::error::NetError;
use crate::prefix::Prefix;

/// Groups of changes: IPv4 addresses and IPv4 routes (`RTMGRP_*`).
const CHANGES: u32 = 0x10 | 0x40;
/// A dump's packet is at most 32 KiB.
const PACKET: usize = 64 << 10;
/// A list that changes while it is read is read again, so often.
const AGAIN: u32 = 8;
/// No host has so many; then it is an error, never a list that is not whole.
pub(crate) const ENTRIES_MAX: usize = 16_384;

pub(crate) const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESSES: u16 = 22;
pub(crate) const NEW_ROUTE: u16 = 24;
pub(crate) const GET_ROUTES: u16 = 26;
/// Request, of the whole list.
const DUMP: u16 = 0x301;
/// The list changed while it was read.
const INTERRUPTED: u16 = 0x10;
pub(crate) const HEADER: usize = 16;
const INET: u8 = 2;
/// A route with fewer leading bits leads everywhere, or to a large part of it (a VPN that splits the
/// default route in halves, or leaves a few networks out): no network that a job's could be taken
/// for.
const NETWORK_MIN: u8 = 8;

/// What there is in one network namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What is answered here: own addresses, local and broadcast routes.
    pub(crate) own: Vec<Prefix>,
    /// Networks that an interface or a route leads to; those that lead everywhere
    /// are not among them.
    pub(crate) reached: Vec<Prefix>,
    /// Whether a route leads everywhere.
    pub(crate) default_route: bool,
    entries: usize,
}

/// A socket into the namespace that its maker was in, whoever uses it later and from wherever.
#[derive(Debug)]
pub(crate) struct Netlink {
    changes: OwnedFd,
    lists: OwnedFd,
}

impl Netlink {
    /// Opens it in this thread's namespace; changes from now on are told.
    pub(crate) fn open() -> Result<Self, NetError> {
        let open = |groups| {
            let flags = SocketFlags::CLOEXEC;
            // Without a protocol it is that of routes.
            let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
            bind(&socket, &SocketAddrNetlink::new(0, groups))?;
            Ok(socket)
        };
        let failed =
            |e: Errno| NetError::io("listen to the kernel's changes of addresses")(e.into());
        Ok(Self {
            changes: open(CHANGES).map_err(failed)?,
            lists: open(0).map_err(failed)?,
        })
    }

    /// Readable once something has changed.
    pub(crate) fn changes(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Forgets what was told so far: what it says is in the next list.
    pub(crate) fn clear(&self) -> Result<(), NetError> {
        let mut packet = [0; 4096];
        loop {
            match recv(&self.changes, &mut packet[..], RecvFlags::DONTWAIT) {
                // NOBUFS: more changed than there was room to tell.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => {
                    return Err(NetError::io("hear the kernel's changes of addresses")(
                        e.into(),
                    ));
                }
            }
        }
    }

    /// All addresses and routes, as of one moment each.
    pub(crate) fn list(&self) -> Result<Found, NetError> {
        for _ in 0..AGAIN {
            let mut found = Found::default();
            let whole =
                self.dump(GET_ADDRESSES, &mut found)? && self.dump(GET_ROUTES, &mut found)?;
            if whole {
                return Ok(found);
            }
        }
        Err(NetError::Netlink(
            "the list changes faster than it can be read",
        ))
    }

    /// Adds one list to `found`; false where it changed meanwhile.
    fn dump(&self, kind: u16, found: &mut Found) -> Result<bool, NetError> {
        let failed = |e: Errno| NetError::io("list the host's addresses")(e.into());
        send(&self.lists, &request(kind), SendFlags::empty()).map_err(failed)?;
        let mut packet = vec![0; PACKET];
        let mut whole = true;
        loop {
            let (_, length) = match recv(&self.lists, &mut packet[..], RecvFlags::TRUNC) {
                Err(Errno::INTR) => continue,
                received => received.map_err(failed)?,
            };
            let Some(packet) = packet.get(..length) else {
                return Err(NetError::Netlink("a packet larger than any can be"));
            };
            match found.take(packet)? {
                Taken::More { interrupted } => whole &= !interrupted,
                Taken::Last { interrupted } => return Ok(whole && !interrupted),
            }
        }
    }
}

fn request(kind: u16) -> [u8; HEADER + 12] {
    let mut out = [0; HEADER + 12];
    let fields: [&[u8]; 3] = [
        &28_u32.to_ne_bytes(),
        &kind.to_ne_bytes(),
        &DUMP.to_ne_bytes(),
    ];
    let bytes = fields.concat();
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    if let Some(family) = out.get_mut(HEADER) {
        *family = INET;
    }
    out
}

#[derive(Debug, PartialEq, Eq)]
enum Taken {
    More { interrupted: bool },
    Last { interrupted: bool },
}

impl Found {
    /// Takes the messages of one packet.
    fn take(&mut self, mut packet: &[u8]) -> Result<Taken, NetError> {
        let mut interrupted = false;
        while !packet.is_empty() {
            let (message, rest) =
                message(packet).ok_or(NetError::Netlink("a message cut short"))?;
            packet = rest;
            interrupted |= message.flags & INTERRUPTED != 0;
            match message.kind {
                DONE => return Ok(Taken::Last { interrupted }),
                ERROR => return Err(NetError::Netlink("it refuses to list them")),
                NEW_ADDRESS => self.address(message.body),
                NEW_ROUTE => self.route(message.body),
                _ => continue,
            }
            .ok_or(NetError::Netlink("an entry cut short"))?;
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(NetError::TooMany(ENTRIES_MAX));
            }
        }
        Ok(Taken::More { interrupted })
    }

    /// An address: itself, its other end or itself again, its broadcast address.
    fn address(&mut self, body: &[u8]) -> Option<()> {
        let (&family, &length) = (body.first()?, body.get(1)?);
        if family != INET {
            return Some(());
        }
        for (kind, address) in addresses(body.get(8..)?)? {
            match kind {
                // IFA_LOCAL, IFA_BROADCAST
                2 | 4 => self.own.push(Prefix::of(address)),
                // IFA_ADDRESS: of a network, or the other end of a line.
                1 => self.reached.push(Prefix::new(address, length)?),
                _ => {}
            }
        }
        Some(())
    }

    fn route(&mut self, body: &[u8]) -> Option<()> {
        let (&family, &length, &kind) = (body.first()?, body.get(1)?, body.get(7)?);
        if family != INET {
            return Some(());
        }
        // RTA_DST; without one the route leads everywhere.
        let destination = addresses(body.get(12..)?)?
            .into_iter()
            .find_map(|(kind, address)| (kind == 1).then_some(address))
            .unwrap_or(Ipv4Addr::UNSPECIFIED);
        let network = Prefix::new(destination, length)?;
        match kind {
            // RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST
            2..=4 => self.own.push(network),
            1 if length == 0 => self.default_route = true,
            _ if length >= NETWORK_MIN => self.reached.push(network),
            _ => {}
        }
        Some(())
    }
}

pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    pub(crate) body: &'a [u8],
}

/// The first message, and what follows it.
pub(crate) fn message(packet: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*packet.first_chunk()?)).ok()?;
    let message = Message {
        kind: u16::from_ne_bytes(*packet.get(4..)?.first_chunk()?),
        flags: u16::from_ne_bytes(*packet.get(6..)?.first_chunk()?),
        body: packet.get(HEADER..length)?,
    };
    Some((message, packet.get(aligned(length)..).unwrap_or_default()))
}

/// The attributes that are IPv4 addresses, by their kind.
fn addresses(mut attributes: &[u8]) -> Option<Vec<(u16, Ipv4Addr)>> {
    let mut found = Vec::new();
    while !attributes.is_empty() {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if let Ok(octets) = <[u8; 4]>::try_from(value) {
            found.push((kind, Ipv4Addr::from(octets)));
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    Some(found)
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut out = length.to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend([0; 8]);
        out.extend(body);
        out
    }

    fn attribute(kind: u16, value: [u8; 4]) -> Vec<u8> {
        [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat()
    }

    #[test]
    fn addresses_local_routes_and_ways_are_told_apart() {
        let address = [
            vec![INET, 24, 0, 0, 1, 0, 0, 0],
            attribute(1, [192, 0, 2, 9]),
            attribute(2, [192, 0, 2, 2]),
            attribute(4, [192, 0, 2, 255]),
        ]
        .concat();
        let route = |length, kind, to: Option<[u8; 4]>| {
            let mut body = vec![INET, length, 0, 0, 255, 2, 0, kind, 0, 0, 0, 0];
            body.extend(to.map(|to| attribute(1, to)).unwrap_or_default());
            of(NEW_ROUTE, 2, &body)
        };
        let packet = [
            of(NEW_ADDRESS, 2, &address),
            route(16, 2, Some([10, 1, 0, 0])),
            route(0, 1, None),
            route(12, 1, Some([172, 16, 0, 0])),
            // A VPN's halves, and a part that another one leaves out nothing of.
            route(1, 1, None),
            route(1, 1, Some([128, 0, 0, 0])),
            route(6, 1, Some([196, 0, 0, 0])),
            of(DONE, 2, &[0; 4]),
        ]
        .concat();
        let mut found = Found::default();
        assert_eq!(
            found.take(&packet).unwrap(),
            Taken::Last { interrupted: false }
        );
        let shown = |of: &[Prefix]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            shown(&found.own),
            ["192.0.2.2/32", "192.0.2.255/32", "10.1.0.0/16"]
        );
        assert_eq!(shown(&found.reached), ["192.0.2.0/24", "172.16.0.0/12"]);
        assert!(found.default_route);
        assert!(crate::Plan::choose(&found.reached).is_some());
    }

    #[test]
    fn what_is_cut_short_or_disturbed_is_no_list() {
        let whole = of(NEW_ROUTE, 2, &[INET, 32, 0, 0, 255, 2, 0, 2, 0, 0, 0, 0]);
        for length in 1..whole.len() {
            assert!(Found::default().take(&whole[..length]).is_err(), "{length}");
        }
        let disturbed = of(DONE, INTERRUPTED, &[0; 4]);
        let taken = Found::default().take(&disturbed).unwrap();
        assert_eq!(taken, Taken::Last { interrupted: true });
    }

    #[test]
    fn this_hosts_list_has_its_loopback_address() {
        // A namespace whose loopback is down has none.
        let Ok(found) = Netlink::open().and_then(|of| of.list()) else {
            panic!("the kernel's list cannot be read");
        };
        let up = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap_or_default();
        if up.trim() == "0x9" {
            let loopback = Prefix::of(Ipv4Addr::LOCALHOST);
            assert!(
                found.own.iter().any(|of| of.contains(loopback)),
                "{found:?}"
            );
        }
    }
}
