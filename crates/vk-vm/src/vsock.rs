//! The user-space vsock: a daemon between QEMU and a Unix socket of the VM's owner.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::time::{Instant, sleep, timeout};

use crate::qemu::VHOST_SOCKET;
use crate::start_error::StartError;
use crate::sockets;
use crate::supervise::Watched;

/// The port the agent dials.
pub(crate) const PORT: u32 = 1024;
/// The guest's number. Each daemon has one guest, so that all may have the same.
const CID: u32 = 3;
/// The daemon is ready within 10 ms; this long means that it never will be.
const READY: Duration = Duration::from_secs(10);
/// The daemon's socket for connections to the guest, which nobody makes; the guest's own arrive at
/// this path with the port behind it.
const SOCKET: &str = "host/v";

/// The daemon's arguments; it runs in the VM's directory.
pub(crate) fn arguments() -> Vec<OsString> {
    let cid = CID.to_string();
    ["--guest-cid", &cid, "--uds-path", SOCKET, "--socket", VHOST_SOCKET].map(Into::into).to_vec()
}

/// Listens where the guest's connections arrive.
pub(crate) fn listen(directory: &Path) -> Result<UnixListener, StartError> {
    sockets::listen(&directory.join(format!("{SOCKET}_{PORT}")))
        .map_err(StartError::io("listen for the guest"))
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
        return Err(StartError::io("start vhost-device-vsock")(io::Error::other(why)));
    }
    Ok(())
}
