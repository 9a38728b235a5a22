//! A job's output: everything goes through its trace into one file.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use vk_trace::{Kind, Line, Origin, ReadTime, Secrets, Section, Trace, TraceError};

use crate::context::StateSender;
use crate::error::DriverError;
use crate::transfer_log::{Level, entry};

/// Only bytes that left the trace are ever in the file.
pub(crate) struct Output {
    inner: Mutex<Inner>,
    state: StateSender,
}

struct Inner {
    /// None once masking or writing failed: nothing more comes out (STAGE-34).
    trace: Option<Trace>,
    file: File,
    len: u64,
    failed: Option<String>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    /// Opens the file; what an earlier life wrote stays, and what follows goes behind it.
    pub(crate) fn open(
        path: &Path,
        settings: &vk_trace::Settings,
        secrets: Secrets,
        state: StateSender,
    ) -> Result<Output, DriverError> {
        let open = || {
            let mut options = OpenOptions::new();
            let options = options.create(true).truncate(false).write(true).mode(0o600);
            let mut file = options.open(path)?;
            let len = file.seek(SeekFrom::End(0))?;
            Ok((file, len))
        };
        let (file, len) = open().map_err(DriverError::file("open", path))?;
        let (trace, failed) = match Trace::new(settings, secrets) {
            Ok(trace) => (Some(trace), None),
            Err(error) => (None, Some(masking(&error))),
        };
        let inner = Inner {
            trace,
            file,
            len,
            failed,
        };
        state.send_modify(|state| state.output_len = len);
        Ok(Output {
            inner: Mutex::new(inner),
            state,
        })
    }

    /// Why nothing comes out any more, if so.
    pub(crate) fn failed(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// A line of the node's own.
    pub(crate) fn line(&self, line: Line<'_>) {
        self.with(|trace, out| trace.line(now(), line, out));
    }

    /// A section's start, with its title.
    pub(crate) fn open_section(&self, section: &Section) {
        let title = section.title("vk");
        self.with(|trace, out| trace.section_start(now(), section, out));
        self.line(Line::Title(&title));
    }

    /// A section's end: of the guest's streams, too.
    pub(crate) fn close_section(&self, section: &Section) {
        self.with(|trace, out| trace.close(Origin::Guest, out));
        self.with(|trace, out| trace.section_end(now(), section, out));
    }

    /// What a script's process wrote, or a line in its place (STAGE-39).
    pub(crate) fn guest(&self, kind: Kind, bytes: &[u8]) {
        self.with(|trace, out| trace.write(Origin::Guest, kind, now(), bytes, out));
    }

    /// A text on the scripts' stdout.
    pub(crate) fn say(&self, text: &str) {
        self.guest(Kind::Stdout, text.as_bytes());
    }

    /// An entry of the log of artifacts: on the scripts' stderr, as gitlab-runner has it.
    pub(crate) fn log(&self, level: Level, message: &str, fields: &[(&str, &str)]) {
        self.guest(Kind::Stderr, entry(level, message, fields).as_bytes());
    }

    /// The end: the closing line comes out whole, then all is synced. Gives the file's length.
    pub(crate) fn finish(&self, path: &Path, closing: &[Line<'_>]) -> Result<u64, DriverError> {
        self.with(|trace, out| trace.finish(now(), closing, out));
        let inner = self.lock();
        inner
            .file
            .sync_all()
            .map_err(DriverError::file("sync", path))?;
        Ok(inner.len)
    }

    fn with(&self, work: impl FnOnce(&mut Trace, &mut Vec<u8>) -> Result<(), TraceError>) {
        let mut inner = self.lock();
        let Some(trace) = inner.trace.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        let worked = work(trace, &mut out);
        if let Err(error) = worked {
            inner.fail(masking(&error));
        } else if let Err(error) = inner.append(&out) {
            inner.fail(format!("the job's output cannot be written: {error}"));
        }
        let len = inner.len;
        drop(inner);
        self.state.send_if_modified(|state| {
            let grew = state.output_len != len;
            state.output_len = len;
            grew
        });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // What was written of it in part was never told of.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn fail(&mut self, why: String) {
        self.trace = None;
        self.failed.get_or_insert(why);
    }
}

fn masking(error: &TraceError) -> String {
    format!("the job's output cannot be masked, so none leaves the node: {error}")
}

fn now() -> ReadTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    ReadTime::since_epoch(since.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::JobState;

    /// STAGE-34
    #[test]
    fn without_a_masker_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output");
        let mut secrets = Secrets::new();
        for n in 0..=vk_trace::MAX_PHRASES {
            secrets.masked_variable(&format!("secret-{n}"));
        }
        let (state, _) = tokio::sync::watch::channel(JobState::default());
        let output = Output::open(&path, &vk_trace::Settings::default(), secrets, state).unwrap();
        output.say("secret-1\n");
        output.line(Line::Plain("hello"));
        assert!(output.failed().unwrap().contains("cannot be masked"));
        assert_eq!(
            output
                .finish(&path, &[Line::Info("Job succeeded")])
                .unwrap(),
            0
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    /// STAGE-24, STAGE-39
    #[test]
    fn the_length_told_is_the_files_and_secrets_are_masked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output");
        let mut secrets = Secrets::new();
        secrets.masked_variable("s3cret-s3cret");
        let (state, watch) = tokio::sync::watch::channel(JobState::default());
        let output = Output::open(&path, &vk_trace::Settings::default(), secrets, state).unwrap();
        output.say("a s3cret-");
        output.say("s3cret b\n");
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.ends_with(" 01O a [MASKED] b\n"), "{written}");
        assert_eq!(watch.borrow().output_len, written.len() as u64);
    }
}
