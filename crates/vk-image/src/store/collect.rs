//! Images that nobody wants any more.

use std::fs;
use std::time::{Duration, SystemTime};

use vk_oci::Digest;

use crate::error::Error;
use crate::lock::Lock;
use crate::names::Names;
use crate::record::Origin;

use super::Store;

/// What [`Store::collect`] spares, beside images in use and imported images that have a name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// Pulled images used within this time; `None` spares them all.
    pub used_within: Option<Duration>,
}

/// What [`Store::collect`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Images.
    pub images: u64,
    /// Bytes of their disk images, holes included.
    pub bytes: u64,
}

/// Downloads that nobody went on with for this long are given up.
pub(super) const DOWNLOAD_IDLE: Duration = Duration::from_secs(3600);

impl Store {
    /// What [`Store::collect`] would remove now; nothing changes.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn unwanted(&self, keep: Keep) -> Result<Collected, Error> {
        let _lock = self.lock_shared()?;
        let mut collected = Collected::default();
        for (digest, bytes) in self.not_wanted(keep, &self.names()?)? {
            if !self.is_leased(digest)? {
                collected.images += 1;
                collected.bytes += bytes;
            }
        }
        Ok(collected)
    }

    /// Removes images without a name, pulled ones that were not used for long, and those beyond the
    /// store's bounds: never one that is leased. Does nothing at all where a part of the store cannot be read.
    ///
    /// # Errors
    /// A store that cannot be read or written.
    pub fn collect(&self, keep: Keep) -> Result<Collected, Error> {
        let _lock = self.lock_exclusive()?;
        self.clear_builds()?;
        let mut names = self.names()?;
        let unwanted = self.not_wanted(keep, &names)?;
        let mut collected = Collected::default();
        for (digest, bytes) in unwanted {
            if !self.let_go(digest, &mut names)? {
                continue;
            }
            collected.images += 1;
            collected.bytes += bytes;
        }
        self.clear_downloads(Some(DOWNLOAD_IDLE))?;
        Ok(collected)
    }

    /// Removes an image with its names, unless it is in use; whether it went. The store's lock is held
    /// alone.
    pub(super) fn let_go(&self, digest: Digest, names: &mut Names) -> Result<bool, Error> {
        let Some(_lease) = Lock::try_exclusive(&self.lease_path(digest))? else {
            return Ok(false);
        };
        for name in names.of(digest) {
            names.remove(&name);
        }
        names.save(&self.names_path())?;
        self.discard(digest)?;
        Ok(true)
    }

    fn not_wanted(&self, keep: Keep, names: &Names) -> Result<Vec<(Digest, u64)>, Error> {
        let mut unwanted = Vec::new();
        for digest in self.digests()? {
            let record = self.record(digest)?;
            let idle = match keep.used_within {
                Some(within) if record.origin == Origin::Pulled => self.idle(digest)? > within,
                _ => false,
            };
            if idle || names.of(digest).is_empty() {
                unwanted.push((digest, record.bytes));
            }
        }
        let beyond = self.beyond(names, &unwanted)?;
        unwanted.extend(beyond);
        Ok(unwanted)
    }

    fn idle(&self, digest: Digest) -> Result<Duration, Error> {
        let path = self.lease_path(digest);
        let used = fs::metadata(&path)
            .and_then(|meta| meta.modified())
            .map_err(Error::file("reading", &path))?;
        Ok(SystemTime::now().duration_since(used).unwrap_or_default())
    }

    /// Removes downloads that nobody is at, and that nobody went on with for so long; of any age where
    /// none is said. The store's lock is held alone.
    pub(super) fn clear_downloads(&self, idle_for: Option<Duration>) -> Result<(), Error> {
        let dir = self.downloads();
        for entry in fs::read_dir(&dir).map_err(Error::file("reading", &dir))? {
            let path = entry.map_err(Error::file("reading", &dir))?.path();
            let lock = path.join("lock");
            let touched = fs::metadata(&lock).and_then(|meta| meta.modified());
            let idle = touched.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            let is_old = |least| idle.as_ref().is_ok_and(|idle| *idle > least);
            if idle_for.is_none_or(is_old) && Lock::try_exclusive(&lock)?.is_some() {
                fs::remove_dir_all(&path).map_err(Error::file("removing", &path))?;
            }
        }
        Ok(())
    }
}
