//! An image in the making: a directory of its own that becomes the image or goes.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use vk_oci::{Digest, Reference};

use crate::durable;
use crate::error::Error;
use crate::lock::Lock;
use crate::names::Named;
use crate::record::Record;

use super::{Lease, Store};

/// Where an image is made. Removed with what is in it unless it becomes one.
pub(crate) struct BuildDir {
    store: Store,
    dir: Option<PathBuf>,
    _lock: Lock,
}

impl Store {
    pub(crate) fn build_dir(&self) -> Result<BuildDir, Error> {
        // Against `clear_builds`, until the new directory is locked.
        let _lock = self.lock_shared()?;
        let builds = self.dir.join("build");
        let dir = tempfile::Builder::new()
            .prefix("build-")
            .tempdir_in(&builds)
            .map_err(Error::file("making a directory in", &builds))?
            .keep();
        let lock = Lock::exclusive(&dir.join("lock"))?;
        Ok(BuildDir {
            store: self.clone(),
            dir: Some(dir),
            _lock: lock,
        })
    }

    /// Removes what nobody is making any more. The store's lock is held alone.
    pub(super) fn clear_builds(&self) -> Result<(), Error> {
        let builds = self.dir.join("build");
        for entry in fs::read_dir(&builds).map_err(Error::file("reading", &builds))? {
            let path = entry.map_err(Error::file("reading", &builds))?.path();
            if Lock::try_exclusive(&path.join("lock"))?.is_some() {
                fs::remove_dir_all(&path).map_err(Error::file("removing", &path))?;
            }
        }
        Ok(())
    }

    /// Takes an image out of sight, then away. The store's lock and the image's lease are held alone.
    pub(super) fn discard(&self, digest: Digest) -> Result<(), Error> {
        let from = self.image_dir(digest);
        let trash = self
            .dir
            .join("build")
            .join(format!("removed-{}", digest.hex()));
        if trash.exists() {
            fs::remove_dir_all(&trash).map_err(Error::file("removing", &trash))?;
        }
        fs::rename(&from, &trash).map_err(Error::file("removing", &from))?;
        fs::remove_dir_all(&trash).map_err(Error::file("removing", &trash))
    }
}

impl BuildDir {
    pub(crate) fn path(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new(""))
    }

    /// The disk image, to be written.
    pub(crate) fn disk(&self) -> Result<File, Error> {
        let path = self.path().join("image.erofs");
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).write(true);
        options.open(&path).map_err(Error::file("making", &path))
    }

    /// Turns the directory into the image, gives it its name and leases it. Where the image is there
    /// already, that one is taken.
    pub(crate) fn commit(
        mut self,
        disk: &File,
        record: &Record,
        config: &[u8],
        name: Reference,
        registry_digest: Option<Digest>,
    ) -> Result<Lease, Error> {
        let dir = self.path().to_owned();
        disk.sync_all()
            .map_err(Error::file("syncing", &dir.join("image.erofs")))?;
        let text = serde_json::to_vec_pretty(record).map_err(|error| Error::Damaged {
            path: dir.join("image.json"),
            what: error.to_string(),
        })?;
        durable::write(&dir.join("image.json"), &text)?;
        durable::write(&dir.join("config.json"), config)?;
        drop(Lock::exclusive(&dir.join("lease"))?);
        let digest = record.digest;
        let target = self.store.image_dir(digest);
        let _lock = self.store.lock_exclusive()?;
        if !self.store.has(digest) {
            durable::sync_dir(&dir)?;
            fs::rename(&dir, &target).map_err(Error::file("moving", &dir))?;
            self.dir = None;
            let _ = fs::remove_file(target.join("lock"));
            durable::sync_dir(&self.store.dir.join("images"))?;
        }
        let named = Named {
            digest,
            registry_digest,
        };
        let lease = self.store.name_locked(name, named)?;
        lease.ok_or_else(|| Error::Damaged {
            path: target,
            what: "it went away".into(),
        })
    }
}

impl Drop for BuildDir {
    fn drop(&mut self) {
        let Some(dir) = &self.dir else { return };
        // Not while another process looks through the directories.
        let _lock = self.store.lock_shared();
        if let Err(error) = fs::remove_dir_all(dir) {
            tracing::warn!(dir = %dir.display(), %error, "a build directory is left; the next start clears it");
        }
    }
}
