use std::io;
use std::mem;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Connects to a port of a vsock context.
pub(crate) fn connect_vsock(cid: u32, port: u32) -> io::Result<OwnedFd> {
    let fd = socket_with(
        AddressFamily::VSOCK,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero bytes are a valid `sockaddr_vm`, a struct of integers.
    let mut address: libc::sockaddr_vm = unsafe { mem::zeroed() };
    address.svm_family = u16::try_from(libc::AF_VSOCK).unwrap_or(u16::MAX);
    address.svm_cid = cid;
    address.svm_port = port;
    let len = u32::try_from(mem::size_of_val(&address)).unwrap_or(u32::MAX);
    // SAFETY: the pointer is to a whole `sockaddr_vm` of the length given, which the kernel only
    // reads; the descriptor is open.
    let result = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if result == 0 {
        Ok(fd)
    } else {
        Err(io::Error::last_os_error())
    }
}
