//! Takes the guest's connections: those that prove themselves and were asked for.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_vsock::VsockListener;
use vk_guest_proto::{CONTROL_STREAM, OPENING_LEN, Opening, Purpose, REFUSED, Secret};

use super::connection::Connection;

/// An opening is a few bytes; the agent gives up after as long.
const OPENING: Duration = Duration::from_secs(10);
/// Connections whose opening is awaited at once; the kernel holds the others back. Any process of a
/// guest may connect and say nothing: the agent must still get through.
const UNPROVEN_MAX: usize = 128;

/// Where the guest's connections arrive.
pub(crate) enum Listener {
    /// The user-space vsock's socket for one port, or a process guest's.
    Unix(UnixListener),
    /// A port of the host's own vsock, which any guest of the host may dial.
    Vsock {
        /// The port.
        listener: VsockListener,
        /// The only guest that is listened to.
        cid: u32,
        /// Others that came.
        strangers: Counted,
    },
}

/// What guests do as often as they like is told ever more seldom: the log is the host's disk.
#[derive(Debug, Default)]
pub(crate) struct Counted(AtomicU64);

impl Counted {
    /// Counts one; how many there were where that is to be told: at the first, second, fourth, …
    fn one_more(&self) -> Option<u64> {
        let count = self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        count.is_power_of_two().then_some(count)
    }
}

/// What may arrive: the secret, and the streams that were asked for.
pub(crate) struct Expected {
    secret: Secret,
    unproven: Counted,
    streams: Mutex<HashMap<u32, (Purpose, oneshot::Sender<Connection>)>>,
}

impl Listener {
    async fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Vsock {
                listener,
                cid,
                strangers,
            } => loop {
                let (stream, from) = listener.accept().await?;
                if from.cid() == *cid {
                    return Ok(Box::new(stream));
                }
                if let Some(so_far) = strangers.one_more() {
                    let from = from.cid();
                    tracing::warn!(from, so_far, "a stranger's connection was closed");
                }
            },
        }
    }

    /// Accepts connections for as long as it is polled.
    pub(crate) async fn serve(self, expected: Arc<Expected>) {
        let unproven = Arc::new(Semaphore::new(UNPROVEN_MAX));
        let mut openings = JoinSet::new();
        loop {
            while openings.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&unproven).acquire_owned().await else {
                return;
            };
            match self.accept().await {
                Ok(connection) => {
                    let expected = Arc::clone(&expected);
                    openings.spawn(async move {
                        // A stranger is closed without a word; what went wrong helps nobody.
                        let _ = timeout(OPENING, expected.open(connection)).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    // Out of descriptors, for one: that passes, and must not become a busy loop.
                    tracing::warn!(%error, "cannot accept a guest's connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Expected {
    /// Nothing but what opens with `secret`; the control stream is expected from the start.
    pub(crate) fn new(secret: Secret) -> (Self, oneshot::Receiver<Connection>) {
        let expected = Self {
            secret,
            unproven: Counted::default(),
            streams: Mutex::default(),
        };
        let control = expected.expect(CONTROL_STREAM, Purpose::Control);
        (expected, control)
    }

    /// Expects one stream of this number and purpose.
    pub(super) fn expect(&self, stream: u32, purpose: Purpose) -> oneshot::Receiver<Connection> {
        let (sender, receiver) = oneshot::channel();
        self.streams().insert(stream, (purpose, sender));
        receiver
    }

    /// No longer expects it.
    pub(super) fn forget(&self, stream: u32) {
        self.streams().remove(&stream);
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u32, (Purpose, oneshot::Sender<Connection>)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an opening, and hands the connection to who expects it.
    pub(super) async fn open(&self, mut connection: Connection) -> io::Result<()> {
        let mut opening = [0; OPENING_LEN];
        connection.read_exact(&mut opening).await?;
        let opening = Opening::decode(&opening).map_err(io::Error::other)?;
        if opening.secret != self.secret {
            if let Some(so_far) = self.unproven.one_more() {
                tracing::warn!(so_far, "a connection without the VM's secret was closed");
            }
            return Ok(());
        }
        let version = opening.choose();
        let waiting = match version {
            REFUSED => None,
            _ => self.take(opening.stream, opening.purpose),
        };
        let Some(waiting) = waiting else {
            return connection.write_all(&[REFUSED]).await;
        };
        connection.write_all(&[version]).await?;
        // Nobody waits any more: dropping the connection tells the agent.
        let _ = waiting.send(connection);
        Ok(())
    }

    fn take(&self, stream: u32, purpose: Purpose) -> Option<oneshot::Sender<Connection>> {
        let mut streams = self.streams();
        if streams.get(&stream)?.0 != purpose {
            return None;
        }
        streams.remove(&stream).map(|(_, waiting)| waiting)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    struct Host {
        path: std::path::PathBuf,
        expected: Arc<Expected>,
        control: oneshot::Receiver<Connection>,
        _directory: tempfile::TempDir,
        _serving: JoinSet<()>,
    }

    fn secret(byte: u8) -> Secret {
        Secret::take(&mut [byte; 32])
    }

    fn host() -> Host {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
        let (expected, control) = Expected::new(secret(7));
        let expected = Arc::new(expected);
        let mut serving = JoinSet::new();
        serving.spawn(listener.serve(Arc::clone(&expected)));
        Host {
            path,
            expected,
            control,
            _directory: directory,
            _serving: serving,
        }
    }

    /// The byte the host answers to these bytes; `None` when it closes without a word.
    async fn answer(host: &Host, opening: &[u8]) -> (Option<u8>, UnixStream) {
        let mut stream = UnixStream::connect(&host.path).await.unwrap();
        stream.write_all(opening).await.unwrap();
        (stream.read_u8().await.ok(), stream)
    }

    #[tokio::test]
    async fn only_the_secret_opens_the_control_stream_and_only_once() {
        let host = host();
        let wrong = Opening::new(secret(8), Purpose::Control, CONTROL_STREAM).encode();
        assert_eq!(answer(&host, &wrong).await.0, None);
        assert_eq!(answer(&host, &[0xff; OPENING_LEN]).await.0, None);
        let right = Opening::new(secret(7), Purpose::Control, CONTROL_STREAM).encode();
        let (version, _kept) = answer(&host, &right).await;
        assert_eq!(version, Some(vk_guest_proto::HIGHEST_VERSION));
        assert_eq!(answer(&host, &right).await.0, Some(REFUSED));
        host.control.await.unwrap();
    }

    /// Any process of a guest may try as often as it likes.
    #[tokio::test]
    async fn a_guest_fills_no_log_by_connections_without_the_secret() {
        let (told, host) = (Told::default(), host());
        let _collecting = tracing::subscriber::set_default(told.clone());
        let wrong = Opening::new(secret(8), Purpose::Control, CONTROL_STREAM).encode();
        for _ in 0..100 {
            assert_eq!(answer(&host, &wrong).await.0, None);
        }
        // The first, 2nd, 4th, … 64th.
        assert_eq!(told.0.load(Ordering::Relaxed), 7);
    }

    /// Counts the lines of a log.
    #[derive(Clone, Default)]
    struct Told(Arc<AtomicU64>);

    impl tracing::Subscriber for Told {
        fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
            *of.level() <= tracing::Level::WARN && of.target().starts_with("vk_vm")
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test]
    async fn a_stream_that_was_not_asked_for_is_refused() {
        let host = host();
        let opening = |purpose, stream| Opening::new(secret(7), purpose, stream).encode();
        assert_eq!(
            answer(&host, &opening(Purpose::Exec, 5)).await.0,
            Some(REFUSED)
        );
        let waiting = host.expected.expect(5, Purpose::Exec);
        assert_eq!(
            answer(&host, &opening(Purpose::TarIn, 5)).await.0,
            Some(REFUSED)
        );
        let (version, _kept) = answer(&host, &opening(Purpose::Exec, 5)).await;
        assert_eq!(version, Some(vk_guest_proto::HIGHEST_VERSION));
        waiting.await.unwrap();
        let _waiting = host.expected.expect(6, Purpose::Exec);
        host.expected.forget(6);
        assert_eq!(
            answer(&host, &opening(Purpose::Exec, 6)).await.0,
            Some(REFUSED)
        );
    }

    #[tokio::test]
    async fn a_stranger_that_says_nothing_does_not_keep_the_agent_out() {
        let host = host();
        let silent = UnixStream::connect(&host.path).await.unwrap();
        let right = Opening::new(secret(7), Purpose::Control, CONTROL_STREAM).encode();
        assert_eq!(
            answer(&host, &right).await.0,
            Some(vk_guest_proto::HIGHEST_VERSION)
        );
        drop(silent);
    }
}
