//! Caches at their registry: looked for, fetched, saved.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use vk_oci::{Client, Config, Descriptor, Digest, Error, Keychain, Reference, ReferenceError};

use super::layer::Packed;
use super::manifest::{EMPTY_CONFIG, MANIFEST_MAX, MANIFEST_TYPE, ManifestError, Saved};
use super::place::Place;
use crate::context::Caches;

/// Tries of one request, as gitlab-runner's: two more, a second apart.
const ATTEMPTS: u32 = 3;

/// What the registry failed at. Nothing being there is no error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{}", said(.0))]
    Registry(#[from] Error),
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Name(#[from] ReferenceError),
    #[error("its archive has {size}, and one may have {cap} on this node")]
    TooLarge { size: String, cap: String },
    #[error("a file of it cannot be made")]
    File(#[from] std::io::Error),
}

/// A registry's refusal, without what only people with images need.
fn said(error: &Error) -> String {
    match error {
        Error::Denied {
            by,
            with_credential,
            message,
            ..
        } => {
            let how = match with_credential {
                true => "with credentials",
                false => "asked without credentials",
            };
            format!("denied by {by}, {how}: {message}")
        }
        error => error.to_string(),
    }
}

/// What saving came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is what was restored, and still there: nothing was sent.
    Unchanged,
    /// Its content was there already.
    Named,
    /// All of it was sent.
    Uploaded,
    /// It has no content, and what is there has: that stays (CACHE-20).
    Refused {
        /// Bytes of what stays.
        stays: u64,
    },
}

/// A job's caches at their registry.
pub(crate) struct Store {
    client: Client,
    place: Place,
    cap: u64,
}

impl Store {
    /// Sets it up; nothing is asked yet.
    pub(crate) fn open(
        place: Place,
        caches: &Caches,
        request_timeout: Duration,
    ) -> Result<Store, StoreError> {
        let registry = place.name.split('/').next().unwrap_or_default().to_owned();
        let mut config = Config {
            authorities: caches.authorities.clone(),
            attempts: ATTEMPTS,
            // A registry answers an upload when it has all of it.
            idle_timeout: request_timeout,
            request_timeout: Some(request_timeout),
            ..Config::default()
        };
        let mut keychain = Keychain::default();
        match (&caches.granted, &caches.credential) {
            (Some(granted), _) if place.of_job => keychain.add_token(&registry, granted.into()),
            (_, Some(credential)) if !place.of_job => keychain.add(&registry, credential.clone()),
            _ => {}
        }
        config.keychain = keychain;
        if caches.insecure {
            config.insecure.insert(registry);
        }
        Ok(Store {
            client: Client::new(config)?,
            place,
            cap: caches.layer_cap,
        })
    }

    /// Where a key's cache is.
    pub(crate) fn at(&self, key: &str) -> Result<Reference, StoreError> {
        Ok(self.place.at(key)?)
    }

    /// What is saved there, if anything.
    pub(crate) async fn find(&self, at: &Reference) -> Result<Option<Saved>, StoreError> {
        let found = self.client.manifest(at, MANIFEST_TYPE, MANIFEST_MAX).await;
        match found {
            Ok(bytes) => Ok(Some(Saved::read(&bytes)?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings a cache's layer into a file, checked against its size and digest (CACHE-17).
    pub(crate) async fn fetch(
        &self,
        at: &Reference,
        saved: &Saved,
        to: &Path,
    ) -> Result<(), StoreError> {
        if saved.size > self.cap {
            return Err(StoreError::TooLarge {
                size: super::words::size(saved.size),
                cap: super::words::size(self.cap),
            });
        }
        let blob = Descriptor {
            media_type: String::new(),
            digest: saved.layer,
            size: saved.size,
            platform: None,
            annotations: Default::default(),
        };
        let mut options = tokio::fs::OpenOptions::new();
        let options = options.create(true).truncate(true).read(true).write(true);
        let mut file = options.open(to).await?;
        let fetched = self.client.download(at, &blob, &mut file, |_| ()).await;
        Ok(fetched?)
    }

    /// Saves a layer under a key. `restored` is what this job had from there.
    pub(crate) async fn save(
        &self,
        at: &Reference,
        layer: &Path,
        saved: &Saved,
        restored: Option<Digest>,
    ) -> Result<Kept, StoreError> {
        // What is not known to be empty counts as full.
        if saved.bytes == Some(0)
            && let Some(there) = self.find(at).await?
            && there.bytes != Some(0)
        {
            return Ok(Kept::Refused { stays: there.size });
        }
        let there = self.client.has_blob(at, saved.layer).await?;
        if there && restored == Some(saved.layer) {
            return Ok(Kept::Unchanged);
        }
        if !there {
            let pushed = self.client.push_blob(at, saved.layer, layer, saved.size);
            pushed.await?;
        }
        self.client.push_small(at, EMPTY_CONFIG).await?;
        let manifest = saved.write()?;
        let pushed = self.client.push_manifest(at, MANIFEST_TYPE, &manifest);
        pushed.await?;
        Ok(match there {
            true => Kept::Named,
            false => Kept::Uploaded,
        })
    }
}

impl Saved {
    /// A layer that was just made of so many entries and bytes.
    pub(crate) fn now(packed: Packed, entries: u64, bytes: u64) -> Saved {
        let now = Timestamp::now();
        // To the second: nobody wants more.
        let created = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Saved {
            layer: packed.digest,
            size: packed.size,
            created: Some(created),
            entries: Some(entries),
            bytes: Some(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CACHE-09
    #[tokio::test]
    async fn a_registry_that_is_silent_is_waited_for_no_longer_than_the_job_says() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place {
            name: format!("{}/vk", silent.local_addr().unwrap()),
            of_job: false,
            protected: false,
        };
        let store = Store::open(place, &Caches::default(), Duration::from_millis(100)).unwrap();
        let at = store.at("key").unwrap();
        let asked = store.find(&at);
        // All tries and the waits between them.
        let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
        let error = asked.expect("it ends in time").unwrap_err();
        assert!(error.to_string().contains("cannot be reached"), "{error}");
    }
}
