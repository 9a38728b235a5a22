//! Tar entries in, one uncompressed EROFS image out.
//!
//! A [`Builder`] merges layers (decompressed tar streams, lowest first, with OCI whiteouts) or
//! entries made by the caller into one tree in memory and writes file contents to the image as they
//! stream by: no root, no unpacked tree, memory bounded by metadata alone. The same input gives the
//! same bytes. What comes from an archive is hostile: every count, name and size has a bound in
//! [`Limits`], and no name leads out of the image's root.
//!
//! Images have 4 KiB blocks, extended inodes and no compression, so that Linux 6.1 mounts them;
//! holes are null chunks of chunk-based inodes.
//!
//! This crate must not know OCI manifests, registries or compression.

#![forbid(unsafe_code)]

mod builder;
mod data;
mod directory;
mod disk;
mod error;
mod extract;
mod image;
mod layer;
mod layout;
mod limits;
mod metadata;
mod path;
mod read;
pub mod tar;
mod tree;

pub use builder::{Builder, Options, Summary};
pub use error::{DisplayPath, Error, Fault};
pub use extract::{Extracted, extract};
pub use layer::Whiteouts;
pub use limits::Limits;
pub use metadata::{Metadata, Node, Timestamp};
