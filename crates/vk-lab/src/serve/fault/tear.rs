//! A restart as its clients see it: every connection breaks, and for a while none is taken.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Longest time in which no connection is taken.
const MAX_DOWN: Duration = Duration::from_secs(3_600);

/// Tears connections down.
#[derive(Debug, Default)]
pub(in crate::serve) struct Tear {
    count: watch::Sender<u64>,
    until: Mutex<Option<Instant>>,
}

impl Tear {
    /// Breaks every connection, held calls among them, and takes none for so long.
    pub(in crate::serve) fn all(&self, down: Duration) {
        if let Ok(mut until) = self.until.lock() {
            *until = Instant::now().checked_add(down.min(MAX_DOWN));
        }
        self.count.send_modify(|count| *count += 1);
    }

    /// How often it happened.
    pub(in crate::serve) fn count(&self) -> u64 {
        *self.count.borrow()
    }

    /// Whether a connection that comes now is refused.
    pub(in crate::serve) fn is_down(&self) -> bool {
        let until = self.until.lock().ok().and_then(|until| *until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Waits until it happens.
    pub(in crate::serve) fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut count = self.count.subscribe();
        async move {
            // The sender lives as long as the server.
            let _ = count.changed().await;
        }
    }
}
