//! State files: one a runner, replaced whole, and the lock on their directory.

mod replace;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use vk_gitlab_core::state_file::{self, StateFile, StateFileError};
use vk_hub_proto::RelayId;

pub use replace::{Written, replace};

/// No state file is larger: 512 KiB a job and a thousand jobs.
const LARGEST: u64 = 1 << 30;

/// State that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The directory is missing and cannot be made (STATE-08).
    #[error(
        "cannot create {path}: create it for this user first: \
         install -d -m 0700 -o <user> -g <group> {path}",
        path = path.display()
    )]
    NoDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may read it (STATE-07).
    #[error("{path} can be used by others (mode {mode:o}): chmod {must} {path}", path = path.display())]
    Loose {
        /// The directory or file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What its mode must be.
        must: &'static str,
    },
    /// It is no file of ours.
    #[error("{} is {what}, where only a file may be: take it away", path.display())]
    Strange {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Another daemon has it (STATE-24).
    #[error("another vk-gitlab runs on {}: stop it first", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file's content.
    #[error("{}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: StateFileError,
    },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::File {
        action,
        path,
        source,
    }
}

/// Whether others than its owner have no way to it (STATE-07).
fn closed(path: &Path, about: &fs::Metadata, must: &'static str) -> Result<(), StateError> {
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(StateError::Loose {
        path: path.to_owned(),
        mode,
        must,
    })
}

/// The state directory, locked for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    written: Written,
    lock: File,
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has forked and that has not come to
        // its exec holds the file too.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl StateDir {
    /// Opens the directory, making it where it is missing, and locks it.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn open(path: &Path) -> Result<StateDir, StateError> {
        match fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
        {
            Err(source) if !path.exists() => {
                return Err(StateError::NoDirectory {
                    path: path.to_owned(),
                    source,
                });
            }
            made => made.map_err(failed("create", path))?,
        }
        let about = fs::metadata(path).map_err(failed("read", path))?;
        closed(path, &about, "0700")?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&lock_path);
        let lock = lock.map_err(failed("open", &lock_path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateDir {
                path: path.to_owned(),
                written: Written::default(),
                lock,
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Locked {
                path: path.to_owned(),
            }),
            Err(errno) => Err(failed("lock", &lock_path)(errno.into())),
        }
    }

    /// State files of the directory, by runner name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn runners(&self) -> Result<Vec<String>, StateError> {
        let list = fs::read_dir(&self.path).map_err(failed("list", &self.path))?;
        let mut names = Vec::new();
        for entry in list {
            let name = entry.map_err(failed("list", &self.path))?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".json"));
            names.extend(
                name.filter(|name| !name.starts_with('.'))
                    .map(str::to_owned),
            );
        }
        names.sort();
        Ok(names)
    }

    /// Whether the enrolment's key and its directory are closed to others, as far as they are there.
    ///
    /// # Errors
    /// Others may read one of them.
    pub(crate) fn check_enrolment(&self) -> Result<(), StateError> {
        let directory = self.path.join("hub");
        for (path, must) in [(&directory, "0700"), (&directory.join("key.pk8"), "0600")] {
            match fs::metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                about => closed(path, &about.map_err(failed("read", path))?, must)?,
            }
        }
        Ok(())
    }

    /// What its files have cost so far.
    #[must_use]
    pub const fn written(&self) -> &Written {
        &self.written
    }

    /// A runner's file.
    #[must_use]
    pub fn file(&self, runner: &str) -> Stored {
        Stored {
            path: self.path.join(format!("{runner}.json")),
            written: self.written.clone(),
        }
    }
}

/// One state file.
#[derive(Clone, Debug)]
pub struct Stored {
    path: PathBuf,
    written: Written,
}

impl Stored {
    /// Reads the file for a relay, and removes what a write that was cut short left; an absent
    /// file holds nothing.
    ///
    /// # Errors
    /// It cannot be read, or is not this relay's (STATE-14, STATE-15).
    pub fn read(&self, relay: RelayId) -> Result<StateFile, StateError> {
        let temporary = self.temporary();
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &temporary)(error));
            }
            _ => {}
        }
        // A link is replaced by the next write, and what it led to would be left behind.
        let about = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(StateFile::default());
            }
            about => about.map_err(failed("read", &self.path))?,
        };
        if !about.is_file() {
            return Err(StateError::Strange {
                path: self.path.clone(),
                what: match about.is_symlink() {
                    true => "a symbolic link",
                    false => "a directory or device",
                },
            });
        }
        closed(&self.path, &about, "0600")?;
        if about.len() > LARGEST {
            return Err(failed("read", &self.path)(io::Error::other(
                "the file is too large",
            )));
        }
        let text = fs::read_to_string(&self.path).map_err(failed("read", &self.path))?;
        let content = |source| StateError::Content {
            path: self.path.clone(),
            source,
        };
        state_file::parse(&text, relay).map_err(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        dir
    }

    /// STATE-06, STATE-07
    #[test]
    fn the_directory_is_made_private_and_a_loose_one_is_refused() {
        let dir = private();
        let path = dir.path().join("state");
        drop(StateDir::open(&path).unwrap());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o710)).unwrap();
        let error = StateDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 0700"), "{error}");
    }

    #[test]
    fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
        let dir = private();
        let held = StateDir::open(dir.path()).unwrap();
        let _fork = held.lock.try_clone().unwrap();
        let error = StateDir::open(dir.path()).unwrap_err();
        assert!(matches!(error, StateError::Locked { .. }), "{error}");
        drop(held);
        StateDir::open(dir.path()).unwrap();
    }

    /// STATE-08
    #[test]
    fn a_directory_that_cannot_be_made_says_how_to_make_it() {
        let dir = private();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = StateDir::open(&dir.path().join("file/state"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("install -d -m 0700"), "{error}");
    }

    /// STATE-24, ENR-19
    #[test]
    fn a_second_daemon_is_refused() {
        let dir = private();
        let first = StateDir::open(dir.path()).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another vk-gitlab"), "{error}");
        drop(first);
        StateDir::open(dir.path()).unwrap();
    }

    /// STATE-01, STATE-13, STATE-19
    #[test]
    fn a_file_is_replaced_whole_and_leftovers_are_removed() {
        let dir = private();
        let state = StateDir::open(dir.path()).unwrap();
        let (relay, other) = (RelayId::from_bytes([1; 16]), RelayId::from_bytes([2; 16]));
        let file = state.file("ci");
        assert_eq!(file.read(relay).unwrap(), StateFile::default());
        let empty = state_file::render(relay, [], &Default::default()).unwrap();
        file.write(&empty).unwrap();
        let mode = dir
            .path()
            .join("ci.json")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600);
        fs::write(dir.path().join(".ci.json.new"), "torn").unwrap();
        assert!(file.read(relay).unwrap().jobs.is_empty());
        assert!(!dir.path().join(".ci.json.new").exists());
        assert!(
            file.read(other).unwrap().jobs.is_empty(),
            "no jobs, no matter"
        );
        assert_eq!(state.runners().unwrap(), ["ci"]);
    }

    /// STATE-01
    #[test]
    fn a_file_that_others_can_use_or_that_is_none_is_not_read() {
        let dir = private();
        let state = StateDir::open(dir.path()).unwrap();
        let (relay, file) = (RelayId::from_bytes([1; 16]), state.file("ci"));
        let path = dir.path().join("ci.json");
        file.write(&state_file::render(relay, [], &Default::default()).unwrap())
            .unwrap();
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = file.read(relay).unwrap_err().to_string();
            assert!(
                error.contains("chmod 0600") && error.contains("ci.json"),
                "{error}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        file.read(relay).unwrap();
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        let error = file.read(relay).unwrap_err().to_string();
        assert!(error.contains("a symbolic link"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = file.read(relay).unwrap_err().to_string();
        assert!(error.contains("a directory or device"), "{error}");
    }
}
