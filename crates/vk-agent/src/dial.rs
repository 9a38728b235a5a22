//! Connections to the host. The agent dials; it never listens.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use vk_guest_proto::{
    Failure, FailureCode, HIGHEST_VERSION, LOWEST_VERSION, Opening, Purpose, Secret,
};

use crate::conn::Conn;
use crate::context::{OrFail, fail};

/// How long the host may take to accept a connection and answer its opening.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts while the host's end is not there yet.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// Where the host listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A vsock port of a context (the host's is 2).
    Vsock {
        /// The context.
        cid: u32,
        /// The port.
        port: u32,
    },
    /// A Unix socket's path, as the agent sees it.
    Unix(PathBuf),
}

impl Address {
    /// Reads `vsock:CID:PORT` or `unix:PATH`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if let Some(path) = text.strip_prefix(b"unix:").filter(|path| !path.is_empty()) {
            return Some(Self::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path))));
        }
        let text = std::str::from_utf8(text.strip_prefix(b"vsock:")?).ok()?;
        let (cid, port) = text.split_once(':')?;
        Some(Self::Vsock {
            cid: cid.parse().ok()?,
            port: port.parse().ok()?,
        })
    }

    fn connect(&self) -> std::io::Result<OwnedFd> {
        match self {
            Self::Vsock { cid, port } => crate::sys::connect_vsock(*cid, *port),
            Self::Unix(path) => Ok(std::os::unix::net::UnixStream::connect(path)?.into()),
        }
    }
}

/// Opens streams to the host that gave this VM its secret.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: Address,
    secret: Secret,
}

impl Dialer {
    pub(crate) fn new(address: Address, secret: Secret) -> Self {
        Self { address, secret }
    }

    /// A stream, once the host took it.
    ///
    /// # Errors
    /// The host is not there for [`PATIENCE`], closes, or refuses the stream.
    pub(crate) fn dial(&self, purpose: Purpose, stream: u32) -> Result<Conn, Failure> {
        let what = || format!("dial the host at {:?} for stream {stream}", self.address);
        let mut conn = Conn::new(self.connect().or_fail(what)?);
        let opening = Opening::new(self.secret.clone(), purpose, stream);
        conn.limit_reads(Some(PATIENCE)).or_fail(what)?;
        conn.write_all(&opening.encode()).or_fail(what)?;
        let mut version = [0];
        conn.read_exact(&mut version).or_fail(what)?;
        conn.limit_reads(None).or_fail(what)?;
        let [version] = version;
        if (LOWEST_VERSION..=HIGHEST_VERSION).contains(&version) {
            return Ok(conn);
        }
        fail(
            FailureCode::Protocol,
            format!("{}: the host refused it", what()),
        )
    }

    /// Connects; the host's end may come up a little later than the guest.
    fn connect(&self) -> std::io::Result<OwnedFd> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.address.connect() {
                Err(error) if Instant::now() < end && may_come(&error) => {
                    std::thread::sleep(RETRY_EVERY);
                }
                result => return result,
            }
        }
    }
}

/// Whether the error says that nobody listens yet.
fn may_come(error: &std::io::Error) -> bool {
    let not_yet = [
        libc::ENODEV,
        libc::ENOENT,
        libc::ECONNREFUSED,
        libc::ECONNRESET,
        libc::EAGAIN,
    ];
    error
        .raw_os_error()
        .is_some_and(|raw| not_yet.contains(&raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        assert_eq!(
            Address::parse(b"vsock:2:1024"),
            Some(Address::Vsock { cid: 2, port: 1024 })
        );
        assert_eq!(
            Address::parse(b"unix:/run/a"),
            Some(Address::Unix("/run/a".into()))
        );
        for bad in [
            "",
            "vsock:",
            "vsock:2",
            "vsock:2:x",
            "vsock:-1:4",
            "unix:",
            "tcp:1:2",
        ] {
            assert_eq!(Address::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
