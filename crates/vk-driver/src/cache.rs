//! Caches: where they are kept, under which names, and in which form.
//!
//! A cache is an OCI artifact of one layer, a tar made in the guest and compressed on its way by the
//! node, in the registry that the node's settings name. The node alone speaks to the registry.
//! What a job says of it while it runs is `crate::stages::caches`.

mod keys;
mod layer;
mod manifest;
mod place;
mod settings;
mod store;
pub(crate) mod words;

pub(crate) use keys::{Candidates, candidates};
pub(crate) use layer::{LayerError, Limits, PIPE, Packed, Waiting, pack, unpack};
pub(crate) use manifest::Saved;
pub(crate) use place::Place;
pub(crate) use settings::CacheSettings;
pub(crate) use store::{Kept, Store};

/// What a job restored, by where it is from.
pub(crate) type Restored = std::collections::BTreeMap<String, vk_oci::Digest>;
