//! A directory that is no repository's root, copied as it stands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{RunError, file};

/// Most files and folders.
const MAX_ENTRIES: usize = 500_000;
/// Most bytes.
const MAX_BYTES: u64 = 16 << 30;
/// Deepest folder.
const MAX_DEPTH: usize = 256;
/// What is not part of a project: git's own folders, and what this program leaves behind.
const LEFT_OUT: [&str; 2] = [".git", ".vk-lab"];

/// Counts what was copied.
#[derive(Debug, Default)]
pub(super) struct Copied {
    entries: usize,
    bytes: u64,
    /// Sockets, pipes and devices, which git does not keep.
    pub(super) specials: usize,
}

/// Copies a tree into a folder that is there.
pub(super) fn tree(from: &Path, to: &Path) -> Result<Copied, RunError> {
    let mut copied = Copied::default();
    folder(from, to, 0, &mut copied)?;
    Ok(copied)
}

fn folder(from: &Path, to: &Path, depth: usize, copied: &mut Copied) -> Result<(), RunError> {
    if depth > MAX_DEPTH {
        let why = format!("it is deeper than {MAX_DEPTH} folders");
        return Err(too_large(from, &why));
    }
    for entry in fs::read_dir(from).map_err(|error| not_read(from, error))? {
        let entry = entry.map_err(file("list", from))?;
        let name = entry.file_name();
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        copied.entries += 1;
        if copied.entries > MAX_ENTRIES {
            return Err(too_large(
                &source,
                &format!("more than {MAX_ENTRIES} files"),
            ));
        }
        let kind = entry.file_type().map_err(file("look at", &source))?;
        if kind.is_dir() {
            fs::create_dir(&target).map_err(file("create", &target))?;
            folder(&source, &target, depth + 1, copied)?;
        } else if kind.is_symlink() {
            link(&source, &target).map_err(file("copy the link", &source))?;
        } else if kind.is_file() {
            copied.bytes += fs::copy(&source, &target).map_err(|error| not_read(&source, error))?;
            if copied.bytes > MAX_BYTES {
                return Err(too_large(&source, "more than 16 GiB"));
            }
        } else {
            copied.specials += 1;
        }
    }
    Ok(())
}

fn link(from: &PathBuf, to: &PathBuf) -> io::Result<()> {
    std::os::unix::fs::symlink(fs::read_link(from)?, to)
}

/// What of the project is closed to the user is the project's fault; anything else is the host's.
fn not_read(path: &Path, error: io::Error) -> RunError {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return file("copy", path)(error);
    }
    RunError::Project {
        path: path.to_owned(),
        why: format!("{error}; make it readable, or make a repository of what the pipeline needs"),
    }
}

fn too_large(path: &Path, why: &str) -> RunError {
    let path = path.to_owned();
    let why = format!("{why}; make a repository of what the pipeline needs, and run that");
    RunError::Project { path, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_links_and_modes_are_copied_and_gits_own_left_out() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir_all(from.join("deep/.git")).unwrap();
        fs::create_dir(from.join(".vk-lab")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("deep/run.sh"), "x").unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(from.join("deep/run.sh"), mode).unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        let copied = tree(&from, &to).unwrap();
        assert_eq!(copied.specials, 1);
        assert_eq!(
            fs::read_link(to.join("link")).unwrap(),
            Path::new("nowhere")
        );
        let mode = fs::metadata(to.join("deep/run.sh")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o755);
        assert!(!to.join("deep/.git").exists() && !to.join(".vk-lab").exists());
    }
}
