//! Images on a node: what they are called, which are allowed, and their disks.
//!
//! A [`Store`] keeps one EROFS disk image a manifest, found by content, with the configuration it is
//! run by, and a map from names to them. [`Store::import`] takes archives and layouts from files,
//! [`Puller`] takes images from registries by a pull policy, [`Rules`] says which images a node lets
//! in. Processes share a store: names and images change under a lock, and whoever uses an image holds
//! a [`Lease`], so that nothing removes it meanwhile.
//!
//! This crate must not know jobs or GitLab.

#![forbid(unsafe_code)]

mod build;
mod compression;
mod durable;
mod error;
mod import;
mod lock;
mod names;
mod pattern;
mod pull;
mod record;
mod rules;
mod store;

pub use error::{Error, Short};
pub use pattern::is_pattern;
pub use pull::{Outcome, Patience, Progress, PullPolicy, Puller};
pub use record::{Origin, Record};
pub use rules::{Choice, RuleError, Rules};
pub use store::{Bounds, Collected, Keep, Lease, Listed, Store};
pub use vk_oci::{Client as RegistryClient, Config as RegistryConfig};
pub use vk_oci::{Credential, Digest, Keychain, Password, Platform, Reference, RunConfig};
