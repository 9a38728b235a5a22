//! The calls that safe libraries do not offer. Everything unsafe in this crate is here.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;

use rustix::ioctl::{Setter, ioctl};
use rustix::thread::UnshareFlags;

use crate::needs::TUN;

/// The size of the kernel's `ifreq`.
const REQUEST: usize = 40;
/// Where in it the flags stand, behind the name.
const FLAGS: usize = 16;
/// `TUNSETIFF`.
const SET_INTERFACE: u32 = 0x4004_54ca;
/// `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`: whole frames, with the header that a virtio device uses.
const TAP: u16 = 0x0002 | 0x1000 | 0x4000;

/// Makes a tap in this thread's network namespace; it lasts as long as its descriptor.
pub(crate) fn tap(name: &str) -> io::Result<OwnedFd> {
    let device: File = OpenOptions::new().read(true).write(true).open(TUN)?;
    let mut request = [0_u8; REQUEST];
    // One byte of the name's room stays zero.
    let room = request.iter_mut().take(FLAGS - 1);
    room.zip(name.bytes()).for_each(|(to, from)| *to = from);
    let flags = request.iter_mut().skip(FLAGS);
    flags
        .zip(TAP.to_ne_bytes())
        .for_each(|(to, from)| *to = from);
    // SAFETY: TUNSETIFF reads one `ifreq`, which is 40 bytes long on every 64-bit Linux, from the
    // pointer it is given, and may write as much back: `Setter` passes a pointer to its own copy.
    unsafe {
        ioctl(
            &device,
            Setter::<SET_INTERFACE, [u8; REQUEST]>::new(request),
        )
    }?;
    Ok(device.into())
}

/// Takes this thread, and no other, to a new network namespace.
pub(crate) fn new_network() -> io::Result<()> {
    // SAFETY: only CLONE_FILES can break Rust's view of descriptors, and it is not passed.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}
