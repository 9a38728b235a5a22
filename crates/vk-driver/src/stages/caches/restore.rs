//! restore_cache.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use vk_guest_proto::TarIn;
use vk_hub_proto::job::{CachePolicy, CacheSpec, FailureClass};
use vk_stage_core::StageEnd;
use vk_vm::channel::GuestError;

use super::super::{failed, system, upload, with_causes};
use crate::cache::{Candidates, PIPE, Saved, Store, Waiting, candidates, unpack, words};
use crate::job::Job;
use crate::script::{notice, warning};
use crate::transfer_log::Level;

/// Entries of one archive: as many as the agent puts into one.
const ENTRIES_MAX: u64 = 2_000_000;

/// Restores each cache of the job. Only one that broke the tree is a failure (CACHE-19).
pub(in crate::stages) async fn restore(job: &Job) -> Result<(), StageEnd> {
    job.activity(Some("restoring caches"));
    let variable = job
        .shared()
        .variables
        .content("CACHE_FALLBACK_KEY")
        .map(str::to_owned);
    let variable = variable.map(|raw| job.expand(&raw, "CACHE_FALLBACK_KEY"));
    let variable = variable.transpose()?;
    for cache in job
        .spec()
        .caches
        .iter()
        .filter(|cache| super::is_of_files(cache))
    {
        one(job, cache, variable.as_deref()).await?;
    }
    job.activity(None);
    Ok(())
}

async fn one(job: &Job, cache: &CacheSpec, variable: Option<&str>) -> Result<(), StageEnd> {
    let key = &cache.key;
    if cache.policy == CachePolicy::Push {
        let line = format!("Not downloading cache {key} due to policy");
        job.output.say(&notice(&line));
        return Ok(());
    }
    let store = match super::store(job) {
        Ok(store) => store,
        Err(why) => {
            let line = format!("Cache {key} is not restored: {why}");
            job.output.say(&warning(&line));
            return Ok(());
        }
    };
    let Candidates {
        keys,
        warnings,
        skipped_empty,
    } = candidates(key, &cache.fallback_keys, variable);
    for line in warnings {
        job.output.say(&warning(&line));
    }
    if skipped_empty || keys.is_empty() {
        let line = "Skipping cache extraction due to empty cache key";
        job.output.say(&notice(line));
    }
    for key in &keys {
        job.output
            .say(&notice(&format!("Checking cache for {key}...")));
        if attempt(job, &store, key).await? {
            job.output.say(&notice("Successfully extracted cache"));
            return Ok(());
        }
        job.output.say(&warning("Failed to extract cache"));
    }
    Ok(())
}

/// Whether a key's cache is in the tree now.
async fn attempt(job: &Job, store: &Store, key: &str) -> Result<bool, StageEnd> {
    let trouble = |why: &dyn std::error::Error| {
        job.count(|counts| counts.cache_errors += 1);
        let line = format!("Cache error for {key}: {}", with_causes(why));
        job.output.log(Level::Warning, &line, &[]);
        Ok(false)
    };
    let at = match store.at(key) {
        Ok(at) => at,
        Err(error) => return trouble(&error),
    };
    let saved = match store.find(&at).await {
        Ok(Some(saved)) => saved,
        Ok(None) => {
            job.count(|counts| counts.cache_misses += 1);
            let line = format!("Cache miss for {key}: nothing is saved for it");
            job.output.log(Level::Warning, &line, &[]);
            return Ok(false);
        }
        Err(error) => return trouble(&error),
    };
    let digest = saved.layer.to_string();
    job.output
        .log(Level::Info, &hit(key, &saved), &[("digest", &digest)]);
    let layer = job.file("cache.tar.zst");
    let fetched = store.fetch(&at, &saved, &layer).await;
    let ended = match fetched {
        Ok(()) => {
            let extracted = extract(job, key, &layer).await;
            job.count(|counts| match &extracted {
                Ok(()) => counts.cache_hits += 1,
                Err(_) => counts.cache_errors += 1,
            });
            extracted.map(|()| true)
        }
        Err(error) => trouble(&error),
    };
    // Whatever became of it, its bytes are not needed again.
    let _ = std::fs::remove_file(&layer);
    if matches!(ended, Ok(true)) {
        job.shared().restored.insert(at.to_string(), saved.layer);
    }
    ended
}

/// A hit, with size and age.
fn hit(key: &str, saved: &Saved) -> String {
    let size = words::size(saved.size);
    let age = saved.created.map(|at| {
        let secs = Timestamp::now().as_second().saturating_sub(at.as_second());
        // Another host's clock may be ahead.
        words::age(Duration::from_secs(u64::try_from(secs).unwrap_or(0)))
    });
    match age {
        Some(age) => format!("Cache hit for {key}: {size}, saved {age} ago"),
        None => format!("Cache hit for {key}: {size}, of unknown age"),
    }
}

/// Extracts a layer in the guest. From here on a failure leaves a broken tree.
async fn extract(job: &Job, key: &str, layer: &Path) -> Result<(), StageEnd> {
    let guest = job.guest()?;
    let limits = super::limits(job);
    let request = TarIn {
        root: job.place.project_dir.clone().into_bytes(),
        owner: Vec::new(),
        max_entries: ENTRIES_MAX,
        max_bytes: limits.tar,
    };
    let (near, far) = tokio::io::duplex(PIPE);
    let mut out = Waiting {
        pipe: far,
        runtime: tokio::runtime::Handle::current(),
    };
    let from = layer.to_owned();
    let unpacking = tokio::task::spawn_blocking(move || unpack(&from, &mut out, limits));
    let transfer = guest.tar_in(request, near).await;
    let unpacked = unpacking.await.map_err(system)?;
    let broken = |why: &dyn std::error::Error| {
        let message = format!(
            "restoring the cache {key} broke the tree: {}; clear the project's caches in GitLab \
             if it happens again",
            with_causes(why)
        );
        failed(FailureClass::ExternalDependency, message)
    };
    match (&transfer, &unpacked) {
        (Err(error @ GuestError::Dead(_)), _) => return Err(system(error)),
        // What the agent says comes of it.
        (_, Err(error)) if !error.is_other_end() => return Err(broken(error)),
        (Err(error), _) => return Err(broken(error)),
        (Ok(_), _) => {}
    }
    for note in transfer.iter().flat_map(|transfer| &transfer.notes) {
        upload::notes::say(&job.output, note, &job.place.project_dir);
    }
    Ok(())
}
