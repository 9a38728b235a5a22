//! An image held in use.

use std::path::{Path, PathBuf};

use vk_oci::Digest;

use crate::error::Error;
use crate::lock::Lock;
use crate::record::Record;

use super::{Key, Store};

/// An image that stays while this is held. The kernel ends the hold with the process, however it
/// dies; a child that should hold it too takes its own.
#[derive(Debug)]
pub struct Lease {
    record: Record,
    disk: PathBuf,
    _lock: Lock,
}

impl Lease {
    /// What the image is and how it is run.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Its disk image, EROFS, never written to.
    pub fn disk(&self) -> &Path {
        &self.disk
    }
}

impl Store {
    /// Holds an image, found by name or by digest (`sha256:…`).
    ///
    /// # Errors
    /// No such image, a bad name, a store that cannot be read.
    pub fn lease(&self, name: &str) -> Result<Lease, Error> {
        let key = Key::parse(name)?;
        // Removal takes this lock alone, so the image cannot go between here and the lease.
        let _lock = self.lock_shared()?;
        match self.find(&key)? {
            Some(digest) => self.lease_locked(digest),
            None => Err(Error::NoSuchImage { name: name.into() }),
        }
    }

    pub(super) fn lease_locked(&self, digest: Digest) -> Result<Lease, Error> {
        let path = self.lease_path(digest);
        let record = self.record(digest)?;
        let lock = Lock::shared(&path)?;
        // When it was last used, for `collect`; a store that is read-only for us is still usable.
        let now = rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        };
        let times = rustix::fs::Timestamps {
            last_access: now,
            last_modification: now,
        };
        let _ = rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty());
        Ok(Lease {
            record,
            disk: self.disk(digest),
            _lock: lock,
        })
    }

    pub(super) fn is_leased(&self, digest: Digest) -> Result<bool, Error> {
        Ok(Lock::try_exclusive(&self.lease_path(digest))?.is_none())
    }
}
