//! State files replaced, durably, and what that costs the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prometheus_client::metrics::counter::Counter;

use super::{StateError, Stored, failed};

/// What the state files of a directory have cost so far.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Files replaced.
    pub files: Counter,
    /// Syncs of files and of their directory, failed ones among them.
    pub syncs: Counter,
}

impl Written {
    /// The one place where state is synced.
    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.inc();
        file.sync_all()
    }
}

impl Stored {
    /// Replaces the file, durably (STATE-01, STATE-19).
    ///
    /// # Errors
    /// It could not be written; the old one stands.
    pub fn write(&self, text: &str) -> Result<(), StateError> {
        replace(&[(self, text)]).map_err(|(_, error)| error)
    }

    /// Writes what is to take the file's place.
    fn write_new(&self, text: &str) -> Result<(), StateError> {
        let temporary = self.temporary();
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())
                    .and_then(|()| self.written.sync(&file))
            });
        written.map_err(failed("write", &temporary))
    }

    fn take_its_place(&self) -> Result<(), StateError> {
        fs::rename(self.temporary(), &self.path).map_err(failed("replace", &self.path))?;
        self.written.files.inc();
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), StateError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let synced = File::open(directory).and_then(|directory| self.written.sync(&directory));
        synced.map_err(failed("sync", directory))
    }

    /// What stands beside the file while it is written.
    pub(super) fn temporary(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.new"))
    }
}

/// Replaces files of one directory, durably: a sync each, and one for the directory.
///
/// # Errors
/// Which one, by its place, could not be written. None is replaced before all are written.
pub fn replace(files: &[(&Stored, &str)]) -> Result<(), (usize, StateError)> {
    let each = |act: &dyn Fn(&Stored, &str) -> Result<(), StateError>| {
        let mut numbered = files.iter().enumerate();
        numbered.try_for_each(|(at, (stored, text))| act(stored, text).map_err(|error| (at, error)))
    };
    if let Err(error) = each(&Stored::write_new) {
        // None takes its place: what they have, tokens too, does not stay.
        for (stored, _) in files {
            let _ = fs::remove_file(stored.temporary());
        }
        return Err(error);
    }
    each(&|stored, _| stored.take_its_place())?;
    match files.first() {
        Some((first, _)) => first.sync_directory().map_err(|error| (0, error)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::StateDir;
    use super::*;

    fn state() -> (tempfile::TempDir, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        (dir, state)
    }

    #[test]
    fn files_written_together_share_the_sync_of_their_directory() {
        let (dir, state) = state();
        let files = ["a", "b", "c"].map(|name| state.file(name));
        let texts = files.each_ref().map(|file| (file, "{}"));
        replace(&texts).unwrap();
        let cost = || (state.written().files.get(), state.written().syncs.get());
        assert_eq!(cost(), (3, 4));
        files[0].write("{\"jobs\": []}").unwrap();
        assert_eq!(cost(), (4, 6));
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(["a.json", "b.json"].map(read), ["{\"jobs\": []}", "{}"]);
        replace(&[]).unwrap();
        assert_eq!(cost(), (4, 6));
    }

    #[test]
    fn where_one_cannot_be_written_none_is_replaced_and_it_is_named() {
        let (dir, state) = state();
        let files = ["a", "b"].map(|name| state.file(name));
        fs::create_dir(dir.path().join(".b.json.new")).unwrap();
        let texts = files.each_ref().map(|file| (file, "{}"));
        let (at, error) = replace(&texts).unwrap_err();
        assert_eq!(at, 1, "{error}");
        assert!(!dir.path().join("a.json").exists());
    }
}
