//! Why an image cannot be had or kept, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vk_oci::{Digest, ManifestError};

/// What went wrong with an image or the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name nobody has given.
    #[error(
        "no such image: {name}. Pull it with `vk image pull {name}`, import it with `vk image import FILE {name}`, or allow pulling it (pull policy if-not-present or always); `vk image list` shows what there is"
    )]
    NoSuchImage {
        /// As it was asked for.
        name: String,
    },
    /// A name or digest that is none.
    #[error(transparent)]
    Name(#[from] vk_oci::ReferenceError),
    /// An image that a running job uses.
    #[error("{name} is in use: try again when the jobs that use it have ended")]
    InUse {
        /// As it was asked for.
        name: String,
    },
    /// An import under a digest, which only content can have.
    #[error("{name} names a digest: an import needs a name such as {}", .name.split('@').next().unwrap_or_default())]
    NameWithDigest {
        /// As it was asked for.
        name: String,
    },
    /// The registry, or the way to it.
    #[error(transparent)]
    Pull(#[from] vk_oci::Error),
    /// A registry that was waited for no longer, since there is another way to the image.
    #[error("{registry} gave no answer for {image} within {} s", .within.as_secs_f32())]
    NoAnswer {
        /// The image.
        image: String,
        /// Host and port.
        registry: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// A file that is no image of a kind we know.
    #[error("{path} cannot be imported: {what}", path = .path.display())]
    Import {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file that is no tar archive, or one out of bounds.
    #[error("{path} cannot be imported", path = .path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// Why.
        source: vk_erofs::Error,
    },
    /// A manifest or configuration within an archive or layout.
    #[error("{path} cannot be imported: {document} in it cannot be used", path = .path.display())]
    Document {
        /// The file or directory.
        path: PathBuf,
        /// Which document.
        document: String,
        /// Why.
        source: ManifestError,
    },
    /// A layer that is not what its digest says.
    #[error(
        "layer {layer} of {image} is not {wanted} but {found}: it is damaged, fetch or make it again"
    )]
    LayerDigest {
        /// The image.
        image: String,
        /// Its number, from 1.
        layer: usize,
        /// What it should be.
        wanted: Digest,
        /// What it is.
        found: Digest,
    },
    /// A layer that no image can be made of.
    #[error("layer {layer} of {image} cannot be used{}", DiskFull(.source))]
    Layer {
        /// The image.
        image: String,
        /// Its number, from 1.
        layer: usize,
        /// Why.
        source: vk_erofs::Error,
    },
    /// An image that is larger than one may be here.
    #[error(
        "{image} is larger than an image may be on this node, {} in all layers, sent or uncompressed: use a smaller one, or have the node's owner raise [images] max_image",
        Bytes(*.limit)
    )]
    TooLarge {
        /// The image.
        image: String,
        /// What its layers may hold, in bytes.
        limit: u64,
    },
    /// An image that finds no room, although what may go went.
    #[error("there is no room for {image} on this node: {short}")]
    NoRoom {
        /// The image.
        image: String,
        /// What there is too little of.
        short: Short,
    },
    /// A file of the store, or an import's.
    #[error("{doing} {path} failed{}", Full(.source), path = .path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the store that does not say what it should. Nothing is removed while one is damaged.
    #[error("{path} is damaged ({what}): restore it, or remove it and pull or import the images again", path = .path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A task that ended without an answer.
    #[error("the image task was stopped")]
    Stopped,
}

impl Error {
    /// For `map_err` on an operation on a file.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }

    pub(crate) fn import(path: &Path, what: impl Into<String>) -> Self {
        Self::Import {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// Whether another policy or try could succeed where this one did not: the registry or the way to
    /// it failed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Pull(error) => error.failure() == vk_oci::Failure::Transient,
            Self::NoAnswer { .. } => true,
            _ => false,
        }
    }
}

/// What there is too little of for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// What images may take.
    Total {
        /// What is taken, in bytes: by images that jobs use or that were imported, and by what is being
        /// fetched and made.
        taken: u64,
        /// What may be.
        total: u64,
    },
    /// The disk.
    Disk {
        /// What is free, in bytes.
        free: u64,
        /// What stays free.
        stays: u64,
    },
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total { taken, total } => write!(
                f,
                "images may take {} in all, and those that jobs use, imported ones and what is being \
                 pulled have {} of it: remove imported ones with `vk image rm`, run fewer images at \
                 once, or raise [images] max_total",
                Bytes(*total),
                Bytes(*taken)
            ),
            Self::Disk { free, stays } => write!(
                f,
                "its disk has {} free, of which {} stay free: make room there (`vk node gc`, \
                 `vk image rm`)",
                Bytes(*free),
                Bytes(*stays)
            ),
        }
    }
}

/// Bytes as people read them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 10 << 30 => write!(f, "{} GiB", bytes >> 30),
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// Adds what to do about a full disk.
struct Full<'a>(&'a io::Error);

impl fmt::Display for Full<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                f.write_str(" (the disk is full: make room, or remove images with `vk image rm`)")
            }
            _ => Ok(()),
        }
    }
}

struct DiskFull<'a>(&'a vk_erofs::Error);

impl fmt::Display for DiskFull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            vk_erofs::Error::Write { source } => Full(source).fmt(f),
            _ => Ok(()),
        }
    }
}
