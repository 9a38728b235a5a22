//! An image laid out as files, by anyone: owners are the caller's, devices are left out.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat,
};
use rustix::io::Errno;

use crate::limits::Limits;
use crate::read::{Extent, Reader, StoredInode, damaged};

/// What was laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Names made.
    pub entries: u64,
    /// Devices, which an ordinary user cannot make, left out.
    pub devices: u64,
}

/// Lays an image out below `target`, which must not exist: directories, files with their holes,
/// links of both kinds, pipes, times, modes, and attributes of the `user` name space as far as
/// the file system takes them. Files belong to
/// the caller, so setuid and setgid bits are left out, and directories can always be listed and
/// emptied by him.
///
/// `fsck.erofs --extract` of erofs-utils 1.5 leaves holes out of files, which makes them shorter;
/// hence this.
///
/// # Errors
/// An image that cannot be read or that is damaged, a target that exists or cannot be written. What
/// was made so far stays.
pub fn extract(image: &File, target: &Path) -> io::Result<Extracted> {
    let reader = Reader::open(image)?;
    let mut extraction = Extraction {
        image,
        reader,
        seen: HashMap::new(),
        directories: Vec::new(),
        done: Extracted::default(),
    };
    extraction.run(target)?;
    Ok(extraction.done)
}

struct Extraction<'a> {
    image: &'a File,
    reader: Reader<'a>,
    /// The first name of each inode that has several.
    seen: HashMap<u64, PathBuf>,
    /// Made so far, finished last: their times change with every name in them.
    directories: Vec<(PathBuf, StoredInode)>,
    done: Extracted,
}

impl Extraction<'_> {
    fn run(&mut self, target: &Path) -> io::Result<()> {
        let root = self.reader.root;
        let mut open = vec![(target.to_owned(), root, 0)];
        let limits = Limits::default();
        while let Some((path, nid, depth)) = open.pop() {
            let inode = self.reader.inode(nid)?;
            if kind(&inode) != FileType::Directory {
                self.make(&path, &inode)?;
                continue;
            }
            self.done.entries += 1;
            // A damaged image may hold itself.
            if self.done.entries > limits.entries || depth > limits.depth + 1 {
                return Err(damaged("too many directories, or too deep"));
            }
            fs::create_dir(&path)?;
            for (name, child) in self.reader.entries(&inode)? {
                open.push((path.join(OsStr::from_bytes(&name)), child, depth + 1));
            }
            self.directories.push((path, inode));
        }
        for (path, inode) in self.directories.iter().rev() {
            let mode = u32::from(inode.mode & 0o1777) | 0o700;
            finish(path, inode, Some(mode))?;
        }
        Ok(())
    }

    fn make(&mut self, path: &Path, inode: &StoredInode) -> io::Result<()> {
        if inode.links > 1 {
            if let Some(first) = self.seen.get(&inode.nid) {
                fs::hard_link(first, path)?;
                self.done.entries += 1;
                return Ok(());
            }
            self.seen.insert(inode.nid, path.to_owned());
        }
        let mode = u32::from(inode.mode & 0o777);
        match kind(inode) {
            FileType::RegularFile => {
                self.copy(path, inode)?;
                finish(path, inode, Some(mode))?;
            }
            FileType::Symlink => {
                let target = std::ffi::OsString::from_vec(self.reader.held(inode)?);
                symlink(target, path)?;
                finish(path, inode, None)?;
            }
            FileType::Fifo => {
                mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(mode), 0)?;
                finish(path, inode, Some(mode))?;
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                self.seen.remove(&inode.nid);
                self.done.devices += 1;
                return Ok(());
            }
            _ => return Err(damaged("an inode of no known type")),
        }
        self.done.entries += 1;
        Ok(())
    }

    fn copy(&self, path: &Path, inode: &StoredInode) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.set_len(inode.size)?;
        let mut buffer = vec![0; 256 << 10];
        for Extent { at, from, length } in self.reader.extents(inode)? {
            let mut done = 0;
            while done < length {
                let take = usize::try_from(length - done)
                    .unwrap_or(buffer.len())
                    .min(buffer.len());
                let part = buffer.get_mut(..take).unwrap_or_default();
                self.image.read_exact_at(part, from + done)?;
                file.write_all_at(part, at + done)?;
                done += take as u64;
            }
        }
        Ok(())
    }
}

fn kind(inode: &StoredInode) -> FileType {
    FileType::from_raw_mode(inode.mode.into())
}

/// Attributes, mode and time: the time last, since all else changes it.
fn finish(path: &Path, inode: &StoredInode, mode: Option<u32>) -> io::Result<()> {
    for (name, value) in inode
        .xattrs
        .iter()
        .filter(|(name, _)| name.starts_with(b"user."))
    {
        match lsetxattr(path, name.as_slice(), value, XattrFlags::empty()) {
            // Not every file system has them, nor every kind of inode, nor room for many.
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(mode) = mode {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    let time = Timespec {
        tv_sec: inode.mtime.0,
        tv_nsec: inode.mtime.1.into(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
