//! OCI registries: what images are called, what they are made of, how they are fetched, and how
//! artifacts are pushed.
//!
//! [`Reference`] and [`Digest`] are names; [`Client`] fetches manifests and blobs from a registry
//! without credentials or with those of a [`Keychain`], by the Distribution token flow. A registry
//! is hostile input: every answer has a size limit, every content is checked against its digest,
//! redirects never carry credentials to another origin, and plain HTTP is for loopback and for
//! registries that a setting names.
//!
//! This crate must not know disks, layers' contents, jobs or GitLab.

#![forbid(unsafe_code)]

mod answer;
mod challenge;
mod client;
mod config;
mod digest;
mod download;
mod error;
mod keychain;
mod manifest;
mod near;
mod origin;
mod platform;
mod push;
mod reference;
mod token;

pub use client::{Client, Config, Image};
pub use config::{ImageConfig, RunConfig};
pub use digest::{Digest, DigestError, Hasher};
pub use error::{Error, Failure};
pub use keychain::{Credential, Keychain, Password};
pub use manifest::{Descriptor, Index, Manifest, ManifestError, limits};
pub use near::{Near, is_no_servers, means_this_host};
pub use origin::registry_url;
pub use platform::{Platform, PlatformError};
pub use reference::{Reference, ReferenceError};
