//! A connection and the frames on it, blocking.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use vk_guest_proto::{DecodeError, Decoder, Frame, encode};

/// How long the agent waits, after its last frame, for the host to close.
const LINGER: Duration = Duration::from_secs(30);

/// A stream socket, shared by its reader and its writer.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    fd: Arc<OwnedFd>,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }

    /// Bounds every read from now on, or no longer.
    pub(crate) fn limit_reads(&self, limit: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(
            &self.fd,
            sockopt::Timeout::Recv,
            limit,
        )?)
    }

    /// Waits for the host to close, dropping what it still sends. After the agent's last frame: a
    /// close with unread bytes would reset the connection, and with it what is still on its way.
    pub(crate) fn linger(&self) {
        let end = Instant::now() + LINGER;
        let mut waste = [0; 16 * 1024];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.readable_within(left) {
                return;
            }
            match recv(&self.fd, &mut waste[..], RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((_, 0)) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn readable_within(&self, limit: Duration) -> bool {
        let timeout = Timespec::try_from(limit).ok();
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut fds, timeout.as_ref()), Ok(1) | Err(Errno::INTR))
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Read for Conn {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (n, _) = rustix::io::retry_on_intr(|| recv(&self.fd, &mut *buf, RecvFlags::empty()))?;
        Ok(n)
    }
}

impl Write for Conn {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            send(&self.fd, buf, SendFlags::NOSIGNAL)
        })?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why no frame came.
#[derive(Debug)]
pub(crate) enum Gone {
    /// The host closed the connection, or it broke.
    Closed,
    /// What it sent cannot be read.
    Unreadable(DecodeError),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the host closed the connection"),
            Self::Unreadable(error) => write!(f, "the host sent an unreadable frame: {error}"),
        }
    }
}

/// The host's frames on a connection.
#[derive(Debug)]
pub(crate) struct Incoming<F> {
    conn: Conn,
    decoder: Decoder<F>,
}

impl<F: Frame> Incoming<F> {
    pub(crate) fn new(conn: Conn) -> Self {
        Self {
            conn,
            decoder: Decoder::new(),
        }
    }

    /// A frame that is there already.
    pub(crate) fn ready(&mut self) -> Result<Option<F>, Gone> {
        self.decoder.next().map_err(Gone::Unreadable)
    }

    /// Reads once. Only after [`Incoming::ready`] gave nothing.
    pub(crate) fn fill(&mut self) -> Result<(), Gone> {
        match self.conn.read(self.decoder.space()) {
            Ok(0) | Err(_) => Err(Gone::Closed),
            Ok(n) => {
                self.decoder.filled(n);
                Ok(())
            }
        }
    }

    /// The next frame, however long it takes.
    pub(crate) fn next(&mut self) -> Result<F, Gone> {
        loop {
            if let Some(frame) = self.ready()? {
                return Ok(frame);
            }
            self.fill()?;
        }
    }
}

/// The agent's frames on a connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    conn: Conn,
    buf: Vec<u8>,
}

impl Outgoing {
    pub(crate) fn new(conn: Conn) -> Self {
        Self {
            conn,
            buf: Vec::new(),
        }
    }

    /// Sends a frame, waiting as long as the host does not read.
    ///
    /// # Errors
    /// The host closed the connection. A frame over its bound is a fault of this program and is an
    /// error too.
    pub(crate) fn send<F: Frame>(&mut self, frame: &F) -> io::Result<()> {
        self.buf.clear();
        encode(frame, &mut self.buf).map_err(io::Error::other)?;
        self.conn.write_all(&self.buf)
    }
}
