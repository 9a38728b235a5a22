use std::fs;

use tempfile::TempDir;

use super::*;
use vk_guest_proto::TarOut;

/// A tree with these files, and whether the archive of `**` was said to reach into git's own.
fn reaches_git(files: &[&str]) -> bool {
    let dir = TempDir::new().unwrap();
    for file in files {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    let tar = TarOut {
        root: dir.path().to_str().unwrap().into(),
        paths: vec![b"**".to_vec()],
        exclude: vec![],
        untracked: false,
        list_only: false,
    };
    let mut said = 0;
    let mut count = |note: vk_guest_proto::Note| {
        said += u32::from(note.code == vk_guest_proto::NoteCode::InsideGit);
    };
    archive_to(&tar, &mut Vec::new(), &mut count).unwrap();
    assert!(said <= 1, "it is said once");
    said == 1
}

/// PORT-35
#[test]
fn only_the_projects_own_git_directory_is_warned_of() {
    for (files, expected) in [
        (&[".git/test"][..], true),
        (&[".git/test", ".git/\u{30c6}"], true),
        (&["test/.git/test"], false),
        (&[".gitignore", ".github/x"], false),
        (&["a"], false),
    ] {
        assert_eq!(reaches_git(files), expected, "{files:?}");
    }
}
