//! How much of the disk images may take, and what goes where it is too much.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use vk_oci::Digest;

use crate::error::{Error, Short};
use crate::names::Names;
use crate::record::Origin;

use super::{Collected, Store};

/// What one image may hold where nothing is said.
const IMAGE: u64 = 32 << 30;
/// Which part of its disk a host gives to all images where nothing is said.
const PART_OF_DISK: u64 = 2;
/// Which part of the disk stays free whatever is pulled, and how much that is at most.
const FREE_PART: u64 = 20;
const FREE_MAX: u64 = 2 << 30;
/// How often whoever writes looks whether there is room for more.
const STEP: u64 = 4 << 20;
/// Entries of one directory that are looked at.
const ENTRIES_MAX: usize = 100_000;

/// How much of the disk images may take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What one image's layers may hold, as they are sent and uncompressed, each in all.
    pub image: u64,
    /// All images, and what is being fetched and made.
    pub total: u64,
}

impl Default for Bounds {
    /// None but the disk itself.
    fn default() -> Self {
        Self {
            image: u64::MAX,
            total: u64::MAX,
        }
    }
}

impl Bounds {
    /// As configured, else 32 GiB for one image, and for all half of the disk that `dir` lies on.
    #[must_use]
    pub fn of_disk(dir: &Path, image: Option<u64>, total: Option<u64>) -> Self {
        let disk = || {
            let of = rustix::fs::statvfs(dir).ok()?;
            let all = of.f_blocks.saturating_mul(of.f_frsize);
            // Some file systems do not say.
            (all > 0).then_some(all / PART_OF_DISK)
        };
        let total = total.or_else(disk).unwrap_or(u64::MAX);
        let image = image.unwrap_or(IMAGE).min(total);
        Self { image, total }
    }
}

impl Store {
    /// The same store, of which images take no more than this.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether an image of so many bytes may be here.
    pub(crate) fn admit(&self, image: &str, bytes: u64) -> Result<(), Error> {
        let limit = self.bounds.image;
        if bytes > limit {
            let image = image.to_owned();
            return Err(Error::TooLarge { image, limit });
        }
        Ok(())
    }

    /// Sees to it that so many bytes more find room. Where they do not, what broken pulls left goes,
    /// then images without a name, then pulled ones, the least recently used first: never one that is
    /// in use, nor an imported one that has a name.
    pub(crate) fn make_room(&self, image: &str, more: u64) -> Result<(), Error> {
        if self.short_of(more).is_none() {
            return Ok(());
        }
        let no_room = |short| Error::NoRoom {
            image: image.to_owned(),
            short,
        };
        let _lock = self.lock_exclusive()?;
        // What finds no room in any case costs others nothing: a manifest claims what it likes.
        if let Some(short) = self.short_beside(more, self.removable()?) {
            return Err(no_room(short));
        }
        self.clear_builds()?;
        self.clear_downloads(None)?;
        self.shrink(|store| store.short_of(more).is_none())?;
        self.short_of(more)
            .map_or(Ok(()), |short| Err(no_room(short)))
    }

    /// What might go for want of room, in bytes of the disk.
    fn removable(&self) -> Result<u64, Error> {
        let mut bytes = ["build", "downloads"]
            .map(|part| self.taken_below(part))
            .iter()
            .sum();
        for (digest, _) in self.spare(&self.names()?)? {
            if !self.is_leased(digest)? {
                bytes += self.taken_by(digest);
            }
        }
        Ok(bytes)
    }

    /// Clears away what broken pulls left, and images beyond the bounds, as a pull without room would.
    /// For the end of a job: none waits for it.
    ///
    /// # Errors
    /// A store that cannot be read or written.
    pub fn settle(&self) -> Result<Collected, Error> {
        let _lock = self.lock_exclusive()?;
        self.clear_builds()?;
        self.clear_downloads(Some(super::collect::DOWNLOAD_IDLE))?;
        self.shrink(|store| store.taken() <= store.bounds.total)
    }

    /// What there is too little of for so many bytes more.
    fn short_of(&self, more: u64) -> Option<Short> {
        self.short_beside(more, 0)
    }

    /// The same, once so many bytes are given back.
    fn short_beside(&self, more: u64, back: u64) -> Option<Short> {
        let (taken, total) = (self.taken().saturating_sub(back), self.bounds.total);
        if taken.saturating_add(more) > total {
            return Some(Short::Total { taken, total });
        }
        let of = rustix::fs::statvfs(&*self.dir).ok()?;
        let all = of.f_blocks.saturating_mul(of.f_frsize);
        let free = of.f_bavail.saturating_mul(of.f_frsize).saturating_add(back);
        let stays = (all / FREE_PART).min(FREE_MAX);
        let is_short = all > 0 && free < stays.saturating_add(more);
        is_short.then_some(Short::Disk { free, stays })
    }

    /// What images take of the disk, and what is being fetched and made.
    fn taken(&self) -> u64 {
        ["images", "build", "downloads"]
            .map(|part| self.taken_below(part))
            .iter()
            .sum()
    }

    fn taken_below(&self, part: &str) -> u64 {
        let dirs = entries(&self.dir.join(part));
        let sizes = dirs.flat_map(|dir| entries(&dir)).filter_map(|file| {
            let of = fs::symlink_metadata(file).ok()?;
            Some(of.blocks().saturating_mul(512))
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// Removes images until there is room. The store's lock is held alone.
    fn shrink(&self, is_enough: impl Fn(&Self) -> bool) -> Result<Collected, Error> {
        let mut collected = Collected::default();
        if is_enough(self) {
            return Ok(collected);
        }
        let mut names = self.names()?;
        for (digest, bytes) in self.spare(&names)? {
            if is_enough(self) {
                break;
            }
            if !self.let_go(digest, &mut names)? {
                continue;
            }
            tracing::info!(image = %digest, bytes, "an image went, to make room for others");
            collected.images += 1;
            collected.bytes += bytes;
        }
        Ok(collected)
    }

    /// Images that may go where there is too little room, the first to go first.
    fn spare(&self, names: &Names) -> Result<Vec<(Digest, u64)>, Error> {
        let mut spare = Vec::new();
        for digest in self.digests()? {
            let record = self.record(digest)?;
            let is_named = !names.of(digest).is_empty();
            if is_named && record.origin != Origin::Pulled {
                continue;
            }
            let used = fs::metadata(self.lease_path(digest)).and_then(|of| of.modified());
            let used = used.unwrap_or(SystemTime::UNIX_EPOCH);
            spare.push(((is_named, used), (digest, record.bytes)));
        }
        spare.sort();
        Ok(spare.into_iter().map(|(_, image)| image).collect())
    }

    /// What would go for want of room, beside these: nothing changes.
    pub(super) fn beyond(
        &self,
        names: &Names,
        unwanted: &[(Digest, u64)],
    ) -> Result<Vec<(Digest, u64)>, Error> {
        let (mut taken, total) = (self.taken(), self.bounds.total);
        for (digest, _) in unwanted {
            taken = taken.saturating_sub(self.taken_by(*digest));
        }
        let mut beyond = Vec::new();
        for image in self.spare(names)? {
            if taken <= total {
                break;
            }
            if unwanted.contains(&image) || self.is_leased(image.0)? {
                continue;
            }
            taken = taken.saturating_sub(self.taken_by(image.0));
            beyond.push(image);
        }
        Ok(beyond)
    }

    fn taken_by(&self, digest: Digest) -> u64 {
        fs::metadata(self.disk(digest)).map_or(0, |of| of.blocks().saturating_mul(512))
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let read = fs::read_dir(dir).into_iter().flatten().flatten();
    read.take(ENTRIES_MAX).map(|entry| entry.path())
}

/// A file of the store that grows as far as there is room.
pub(crate) struct Guarded {
    pub(crate) file: File,
    store: Store,
    /// What it is written for.
    image: String,
    written: u64,
    /// Up to what there was room.
    granted: u64,
}

impl Guarded {
    pub(crate) fn new(file: File, store: &Store, image: String) -> Self {
        Self {
            file,
            store: store.clone(),
            image,
            written: 0,
            granted: 0,
        }
    }
}

impl Write for Guarded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.written.saturating_add(bytes.len() as u64);
        if end > self.granted {
            let least = end - self.granted;
            let more = match self.store.short_of(least.max(STEP)) {
                None => least.max(STEP),
                Some(_) => least,
            };
            let room = self.store.make_room(&self.image, more);
            room.map_err(io::Error::other)?;
            self.granted = self.granted.saturating_add(more);
        }
        let written = self.file.write(bytes)?;
        self.written = self.written.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Guarded {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_by_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let of = rustix::fs::statvfs(dir.path()).unwrap();
        let half = of.f_blocks * of.f_frsize / 2;
        let bounds = Bounds::of_disk(dir.path(), None, None);
        assert_eq!((bounds.image, bounds.total), (half.min(32 << 30), half));
        let bounds = Bounds::of_disk(dir.path(), Some(7), Some(9));
        assert_eq!((bounds.image, bounds.total), (7, 9));
        // One image is no larger than all of them.
        assert_eq!(Bounds::of_disk(dir.path(), None, Some(9)).image, 9);
    }
}
