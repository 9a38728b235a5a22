//! The same image as `fsck.erofs` and, for root, the running kernel read it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{lgetxattr, llistxattr};

use crate::reader::{Image, Inode};
use crate::{build, rich};

/// An image file and what our own reader says of it.
struct Written {
    directory: tempfile::TempDir,
    image: Image,
    inodes: BTreeMap<Vec<u8>, Inode>,
}

impl Written {
    fn new(devices: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bytes = build(&rich::layers(devices)).unwrap();
        fs::write(directory.path().join("image"), &bytes).unwrap();
        let image = Image::new(bytes);
        let inodes = image.tree();
        Self {
            directory,
            image,
            inodes,
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("image")
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `fsck.erofs`, or `None` with the reason printed. A whole test run must have it.
fn fsck() -> Option<Command> {
    let name = "fsck.erofs";
    let places = std::env::var_os("PATH").unwrap_or_default();
    let sbin = [
        PathBuf::from("/usr/sbin"),
        PathBuf::from("/sbin"),
        PathBuf::from("/usr/bin"),
    ];
    let found = std::env::split_paths(&places)
        .chain(sbin)
        .map(|dir| dir.join(name))
        .find(|p| p.exists());
    assert!(
        found.is_some() || std::env::var_os("VK_TEST_ROOT").is_none(),
        "{name} is missing: apt-get install erofs-utils"
    );
    if found.is_none() {
        println!("skipped: no {name} here (package erofs-utils)");
    }
    found.map(Command::new)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn fsck_finds_no_fault_and_extracts_what_went_in() {
    let Some(mut check) = fsck() else { return };
    let written = Written::new(is_root());
    // erofs-utils 1.5 ends well over some errors, but it always writes them down.
    assert_eq!(run(check.arg(written.file())), "");
    let target = written.directory.path().join("extracted");
    let mut extract = fsck().unwrap();
    run(extract
        .arg(format!("--extract={}", target.display()))
        .arg(written.file()));
    for (path, inode) in &written.inodes {
        let found = target.join(OsStr::from_bytes(path));
        let shown = path.escape_ascii();
        let meta = fs::symlink_metadata(&found).unwrap();
        assert_eq!(
            meta.mode() & 0o170_000,
            u32::from(inode.mode & 0o170_000),
            "{shown}"
        );
        // The root directory is the caller's own.
        if !path.is_empty() {
            assert_eq!(
                (meta.mtime(), meta.mtime_nsec()),
                (inode.mtime.0, inode.mtime.1.into()),
                "{shown}"
            );
        }
        if is_root() {
            assert_eq!((meta.uid(), meta.gid()), (inode.uid, inode.gid), "{shown}");
            assert_eq!(meta.rdev(), device(inode.rdev), "{shown}");
            // It changes the owner after the mode, which takes setuid and setgid away.
            assert_eq!(
                meta.mode() & 0o1777,
                u32::from(inode.mode & 0o1777),
                "{shown}"
            );
        }
        let content = written.image.content(inode);
        if meta.is_file() {
            // erofs-utils 1.5 leaves holes out instead of seeking over them.
            let found = fs::read(&found).unwrap();
            assert!(
                found == content || found == without_holes(&content, inode),
                "{shown}"
            );
        } else if meta.is_symlink() {
            assert_eq!(
                fs::read_link(&found).unwrap().as_os_str().as_bytes(),
                content,
                "{shown}"
            );
        }
    }
}

fn without_holes(content: &[u8], inode: &Inode) -> Vec<u8> {
    let part = |(at, _, length): &(u64, u64, u64)| &content[*at as usize..(at + length) as usize];
    inode.extents.iter().flat_map(part).copied().collect()
}

fn device(on_disk: u32) -> u64 {
    let (major, minor) = (
        on_disk >> 8 & 0xfff,
        on_disk & 0xff | on_disk >> 12 & 0xf_ff00,
    );
    rustix::fs::makedev(major, minor)
}

#[test]
fn fsck_checks_the_superblock_this_writes() {
    let Some(mut check) = fsck() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = build(&rich::layers(false)).unwrap();
    bytes[1024 + 36] ^= 1;
    fs::write(directory.path().join("image"), &bytes).unwrap();
    let output = check.arg(directory.path().join("image")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("chksum"));
}

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        run(Command::new("mount")
            .args(["-t", "erofs", "-o", "loop,ro"])
            .arg(image)
            .arg(&at));
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_kernel_shows_every_inode_as_it_went_in() {
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !is_root() || !kernel.contains("erofs") || !Path::new("/dev/loop-control").exists() {
        println!("skipped: to mount an image needs root, loop devices and a kernel with erofs");
        return;
    }
    let written = Written::new(true);
    let mounted = Mounted::new(&written.file(), written.directory.path().join("mounted"));
    let mut found = 0;
    for (path, inode) in &written.inodes {
        let at = mounted.0.join(OsStr::from_bytes(path));
        let shown = path.escape_ascii();
        let meta = fs::symlink_metadata(&at).unwrap();
        assert_eq!(meta.mode(), u32::from(inode.mode), "{shown}");
        assert_eq!((meta.uid(), meta.gid()), (inode.uid, inode.gid), "{shown}");
        assert_eq!(meta.size(), inode.size, "{shown}");
        assert_eq!(
            (meta.mtime(), meta.mtime_nsec()),
            (inode.mtime.0, inode.mtime.1.into()),
            "{shown}"
        );
        assert_eq!(meta.nlink(), u64::from(inode.nlink), "{shown}");
        assert_eq!(meta.rdev(), device(inode.rdev), "{shown}");
        assert_eq!(xattrs(&at), inode.xattrs, "{shown}");
        if meta.is_file() {
            assert!(
                fs::read(&at).unwrap() == written.image.content(inode),
                "{shown}"
            );
        } else if meta.is_symlink() {
            let target = fs::read_link(&at).unwrap();
            assert_eq!(
                target.as_os_str().as_bytes(),
                written.image.content(inode),
                "{shown}"
            );
        } else if meta.is_dir() {
            found += fs::read_dir(&at).unwrap().count();
        }
    }
    assert_eq!(found + 1, written.inodes.len());
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let length = llistxattr(path, &mut names[..]).unwrap();
    let mut xattrs = BTreeMap::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 << 10];
        let length = lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        xattrs.insert(name.to_vec(), value);
    }
    xattrs
}
