//! Images laid out as files, and damaged ones that are not.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;

use crate::reader::Image;
use crate::{build, rich};

#[test]
fn every_inode_but_devices_is_laid_out_as_the_caller_may_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = build(&rich::layers(true)).unwrap();
    fs::write(dir.path().join("image"), &bytes).unwrap();
    let target = dir.path().join("tree");
    let done = vk_erofs::extract(&File::open(dir.path().join("image")).unwrap(), &target).unwrap();
    let image = Image::new(bytes);
    let tree = image.tree();
    assert_eq!((done.entries, done.devices), (tree.len() as u64 - 2, 2));
    for (path, inode) in &tree {
        let shown = path.escape_ascii();
        let found = target.join(OsStr::from_bytes(path));
        let kind = inode.mode & 0o170_000;
        if matches!(kind, 0o020_000 | 0o060_000) {
            assert!(fs::symlink_metadata(&found).is_err(), "{shown}");
            continue;
        }
        let meta = fs::symlink_metadata(&found).unwrap();
        assert_eq!(meta.mode() & 0o170_000, kind.into(), "{shown}");
        assert_eq!(
            (meta.mtime(), meta.mtime_nsec()),
            (inode.mtime.0, inode.mtime.1.into()),
            "{shown}"
        );
        let mode = if inode.is_dir() {
            inode.mode & 0o1777 | 0o700
        } else {
            inode.mode & 0o777
        };
        assert_eq!(meta.mode() & 0o7777, mode.into(), "{shown}");
        let content = image.content(inode);
        if meta.is_file() {
            assert!(fs::read(&found).unwrap() == content, "{shown}");
            assert_eq!(meta.nlink(), inode.nlink.into(), "{shown}");
        } else if meta.is_symlink() {
            assert_eq!(
                fs::read_link(&found).unwrap().as_os_str().as_bytes(),
                content,
                "{shown}"
            );
        }
    }
    let holes = fs::metadata(target.join("zeros")).unwrap();
    assert_eq!(
        (holes.len(), holes.blocks()),
        (100_000, 0),
        "holes stay holes"
    );
    let error =
        vk_erofs::extract(&File::open(dir.path().join("image")).unwrap(), &target).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A damaged image is an error or another tree, never a way out of the target.
    #[test]
    fn damaged_images_stay_in_their_place(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let layer = crate::tarball::Tarball::default()
            .file("d/file", "content")
            .symlink("link", "d/file")
            .file("zeros", vec![0; 70_000])
            .file("blocks", rich::noise(5000))
            .finish();
        let mut bytes = build(&[layer]).unwrap();
        for (at, value) in flips {
            // Superblock, directories and inodes: past the first block's empty part.
            let at = 1024 + at.index(bytes.len() - 1024);
            bytes[at] = value;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("image"), &bytes).unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let _ = vk_erofs::extract(&File::open(dir.path().join("image")).unwrap(), &inside.join("tree"));
        let names = |path: &std::path::Path| fs::read_dir(path).unwrap().count();
        prop_assert_eq!(names(dir.path()), 2);
        prop_assert!(names(&inside) <= 1);
    }
}
