//! How guests reach their owner: the host's own vsock where it has one, else a daemon between QEMU
//! and a Unix socket of the VM's owner.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_vsock::{VMADDR_CID_ANY, VsockAddr, VsockListener};

use crate::channel::{Counted, Listener};
use crate::qemu::{VHOST_SOCKET, VsockDevice};
use crate::sockets;
use crate::start_error::StartError;
use crate::supervise::Watched;

/// The host's own vsock.
pub(crate) const KERNEL_DEVICE: &str = "/dev/vhost-vsock";
/// The port the agent dials through the daemon.
const PORT: u32 = 1024;
/// The guest's number behind the daemon. Each daemon has one guest, so that all may have the same.
const CID: u32 = 3;
/// Numbers that guests behind the kernel's vsock may have, which are the host's to give only once:
/// drawn, for whoever counts would collide with who else counts.
const KERNEL_CIDS: std::ops::Range<u32> = 0x1000..0x7fff_ffff;
/// Has the kernel choose a port (VMADDR_PORT_ANY).
const ANY_PORT: u32 = u32::MAX;
/// The daemon is ready within 10 ms; this long means that it never will be.
const READY: Duration = Duration::from_secs(10);
/// The daemon's socket for connections to the guest, which nobody makes; the guest's own arrive at
/// this path with the port behind it.
const SOCKET: &str = "host/v";

/// The daemon's arguments; it runs in the VM's directory.
pub(crate) fn arguments() -> Vec<OsString> {
    let cid = CID.to_string();
    [
        "--guest-cid",
        &cid,
        "--uds-path",
        SOCKET,
        "--socket",
        VHOST_SOCKET,
    ]
    .map(Into::into)
    .to_vec()
}

/// Which vsock guests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vsock {
    /// The kernel's where this user may use it, else the daemon.
    #[default]
    Auto,
    /// The kernel's, `/dev/vhost-vsock`.
    Kernel,
    /// The daemon `vhost-device-vsock`.
    Daemon,
}

impl Vsock {
    /// What `Auto` comes to on this host.
    pub(crate) fn settle(self) -> Self {
        let usable = || {
            File::options()
                .read(true)
                .write(true)
                .open(KERNEL_DEVICE)
                .is_ok()
        };
        match self {
            Self::Auto if usable() => Self::Kernel,
            Self::Auto => Self::Daemon,
            chosen => chosen,
        }
    }
}

/// Where one VM's guest arrives.
pub(crate) struct Arrival {
    pub(crate) listener: Listener,
    pub(crate) device: VsockDevice,
    /// The port its agent dials.
    pub(crate) port: u32,
}

/// Listens where the guest's connections arrive.
pub(crate) fn listen(vsock: Vsock, directory: &Path) -> Result<Arrival, StartError> {
    if vsock == Vsock::Kernel {
        return listen_in_kernel().map_err(StartError::io("listen on the host's vsock"));
    }
    let listener = sockets::listen(&directory.join(format!("{SOCKET}_{PORT}")))
        .map_err(StartError::io("listen for the guest"))?;
    Ok(Arrival {
        listener: Listener::Unix(listener),
        device: VsockDevice::User,
        port: PORT,
    })
}

fn listen_in_kernel() -> io::Result<Arrival> {
    let listener = VsockListener::bind(VsockAddr::new(VMADDR_CID_ANY, ANY_PORT))?;
    let port = listener.local_addr()?.port();
    let mut drawn = [0; 4];
    crate::launching::draw(&mut drawn)?;
    let cid = KERNEL_CIDS.start + u32::from_ne_bytes(drawn) % (KERNEL_CIDS.end - KERNEL_CIDS.start);
    let device = VsockDevice::Kernel { cid };
    Ok(Arrival {
        listener: Listener::Vsock {
            listener,
            cid,
            strangers: Counted::default(),
        },
        device,
        port,
    })
}

/// Waits until the daemon listens for QEMU.
pub(crate) async fn ready(directory: &Path, daemon: &Watched) -> Result<(), StartError> {
    let socket = directory.join(VHOST_SOCKET);
    let end = Instant::now() + READY;
    while !socket.exists() {
        let why = if let Some(exit) = daemon.launched.ended() {
            let _ = timeout(Duration::from_secs(1), daemon.said.whole()).await;
            format!("it ended with {exit}: {}", daemon.said.tail())
        } else if Instant::now() > end {
            format!("its socket is not there after {} s", READY.as_secs())
        } else {
            sleep(Duration::from_millis(1)).await;
            continue;
        };
        return Err(StartError::io("start vhost-device-vsock")(
            io::Error::other(why),
        ));
    }
    Ok(())
}
