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
        match replace(&[(self, text)])?.pop() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
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

/// Replaces files of one directory, durably: a sync each, and one for the directory. Which of them, by
/// its place, could not be replaced: the old one stands, and the others are replaced all the same.
///
/// # Errors
/// The directory could not be synced: which file stands after a crash is not known of any.
pub fn replace(files: &[(&Stored, &str)]) -> Result<Vec<(usize, StateError)>, StateError> {
    let mut failed = Vec::new();
    let mut replaced = None;
    for (at, (stored, text)) in files.iter().enumerate() {
        match stored
            .write_new(text)
            .and_then(|()| stored.take_its_place())
        {
            Ok(()) => replaced = Some(stored),
            Err(error) => {
                // What it has, tokens too, does not stay.
                let _ = fs::remove_file(stored.temporary());
                failed.push((at, error));
            }
        }
    }
    match replaced {
        Some(stored) => stored.sync_directory().map(|()| failed),
        None => Ok(failed),
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
        assert!(replace(&texts).unwrap().is_empty());
        let cost = || (state.written().files.get(), state.written().syncs.get());
        assert_eq!(cost(), (3, 4));
        files[0].write("{\"jobs\": []}").unwrap();
        assert_eq!(cost(), (4, 6));
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(["a.json", "b.json"].map(read), ["{\"jobs\": []}", "{}"]);
        assert!(replace(&[]).unwrap().is_empty());
        assert_eq!(cost(), (4, 6));
    }

    /// STATE-22
    #[test]
    fn where_one_cannot_be_written_it_is_named_and_the_others_are_replaced() {
        let (dir, state) = state();
        let files = ["a", "b", "c"].map(|name| state.file(name));
        fs::create_dir(dir.path().join(".b.json.new")).unwrap();
        let texts = files.each_ref().map(|file| (file, "{}"));
        let failed = replace(&texts).unwrap();
        let at: Vec<usize> = failed.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [1], "{failed:?}");
        let is_there = |name: &str| dir.path().join(name).exists();
        assert_eq!(
            ["a.json", "b.json", "c.json", ".a.json.new"].map(is_there),
            [true, false, true, false]
        );
    }
}
