//! The log: lines for people, or JSON, on standard error.
//!
//! Every line about a job bears its `request_id`, which is the job's alone from the first line to the
//! last, over restarts too; once the hub has the job, `hub_job` is what hub and node call it.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// What a log line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One object a line, its fields flat beside `timestamp`, `level` and `message`.
    Json,
}

/// Begins to log to standard error.
///
/// # Errors
/// The filter makes no sense, or a log was begun before.
pub(crate) fn start(filter: &str, format: Format) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("--log-level {filter:?} is no filter"))?;
    let color = std::io::stderr().is_terminal();
    let subscriber = subscriber(filter, format, color, std::io::stderr);
    tracing::subscriber::set_global_default(subscriber).context("the log cannot be set up")
}

fn subscriber<W>(
    filter: EnvFilter,
    format: Format,
    color: bool,
    writer: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(color)
        .with_writer(writer);
    match format {
        Format::Text => Box::new(builder.finish()),
        Format::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, OnceLock};

    use tracing::Dispatch;
    use tracing::subscriber::DefaultGuard;

    use super::*;

    /// What this thread logs.
    #[derive(Clone, Default)]
    pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(crate) fn start() -> (Lines, DefaultGuard) {
            Lines::formatted(Format::Text)
        }

        fn formatted(format: Format) -> (Lines, DefaultGuard) {
            // Where there is one dispatcher, whether a line is wanted at all is asked of the thread
            // that comes to it first, and that may be another test's.
            static SECOND: OnceLock<Dispatch> = OnceLock::new();
            SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::fmt().finish()));
            let lines = Lines::default();
            let filter = EnvFilter::new("info");
            let subscriber = subscriber(filter, format, false, lines.clone());
            (lines, tracing::subscriber::set_default(subscriber))
        }

        /// Those that hold this.
        pub(crate) fn with(&self, part: &str) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let lines = text.lines().filter(|line| line.contains(part));
            lines.map(str::to_owned).collect()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Lines {
        type Writer = Lines;

        fn make_writer(&self) -> Lines {
            self.clone()
        }
    }

    #[test]
    fn json_lines_have_their_fields_flat() {
        let (lines, _guard) = Lines::formatted(Format::Json);
        tracing::info!(gitlab_job = 7, "taken");
        tracing::debug!("not asked for");
        let lines = lines.with("");
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["message"], "taken");
        assert_eq!(
            (&line["level"], &line["gitlab_job"]),
            (&"INFO".into(), &7.into())
        );
        assert!(line["timestamp"].is_string());
    }

    #[test]
    fn text_lines_have_no_colour_where_nobody_sees_it() {
        let (lines, _guard) = Lines::formatted(Format::Text);
        tracing::warn!(gitlab_job = 7, "odd");
        let lines = lines.with("odd");
        assert!(
            lines[0].contains("WARN") && lines[0].contains("gitlab_job=7"),
            "{lines:?}"
        );
        assert!(!lines[0].contains('\x1b'));
    }
}
