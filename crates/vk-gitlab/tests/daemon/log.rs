//! What the daemon logs, for tests on one thread.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// Log lines of this thread, as long as it lives.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn start() -> (Log, DefaultGuard) {
        Log::from(tracing::Level::INFO)
    }

    /// Of every program's part, whatever it says.
    pub(crate) fn of_everything() -> (Log, DefaultGuard) {
        Log::from(tracing::Level::TRACE)
    }

    fn from(level: tracing::Level) -> (Log, DefaultGuard) {
        // Where there is one dispatcher, whether a line is wanted at all is asked of the thread that
        // comes to it first, and that may be another test's.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        let most = tracing::Level::TRACE;
        let second = tracing_subscriber::fmt()
            .with_max_level(most)
            .with_writer(io::sink);
        SECOND.get_or_init(|| Dispatch::new(second.finish()));
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_max_level(level)
            .with_ansi(false)
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines that hold all of these.
    pub(crate) fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let holds = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(holds).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}
