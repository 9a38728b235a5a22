//! A job's output: everything goes through its trace into one file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use vk_trace::{Kind, Line, Origin, ReadTime, Secrets, Section, Trace, TraceError};

use crate::context::StateSender;
use crate::error::DriverError;
use crate::transfer_log::{Level, entry};

/// Only bytes that left the trace are ever in the file.
pub(crate) struct Output {
    inner: Mutex<Inner>,
    failing: Notify,
    state: StateSender,
    /// For what is said of the job elsewhere.
    prefixes: Vec<String>,
    secrets: Secrets,
}

struct Inner {
    /// None once masking failed: nothing more comes out (STAGE-34).
    trace: Option<Trace>,
    file: File,
    len: u64,
    /// Masking or writing failed: only the closing lines may still come out.
    failed: Option<String>,
    /// Room on the disk for the closing lines and the result, given back when they are written.
    spare: Spare,
}

/// Bytes that are kept from others until the job needs them to say how it ended.
const SPARE: usize = 64 << 10;

/// A file that only takes up room.
struct Spare(PathBuf);

impl Spare {
    /// Beside the output. Where it cannot be made there is no room in any case.
    fn beside(output: &Path) -> Spare {
        let path = output.with_file_name("spare");
        if let Err(error) = std::fs::write(&path, vec![0; SPARE]) {
            tracing::warn!(%error, path = %path.display(), "no room is kept for the job's last lines");
        }
        Spare(path)
    }

    fn give_back(&self) {
        // There may be none.
        let _ = std::fs::remove_file(&self.0);
    }
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
            let options = options.create(true).truncate(false).read(true);
            let options = options.write(true).mode(0o600);
            let file = options.open(path)?;
            let len = file.metadata()?.len();
            Ok((file, len))
        };
        let (file, len) = open().map_err(DriverError::file("open", path))?;
        let (trace, failed) = match Trace::new(settings, secrets.clone()) {
            Ok(trace) => (Some(trace), None),
            Err(error) => (None, Some(masking(&error))),
        };
        let inner = Inner {
            trace,
            file,
            len,
            failed,
            spare: Spare::beside(path),
        };
        state.send_modify(|state| state.output_len = len);
        Ok(Output {
            inner: Mutex::new(inner),
            failing: Notify::new(),
            state,
            prefixes: settings.token_prefixes.clone(),
            secrets,
        })
    }

    /// A text of what the job asked for, as its output would show it: for its result, which others
    /// see and keep (STAGE-24).
    pub(crate) fn masked(&self, text: &str) -> String {
        let settings = vk_trace::Settings {
            timestamps: false,
            token_prefixes: self.prefixes.clone(),
            ..vk_trace::Settings::default()
        };
        let mut out = Vec::new();
        let masked = Trace::new(&settings, self.secrets.clone()).and_then(|mut trace| {
            trace.write(Origin::Node, Kind::Stdout, now(), text.as_bytes(), &mut out)?;
            trace.close(Origin::Node, &mut out)
        });
        match masked {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(error) => masking(&error),
        }
    }

    /// Why nothing comes out any more, if so.
    pub(crate) fn failed(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// Waits until nothing comes out any more.
    pub(crate) async fn failing(&self) {
        self.failing.notified().await;
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

    /// The end: the closing line comes out whole, also where writing failed before, then all is
    /// synced. Gives the file's length.
    pub(crate) fn finish(&self, path: &Path, closing: &[Line<'_>]) -> Result<u64, DriverError> {
        let mut inner = self.lock();
        inner.spare.give_back();
        if inner.trace.is_some() {
            inner
                .close(closing)
                .map_err(DriverError::file("write", path))?;
        }
        inner
            .file
            .sync_all()
            .map_err(DriverError::file("sync", path))?;
        let len = inner.len;
        drop(inner);
        self.state.send_modify(|state| state.output_len = len);
        Ok(len)
    }

    fn with(&self, work: impl FnOnce(&mut Trace, &mut Vec<u8>) -> Result<(), TraceError>) {
        let mut inner = self.lock();
        if inner.failed.is_some() {
            return;
        }
        let Some(trace) = inner.trace.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        let worked = work(trace, &mut out);
        if let Err(error) = worked {
            inner.trace = None;
            inner.fail(masking(&error));
        } else if let Err(error) = inner.append(&out) {
            inner.fail(format!("the job's output cannot be written: {error}"));
        }
        let (len, failed) = (inner.len, inner.failed.is_some());
        drop(inner);
        if failed {
            self.failing.notify_one();
        }
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
        // By place: a write that failed in its middle has moved on.
        if let Err(error) = self.file.write_all_at(bytes, self.len) {
            // What was written of it in part was never told of.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Writes the closing lines. Where output was lost before they begin a line of their own.
    fn close(&mut self, closing: &[Line<'_>]) -> io::Result<()> {
        let mut out = Vec::new();
        if let Some(trace) = &mut self.trace
            && let Err(error) = trace.finish(now(), closing, &mut out)
        {
            self.trace = None;
            self.fail(masking(&error));
            return Ok(());
        }
        if self.failed.is_some() && self.is_mid_line()? {
            out.insert(0, b'\n');
        }
        self.append(&out)
    }

    fn is_mid_line(&self) -> io::Result<bool> {
        let Some(last) = self.len.checked_sub(1) else {
            return Ok(false);
        };
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, last)?;
        Ok(byte != *b"\n")
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

    #[test]
    fn what_cannot_be_written_is_said_and_the_closing_lines_come_out_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output");
        let (state, watch) = tokio::sync::watch::channel(JobState::default());
        let settings = vk_trace::Settings::default();
        let output = Output::open(&path, &settings, Secrets::new(), state).unwrap();
        let spare = path.with_file_name("spare");
        assert_eq!(std::fs::metadata(&spare).unwrap().len(), SPARE as u64);
        output.say("one\nhalf a l");
        output.line(Line::Plain("a line"));
        let good = std::fs::read(&path).unwrap();
        // A file that is not open for writing stands for a disk that is full.
        let real = std::mem::replace(&mut output.lock().file, File::open(&path).unwrap());
        output.say("lost\n");
        assert!(output.failed().unwrap().contains("cannot be written"));
        output.lock().file = real;
        output.say("not after what was lost\n");
        let closing = [Line::Error("Job failed: no room")];
        let len = output.finish(&path, &closing).unwrap();
        let all = std::fs::read(&path).unwrap();
        assert_eq!(watch.borrow().output_len, len);
        assert!(all.starts_with(&good));
        let rest = String::from_utf8(all[good.len()..].to_vec()).unwrap();
        assert!(rest.contains("Job failed: no room"), "{rest}");
        assert!(!rest.contains("lost"), "{rest}");
        assert!(!spare.exists());
    }
}
