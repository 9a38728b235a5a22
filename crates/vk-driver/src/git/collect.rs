//! Removing what jobs' sources left on a host and nobody used for long, for its operator.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::kept::{lock_of, remove_tree};
use super::lock::Lock;
use super::room::{Room, SourceBounds, bytes, entries, names, remove};

/// A file that is being written is never so old.
const ABANDONED: Duration = Duration::from_secs(86_400);
/// Which start of the host this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What went, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// How many.
    pub count: u64,
    /// What they took of the disk, in bytes.
    pub bytes: u64,
}

impl Gone {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What went of sources, or would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectedSources {
    /// Mirrors with the LFS objects of their projects.
    pub mirrors: Gone,
    /// LFS objects of projects that stay.
    pub objects: Gone,
    /// Trees that were kept for projects' next jobs.
    pub trees: Gone,
    /// What processes that died were making.
    pub leftovers: Gone,
}

/// Removes what was not used for `idle`, what is beyond the bounds, and what nobody makes any more:
/// never what a job uses. Without `really`, only counts.
#[must_use]
pub fn collect_sources(
    mirrors: &Path,
    bounds: SourceBounds,
    idle: Duration,
    really: bool,
) -> CollectedSources {
    let room = Room {
        root: mirrors.to_owned(),
        bounds,
    };
    let collect = Collect { room, idle, really };
    let mut gone = CollectedSources::default();
    collect.repositories(&mut gone);
    collect.trees(&mut gone.trees);
    collect.leftovers(&mut gone.leftovers);
    gone
}

struct Collect {
    room: Room,
    idle: Duration,
    really: bool,
}

impl Collect {
    fn is_idle(&self, used: SystemTime) -> bool {
        since(used) > self.idle
    }

    fn repositories(&self, gone: &mut CollectedSources) {
        let all = self.room.repositories();
        let sum = |sum: u64, bytes: u64| sum.saturating_add(bytes);
        let mut total = all.iter().map(|one| one.bytes).fold(0, sum);
        for one in all {
            let goes = self.is_idle(one.used) || total > self.room.bounds.total;
            // With its locks nobody uses it; they end before it is removed, which takes them anew.
            let unused = goes && self.room.unused(&one.name).is_some();
            if unused && (!self.really || self.room.remove(&one.name)) {
                total = total.saturating_sub(one.bytes);
                gone.mirrors.add(one.bytes);
            } else {
                self.objects(&one.name, &mut gone.objects);
            }
        }
    }

    /// Jobs that use one have a name of their own for it.
    fn objects(&self, name: &str, gone: &mut Gone) {
        let before = gone.count;
        for (used, bytes, path) in self.room.objects(name) {
            if self.is_idle(used) && (!self.really || remove(&path).is_ok()) {
                gone.add(bytes);
            }
        }
        if self.really && gone.count > before {
            self.room.measure(name);
        }
    }

    /// Of another start of the host none is ever used again.
    fn trees(&self, gone: &mut Gone) {
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
        for path in entries(&self.room.root.join("trees")) {
            if !path.is_dir() {
                continue;
            }
            let whole = path.join("whole");
            let told = std::fs::read_to_string(&whole).unwrap_or_default();
            let of_now = !boot.is_empty() && told.split(' ').next() == Some(boot.trim());
            let used = modified(&whole).or_else(|| modified(&path));
            let idle = used.is_some_and(|used| self.is_idle(used) || !of_now && is_old(used));
            if idle {
                self.alone(&lock_of(&path), &path, gone);
            }
        }
    }

    fn leftovers(&self, gone: &mut Gone) {
        for name in names(&self.room.root, ".new") {
            let path = self.room.root.join(format!("{name}.new"));
            self.alone(&self.room.mirror_lock(&name), &path, gone);
        }
        for dir in self.dirs_of_files() {
            for path in entries(&dir) {
                let name = path.file_name().and_then(|name| name.to_str());
                let half = name.is_some_and(|name| name.starts_with(".tmp")) && path.is_file();
                if half && modified(&path).is_some_and(is_old) {
                    self.remove(&path, gone);
                }
            }
        }
    }

    /// Where files are written beside their place.
    fn dirs_of_files(&self) -> Vec<PathBuf> {
        let lfs = self.room.root.join("lfs");
        let of_projects = entries(&lfs).filter(|path| path.is_dir());
        let stores: Vec<_> = of_projects
            .flat_map(|dir| entries(&dir).collect::<Vec<_>>())
            .collect();
        let dirs = stores.into_iter().filter(|path| path.is_dir());
        dirs.chain([self.room.root.clone()]).collect()
    }

    /// Removes what is under this lock, where nobody has it.
    fn alone(&self, lock: &Path, path: &Path, gone: &mut Gone) {
        if let Ok(Some(_lock)) = Lock::try_take(lock) {
            self.remove(path, gone);
        }
    }

    fn remove(&self, path: &Path, gone: &mut Gone) {
        let bytes = bytes(path);
        // A tree's mark goes before the tree; elsewhere there is none.
        let removed = match self.really {
            true if path.is_dir() => remove_tree(path),
            true => remove(path),
            false => Ok(()),
        };
        match removed {
            Ok(()) => gone.add(bytes),
            Err(error) => tracing::warn!(%error, "{} stays", path.display()),
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::symlink_metadata(path).ok()?.modified().ok()
}

fn since(used: SystemTime) -> Duration {
    SystemTime::now().duration_since(used).unwrap_or_default()
}

fn is_old(used: SystemTime) -> bool {
    since(used) > ABANDONED
}

#[cfg(test)]
mod tests;
