//! The journal: the core's records in one file, appended in batches that share a sync.
//!
//! A frame is `VKJ1`, the payload's length, the file's length that was known to be synced when the
//! frame was written, a CRC of all that, and one record as JSON; numbers are little-endian. Where a
//! crash tore what was never synced, the journal ends at the last whole frame before it. A frame
//! behind the tear that knows the torn place as synced proves damage instead: such a journal is
//! refused, since a job could run twice by it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use vk_node_core::Record;

use crate::durable::{FileError, read_bounded, sync_dir};

const MAGIC: &[u8; 4] = b"VKJ1";
const HEAD: usize = 20;
/// A record's JSON at most; the largest, a result, has a message of 4096 characters.
const RECORD_BYTES: usize = 1 << 20;
/// A journal is compacted long before it is so large.
const FILE_BYTES: u64 = 1 << 30;

/// A journal that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was durable is no more.
    #[error(
        "{} is damaged at byte {at} ({why}); records after that were durable, so jobs could run \
         twice: restore the file, or remove it together with the jobs beside it", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What is wrong.
        why: String,
    },
    /// A record is too large to be written.
    #[error("a record of {0} bytes is larger than a journal takes")]
    TooLarge(usize),
}

/// The file, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// What is known to be on the disk.
    synced: u64,
}

impl Journal {
    /// Opens the journal, made where it is missing, and reads what is in it. A torn end is cut off.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open(path: &Path) -> Result<(Journal, Vec<Record>), JournalError> {
        let fresh = !path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(FileError::of("open", path))?;
        if fresh {
            sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        }
        let mut journal = Journal {
            path: path.to_owned(),
            file,
            synced: 0,
        };
        let bytes = journal.bytes(FILE_BYTES)?;
        let (records, whole) = read(path, &bytes)?;
        if whole < bytes.len() as u64 {
            tracing::warn!(
                journal = %path.display(), at = whole, lost = bytes.len() as u64 - whole,
                "the journal's end was torn by a crash and is cut off: nothing in it was promised"
            );
        }
        journal.cut(whole)?;
        Ok((journal, records))
    }

    /// What is in a journal, for whoever only looks: nothing is made, and a torn end stays. None
    /// where there is no journal.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn look(path: &Path) -> Result<Vec<Record>, JournalError> {
        let bytes = read_bounded(path, FILE_BYTES)?.unwrap_or_default();
        Ok(read(path, &bytes)?.0)
    }

    /// What is durable, read again; for after a failed write.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn durable(&mut self) -> Result<Vec<Record>, JournalError> {
        let bytes = self.bytes(self.synced)?;
        Ok(read(&self.path, &bytes)?.0)
    }

    /// Bytes that are durable.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.synced
    }

    /// Whether nothing is durable.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.synced == 0
    }

    /// Appends records and syncs them. After an error nothing of them counts: see
    /// [`Journal::mend`].
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let bytes = frames(records, self.synced)?;
        let written = (|| {
            self.file.seek(SeekFrom::Start(self.synced))?;
            self.file.write_all(&bytes)?;
            self.file.sync_data()
        })();
        written.map_err(FileError::of("write", &self.path))?;
        self.synced += bytes.len() as u64;
        Ok(())
    }

    /// After a failed write: cuts off what is not durable, and tries whether the disk takes a
    /// write again.
    ///
    /// # Errors
    /// It does not.
    pub fn mend(&mut self) -> Result<(), JournalError> {
        self.cut(self.synced)?;
        let probe = self.path.with_extension("probe");
        let tried = File::create(&probe).and_then(|mut file| {
            file.write_all(&[0; 65_536])?;
            file.sync_all()
        });
        // Left behind it is overwritten by the next probe.
        let _ = fs::remove_file(&probe);
        Ok(tried.map_err(FileError::of("write", &probe))?)
    }

    /// Puts these records in the place of all. After an error the journal is as it was.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn replace(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let fresh = self.path.with_extension("new");
        let bytes = frames(records, 0)?;
        let written = (|| {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&fresh, &self.path)?;
            Ok(file)
        })();
        let file = written.map_err(|error| {
            let _ = fs::remove_file(&fresh);
            FileError::of("write", &fresh)(error)
        })?;
        self.file = file;
        self.synced = bytes.len() as u64;
        Ok(sync_dir(self.path.parent().unwrap_or(Path::new(".")))?)
    }

    fn cut(&mut self, len: u64) -> Result<(), JournalError> {
        let cut = self.file.set_len(len).and_then(|()| self.file.sync_all());
        cut.map_err(FileError::of("cut", &self.path))?;
        self.synced = len;
        Ok(())
    }

    fn bytes(&mut self, most: u64) -> Result<Vec<u8>, JournalError> {
        let mut bytes = Vec::new();
        let read = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&self.file).take(most).read_to_end(&mut bytes));
        read.map_err(FileError::of("read", &self.path))?;
        Ok(bytes)
    }
}

fn frames(records: &[Record], synced: u64) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::new();
    for record in records {
        let json = serde_json::to_vec(record).map_err(|_| JournalError::TooLarge(0))?;
        if json.len() > RECORD_BYTES {
            return Err(JournalError::TooLarge(json.len()));
        }
        let len = u32::try_from(json.len()).map_err(|_| JournalError::TooLarge(json.len()))?;
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&synced.to_le_bytes());
        bytes.extend_from_slice(&crc(len, synced, &json).to_le_bytes());
        bytes.extend_from_slice(&json);
    }
    Ok(bytes)
}

fn crc(len: u32, synced: u64, payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&len.to_le_bytes());
    crc.update(&synced.to_le_bytes());
    crc.update(payload);
    crc.finalize()
}

struct Frame<'a> {
    synced: u64,
    payload: &'a [u8],
    len: usize,
}

/// The frame at the start of `bytes`, where a whole one stands there.
fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (synced, rest) = rest.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len);
    let synced = u64::from_le_bytes(*synced);
    let payload = rest.get(..usize::try_from(len).ok()?)?;
    let fits = magic == MAGIC
        && payload.len() <= RECORD_BYTES
        && crc(len, synced, payload) == u32::from_le_bytes(*sum);
    fits.then(|| Frame {
        synced,
        payload,
        len: HEAD + payload.len(),
    })
}

/// The records, and how many bytes of whole frames they take.
fn read(path: &Path, bytes: &[u8]) -> Result<(Vec<Record>, u64), JournalError> {
    let mut records = Vec::new();
    let mut at = 0;
    let damaged = |at: usize, why: String| JournalError::Damaged {
        path: path.to_owned(),
        at: at as u64,
        why,
    };
    while let Some(frame) = bytes.get(at..).and_then(frame) {
        let record = serde_json::from_slice(frame.payload).map_err(|why| {
            let why = format!("a whole record makes no sense, or is of a later release: {why}");
            damaged(at, why)
        })?;
        records.push(record);
        at += frame.len;
    }
    if was_synced(bytes, at) {
        return Err(damaged(at, "no whole record stands there".to_owned()));
    }
    Ok((records, at as u64))
}

/// Whether a whole frame behind `at` knows more than `at` bytes as synced.
fn was_synced(bytes: &[u8], at: usize) -> bool {
    let behind = bytes.get(at..).unwrap_or_default();
    let starts = behind
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, window)| window == MAGIC);
    let mut frames = starts.filter_map(|(start, _)| behind.get(start..).and_then(frame));
    frames.any(|frame| frame.synced > at as u64)
}

#[cfg(test)]
mod tests;
