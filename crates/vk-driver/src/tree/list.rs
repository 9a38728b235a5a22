//! What an image was made of: a line for each of its files, by which a later tree tells what differs.

use std::cmp::Ordering;
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The first record: its form.
const FORM: &[u8] = b"vk-tree 1";
/// The last one: a list without it was cut off.
const END: &[u8] = b"end";
/// No record is longer; a path has at most 4,096 bytes.
const RECORD_MAX: u64 = 8 << 10;
/// A file that changed this shortly before the list was begun could change again within the same tick
/// of the file system's clock, and look the same.
const TICK: Duration = Duration::from_millis(100);

/// What a file of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dir,
    File,
    Symlink,
}

impl Kind {
    /// None for what no image of sources holds.
    pub(super) fn of(meta: &Metadata) -> Option<Kind> {
        match meta.file_type() {
            of if of.is_dir() => Some(Kind::Dir),
            of if of.is_file() => Some(Kind::File),
            of if of.is_symlink() => Some(Kind::Symlink),
            _ => None,
        }
    }

    const fn letter(self) -> char {
        match self {
            Kind::Dir => 'd',
            Kind::File => 'f',
            Kind::Symlink => 'l',
        }
    }
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// From the tree's root, without a slash at its begin.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// It may have changed since without looking different.
    unsure: bool,
    mode: u32,
    size: u64,
    mtime: (i64, i64),
    inode: u64,
}

impl Entry {
    pub(super) fn new(path: Vec<u8>, kind: Kind, meta: &Metadata) -> Entry {
        Entry {
            path,
            kind,
            unsure: false,
            mode: meta.mode() & 0o7777,
            size: meta.len(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            inode: meta.ino(),
        }
    }

    /// Whether this, which a list tells of, is still what `now` is. A directory is by its mode: what
    /// is in it stands for itself.
    pub(super) fn is_still(&self, now: &Entry) -> bool {
        if self.kind != now.kind || self.mode != now.mode {
            return false;
        }
        let same = (self.size, self.mtime, self.inode) == (now.size, now.mtime, now.inode);
        self.kind == Kind::Dir || (same && !self.unsure)
    }

    /// Bytes of its content.
    pub(super) fn size(&self) -> u64 {
        match self.kind {
            Kind::File => self.size,
            Kind::Dir | Kind::Symlink => 0,
        }
    }

    fn read(record: &[u8]) -> Option<Entry> {
        let mut parts = record.splitn(7, |byte| *byte == b' ');
        let mut part = || parts.next();
        let kind = match part()? {
            b"d" => Kind::Dir,
            b"f" => Kind::File,
            b"l" => Kind::Symlink,
            _ => return None,
        };
        let mut text = || part().and_then(|part| std::str::from_utf8(part).ok());
        let unsure = text()? == "?";
        let mode = u32::from_str_radix(text()?, 8).ok()?;
        let size = text()?.parse().ok()?;
        let (secs, nanos) = text()?.split_once('.')?;
        let mtime = (secs.parse().ok()?, nanos.parse().ok()?);
        let inode = text()?.parse().ok()?;
        let path = part()?.to_vec();
        Some(Entry {
            path,
            kind,
            unsure,
            mode,
            size,
            mtime,
            inode,
        })
    }
}

/// The order of a walk: a directory before what is in it, that before what comes after it.
pub(super) fn order(one: &[u8], other: &[u8]) -> Ordering {
    let low = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(low).cmp(other.iter().map(low))
}

/// Writes a list, in a walk's order.
pub(super) struct Writer {
    out: BufWriter<File>,
    /// Nanoseconds of the clock from which on a change is too young to be told.
    young: i128,
}

impl Writer {
    /// Begins one, before the tree is looked at.
    pub(super) fn new(path: &Path) -> std::io::Result<Writer> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(FORM)?;
        out.write_all(&[0])?;
        let young = SystemTime::now().duration_since(UNIX_EPOCH);
        let young = young.unwrap_or_default().saturating_sub(TICK);
        let young = i128::try_from(young.as_nanos()).unwrap_or(i128::MAX);
        Ok(Writer { out, young })
    }

    /// Adds a file as it was when it was looked at.
    pub(super) fn add(&mut self, entry: &Entry, meta: &Metadata) -> std::io::Result<()> {
        let changed = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
        let sure = if changed >= self.young { '?' } else { '-' };
        write!(
            self.out,
            "{} {sure} {:o} {} {}.{} {} ",
            entry.kind.letter(),
            entry.mode,
            entry.size,
            entry.mtime.0,
            entry.mtime.1,
            entry.inode,
        )?;
        self.out.write_all(&entry.path)?;
        self.out.write_all(&[0])
    }

    /// Ends it: only then is it one.
    pub(super) fn finish(mut self) -> std::io::Result<()> {
        self.out.write_all(END)?;
        self.out.write_all(&[0])?;
        self.out.flush()
    }
}

/// Reads a list.
pub(super) struct Reader {
    records: BufReader<File>,
    ended: bool,
}

impl Reader {
    pub(super) fn open(path: &Path) -> std::io::Result<Reader> {
        let mut reader = Reader {
            records: BufReader::new(File::open(path)?),
            ended: false,
        };
        match reader.record()? {
            form if form == FORM => Ok(reader),
            _ => Err(damaged()),
        }
    }

    fn record(&mut self) -> std::io::Result<Vec<u8>> {
        use std::io::Read as _;
        let mut record = Vec::new();
        let mut bounded = (&mut self.records).take(RECORD_MAX);
        bounded.read_until(0, &mut record)?;
        match record.pop() {
            Some(0) => Ok(record),
            _ => Err(damaged()),
        }
    }

    /// The next file; none at the end.
    pub(super) fn next(&mut self) -> std::io::Result<Option<Entry>> {
        if self.ended {
            return Ok(None);
        }
        let record = self.record()?;
        if record == END {
            self.ended = true;
            return Ok(None);
        }
        Entry::read(&record).map(Some).ok_or_else(damaged)
    }
}

fn damaged() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, "the list is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_a_walks() {
        let mut paths = ["b", "a-b", "a/x", "a", "a.b", "a/x/y", "a/x-y"];
        paths.sort_by(|one, other| order(one.as_bytes(), other.as_bytes()));
        assert_eq!(paths, ["a", "a/x", "a/x/y", "a/x-y", "a-b", "a.b", "b"]);
    }

    #[test]
    fn a_list_comes_back_as_it_was_and_one_cut_off_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (file, list) = (dir.path().join("odd \n name"), dir.path().join("list"));
        std::fs::write(&file, "x").unwrap();
        let old = SystemTime::now() - Duration::from_secs(9);
        let meta = {
            let file = File::options().write(true).open(&file).unwrap();
            file.set_modified(old).unwrap();
            file.metadata().unwrap()
        };
        let entry = Entry::new(b"odd \n name".to_vec(), Kind::File, &meta);
        let mut writer = Writer::new(&list).unwrap();
        writer.young = i128::MAX;
        writer.add(&entry, &meta).unwrap();
        writer.finish().unwrap();
        let mut reader = Reader::open(&list).unwrap();
        let read = reader.next().unwrap().unwrap();
        assert_eq!(read, entry);
        assert!(read.is_still(&entry));
        assert_eq!(reader.next().unwrap(), None);
        let whole = std::fs::read(&list).unwrap();
        std::fs::write(&list, &whole[..whole.len() - 4]).unwrap();
        let mut reader = Reader::open(&list).unwrap();
        reader.next().unwrap();
        reader.next().unwrap_err();
    }

    #[test]
    fn a_file_that_changed_just_before_the_list_is_never_taken_for_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (file, list) = (dir.path().join("file"), dir.path().join("list"));
        std::fs::write(&file, "x").unwrap();
        let mut writer = Writer::new(&list).unwrap();
        let meta = std::fs::metadata(&file).unwrap();
        let entry = Entry::new(b"file".to_vec(), Kind::File, &meta);
        writer.add(&entry, &meta).unwrap();
        writer.finish().unwrap();
        let read = Reader::open(&list).unwrap().next().unwrap().unwrap();
        assert!(!read.is_still(&entry));
    }
}
