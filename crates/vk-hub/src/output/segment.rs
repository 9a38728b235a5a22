//! One segment: frames of (job, offset, length, CRC, bytes), written behind one another.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vk_hub_proto::JobId;

/// Bytes before a frame's own: job, offset, length, CRC-32 over all of these and the bytes.
const HEAD: usize = 16 + 8 + 4 + 4;
/// No frame is larger: a chunk of a session message.
const LARGEST: u32 = 1024 * 1024;

/// Where a piece of a job's output lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) job: JobId,
    /// In the job's output.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Of the bytes, in the segment.
    pub(crate) at: u64,
}

/// A segment's file, open for reading and appending.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) len: u64,
}

impl Segment {
    /// Makes a new segment.
    pub(crate) fn create(path: PathBuf) -> io::Result<Segment> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Segment { path, file, len: 0 })
    }

    /// Opens a segment and finds its whole frames; what follows them was being written when the
    /// hub died, was never acked, and is cut off.
    pub(crate) fn open(path: PathBuf) -> io::Result<(Segment, Vec<Frame>)> {
        let file = OpenOptions::new().read(true).append(true).open(&path)?;
        let (frames, len) = scan(&file)?;
        let found = file.metadata()?.len();
        if found > len {
            let (path, cut) = (path.display(), found - len);
            tracing::warn!(%path, cut, "the end of an output segment is no whole frame: it was cut");
        }
        file.set_len(len)?;
        file.sync_all()?;
        Ok((Segment { path, file, len }, frames))
    }

    /// Appends a frame.
    pub(crate) fn append(&mut self, job: JobId, offset: u64, bytes: &[u8]) -> io::Result<Frame> {
        let len = u32::try_from(bytes.len())
            .ok()
            .filter(|len| *len <= LARGEST);
        let len = len.ok_or_else(|| io::Error::other("a piece of output is too large"))?;
        let mut frame = Vec::with_capacity(HEAD + bytes.len());
        frame.extend_from_slice(job.as_bytes());
        frame.extend_from_slice(&offset.to_be_bytes());
        frame.extend_from_slice(&len.to_be_bytes());
        let crc = checksum(&frame, bytes);
        frame.extend_from_slice(&crc.to_be_bytes());
        frame.extend_from_slice(bytes);
        if let Err(error) = self.file.write_all(&frame) {
            // Half a frame must not stand before a whole one.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        let at = self.len + HEAD as u64;
        self.len += frame.len() as u64;
        Ok(Frame {
            job,
            offset,
            len,
            at,
        })
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Reads bytes that a frame says are there.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize()
}

/// The whole frames of a file, and where they end.
fn scan(file: &File) -> io::Result<(Vec<Frame>, u64)> {
    let mut reader = BufReader::with_capacity(1 << 20, file.try_clone()?);
    io::Seek::seek(&mut reader, io::SeekFrom::Start(0))?;
    let mut frames = Vec::new();
    let mut end = 0;
    while let Some(frame) = next(&mut reader, end)? {
        end = frame.at + u64::from(frame.len);
        frames.push(frame);
    }
    Ok((frames, end))
}

fn next(reader: &mut impl Read, start: u64) -> io::Result<Option<Frame>> {
    let (mut job, mut offset, mut len, mut crc) = ([0; 16], [0; 8], [0; 4], [0; 4]);
    for part in [&mut job[..], &mut offset, &mut len, &mut crc] {
        if !filled(reader, part)? {
            return Ok(None);
        }
    }
    let size = u32::from_be_bytes(len);
    if size > LARGEST {
        return Ok(None);
    }
    let mut bytes = vec![0; size as usize];
    if !filled(reader, &mut bytes)? {
        return Ok(None);
    }
    let head = [&job[..], &offset, &len].concat();
    if checksum(&head, &bytes) != u32::from_be_bytes(crc) {
        return Ok(None);
    }
    Ok(Some(Frame {
        job: JobId::from_bytes(job),
        offset: u64::from_be_bytes(offset),
        len: size,
        at: start + HEAD as u64,
    }))
}

/// Fills the buffer; false where the file ends before.
fn filled(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The number in a segment's name; none where it is no segment's.
pub(crate) fn number(path: &Path) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_suffix(".seg")?
        .parse()
        .ok()
}
