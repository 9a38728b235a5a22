//! An earlier job's zip as a tar for the guest. GitLab hands it out as some job made it: hostile.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use tar::{Builder, EntryType, Header};
use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config};

use super::claims::claims_too_many;

/// Most entries of one archive.
pub(crate) const ENTRIES_MAX: u32 = 500_000;
/// Most bytes of an archive's own directory, which is read whole into memory.
pub(super) const DIRECTORY_MAX: u64 = 64 << 20;
/// Longest link target.
const TARGET_MAX: u64 = 4096;
/// Longest name.
const NAME_MAX: usize = 4096;

/// Why an archive was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// Not a zip (ART-17).
    #[error("it is no zip archive")]
    NotZip,
    /// More than is let in.
    #[error("it holds more than {0}")]
    TooMuch(String),
    /// An entry that leads elsewhere.
    #[error("its entry {0:?} leads out of the project's directory")]
    Escapes(String),
    /// A zip that cannot be read.
    #[error("it cannot be read: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// A disk that fails, or content that is not what the archive says.
    #[error("it cannot be unpacked: {0}")]
    Io(#[from] io::Error),
}

/// Writes the zip `from` as a tar to `to` (GUEST-05), with at most `bytes_max` of content. Names and
/// sizes are looked at before anything is written.
///
/// # Errors
/// [`UnpackError`]; what was written by then is of no use.
pub(crate) fn unpack(from: &Path, to: impl Write, bytes_max: u64) -> Result<(), UnpackError> {
    unpack_from(File::open(from)?, to, bytes_max)
}

/// The same, wherever it lies.
pub(super) fn unpack_from(
    mut input: impl Read + Seek,
    to: impl Write,
    bytes_max: u64,
) -> Result<(), UnpackError> {
    let mut magic = [0; 2];
    if input.read_exact(&mut magic).is_err() || &magic != b"PK" {
        return Err(UnpackError::NotZip);
    }
    let many = || UnpackError::TooMuch(format!("{ENTRIES_MAX} entries"));
    // Room for as many as are claimed is taken at once.
    if claims_too_many(&mut input, ENTRIES_MAX)? {
        return Err(many());
    }
    let left = Cell::new(DIRECTORY_MAX);
    let metered = Metered {
        inner: BufReader::new(input),
        left: &left,
    };
    let known = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    let opened = ZipArchive::with_config(known, metered);
    if left.get() == 0 {
        let much = format!("{} MiB of names", DIRECTORY_MAX >> 20);
        return Err(UnpackError::TooMuch(much));
    }
    let mut zip = opened?;
    // From here on every read is into a buffer of its own size.
    left.set(u64::MAX);
    if zip.len() as u64 > u64::from(ENTRIES_MAX) {
        return Err(many());
    }
    let mut sum = 0_u64;
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index)?;
        checked(entry.name_raw())?;
        sum = sum.saturating_add(entry.size());
    }
    if sum > bytes_max {
        return Err(UnpackError::TooMuch(format!("{bytes_max} bytes")));
    }
    let mut tar = Builder::new(BufWriter::new(to));
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index)?;
        let name = checked(entry.name_raw())?;
        let mut header = Header::new_gnu();
        let mode = entry.unix_mode();
        let (uid, gid) = owner(&entry.extra_data().unwrap_or_default()).unwrap_or_default();
        header.set_uid(u64::from(uid));
        header.set_gid(u64::from(gid));
        let extra = entry.extra_data().unwrap_or_default();
        header.set_mtime(modified(&extra).map_or(0, u64::from));
        if entry.is_dir() {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(mode.map_or(0o755, |mode| mode & 0o7777));
            header.set_size(0);
            append(&mut tar, &mut header, &name, io::empty())?;
        } else if mode.is_some_and(|mode| mode & 0o170_000 == 0o120_000) {
            let mut target = Vec::new();
            entry.take(TARGET_MAX + 1).read_to_end(&mut target)?;
            if target.len() as u64 > TARGET_MAX || target.contains(&0) {
                return Err(UnpackError::TooMuch("a link may name".to_owned()));
            }
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            let target = os(&target);
            tar.append_link(&mut header, os(&name), target)?;
        } else {
            let size = entry.size();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(mode.map_or(0o644, |mode| mode & 0o7777));
            header.set_size(size);
            // A content that is shorter or longer than said would shift all that follows.
            append(&mut tar, &mut header, &name, Exactly::new(&mut entry, size))?;
        }
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn append(
    tar: &mut Builder<impl Write>,
    header: &mut Header,
    name: &[u8],
    content: impl Read,
) -> Result<(), UnpackError> {
    Ok(tar.append_data(header, os(name), content)?)
}

fn os(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// A name without a way out: relative, no `..`, no empty rest.
fn checked(name: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let trimmed = name.strip_suffix(b"/").unwrap_or(name);
    let escapes = trimmed.is_empty()
        || trimmed.starts_with(b"/")
        || trimmed.contains(&0)
        || trimmed.len() > NAME_MAX
        || trimmed
            .split(|byte| *byte == b'/')
            .any(|part| part == b"..");
    if escapes {
        return Err(UnpackError::Escapes(shown()));
    }
    Ok(trimmed.to_vec())
}

/// The fields of a zip's extra data: id and content.
fn fields(mut extra: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = extra.split_at_checked(4)?;
        let [a, b, c, d] = *head else { return None };
        let (content, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([c, d])))?;
        extra = rest;
        Some((u16::from_le_bytes([a, b]), content))
    })
}

fn owner(extra: &[u8]) -> Option<(u32, u32)> {
    let (_, content) = fields(extra).find(|(id, _)| *id == 0x7875)?;
    match *content {
        [1, 4, a, b, c, d, 4, e, f, g, h] => Some((
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        )),
        _ => None,
    }
}

fn modified(extra: &[u8]) -> Option<u32> {
    let (_, content) = fields(extra).find(|(id, _)| *id == 0x5455)?;
    match *content {
        [flags, a, b, c, d, ..] if flags & 1 == 1 => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// Reads until a budget is used up.
struct Metered<'a, R> {
    inner: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let within = buffer.get_mut(..most).unwrap_or_default();
        let read = self.inner.read(within)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

impl<R: Seek> Seek for Metered<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Gives exactly so many bytes or fails.
struct Exactly<R> {
    inner: R,
    left: u64,
}

impl<R> Exactly<R> {
    fn new(inner: R, size: u64) -> Exactly<R> {
        Exactly { inner, left: size }
    }
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if read as u64 > self.left {
            return Err(io::Error::other("an entry is longer than the archive says"));
        }
        self.left -= read as u64;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other(
                "an entry is shorter than the archive says",
            ));
        }
        Ok(read)
    }
}
