//! A tar into a directory, and nowhere else.

use std::fs::File;
use std::io::{self, Read};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod,
    fchown, futimens, linkat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use tar::EntryType;
use vk_guest_proto::{Failure, FailureCode, NoteCode, TransferEnd};

use super::entry::Meta;
use super::format::{Item, Items};
use super::notes::Notes;
use crate::beneath::Beneath;
use crate::context::{OrFail, fail, shown};
use crate::root::Owner;

/// How an archive is extracted.
pub(super) struct Extraction<'a, 'b> {
    pub(super) root: &'a Beneath,
    pub(super) ownership: Ownership,
    pub(super) max_entries: u64,
    pub(super) max_bytes: u64,
    pub(super) notes: &'a mut Notes<'b>,
}

/// Whose the files become.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ownership {
    /// Everything is this one's.
    Of(u32, u32),
    /// As the archive says.
    AsArchived,
    /// Whoever extracts, for want of the right to give files away.
    Mine,
}

/// Content is at most this; an archive with more is stopped before the disk is full.
struct Counted {
    end: TransferEnd,
    /// Directories get their modes and times last: one may be read-only, and filling it changes
    /// its time.
    directories: Vec<(Vec<u8>, u32, (i64, u32))>,
    /// The directory of the last entry.
    parent: Option<(Vec<u8>, OwnedFd)>,
}

impl Extraction<'_, '_> {
    /// Extracts all entries.
    pub(super) fn run(mut self, from: impl Read) -> Result<TransferEnd, Failure> {
        let mut items = Items::new(from);
        let mut state = Counted {
            end: TransferEnd {
                entries: 0,
                bytes: 0,
            },
            directories: Vec::new(),
            parent: None,
        };
        while let Some(item) = items.next()? {
            state.end.entries += 1;
            if state.end.entries > self.max_entries {
                let message = format!("an archive of over {} entries", self.max_entries);
                return fail(FailureCode::TooLarge, message);
            }
            self.entry(&item, &mut items, &mut state)?;
        }
        items.finish()?;
        self.finish_directories(&state.directories)?;
        Ok(state.end)
    }

    fn entry(
        &mut self,
        item: &Item,
        items: &mut Items<impl Read>,
        state: &mut Counted,
    ) -> Result<(), Failure> {
        let path = inside(&item.path)?;
        let what = || format!("extract {}", shown(&path));
        // Only a file has content, whatever the size field of the others says.
        let size = if item.kind.is_file() || item.kind.is_contiguous() {
            item.size
        } else {
            0
        };
        match item.kind {
            EntryType::Directory => self.directory(&path, item, state).or_fail(what)?,
            EntryType::Regular | EntryType::Continuous if path.is_empty() => {
                return fail(
                    FailureCode::BadArchive,
                    "a file in the place of the directory itself",
                );
            }
            EntryType::Regular | EntryType::Continuous => {
                state.end.bytes = state.end.bytes.saturating_add(size);
                if state.end.bytes > self.max_bytes {
                    let message = format!("an archive of over {} bytes", self.max_bytes);
                    return fail(FailureCode::TooLarge, message);
                }
                let file = self.create(&path, state).or_fail(what)?;
                let mut content = items.content().take(size);
                let copied = io::copy(&mut content, &mut &file).or_fail(what)?;
                if copied != size {
                    return fail(
                        FailureCode::BadArchive,
                        format!("{}: it ends early", what()),
                    );
                }
                self.finish_file(&file, item).or_fail(what)?;
            }
            EntryType::Symlink => self.symlink(&path, item, state).or_fail(what)?,
            EntryType::Link => self.hard_link(&path, item, state)?,
            _ => self.notes.say(
                NoteCode::EntrySkipped,
                &path,
                0,
                "no kind of file that is extracted",
            )?,
        }
        if size == 0 {
            items.skip(skipped(item))
        } else {
            items.skip_padding(size)
        }
    }

    /// The directory an entry lies in, and its name there.
    fn place<'p, 's>(
        &self,
        path: &'p [u8],
        state: &'s mut Counted,
    ) -> Result<(&'s OwnedFd, &'p [u8]), Errno> {
        let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => path.split_at_checked(slash).unwrap_or((b"", path)),
            None => (&b""[..], path),
        };
        let name = name.strip_prefix(b"/").unwrap_or(name);
        if state
            .parent
            .as_ref()
            .is_none_or(|(known, _)| known != parent)
        {
            let dir = self.root.make_dirs(parent, 0o777, self.implied_owner())?;
            state.parent = Some((parent.to_vec(), dir));
        }
        match &state.parent {
            Some((_, dir)) => Ok((dir, name)),
            None => Err(Errno::NOENT),
        }
    }

    /// Whose a directory is that the archive does not name.
    fn implied_owner(&self) -> Owner {
        match self.ownership {
            Ownership::Of(uid, gid) => Some((uid, gid)),
            Ownership::AsArchived | Ownership::Mine => None,
        }
    }

    /// In a namespace an archived owner may be one that does not exist there: then the file stays
    /// whose it is.
    fn given(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        match (self.ownership, result) {
            (Ownership::AsArchived, Err(Errno::INVAL | Errno::PERM)) => Ok(()),
            (_, result) => result,
        }
    }

    fn owner(&self, item: &Item) -> (Option<Uid>, Option<Gid>) {
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let (uid, gid) = match self.ownership {
            Ownership::Of(uid, gid) => (Some(uid), Some(gid)),
            Ownership::AsArchived => (id(item.uid), id(item.gid)),
            Ownership::Mine => (None, None),
        };
        (uid.map(Uid::from_raw), gid.map(Gid::from_raw))
    }

    fn directory(&mut self, path: &[u8], item: &Item, state: &mut Counted) -> Result<(), Errno> {
        if !path.is_empty() {
            let (dir, name) = self.place(path, state)?;
            // What is there and no directory makes way; a symlink to one, too: it is replaced, not
            // followed.
            if Meta::in_dir(dir, name).is_ok_and(|meta| meta.kind != FileType::Directory) {
                unlinkat(dir, name, AtFlags::empty())?;
            }
            match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            let (uid, gid) = self.owner(item);
            self.given(chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
            // Until its own mode is set, it must be open to this extraction.
            let fd = openat(
                dir,
                name,
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            fchmod(&fd, Mode::from_raw_mode(item.mode | 0o700))?;
            state
                .directories
                .push((path.to_vec(), item.mode, item.mtime));
            // It may have taken the place of a symlink that led elsewhere.
            state.parent = None;
        }
        Ok(())
    }

    fn create(&mut self, path: &[u8], state: &mut Counted) -> Result<File, Errno> {
        let (dir, name) = self.place(path, state)?;
        clear(dir, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(dir, name, flags | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR).map(File::from)
    }

    fn finish_file(&self, file: &File, item: &Item) -> Result<(), Errno> {
        let (uid, gid) = self.owner(item);
        self.given(fchown(file, uid, gid))?;
        // After the owner, whose change takes the set-user-ID bit away.
        fchmod(file, Mode::from_raw_mode(item.mode))?;
        futimens(file, &times(item.mtime))
    }

    fn symlink(&mut self, path: &[u8], item: &Item, state: &mut Counted) -> Result<(), Errno> {
        let (uid, gid) = self.owner(item);
        let (dir, name) = self.place(path, state)?;
        clear(dir, name)?;
        symlinkat(item.link.as_slice(), dir, name)?;
        self.given(chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        utimensat(dir, name, &times(item.mtime), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// A further name of a file of the same tree; the link itself is never followed.
    fn hard_link(&mut self, path: &[u8], item: &Item, state: &mut Counted) -> Result<(), Failure> {
        let target = inside(&item.link)?;
        let what = || format!("link {} to {}", shown(path), shown(&target));
        let slash = target.iter().rposition(|b| *b == b'/');
        let (parent, name) = target
            .split_at_checked(slash.unwrap_or(0))
            .unwrap_or_default();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        let from = self.root.open_dir(parent).or_fail(what)?;
        let (dir, to) = self.place(path, state).or_fail(what)?;
        clear(dir, to).or_fail(what)?;
        linkat(&from, name, dir, to, AtFlags::empty()).or_fail(what)
    }

    /// The deepest first: a parent that is closed closes what is below.
    fn finish_directories(&self, all: &[(Vec<u8>, u32, (i64, u32))]) -> Result<(), Failure> {
        for (path, mode, mtime) in all.iter().rev() {
            let what = || format!("finish the directory {}", shown(path));
            match self.root.open(path, OFlags::RDONLY | OFlags::DIRECTORY) {
                // A later entry took its place.
                Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => {}
                Err(errno) => return Err(errno).or_fail(what),
                Ok(dir) => {
                    fchmod(&dir, Mode::from_raw_mode(*mode)).or_fail(what)?;
                    futimens(&dir, &times(*mtime)).or_fail(what)?;
                }
            }
        }
        Ok(())
    }
}

/// Content of entries that are no files, which some writers give hard links.
fn skipped(item: &Item) -> u64 {
    let block = u64::try_from(super::format::BLOCK).unwrap_or(1);
    match item.kind {
        EntryType::Directory | EntryType::Symlink | EntryType::Link => 0,
        _ => item.size.div_ceil(block).saturating_mul(block),
    }
}

/// Makes room for what is not a directory.
fn clear(dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanos.into(),
        },
    }
}

/// An entry's path below the root. A path that is absolute or climbs is refused, even where it
/// would come back.
fn inside(path: &[u8]) -> Result<Vec<u8>, Failure> {
    let escapes = path.first() == Some(&b'/') || path.split(|b| *b == b'/').any(|n| n == b"..");
    if escapes || path.contains(&0) {
        let message = format!("the archive has an entry outside its root: {}", shown(path));
        return fail(FailureCode::Escapes, message);
    }
    let names = path
        .split(|b| *b == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    Ok(names.collect::<Vec<_>>().join(&b'/'))
}
