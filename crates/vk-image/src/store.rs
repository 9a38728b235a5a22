//! The store: images by content, names, leases, removal.

mod build_dir;
mod collect;
mod lease;
mod room;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use vk_oci::{Digest, Reference};

use crate::durable;
use crate::error::Error;
use crate::lock::Lock;
use crate::names::{Named, Names};
use crate::record::Record;
pub(crate) use build_dir::BuildDir;
pub use collect::{Collected, Keep};
pub use lease::Lease;
pub use room::Bounds;
pub(crate) use room::Guarded;

/// Images of one node, in one directory that several processes share.
///
/// `lock` guards all else; `names.json` maps names to digests; `images/<hex>/` holds an image's
/// `image.erofs`, `image.json` and `config.json`, and `lease`, which its users lock; `build/` holds
/// what is being made and `downloads/` what is being fetched.
#[derive(Clone, Debug)]
pub struct Store {
    dir: Arc<Path>,
    bounds: Bounds,
}

/// An image as a listing shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The image.
    pub record: Record,
    /// Its names.
    pub names: Vec<Reference>,
    /// Whether someone holds a lease on it.
    pub in_use: bool,
    /// Its disk image.
    pub disk: PathBuf,
}

/// An image's name in the store, or its digest.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Name(Reference),
    Digest(Digest),
}

impl Key {
    /// `sha256:…` is a digest, anything else a name.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        match text.parse() {
            Ok(digest) => Ok(Self::Digest(digest)),
            Err(_) => Ok(Self::Name(text.parse()?)),
        }
    }
}

impl Store {
    /// Opens the store in a directory, made where it is missing, and clears away what processes that
    /// died were making. It is bounded by its disk alone: see [`Store::bounded`].
    ///
    /// # Errors
    /// A directory that cannot be made or written.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let store = Self {
            dir: dir.into(),
            bounds: Bounds::default(),
        };
        for part in ["images", "build", "downloads"] {
            durable::make_dir(&dir.join(part))?;
        }
        let _lock = store.lock_exclusive()?;
        store.clear_builds()?;
        Ok(store)
    }

    /// All images, by their first name.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let _lock = self.lock_shared()?;
        let names = self.names()?;
        let mut listed = Vec::new();
        for digest in self.digests()? {
            let record = self.record(digest)?;
            let in_use = self.is_leased(digest)?;
            let disk = self.disk(digest);
            listed.push(Listed {
                record,
                names: names.of(digest),
                in_use,
                disk,
            });
        }
        listed.sort_by(|a, b| {
            (a.names.first(), a.record.digest).cmp(&(b.names.first(), b.record.digest))
        });
        Ok(listed)
    }

    /// One image by name or digest.
    ///
    /// # Errors
    /// No such image, a bad name, a store that cannot be read.
    pub fn inspect(&self, name: &str) -> Result<Listed, Error> {
        let key = Key::parse(name)?;
        let _lock = self.lock_shared()?;
        let digest = self
            .find(&key)?
            .ok_or_else(|| Error::NoSuchImage { name: name.into() })?;
        Ok(Listed {
            record: self.record(digest)?,
            names: self.names()?.of(digest),
            in_use: self.is_leased(digest)?,
            disk: self.disk(digest),
        })
    }

    /// Removes a name, and its image with it where that was its last. By digest, removes the image
    /// with all its names.
    ///
    /// # Errors
    /// No such image, one in use, a store that cannot be read.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let key = Key::parse(name)?;
        let _lock = self.lock_exclusive()?;
        let digest = self
            .find(&key)?
            .ok_or_else(|| Error::NoSuchImage { name: name.into() })?;
        let mut names = self.names()?;
        let all = names.of(digest);
        let removed = match &key {
            Key::Name(name) if all.contains(name) => vec![name.clone()],
            Key::Name(_) | Key::Digest(_) => all.clone(),
        };
        let lease = self.lease_path(digest);
        let last = removed.len() == all.len();
        let held = if last {
            Lock::try_exclusive(&lease)?
        } else {
            None
        };
        if last && held.is_none() {
            return Err(Error::InUse { name: name.into() });
        }
        for name in &removed {
            names.remove(name);
        }
        names.save(&self.names_path())?;
        if last { self.discard(digest) } else { Ok(()) }
    }

    /// Whether there is an image of this digest.
    pub(crate) fn has(&self, digest: Digest) -> bool {
        self.image_dir(digest).is_dir()
    }

    /// What a name stands for, if its image is there.
    pub(crate) fn named(&self, name: &Reference) -> Result<Option<Named>, Error> {
        let _lock = self.lock_shared()?;
        let named = self.names()?.get(name);
        Ok(named.filter(|named| self.has(named.digest)))
    }

    /// Gives an image that is there a name and leases it, in one.
    pub(crate) fn name(&self, name: Reference, named: Named) -> Result<Option<Lease>, Error> {
        let _lock = self.lock_exclusive()?;
        self.name_locked(name, named)
    }

    fn name_locked(&self, name: Reference, named: Named) -> Result<Option<Lease>, Error> {
        if !self.has(named.digest) {
            return Ok(None);
        }
        let mut names = self.names()?;
        if names.get(&name) != Some(named) {
            names.set(name, named);
            names.save(&self.names_path())?;
        }
        self.lease_locked(named.digest).map(Some)
    }

    /// A name's digest; a reference that pins one is that image, however it was named.
    fn find(&self, key: &Key) -> Result<Option<Digest>, Error> {
        let digest = match key {
            Key::Digest(digest) => Some(*digest),
            Key::Name(name) => match self.names()?.get(name) {
                Some(named) => Some(named.digest),
                None => name.digest(),
            },
        };
        Ok(digest.filter(|digest| self.has(*digest)))
    }

    fn names(&self) -> Result<Names, Error> {
        Names::load(&self.names_path())
    }

    fn record(&self, digest: Digest) -> Result<Record, Error> {
        let path = self.image_dir(digest).join("image.json");
        let bytes = fs::read(&path).map_err(Error::file("reading", &path))?;
        let damaged = |what: String| Error::Damaged {
            path: path.clone(),
            what,
        };
        let record: Record =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if record.version != Record::VERSION || record.digest != digest {
            return Err(damaged("it is of another version or image".into()));
        }
        Ok(record)
    }

    fn digests(&self) -> Result<Vec<Digest>, Error> {
        let dir = self.dir.join("images");
        let mut digests = Vec::new();
        for entry in fs::read_dir(&dir).map_err(Error::file("reading", &dir))? {
            let name = entry.map_err(Error::file("reading", &dir))?.file_name();
            let digest = name.to_str().and_then(|name| Digest::from_hex(name).ok());
            digests.push(digest.ok_or_else(|| Error::Damaged {
                path: dir.join(&name),
                what: "it is no image of this store".into(),
            })?);
        }
        digests.sort();
        Ok(digests)
    }

    fn image_dir(&self, digest: Digest) -> PathBuf {
        self.dir.join("images").join(digest.hex())
    }

    fn disk(&self, digest: Digest) -> PathBuf {
        self.image_dir(digest).join("image.erofs")
    }

    fn lease_path(&self, digest: Digest) -> PathBuf {
        self.image_dir(digest).join("lease")
    }

    fn names_path(&self) -> PathBuf {
        self.dir.join("names.json")
    }

    fn lock_exclusive(&self) -> Result<Lock, Error> {
        Lock::exclusive(&self.dir.join("lock"))
    }

    fn lock_shared(&self) -> Result<Lock, Error> {
        Lock::shared(&self.dir.join("lock"))
    }

    /// Does something that removals must not come between.
    pub(crate) fn undisturbed<T>(
        &self,
        what: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _lock = self.lock_shared()?;
        what()
    }

    /// Does something that must not come between another's look and its lock.
    pub(crate) fn alone<T>(&self, what: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let _lock = self.lock_exclusive()?;
        what()
    }

    pub(crate) fn downloads(&self) -> PathBuf {
        self.dir.join("downloads")
    }
}
