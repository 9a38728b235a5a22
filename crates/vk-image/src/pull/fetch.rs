//! Layers from a registry, then the image from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use vk_erofs::Whiteouts;
use vk_oci::{Client, Descriptor, Image, Reference};

use crate::build::{Build, Identity, Layer};
use crate::durable;
use crate::error::Error;
use crate::lock::Lock;
use crate::names::Named;
use crate::record::Origin;
use crate::store::{Lease, Store};

use super::{Progress, Puller};

/// Layers fetched at the same time.
const PARALLEL: usize = 3;
/// After how many bytes it is looked whether there is room for the rest.
const LOOK_EVERY: u64 = 64 << 20;
/// How often a lock that another process holds is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Where an image's layers are gathered. They stay when a fetch breaks off, so that the next one goes
/// on with them.
struct Download {
    dir: PathBuf,
    _lock: Lock,
}

impl Puller {
    /// Fetches and builds an image that is not in the store. Of several processes that want the same,
    /// one does it and the others wait.
    pub(super) async fn fetch(
        &self,
        image: Image,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Lease, Error> {
        let sizes = distinct(&image).into_iter().map(|layer| layer.size);
        let of = sizes.fold(0, u64::saturating_add);
        self.store.admit(&image.reference.familiar(), of)?;
        let download = self.download(&image).await?;
        let named = Named {
            digest: image.digest,
            registry_digest: Some(image.named),
        };
        if let Some(lease) = self.store.name(image.reference.clone(), named)? {
            download.remove(&self.store)?;
            return Ok(lease);
        }
        let fetched = self.fetch_layers(&image, &download, of, progress).await;
        if let Err(error) = fetched {
            // What a registry broke off is gone on with; anything else would end the same way again.
            if !error.is_transient()
                && let Err(error) = download.remove(&self.store)
            {
                tracing::warn!(%error, "what was fetched of an image stays; collections clear it");
            }
            return Err(error);
        }
        progress(Progress::Building {
            layers: image.manifest.layers.len(),
        });
        let store = self.store.clone();
        let build = move || build(&store, image, download);
        tokio::task::spawn_blocking(build)
            .await
            .map_err(|_| Error::Stopped)?
    }

    async fn download(&self, image: &Image) -> Result<Download, Error> {
        let dir = self.store.downloads().join(image.digest.hex());
        loop {
            if let Some(download) = Download::try_new(&self.store, &dir)? {
                return Ok(download);
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    async fn fetch_layers(
        &self,
        image: &Image,
        download: &Download,
        of: u64,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<(), Error> {
        let name = image.reference.familiar();
        let wanted = distinct(image);
        let room = async |received: u64| {
            let (store, name) = (self.store.clone(), name.clone());
            let more = of.saturating_sub(received);
            // Others may hold the store while they remove much.
            let made = tokio::task::spawn_blocking(move || store.make_room(&name, more));
            made.await.map_err(|_| Error::Stopped)?
        };
        room(wanted.iter().map(|layer| download.has(layer)).sum()).await?;
        let mut looked = 0;
        let received: Arc<[AtomicU64]> = wanted.iter().map(|_| AtomicU64::new(0)).collect();
        let changed = Arc::new(Notify::new());
        let mut waiting = wanted.into_iter().enumerate();
        let mut running = JoinSet::new();
        let gathered = loop {
            while running.len() < PARALLEL
                && let Some((index, layer)) = waiting.next()
            {
                let path = download.layer(&layer);
                let (client, name) = (Arc::clone(&self.client), image.reference.clone());
                let (received, changed) = (Arc::clone(&received), Arc::clone(&changed));
                running.spawn(fetch_layer(client, name, layer, path, move |bytes| {
                    if let Some(slot) = received.get(index) {
                        slot.store(bytes, Ordering::Relaxed);
                    }
                    changed.notify_one();
                }));
            }
            tokio::select! {
                () = changed.notified() => {
                    let bytes = received.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
                    // Others pull, too, and jobs write.
                    if bytes > looked + LOOK_EVERY {
                        looked = bytes;
                        if let Err(no_room) = room(bytes).await {
                            break Err(no_room);
                        }
                    }
                    progress(Progress::Fetched { bytes, of });
                }
                ended = running.join_next() => match ended {
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => break Err(error),
                    Some(Err(_)) => break Err(Error::Stopped),
                    None => break Ok(()),
                },
            }
        };
        running.shutdown().await;
        gathered
    }
}

/// An image's layers, each once.
fn distinct(image: &Image) -> Vec<Descriptor> {
    let mut layers = image.manifest.layers.clone();
    layers.sort_by_key(|layer| layer.digest);
    layers.dedup_by_key(|layer| layer.digest);
    layers
}

async fn fetch_layer(
    client: Arc<Client>,
    image: Reference,
    layer: Descriptor,
    path: PathBuf,
    report: impl FnMut(u64) + Send,
) -> Result<(), Error> {
    let mut options = tokio::fs::OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600);
    let mut file = options
        .open(&path)
        .await
        .map_err(Error::file("opening", &path))?;
    Ok(client.download(&image, &layer, &mut file, report).await?)
}

/// What was fetched goes, whatever comes of it: what no image can be made of is of no use, and where
/// the disk is short its room is.
fn build(store: &Store, image: Image, download: Download) -> Result<Lease, Error> {
    let built = build_from(store, image, &download);
    let removed = download.remove(store);
    let lease = built?;
    removed?;
    Ok(lease)
}

fn build_from(store: &Store, image: Image, download: &Download) -> Result<Lease, Error> {
    let mut build = Build::new(store, image.reference)?;
    for (layer, diff_id) in image.manifest.layers.iter().zip(&image.config.diff_ids) {
        let path = download.layer(layer);
        let stored = fs::File::open(&path).map_err(Error::file("opening", &path))?;
        build.layer(Layer {
            stored: Box::new(stored),
            // Checked as it was fetched.
            stored_digest: None,
            diff_id: Some(*diff_id),
            whiteouts: Whiteouts::Oci,
        })?;
    }
    let mut identity = Identity::new(
        image.digest,
        image.config,
        image.config_bytes,
        Origin::Pulled,
    );
    identity.registry_digest = Some(image.named);
    build.commit(identity)
}

impl Download {
    /// `None` while another process has it.
    fn try_new(store: &Store, dir: &Path) -> Result<Option<Self>, Error> {
        let lock_path = dir.join("lock");
        let lock = store.undisturbed(|| {
            durable::make_dir(dir)?;
            Lock::try_exclusive(&lock_path)
        })?;
        let Some(lock) = lock else { return Ok(None) };
        // Said to be alive, for `collect`.
        fs::write(&lock_path, b"").map_err(Error::file("writing", &lock_path))?;
        Ok(Some(Self {
            dir: dir.to_owned(),
            _lock: lock,
        }))
    }

    fn layer(&self, layer: &Descriptor) -> PathBuf {
        self.dir.join(layer.digest.hex())
    }

    /// Bytes of a layer that are here.
    fn has(&self, layer: &Descriptor) -> u64 {
        let file = fs::metadata(self.layer(layer));
        file.map_or(0, |of| of.len().min(layer.size))
    }

    /// Removes it while nobody can be on the way to its lock.
    fn remove(self, store: &Store) -> Result<(), Error> {
        let remove = || fs::remove_dir_all(&self.dir);
        store.alone(|| remove().map_err(Error::file("removing", &self.dir)))
    }
}
