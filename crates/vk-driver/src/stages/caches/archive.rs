//! archive_cache and archive_cache_on_failure.

use std::path::Path;

use vk_guest_proto::{TarOut, TransferEnd};
use vk_hub_proto::job::{CachePolicy, CacheSpec, When};
use vk_vm::channel::GuestError;

use super::super::upload::{notes, word};
use super::super::with_causes;
use super::{is_of_files, limits};
use crate::cache::{Kept, LayerError, PIPE, Packed, Saved, Store, Waiting, pack, words};
use crate::job::Job;
use crate::script::{notice, warning};
use crate::transfer_log::Level;

/// Saves each cache that this end of the script wants (CACHE-20). Nothing that goes wrong fails the
/// job (CACHE-19).
pub(in crate::stages) async fn archive(job: &Job, success: bool) {
    let other = if success {
        When::OnFailure
    } else {
        When::OnSuccess
    };
    job.activity(Some("saving caches"));
    let wanted = |cache: &&CacheSpec| cache.when != other && is_of_files(cache);
    for cache in job.spec().caches.iter().filter(wanted) {
        one(job, cache).await;
    }
    job.activity(None);
}

async fn one(job: &Job, cache: &CacheSpec) {
    let key = &cache.key;
    if cache.policy == CachePolicy::Pull {
        let line = format!("Not uploading cache {key} due to policy");
        return job.output.say(&notice(&line));
    }
    if key.is_empty() {
        let line = "Skipping cache archiving due to empty cache key";
        return job.output.say(&notice(line));
    }
    let store = match super::store(job) {
        Ok(store) => store,
        Err(why) => {
            let line = format!("Cache {key} is not saved: {why}");
            return job.output.say(&warning(&line));
        }
    };
    job.output.say(&notice(&format!("Creating cache {key}...")));
    let layer = job.file("cache.tar.zst");
    let end = save(job, cache, &store, &layer).await;
    let _ = std::fs::remove_file(&layer);
    match end {
        Ok(()) => job.output.say(&notice("Created cache")),
        Err(why) => {
            let line = format!("Cache error for {key}: {why}");
            job.output.log(Level::Warning, &line, &[]);
            job.output.say(&warning("Failed to create cache"));
        }
    }
}

async fn save(job: &Job, cache: &CacheSpec, store: &Store, layer: &Path) -> Result<(), String> {
    let key = &cache.key;
    let (end, packed) = make(job, cache, layer).await?;
    if end.entries == 0 {
        job.output.log(Level::Warning, "No files to cache.", &[]);
        return Ok(());
    }
    let at = store.at(key).map_err(|error| with_causes(&error))?;
    let restored = job.shared().restored.get(&at.to_string()).copied();
    let saved = Saved::now(packed, end.entries, end.bytes);
    let kept = store.save(&at, layer, &saved, restored).await;
    let kept = kept.map_err(|error| with_causes(&error))?;
    let size = words::size(saved.size);
    let line = match kept {
        Kept::Unchanged => format!("Cache {key} is unchanged: its {size} are at the registry"),
        Kept::Named => format!("Cache {key} is saved: its {size} were at the registry already"),
        Kept::Uploaded => {
            let (entries, bytes) = (end.entries, words::size(end.bytes));
            format!("Cache {key} is saved: {size} of {entries} files and directories, {bytes}")
        }
        Kept::Refused { stays } => {
            return Err(format!(
                "its files have no content now, and {} are saved: those stay",
                words::size(stays)
            ));
        }
    };
    let digest = saved.layer.to_string();
    job.output.log(Level::Info, &line, &[("digest", &digest)]);
    Ok(())
}

/// Makes a cache's layer of the tree as the job left it.
async fn make(job: &Job, cache: &CacheSpec, layer: &Path) -> Result<(TransferEnd, Packed), String> {
    let guest = job.guest().map_err(|_| "the VM is gone".to_owned())?;
    let paths = cache
        .paths
        .iter()
        .map(|path| word(job, path, "path").into_bytes());
    let request = TarOut {
        root: job.place.project_dir.clone().into_bytes(),
        paths: paths.collect(),
        exclude: Vec::new(),
        untracked: cache.untracked,
        list_only: false,
    };
    let (near, far) = tokio::io::duplex(PIPE);
    let (to, level, limits) = (layer.to_owned(), job.caching.level, limits(job));
    let tar = Waiting {
        pipe: far,
        runtime: tokio::runtime::Handle::current(),
    };
    let packing = tokio::task::spawn_blocking(move || pack(tar, &to, level, limits));
    let transfer = guest.tar_out(request, near).await;
    let packed = packing.await.map_err(|error| error.to_string())?;
    let (transfer, packed) = both(transfer, packed)?;
    for note in &transfer.notes {
        notes::say(&job.output, note, &job.place.project_dir);
    }
    Ok((transfer.end, packed))
}

/// Both ends of a transfer; of two that failed, the one that knows why.
fn both<T>(
    transfer: Result<T, GuestError>,
    packed: Result<Packed, LayerError>,
) -> Result<(T, Packed), String> {
    match (transfer, packed) {
        (Ok(transfer), Ok(packed)) => Ok((transfer, packed)),
        (_, Err(error)) => Err(with_causes(&error)),
        (Err(error), Ok(_)) => Err(with_causes(&error)),
    }
}
