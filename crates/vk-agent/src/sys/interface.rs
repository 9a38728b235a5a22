//! Interfaces by the kernel's oldest way, which every kernel has: one request a field.

use std::io;
use std::mem;
use std::net::Ipv4Addr;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Brings the loopback interface up.
pub(crate) fn loopback_up() -> io::Result<()> {
    up(&socket()?, "lo")
}

/// Gives an interface its address, brings it up, and makes `gateway` the way to everywhere.
pub(crate) fn interface_up(
    name: &str,
    address: Ipv4Addr,
    mask: Ipv4Addr,
    gateway: Ipv4Addr,
) -> io::Result<()> {
    let socket = socket()?;
    for (what, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
        let mut request = request(name);
        request.ifr_ifru.ifru_addr = socket_address(value);
        ask(&socket, what, &mut request)?;
    }
    up(&socket, name)?;
    // SAFETY: all-zero bytes are a valid `rtentry`, a struct of integers and pointers that may be
    // null.
    let mut route: libc::rtentry = unsafe { mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the pointer is to a whole `rtentry`, as this request wants.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT, &raw mut route) })
}

fn up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or(1);
    ask(socket, libc::SIOCSIFFLAGS, &mut request)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}

fn ask(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the pointer is to a whole `ifreq`, as every request used here wants.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut *request) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid `ifreq`, a struct of integers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // One byte of the name's room stays zero.
    let room = request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1);
    room.zip(name.bytes())
        .for_each(|(to, from)| *to = libc::c_char::from_ne_bytes([from]));
    request
}

/// The address as a `sockaddr_in`, in the bytes of a `sockaddr`.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: all-zero bytes are a valid `sockaddr`, a struct of integers.
    let mut out: libc::sockaddr = unsafe { mem::zeroed() };
    out.sa_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(2);
    // Behind the family: two bytes of port, then the address.
    let room = out.sa_data.iter_mut().skip(2);
    room.zip(address.octets())
        .for_each(|(to, from)| *to = libc::c_char::from_ne_bytes([from]));
    out
}
