//! How much of the host's disk mirrors and LFS objects may take, and what goes where it is too much.
//!
//! A *repository* here is what the host has of one: `<name>.git`, its mirror, and `lfs/<name>`, its LFS
//! objects. Beside them lie `<name>.lock`, held while a job uses the mirror and dated by each that
//! does, `lfs/<name>.lock`, shared by jobs that bring objects, and `<name>.size`, what both took when
//! they were looked at last.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::host::GitError;
use super::limits::memory_of_host;
use super::lock::Lock;

/// How often it is looked whether a lock is free.
const LOCK_WAIT: Duration = Duration::from_millis(100);
/// Files that are looked at when a directory is measured.
const FILES_MAX: usize = 2_000_000;
/// Directories below each other.
const LEVELS_MAX: usize = 32;
/// Repositories of one host.
const REPOSITORIES_MAX: usize = 100_000;
/// Which part of its disk a host gives to mirrors and LFS objects, where nothing is said, and which
/// part of that to one project.
const PART_OF_DISK: u64 = 5;
const PART_OF_TOTAL: u64 = 2;

/// How much of the host repositories may take, in bytes: of its disk their mirrors and their LFS
/// objects, of its memory the gits that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceBounds {
    /// All of them.
    pub total: u64,
    /// One project's. One that is larger is not kept from job to job, and no file of it may be larger.
    pub project: u64,
    /// Memory of one process of git.
    pub git_memory: u64,
}

impl Default for SourceBounds {
    fn default() -> Self {
        SourceBounds {
            total: u64::MAX,
            project: u64::MAX,
            git_memory: u64::MAX,
        }
    }
}

impl SourceBounds {
    /// As configured, else by the disk that `dir` lies on: a fifth of it for all, half of all for one.
    /// A git has a quarter of the host's memory, no less than 1 GiB and no more than 4.
    #[must_use]
    pub fn of_disk(dir: &Path, total: Option<u64>, project: Option<u64>) -> SourceBounds {
        let disk = || {
            let of = rustix::fs::statvfs(dir).ok()?;
            Some(of.f_blocks.saturating_mul(of.f_frsize) / PART_OF_DISK)
        };
        let total = total.or_else(disk).unwrap_or(u64::MAX);
        let project = project.unwrap_or(total / PART_OF_TOTAL);
        SourceBounds {
            total,
            project: project.min(total),
            git_memory: memory_of_host(),
        }
    }

    /// With as much memory for each process of git, where it is said.
    #[must_use]
    pub fn git_memory(self, said: Option<u64>) -> SourceBounds {
        let git_memory = said.unwrap_or(self.git_memory);
        SourceBounds { git_memory, ..self }
    }
}

/// Where repositories are kept.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) root: PathBuf,
    pub(super) bounds: SourceBounds,
}

/// A repository on this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Repository {
    /// When a job used it last.
    pub(super) used: SystemTime,
    pub(super) bytes: u64,
    pub(super) name: String,
}

/// What a repository takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) mirror: u64,
    pub(super) lfs: u64,
}

impl Size {
    pub(super) const fn all(self) -> u64 {
        self.mirror.saturating_add(self.lfs)
    }
}

impl Room {
    pub(super) fn mirror(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.git"))
    }

    pub(super) fn mirror_lock(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.lock"))
    }

    pub(super) fn lfs(&self, name: &str) -> PathBuf {
        self.root.join("lfs").join(name)
    }

    pub(super) fn lfs_lock(&self, name: &str) -> PathBuf {
        self.root.join("lfs").join(format!("{name}.lock"))
    }

    fn note(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.size"))
    }

    /// What a repository takes, looked at anew, and noted for those that add it all up.
    pub(super) fn measure(&self, name: &str) -> Size {
        let size = Size {
            mirror: bytes(&self.mirror(name)),
            lfs: bytes(&self.lfs(name)),
        };
        let text = format!("{} {}\n", size.mirror, size.lfs);
        // For sums only: without it the next that adds up looks itself.
        let _ = replace(&self.note(name), text.as_bytes());
        size
    }

    /// What was noted, else what is found.
    fn size(&self, name: &str) -> Size {
        let noted = || {
            let text = fs::read_to_string(self.note(name)).ok()?;
            let (mirror, lfs) = text.trim().split_once(' ')?;
            Some(Size {
                mirror: mirror.parse().ok()?,
                lfs: lfs.parse().ok()?,
            })
        };
        noted().unwrap_or_else(|| self.measure(name))
    }

    /// Every repository that has something here, the least recently used first.
    pub(super) fn repositories(&self) -> Vec<Repository> {
        let mut names: Vec<String> = names(&self.root, ".git");
        let lfs = self.root.join("lfs");
        let dirs = entries(&lfs).filter(|path| path.is_dir());
        names.extend(dirs.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())));
        names.sort();
        names.dedup();
        names.truncate(REPOSITORIES_MAX);
        let of = |name: String| Repository {
            used: self.used(&name),
            bytes: self.size(&name).all(),
            name,
        };
        let mut all: Vec<_> = names.into_iter().map(of).collect();
        all.sort();
        all
    }

    fn used(&self, name: &str) -> SystemTime {
        let dated = |path: PathBuf| fs::metadata(path).and_then(|of| of.modified()).ok();
        let locks = [self.mirror_lock(name), self.lfs_lock(name)];
        let last = locks.into_iter().filter_map(dated).max();
        last.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// A job is done with a repository whose mirror's lock it holds: one that is larger than a project
    /// may be goes, and of others as many as are too much.
    pub(super) fn settle(&self, name: &str) {
        let size = self.measure(name);
        if size.all() > self.bounds.project {
            tracing::warn!(
                bytes = size.all(),
                most = self.bounds.project,
                "the mirror {name} is larger than a project may be ([sources] max_project): it is \
                 not kept"
            );
            if let Err(error) = self.remove_mirror(name) {
                tracing::warn!(%error, "a mirror stays: {name}");
            }
            self.measure(name);
        }
        self.make_room(0, name);
    }

    /// Removes repositories, the least recently used first, until there is room for so much more:
    /// never the one named, nor one that a job uses.
    pub(super) fn make_room(&self, more: u64, but: &str) -> u64 {
        let all = self.repositories();
        let sum = |total: u64, one: &Repository| total.saturating_add(one.bytes);
        let mut total = all.iter().fold(more, sum);
        let mut freed = 0;
        for one in all {
            if total <= self.bounds.total {
                break;
            }
            if one.name != but && self.remove(&one.name) {
                total = total.saturating_sub(one.bytes);
                freed += one.bytes;
            }
        }
        freed
    }

    /// Removes a repository, unless a job uses it.
    pub(super) fn remove(&self, name: &str) -> bool {
        let Some(_locks) = self.unused(name) else {
            return false;
        };
        let beside = [self.lfs(name), self.note(name)];
        let removed = self
            .remove_mirror(name)
            .and_then(|()| beside.iter().try_for_each(|path| remove(path)));
        if let Err(error) = &removed {
            tracing::warn!(%error, "a repository stays: {name}");
        }
        removed.is_ok()
    }

    /// Removes a mirror whose lock is held: under another name first, so that what is left when this is
    /// cut short is none.
    fn remove_mirror(&self, name: &str) -> io::Result<()> {
        let aside = self.root.join(format!("{name}.new"));
        remove(&aside)?;
        match fs::rename(self.mirror(name), &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => remove(&aside),
        }
    }

    /// Both locks of a repository, where no job uses it. Whoever has them leaves no new date.
    pub(super) fn unused(&self, name: &str) -> Option<(Lock, Lock)> {
        let undated = |path: PathBuf| {
            let made = !path.exists();
            let lock = Lock::try_take(&path).ok()??;
            if made {
                set_date(&path, SystemTime::UNIX_EPOCH);
            }
            Some(lock)
        };
        Some((
            undated(self.mirror_lock(name))?,
            undated(self.lfs_lock(name))?,
        ))
    }

    /// LFS objects of a repository with their last use and size, the least recently used first.
    pub(super) fn objects(&self, name: &str) -> Vec<(SystemTime, u64, PathBuf)> {
        let mut all = Vec::new();
        for part in entries(&self.lfs(name)) {
            for path in entries(&part).take(FILES_MAX) {
                // Another job is bringing it.
                let name = path.file_name().and_then(|name| name.to_str());
                if name.is_some_and(|name| name.starts_with(".tmp")) {
                    continue;
                }
                if let Ok(of) = fs::symlink_metadata(&path)
                    && let Ok(used) = of.modified()
                {
                    all.push((used, of.blocks() * 512, path));
                }
            }
        }
        all.sort();
        all
    }

    /// Removes LFS objects of a repository that nobody wants now, the least recently used first, until
    /// it may have so much more. Jobs that use one have a name of their own for it.
    pub(super) fn make_room_of_objects(
        &self,
        name: &str,
        more: u64,
        wanted: impl Fn(&Path) -> bool,
    ) {
        let mut has = self.measure(name).all().saturating_add(more);
        for (_, bytes, path) in self.objects(name) {
            if has <= self.bounds.project {
                return;
            }
            if !wanted(&path) && fs::remove_file(&path).is_ok() {
                has = has.saturating_sub(bytes);
            }
        }
    }
}

/// A lock that several jobs share, for as long as it is kept.
#[derive(Debug)]
pub(super) struct Shared(fs::File);

impl Drop for Shared {
    fn drop(&mut self) {
        // As `Lock` does: a fork may hold the file, too.
        let _ = self.0.unlock();
    }
}

impl Shared {
    /// Waits until nobody has it alone, and dates it.
    pub(super) async fn take(path: &Path) -> Result<Shared, GitError> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(GitError::file("make", dir))?;
        }
        let mut options = fs::OpenOptions::new();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(path).map_err(GitError::file("open", path))?;
        loop {
            match file.try_lock_shared() {
                Ok(()) => break,
                Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(LOCK_WAIT).await,
                Err(fs::TryLockError::Error(error)) => {
                    return Err(GitError::file("lock", path)(error));
                }
            }
        }
        date(path);
        Ok(Shared(file))
    }
}

/// Dates a file: it was used now.
pub(super) fn date(path: &Path) {
    set_date(path, SystemTime::now());
}

fn set_date(path: &Path, at: SystemTime) {
    let opened = fs::File::options().append(true).open(path);
    // Without the date it only goes sooner or later.
    let _ = opened.and_then(|file| file.set_modified(at));
}

/// Names with this ending in a directory, without it.
pub(super) fn names(dir: &Path, ending: &str) -> Vec<String> {
    let name = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(ending)?;
        Some(name.to_owned())
    };
    entries(dir).filter_map(name).collect()
}

/// What is in a directory; nothing where it is none.
pub(super) fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let read = fs::read_dir(dir).into_iter().flatten().flatten();
    read.map(|entry| entry.path())
}

/// What a directory or file takes of the disk.
pub(super) fn bytes(path: &Path) -> u64 {
    let mut left = FILES_MAX;
    let mut sum = 0_u64;
    let mut waiting = vec![(path.to_owned(), 0)];
    while let Some((path, level)) = waiting.pop() {
        let Ok(of) = fs::symlink_metadata(&path) else {
            continue;
        };
        sum = sum.saturating_add(of.blocks() * 512);
        if of.is_dir() && level < LEVELS_MAX {
            for below in entries(&path) {
                let Some(fewer) = left.checked_sub(1) else {
                    return sum;
                };
                left = fewer;
                waiting.push((below, level + 1));
            }
        }
    }
    sum
}

/// Removes a directory or a file; one that is gone is no error.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(of) if of.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    io::Write::write_all(&mut new, bytes)?;
    new.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests;
