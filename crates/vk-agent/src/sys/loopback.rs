use std::io;
use std::mem;

use rustix::fd::AsRawFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Brings the loopback interface up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let fd = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero bytes are a valid `ifreq`, a struct of integers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request
        .ifr_name
        .iter_mut()
        .zip(c"lo".to_bytes())
        .for_each(|(to, from)| {
            *to = libc::c_char::from_ne_bytes([*from]);
        });
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or(1);
    // SAFETY: the pointer is to a whole `ifreq`, as this request wants.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
