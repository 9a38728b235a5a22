//! Layers to an image in the store: decompressed, checked against their digests, merged.

use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use vk_erofs::{Builder, Limits, Options, Whiteouts};
use vk_oci::{Digest, Hasher, ImageConfig, Platform, Reference, RunConfig};

use crate::compression::decompress;
use crate::error::Error;
use crate::record::{Origin, Record};
use crate::store::{BuildDir, Guarded, Lease, Store};

/// One layer to be merged.
pub(crate) struct Layer<'a> {
    /// As it is stored.
    pub(crate) stored: Box<dyn Read + 'a>,
    /// What that hashes to, where it is not known to already.
    pub(crate) stored_digest: Option<Digest>,
    /// What it hashes to uncompressed, where that is known.
    pub(crate) diff_id: Option<Digest>,
    pub(crate) whiteouts: Whiteouts,
}

/// An image being built.
pub(crate) struct Build {
    dir: BuildDir,
    builder: Builder<Guarded>,
    store: Store,
    name: Reference,
    layers: usize,
}

/// What an image is, beside its layers.
pub(crate) struct Identity {
    pub(crate) digest: Digest,
    pub(crate) registry_digest: Option<Digest>,
    pub(crate) platform: Platform,
    pub(crate) run: RunConfig,
    pub(crate) config: Vec<u8>,
    pub(crate) origin: Origin,
}

impl Identity {
    pub(crate) fn new(digest: Digest, config: ImageConfig, bytes: Vec<u8>, origin: Origin) -> Self {
        let ImageConfig { platform, run, .. } = config;
        Self {
            digest,
            registry_digest: None,
            platform,
            run,
            config: bytes,
            origin,
        }
    }
}

impl Build {
    pub(crate) fn new(store: &Store, name: Reference) -> Result<Self, Error> {
        let dir = store.build_dir()?;
        let default = Limits::default();
        let limits = Limits {
            image_bytes: default.image_bytes.min(store.bounds().image),
            stream_bytes: default.stream_bytes.min(store.bounds().image),
            ..default
        };
        let options = Options {
            limits,
            ..Options::default()
        };
        let disk = Guarded::new(dir.disk()?, store, name.familiar());
        Ok(Self {
            dir,
            builder: Builder::new(disk, options),
            store: store.clone(),
            name,
            layers: 0,
        })
    }

    /// A directory for what is needed meanwhile.
    pub(crate) fn scratch(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// A file for it, as far as there is room.
    pub(crate) fn guarded(&self, file: std::fs::File) -> Guarded {
        Guarded::new(file, &self.store, self.name.familiar())
    }

    /// Puts a layer on top; gives the digest of what it is uncompressed.
    pub(crate) fn layer(&mut self, layer: Layer<'_>) -> Result<Digest, Error> {
        self.layers += 1;
        let mut stored = Hashed::new(layer.stored);
        let failed = |image: &Self, source| failed(&image.store, &image.name, image.layers, source);
        let read = |image: &Self, source| failed(image, vk_erofs::Error::Read { entry: 0, source });
        let (_, decompressed) = decompress(&mut stored).map_err(|error| read(self, error))?;
        let mut tar = Hashed::new(decompressed);
        self.builder
            .layer(&mut tar, layer.whiteouts)
            .map_err(|error| failed(self, error))?;
        // What follows an archive's end is no part of the tree, but of the digest.
        drain(&mut tar).map_err(|error| read(self, error))?;
        let (decompressed, diff_id) = tar.finish();
        drain(&mut decompressed.into_inner()).map_err(|error| read(self, error))?;
        self.check(layer.diff_id, diff_id)?;
        self.check(layer.stored_digest, stored.finish().1)?;
        Ok(diff_id)
    }

    fn check(&self, wanted: Option<Digest>, found: Digest) -> Result<(), Error> {
        match wanted {
            Some(wanted) if wanted != found => Err(Error::LayerDigest {
                image: self.name.familiar(),
                layer: self.layers,
                wanted,
                found,
            }),
            _ => Ok(()),
        }
    }

    /// Writes the image out and puts it into the store under its name.
    pub(crate) fn commit(mut self, identity: Identity) -> Result<Lease, Error> {
        let mut uuid = [0; 16];
        for (to, from) in uuid.iter_mut().zip(identity.digest.bytes()) {
            *to = *from;
        }
        self.builder.set_uuid(uuid);
        let Self {
            dir,
            builder,
            store,
            name,
            layers,
        } = self;
        let written = builder.finish();
        let (disk, summary) = written.map_err(|error| failed(&store, &name, layers, error))?;
        if summary.dropped_xattrs > 0 {
            let dropped = summary.dropped_xattrs;
            tracing::info!(image = %name, dropped, "extended attributes that a disk image cannot have are left out");
        }
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let record = Record {
            version: Record::VERSION,
            digest: identity.digest,
            platform: identity.platform,
            run: identity.run,
            origin: identity.origin,
            bytes: summary.bytes,
            inodes: summary.inodes,
            created_secs: created.as_secs(),
        };
        dir.commit(
            &disk.file,
            &record,
            &identity.config,
            name,
            identity.registry_digest,
        )
    }
}

/// Bounds of an image that one of its layers, or all of them, went beyond.
const SIZES: [&str; 2] = ["bytes of the layers are", "bytes of the image are"];

/// Also where a file's content was read from the archive when it ended there.
fn is_too_large(error: &vk_erofs::Error) -> bool {
    match error {
        vk_erofs::Error::Limit { what, .. } => SIZES.contains(what),
        vk_erofs::Error::Read { source, .. } => source
            .get_ref()
            .and_then(|inner| inner.downcast_ref())
            .is_some_and(is_too_large),
        _ => false,
    }
}

/// Why a layer cannot be put on, or the image not written out after the last one.
fn failed(store: &Store, name: &Reference, layer: usize, source: vk_erofs::Error) -> Error {
    let image = name.familiar();
    let limit = store.bounds().image;
    if limit < u64::MAX && is_too_large(&source) {
        return Error::TooLarge { image, limit };
    }
    let source = match source {
        vk_erofs::Error::Write { source } => match source.downcast::<Error>() {
            Ok(no_room) => return no_room,
            Err(source) => vk_erofs::Error::Write { source },
        },
        source => source,
    };
    Error::Layer {
        image,
        layer,
        source,
    }
}

/// Bytes after an archive's end that are still read, for the digest's sake.
const TRAILER_MAX: u64 = 64 << 20;

fn drain(input: &mut impl Read) -> io::Result<u64> {
    let read = io::copy(&mut input.take(TRAILER_MAX + 1), &mut io::sink())?;
    if read > TRAILER_MAX {
        return Err(io::Error::other(
            "more than 64 MiB follow the archive's end",
        ));
    }
    Ok(read)
}

/// A reader that hashes what goes through.
struct Hashed<R> {
    input: R,
    hasher: Hasher,
}

impl<R: Read> Hashed<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            hasher: Hasher::default(),
        }
    }

    fn finish(self) -> (R, Digest) {
        (self.input, self.hasher.finish())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}
