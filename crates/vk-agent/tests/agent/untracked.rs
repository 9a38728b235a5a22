//! What git does not track, compared with git itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use vk_guest_proto::*;

use crate::archives::{names, project, tar_out, write};
use crate::host::{Heard, Host};

fn git(at: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("git");
    command
        .current_dir(at)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    command
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", at);
    let output = command.output().ok()?;
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output.stdout)
}

fn untracked(host: &mut Host, root: &Path) -> Heard {
    let tar = TarOut {
        untracked: true,
        ..tar_out(root, &[], &[])
    };
    host.run(&Request::TarOut { tar }, b"")
}

/// A repository with everything that decides what is untracked.
fn repository(host: &Host) -> std::path::PathBuf {
    let root = project(
        host,
        &["tracked", "dir/tracked", "dir/deep/tracked.c", ".gitignore"],
    );
    // Names that share nothing with the long one before them: the fourth format says how much to
    // drop in two bytes then.
    write(&root.join("l".repeat(200)).join("tracked"), b"x");
    write(&root.join("m-tracked"), b"x");
    fs::write(root.join(".gitignore"), "*.log\nbuild/\n").unwrap();
    git(&root, &["init", "-q"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "one"]);
    for file in [
        "new",
        "dir/new",
        "x.log",
        "build/out",
        "dir/deep/y.log",
        "ümläut",
        "new-dir/a/b",
    ] {
        write(&root.join(file), b"x");
    }
    write(&root.join("staged"), b"x");
    git(&root, &["add", "staged"]);
    git(&root, &["add", "-N", "dir/new"]);
    std::os::unix::fs::symlink("new", root.join("link")).unwrap();
    fs::create_dir_all(root.join("inner")).unwrap();
    git(&root.join("inner"), &["init", "-q"]);
    write(&root.join("inner/file"), b"x");
    fs::create_dir(root.join("empty")).unwrap();
    root
}

/// The same as the agent lists: git ends a repository's name with a slash, as tar a directory's.
fn expected(root: &Path) -> Vec<String> {
    let listed = git(root, &["ls-files", "-o", "-z"]).unwrap();
    let mut names: Vec<String> = listed
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect();
    names.sort();
    names
}

/// GUEST-10
#[test]
fn untracked_files_are_those_git_lists_in_every_index_version() {
    let mut host = Host::start();
    let root = repository(&host);
    for version in ["2", "3", "4"] {
        git(&root, &["update-index", "--index-version", version]);
        let heard = untracked(&mut host, &root);
        let expected = expected(&root);
        assert!(expected.len() >= 7, "{expected:?}");
        assert_eq!(names(&heard.content), expected, "version {version}");
        let note = heard
            .notes
            .iter()
            .find(|note| note.code == NoteCode::Untracked)
            .unwrap();
        assert_eq!(note.count, u64::try_from(expected.len()).unwrap());
    }
}

/// GUEST-10
#[test]
fn a_submodule_is_somebody_elses_and_its_own_git_is_found_through_its_file() {
    let mut host = Host::start();
    let root = repository(&host);
    let other = host.dir.path().join("other");
    write(&other.join("f"), b"x");
    git(&other, &["init", "-q"]);
    git(&other, &["add", "."]);
    git(&other, &["commit", "-q", "-m", "one"]);
    git(
        &root,
        &[
            "submodule",
            "--quiet",
            "add",
            other.to_str().unwrap(),
            "sub",
        ],
    );
    write(&root.join("sub/loose"), b"x");
    assert_eq!(names(&untracked(&mut host, &root).content), expected(&root));
    assert!(!expected(&root).iter().any(|name| name.starts_with("sub")));
    assert_eq!(
        names(&untracked(&mut host, &root.join("sub")).content),
        ["loose"]
    );
}

/// GUEST-10
#[test]
fn sha256_repositories_are_read() {
    let mut host = Host::start();
    let root = project(&host, &["a", "b"]);
    git(&root, &["init", "-q", "--object-format=sha256"]);
    git(&root, &["add", "a"]);
    assert_eq!(names(&untracked(&mut host, &root).content), ["b"]);
}

/// GUEST-10
#[test]
fn where_untracked_files_cannot_be_told_a_warning_says_so() {
    let mut host = Host::start();
    let root = project(&host, &["a"]);
    let said = |heard: &Heard| {
        let note = heard
            .notes
            .iter()
            .find(|note| note.code == NoteCode::UntrackedUnknown);
        note.unwrap_or_else(|| panic!("{:?}", heard.notes))
            .text
            .clone()
    };
    assert_eq!(said(&untracked(&mut host, &root)), "not a git repository");
    git(&root, &["init", "-q"]);
    git(&root, &["add", "."]);
    git(&root, &["update-index", "--split-index"]);
    assert!(said(&untracked(&mut host, &root)).contains("core.splitIndex"));
    write(&root.join(".git/index"), b"garbage");
    assert!(said(&untracked(&mut host, &root)).contains("does not begin as one"));
}

/// GUEST-10
#[test]
fn without_an_index_everything_is_untracked() {
    let mut host = Host::start();
    let root = project(&host, &["a", "b/c"]);
    git(&root, &["init", "-q"]);
    assert_eq!(names(&untracked(&mut host, &root).content), ["a", "b/c"]);
}
