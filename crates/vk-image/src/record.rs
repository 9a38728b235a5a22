//! What the store knows of an image beside its disk.

use serde::{Deserialize, Serialize};
use vk_oci::{Digest, Platform, RunConfig};

/// An image in the store, as `image.json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The form of this file: 1.
    pub version: u32,
    /// What the image is found by: its manifest's digest; of an import without a manifest, its
    /// configuration's.
    pub digest: Digest,
    /// What it is for.
    pub platform: Platform,
    /// How it is run.
    pub run: RunConfig,
    /// Where it came from.
    pub origin: Origin,
    /// Bytes of its disk image, holes included.
    pub bytes: u64,
    /// Inodes of its disk image.
    pub inodes: u64,
    /// When it was made, in seconds since 1970.
    pub created_secs: u64,
}

/// Where an image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A registry, which has it still.
    Pulled,
    /// A file, which may be gone: never removed without being told.
    Imported,
}

impl Record {
    /// The only form there is.
    pub(crate) const VERSION: u32 = 1;
}
