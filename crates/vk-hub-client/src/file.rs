//! Files that must be whole or absent, and closed to others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file or directory that could not be handled.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was tried.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

impl FileError {
    fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError {
            action,
            path,
            source,
        }
    }
}

/// No file of an enrolment is larger.
const LARGEST: u64 = 1024 * 1024;

/// Makes the directory with mode 0700 where it is missing.
pub(crate) fn private_dir(path: &Path) -> Result<(), FileError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map_err(FileError::of("create the directory", path)),
    }
}

/// Replaces the file atomically, mode 0600, durable once this returns.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let temporary = path.with_extension("new");
    let written = write_new(&temporary, bytes).map_err(FileError::of("write", &temporary));
    let moved =
        written.and_then(|()| fs::rename(&temporary, path).map_err(FileError::of("replace", path)));
    if moved.is_err() {
        // The first error is the one to tell of.
        let _ = fs::remove_file(&temporary);
    }
    moved?;
    sync_parent(path)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Puts the file in another's place, durable once this returns.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).map_err(FileError::of("replace", to))?;
    sync_parent(to)
}

/// Removes the file; one that is not there counts as removed.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => {
            done.map_err(FileError::of("remove", path))?;
            sync_parent(path)
        }
    }
}

fn sync_parent(path: &Path) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(FileError::of("sync the directory", parent))
}

/// Reads the whole file; none where it is missing.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(FileError::of("open", path))?,
    };
    let mut bytes = Vec::new();
    file.take(LARGEST)
        .read_to_end(&mut bytes)
        .map_err(FileError::of("read", path))?;
    Ok(Some(bytes))
}
