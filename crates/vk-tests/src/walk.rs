//! Every inode of a tree, in the order of their paths.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{OFlags, lgetxattr, llistxattr, major, minor};

use crate::content;
use crate::inode::{Found, Inode, hex};

/// Most bytes of an attribute's value, and of all names together (Linux's own limit).
const XATTR_MAX: usize = 64 << 10;

/// Calls `take` for every inode of the file system at `root`, itself first; what is mounted below it
/// is left out. Files above `whole_max` bytes are hashed by their data.
///
/// # Errors
/// The first path that cannot be read, and what `take` says.
pub fn walk(
    root: &Path,
    whole_max: u64,
    mut take: impl FnMut(Found) -> io::Result<()>,
) -> anyhow::Result<()> {
    let device = fs::symlink_metadata(root)
        .with_context(|| format!("cannot look at {}", root.display()))?
        .dev();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let path = root.join(&below);
        let meta = fs::symlink_metadata(&path)
            .with_context(|| format!("cannot look at {}", path.display()))?;
        if meta.is_dir() {
            if meta.dev() != device {
                continue;
            }
            open.extend(entries(&path)?.into_iter().map(|name| below.join(name)));
        }
        let inode = inode(&path, &meta, whole_max)?;
        take(Found {
            path: hex(below.as_os_str().as_bytes()),
            identity: (meta.dev(), meta.ino()),
            inode,
        })?;
    }
    Ok(())
}

/// Names in a directory, the last first, as a stack wants them.
fn entries(path: &Path) -> anyhow::Result<Vec<std::ffi::OsString>> {
    let what = || format!("cannot list {}", path.display());
    let mut names = fs::read_dir(path)
        .with_context(what)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .with_context(what)?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

fn inode(path: &Path, meta: &Metadata, whole_max: u64) -> anyhow::Result<Inode> {
    let what = || format!("cannot read {}", path.display());
    let kind = meta.file_type();
    let has_device = kind.is_char_device() || kind.is_block_device();
    let mut inode = Inode {
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        mtime: (
            meta.mtime(),
            u32::try_from(meta.mtime_nsec()).with_context(what)?,
        ),
        nlink: meta.nlink(),
        xattrs: xattrs(path).with_context(what)?,
        ..Inode::default()
    };
    if has_device {
        inode.rdev = (major(meta.rdev()), minor(meta.rdev()));
    } else if kind.is_symlink() {
        inode.size = meta.size();
        let target = fs::read_link(path).with_context(what)?;
        inode.target = hex(&target.into_os_string().into_vec());
    } else if kind.is_file() {
        inode.size = meta.size();
        let flags = i32::try_from(OFlags::NOFOLLOW.bits()).with_context(what)?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .with_context(what)?;
        inode.content = content::digest(&file, meta.size(), whole_max).with_context(what)?;
    }
    Ok(inode)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut names = vec![0; XATTR_MAX];
    let length = llistxattr(path, &mut names[..])?;
    names.truncate(length);
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; XATTR_MAX];
            let length = lgetxattr(path, OsStr::from_bytes(name), &mut value[..])?;
            value.truncate(length);
            Ok((hex(name), hex(&value)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_listed_with_what_each_inode_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/file"), "abc").unwrap();
        fs::hard_link(dir.path().join("d/file"), dir.path().join("same")).unwrap();
        std::os::unix::fs::symlink("d/file", dir.path().join("link")).unwrap();
        let name = [OsStr::from_bytes(&[0xff; 255])];
        fs::write(dir.path().join(name[0]), "").unwrap();
        let mut found = Vec::new();
        walk(dir.path(), content::WHOLE_MAX, |one| {
            found.push(one);
            Ok(())
        })
        .unwrap();
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        let long = hex(&[0xff; 255]);
        let wanted = [
            "",
            &hex(b"d"),
            &hex(b"d/file"),
            &hex(b"link"),
            &hex(b"same"),
            &long,
        ];
        assert_eq!(paths, wanted);
        let inode = |at: usize| &found[at].inode;
        assert_eq!((inode(0).mode & 0o170_000, inode(0).nlink), (0o040_000, 3));
        assert_eq!((inode(2).size, inode(2).nlink), (3, 2));
        assert_eq!(found[2].identity, found[4].identity);
        assert!(inode(2).content.starts_with("sha256:ba7816bf"));
        assert_eq!(
            (inode(3).target.as_str(), inode(3).size),
            (hex(b"d/file").as_str(), 6)
        );
        assert_eq!(inode(3).content, "");
    }
}
