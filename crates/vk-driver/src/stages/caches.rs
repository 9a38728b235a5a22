//! Caches into the tree and out of it: the pair of stages around a job's steps.

mod archive;
mod restore;

use std::time::Instant;

use vk_hub_proto::job::CacheSpec;

pub(super) use archive::archive;
pub(super) use restore::restore;

use super::with_causes;
use crate::cache::{Limits, Place, Store};
use crate::job::Job;

/// The registry as it is for this job now; else why there is none.
fn store(job: &Job) -> Result<Store, String> {
    let caches = &job.context.caches;
    let place = Place::of(caches, job.spec(), Instant::now());
    let place = place.map_err(|skip| skip.to_string())?;
    let store = Store::open(place, caches, job.caching.request_timeout);
    store.map_err(|error| with_causes(&error))
}

/// A cache of nothing is none.
fn is_of_files(cache: &CacheSpec) -> bool {
    cache.untracked || !cache.paths.is_empty()
}

/// What an archive of the job may have, in and out.
fn limits(job: &Job) -> Limits {
    Limits {
        layer: job
            .context
            .caches
            .layer_cap
            .min(job.context.plan.disk_bytes),
        tar: job.context.plan.disk_bytes,
    }
}
