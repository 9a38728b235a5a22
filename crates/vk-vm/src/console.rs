//! What a guest's console and a VM's programs say: kept, bounded, in memory and in a file.
//!
//! The guest's root may write without end: the file is two segments, the older dropped when the
//! newer is full. What is shown of it holds no control characters a terminal would obey.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// Bytes of one segment in the file; there are two.
const SEGMENT: usize = 256 * 1024;
/// Bytes kept in memory.
const MEMORY: usize = 64 * 1024;
/// Bytes of a console's tail shown in an error.
const TAIL: usize = 4096;
/// A kernel's last words come before a trace that may be longer than the tail.
const HEADLINE: &str = "Kernel panic";

/// The last bytes of what somebody says.
#[derive(Debug, Default)]
pub(crate) struct Console {
    kept: Mutex<Kept>,
    whole: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Kept {
    memory: Vec<u8>,
    file: Option<Segments>,
}

/// The newer of two files, and how much is in it.
#[derive(Debug)]
struct Segments {
    path: PathBuf,
    newer: File,
    written: usize,
}

impl Console {
    /// A console whose newer segment is `path`, and whose older one stands beside it with the
    /// ending `.1`.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let newer = segment(&path)?;
        let file = Some(Segments {
            path,
            newer,
            written: 0,
        });
        let kept = Mutex::new(Kept {
            memory: Vec::new(),
            file,
        });
        Ok(Self {
            kept,
            whole: watch::Sender::default(),
        })
    }

    /// Takes everything from `from` until it ends or breaks.
    pub(crate) async fn record(&self, mut from: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8192];
        loop {
            match from.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(length) => self.take(chunk.get(..length).unwrap_or_default()),
            }
        }
        self.whole.send_replace(true);
    }

    /// Waits until everything there was to say has been taken.
    pub(crate) async fn whole(&self) {
        let _ = self.whole.subscribe().wait_for(|whole| *whole).await;
    }

    fn take(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.memory.extend_from_slice(bytes);
        if kept.memory.len() > 2 * MEMORY {
            let surplus = kept.memory.len() - MEMORY;
            kept.memory.drain(..surplus);
        }
        // A full disk must not end the VM whose console it is: what is in memory still serves.
        if let Some(file) = &mut kept.file {
            let _ = file.write(bytes);
        }
    }

    /// The last lines, as text that is safe to show.
    pub(crate) fn tail(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let start = kept.memory.len().saturating_sub(TAIL);
        let text = shown(kept.memory.get(start..).unwrap_or_default());
        // The first line is cut unless everything fits.
        let whole = if start == 0 {
            &text[..]
        } else {
            text.split_once('\n').map_or("", |t| t.1)
        };
        let before = shown(kept.memory.get(..start).unwrap_or_default());
        match before.lines().rfind(|line| line.contains(HEADLINE)) {
            Some(headline) => format!("{headline}\n[…]\n{}", whole.trim()),
            None => whole.trim().to_owned(),
        }
    }

    /// Whether any of these stands in what is kept.
    pub(crate) fn mentions(&self, any: &[&str]) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.memory);
        any.iter().any(|word| text.contains(word))
    }
}

impl Segments {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(SEGMENT) {
            if self.written + chunk.len() > SEGMENT {
                fs::rename(&self.path, older(&self.path))?;
                self.newer = segment(&self.path)?;
                self.written = 0;
            }
            self.newer.write_all(chunk)?;
            self.written += chunk.len();
        }
        Ok(())
    }
}

fn segment(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

fn older(path: &Path) -> PathBuf {
    let mut older = path.as_os_str().to_owned();
    older.push(".1");
    PathBuf::from(older)
}

/// Bytes as text without control characters but line feeds and tabs.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let keeps = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    String::from_utf8_lossy(bytes)
        .chars()
        .filter(keeps)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(directory: &Path) -> Console {
        Console::create(directory.join("console.log")).unwrap()
    }

    #[tokio::test]
    async fn a_console_without_end_keeps_its_last_bytes_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let console = console(directory.path());
        let line = [b'x'; 1023];
        for number in 0..2000 {
            console.record(&[&line[..], b"\n"].concat()[..]).await;
            console.record(format!("line {number}\n").as_bytes()).await;
        }
        let size = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
        assert!(size("console.log") <= SEGMENT as u64);
        assert!(size("console.log.1") <= SEGMENT as u64);
        assert!(console.tail().ends_with("line 1999"), "{}", console.tail());
        assert!(console.tail().len() <= TAIL);
        assert!(console.kept.lock().unwrap().memory.len() <= 2 * MEMORY);
    }

    #[tokio::test]
    async fn a_panic_is_shown_however_long_the_trace_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let console = console(directory.path());
        console
            .record(&b"fine\nKernel panic - not syncing: reason\n"[..])
            .await;
        console
            .record("  some_function+0x1/0x2\n".repeat(1000).as_bytes())
            .await;
        let tail = console.tail();
        assert!(
            tail.starts_with("Kernel panic - not syncing: reason\n"),
            "{tail}"
        );
        assert!(tail.ends_with("some_function+0x1/0x2"), "{tail}");
    }

    #[tokio::test]
    async fn what_a_terminal_would_obey_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let console = console(directory.path());
        console
            .record(&b"\x1b[2Jpanic\r\n\x07\xffnot syncing"[..])
            .await;
        assert_eq!(console.tail(), "[2Jpanic\n\u{fffd}not syncing");
        assert!(console.mentions(&["Out of memory", "not syncing"]));
        assert!(!console.mentions(&["Out of memory"]));
    }
}
