//! Files and directories of a tree's `.git`, for what this process does there itself. The git that
//! made them read what a stranger wrote; should it ever have been taken over by that, then none of
//! the links and devices that it left here leads this process anywhere.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Bytes of a file that is read whole: names of ten million refs are fewer.
const FILE_MAX: u64 = 1 << 30;
/// Directories in each other: names of refs are shorter.
const LEVELS_MAX: usize = 512;

/// Opens a plain file where it is, to read and to write.
///
/// # Errors
/// It is none, a link to one among them, or cannot be opened.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no plain file")),
    }
}

/// Changes the content of a file, or of all below a directory. What is neither stays as it is.
///
/// # Errors
/// One cannot be read or written, is larger than any of git's own, or lies deeper.
pub(super) fn change(path: &Path, by: &impl Fn(&[u8]) -> Vec<u8>) -> io::Result<()> {
    change_at(path, by, 0)
}

fn change_at(path: &Path, by: &impl Fn(&[u8]) -> Vec<u8>, level: usize) -> io::Result<()> {
    let of = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        of => of?.file_type(),
    };
    if of.is_dir() {
        if level >= LEVELS_MAX {
            return Err(io::Error::other("directories lie too deep in each other"));
        }
        for entry in fs::read_dir(path)? {
            change_at(&entry?.path(), by, level + 1)?;
        }
        return Ok(());
    }
    if !of.is_file() {
        return Ok(());
    }
    let mut file = open(path)?;
    let mut before = Vec::new();
    (&file).take(FILE_MAX + 1).read_to_end(&mut before)?;
    if before.len() as u64 > FILE_MAX {
        return Err(io::Error::other(format!(
            "it has more than {FILE_MAX} bytes"
        )));
    }
    let after = by(&before);
    if after == before {
        return Ok(());
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&after)
}

/// Writes a new file in the place of whatever is there, but for a directory.
///
/// # Errors
/// There is a directory, or the file cannot be written.
pub(super) fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options()
        .write(true)
        .create_new(true)
        .open(path)?
        .write_all(content)
}

/// Makes a directory below `root`, and those on the way to it: each is one, not a link to one.
///
/// # Errors
/// Something else is in the way, the directory is not below `root`, or it cannot be made.
pub(super) fn make_dirs(root: &Path, dir: &Path) -> io::Result<()> {
    let below = dir.strip_prefix(root).map_err(io::Error::other)?;
    let mut at = root.to_owned();
    for part in below {
        at.push(part);
        match DirBuilder::new().mode(0o777).create(&at) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if !fs::symlink_metadata(&at)?.is_dir() {
            return Err(io::Error::other(format!(
                "{} is no directory",
                at.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory, and a file beside it that stays as it is.
    fn place() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir(&tree).unwrap();
        fs::write(&outside, "a mirror").unwrap();
        (dir, tree, outside)
    }

    fn upper(bytes: &[u8]) -> Vec<u8> {
        bytes.to_ascii_uppercase()
    }

    #[test]
    fn files_change_and_links_and_devices_lead_nowhere() {
        let (_dir, tree, outside) = place();
        fs::create_dir_all(tree.join("logs/refs")).unwrap();
        fs::write(tree.join("logs/refs/main"), "a mirror").unwrap();
        symlink(&outside, tree.join("logs/link")).unwrap();
        symlink(".", tree.join("logs/round")).unwrap();
        symlink("/dev/zero", tree.join("FETCH_HEAD")).unwrap();
        change(&tree.join("logs"), &upper).unwrap();
        change(&tree.join("FETCH_HEAD"), &upper).unwrap();
        change(&tree.join("missing"), &upper).unwrap();
        assert_eq!(fs::read(tree.join("logs/refs/main")).unwrap(), b"A MIRROR");
        assert_eq!(fs::read(&outside).unwrap(), b"a mirror");
        assert!(open(&tree.join("logs/link")).is_err());
        assert!(open(&tree.join("logs")).is_err());
        assert!(open(&tree.join("logs/refs/main")).is_ok());
    }

    #[test]
    fn a_file_is_put_in_the_place_of_a_link() {
        let (_dir, tree, outside) = place();
        symlink(&outside, tree.join(".git")).unwrap();
        put(&tree.join(".git"), b"gitdir: x\n").unwrap();
        assert_eq!(fs::read(tree.join(".git")).unwrap(), b"gitdir: x\n");
        assert_eq!(fs::read(&outside).unwrap(), b"a mirror");
        fs::create_dir(tree.join("directory")).unwrap();
        assert!(put(&tree.join("directory"), b"").is_err());
    }

    #[test]
    fn directories_are_made_through_no_link() {
        let (dir, tree, _) = place();
        make_dirs(&tree, &tree.join("modules/a/b")).unwrap();
        make_dirs(&tree, &tree.join("modules/a/b")).unwrap();
        assert!(tree.join("modules/a/b").is_dir());
        symlink(dir.path(), tree.join("planted")).unwrap();
        assert!(make_dirs(&tree, &tree.join("planted/x")).is_err());
        assert!(!dir.path().join("x").exists());
        assert!(make_dirs(&tree, dir.path()).is_err());
    }
}
