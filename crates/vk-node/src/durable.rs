//! Files that are whole and on the disk, or are not there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file or directory that failed us.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}{}", path.display(), hint(source))]
pub struct FileError {
    /// What was tried.
    pub what: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (the disk is full: make room)"
        }
        _ => "",
    }
}

impl FileError {
    /// Makes an I/O error one of these.
    pub(crate) fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError { what, path, source }
    }
}

/// Makes the directory with mode 0700, and gives it that mode where it is there already.
///
/// # Errors
/// It cannot be made, or is not ours.
pub fn private_dir(path: &Path) -> Result<(), FileError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let now = fs::metadata(path).map_err(FileError::of("look at", path))?;
            if now.permissions().mode() & 0o777 == 0o700 {
                return Ok(());
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))
                .map_err(FileError::of("close to others", path))
        }
        made => made.map_err(FileError::of("create the directory", path)),
    }
}

/// Syncs a directory: what was made, renamed or removed in it stays so.
///
/// # Errors
/// The disk failed.
pub fn sync_dir(path: &Path) -> Result<(), FileError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(FileError::of("sync the directory", path))
}

/// Writes a file of mode 0600 that was not there, or replaces it, and syncs it; its name is
/// durable only once its directory is synced.
///
/// # Errors
/// The disk failed.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    // Names that differ behind their last dot only have files of their own.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    })();
    written.map_err(|error| {
        // The first error is the one to tell of.
        let _ = fs::remove_file(&fresh);
        FileError::of("write", path)(error)
    })
}

/// Reads a file of at most `most` bytes; none where it is not there.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn read_bounded(path: &Path, most: u64) -> Result<Option<Vec<u8>>, FileError> {
    let failed = |error| FileError::of("read", path)(error);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(failed)?;
    if bytes.len() as u64 > most {
        let why = format!("it is longer than {most} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    Ok(Some(bytes))
}

/// Removes a file; one that is not there counts as removed.
///
/// # Errors
/// The disk failed.
pub fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(FileError::of("remove", path)),
    }
}

/// Removes a directory and everything below it, directories that their owner closed to himself
/// too (overlayfs leaves such); one that is not there counts as removed.
///
/// # Errors
/// Something of it cannot be removed.
pub fn remove_tree(path: &Path) -> Result<(), FileError> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_dir_all(path) {
        Ok(()) => return Ok(()),
        Err(error) if gone(&error) => return Ok(()),
        Err(_) => open_up(path, 64),
    }
    match fs::remove_dir_all(path) {
        Err(error) if gone(&error) => Ok(()),
        done => done.map_err(FileError::of("remove the directory", path)),
    }
}

/// Gives their owner back the way into directories, as far as that goes.
fn open_up(path: &Path, depth: u32) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    let Some(deeper) = depth.checked_sub(1) else {
        return;
    };
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    for entry in entries.flatten().filter(is_dir) {
        open_up(&entry.path(), deeper);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("start.json");
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        assert_eq!(read_bounded(&path, 3).unwrap().unwrap(), b"two");
        assert!(read_bounded(&path, 2).is_err());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_tree_goes_even_where_its_owner_closed_it_to_himself() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("work");
        let closed = tree.join("a/b");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }
}
