//! Archives out and in.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use vk_guest_proto::*;

use crate::extraction::extract;
use crate::host::{Heard, Host, path};

/// A project in the host's directory.
pub(crate) fn project(host: &Host, files: &[&str]) -> PathBuf {
    let root = host.dir.path().join("p");
    fs::create_dir_all(&root).unwrap();
    for file in files {
        write(&root.join(file), file.as_bytes());
    }
    root
}

pub(crate) fn write(file: &Path, content: &[u8]) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

pub(crate) fn tar_out(root: &Path, paths: &[&str], exclude: &[&str]) -> TarOut {
    let bytes = |list: &[&str]| list.iter().map(|one| one.as_bytes().to_vec()).collect();
    TarOut {
        root: path(root),
        paths: bytes(paths),
        exclude: bytes(exclude),
        untracked: false,
        list_only: false,
    }
}

fn out(host: &mut Host, tar: TarOut) -> Heard {
    host.run(&Request::TarOut { tar }, b"")
}

/// The names in a tar, in its order, as a reader of its own sees them.
pub(crate) fn names(tar: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().unwrap();
    entries
        .map(|entry| String::from_utf8(entry.unwrap().path_bytes().into_owned()).unwrap())
        .collect()
}

pub(crate) fn note(heard: &Heard, code: NoteCode) -> Option<(String, u64)> {
    let note = heard.notes.iter().find(|note| note.code == code)?;
    Some((String::from_utf8(note.subject.clone()).unwrap(), note.count))
}

/// gitlab-runner's own cases of file selection: patterns, excludes, what is taken, how it counts.
/// In `paths`, `W` stands for the project's directory and `B` for its last name.
const SELECTIONS: &[(&str, &str, &[&str], u64)] = &[
    (
        "foo/**/*.txt",
        "",
        &[
            "foo/bar/baz/file.extra.dots.txt",
            "foo/bar/baz/file.txt",
            "foo/bar/file.txt",
            "foo/file.txt",
        ],
        4,
    ),
    ("foo//*.txt", "", &["foo/file.txt"], 1),
    ("foo//*.*", "foo//*.md", &["foo/file.txt"], 1),
    ("W/*.thing", "W/*2.thing", &["file.thing"], 1),
    ("W/foo/bar/*.txt", "", &["foo/bar/file.txt"], 1),
    (
        "./foo/**//*/*.*",
        "**/*.md",
        &[
            "foo/bar/baz/file.extra.dots.txt",
            "foo/bar/baz/file.txt",
            "foo/bar/file.txt",
        ],
        3,
    ),
    ("../B/foo/*.txt", "../B/foo/*2.txt", &["foo/file.txt"], 1),
    (
        "foo/**",
        "**/*.md",
        // Each directory is a match and a walk of its own, so a file counts once a directory.
        &[
            "foo/",
            "foo/bar/",
            "foo/bar/baz/",
            "foo/bar/baz/file.extra.dots.txt",
            "foo/bar/baz/file.txt",
            "foo/bar/file.txt",
            "foo/file.txt",
        ],
        1 + 2 + 3 + 4 * 2 + 3 + 2,
    ),
    (
        "foo/bar/",
        "foo/bar/baz",
        &[
            "foo/bar/",
            "foo/bar/baz/file.extra.dots.txt",
            "foo/bar/baz/file.txt",
            "foo/bar/baz/note.md",
            "foo/bar/file.txt",
        ],
        5,
    ),
    ("foo/bar/baz", "foo/bar/baz/**", &[], 0),
    (
        "{file.thing,other/*}",
        "",
        &["file.thing", "other/.hidden"],
        2,
    ),
    ("*/.h*", "", &["other/.hidden"], 1),
    (">/**", "", &[], 0),
    ("nothing", "", &[], 0),
    ("file.thing/x", "", &[], 0),
];

const FILES: &[&str] = &[
    "file.thing",
    "file2.thing",
    "foo/file.txt",
    "foo/file.md",
    "foo/bar/file.txt",
    "foo/bar/baz/file.txt",
    "foo/bar/baz/file.extra.dots.txt",
    "foo/bar/baz/note.md",
    "other/.hidden",
];

/// GUEST-01, GUEST-09
#[test]
fn files_are_selected_as_gitlab_runner_selects_them() {
    let mut host = Host::start();
    let root = project(&host, FILES);
    let real = |text: &str| {
        text.replace("B/", "p/")
            .replace('W', root.to_str().unwrap())
    };
    for (written, excluded, expected, count) in SELECTIONS {
        let excludes: Vec<String> = Some(real(excluded))
            .filter(|e| !e.is_empty())
            .into_iter()
            .collect();
        let excludes: Vec<&str> = excludes.iter().map(String::as_str).collect();
        let heard = out(&mut host, tar_out(&root, &[&real(written)], &excludes));
        assert_eq!(
            names(&heard.content),
            *expected,
            "{written} without {excluded}"
        );
        let (code, other) = if *count == 0 {
            (NoteCode::NoMatch, NoteCode::Matched)
        } else {
            (NoteCode::Matched, NoteCode::NoMatch)
        };
        // Told as it was written, whatever it comes to.
        assert_eq!(note(&heard, code), Some((real(written), *count)));
        assert_eq!(note(&heard, other), None, "{written}");
        assert_eq!(
            heard.done().entries,
            u64::try_from(expected.len()).unwrap(),
            "{written}"
        );
    }
}

/// GUEST-09
#[test]
fn excludes_are_counted_and_one_that_leads_outside_ends_the_list() {
    let mut host = Host::start();
    let root = project(&host, FILES);
    let heard = out(
        &mut host,
        tar_out(&root, &["foo/**/*"], &["**/*.txt", "../x", "**/*.md"]),
    );
    assert_eq!(
        names(&heard.content),
        [
            "foo/bar/",
            "foo/bar/baz/",
            "foo/bar/baz/note.md",
            "foo/file.md"
        ]
    );
    assert_eq!(
        note(&heard, NoteCode::ExcludeOutside),
        Some(("../x".into(), 0))
    );
    // file.txt once; bar's two levels count its files twice and thrice.
    assert_eq!(
        note(&heard, NoteCode::Excluded),
        Some(("**/*.txt".into(), 1 + 2 + 3 + 3))
    );
}

/// GUEST-09
#[test]
fn a_pattern_that_leads_outside_takes_nothing() {
    let mut host = Host::start();
    let root = project(&host, FILES);
    write(&host.dir.path().join("secret.txt"), b"s");
    for pattern in [
        "../*.txt",
        "/etc/passwd",
        "/**/passwd",
        "foo/../../secret.txt",
        "*/../../secret.txt",
        "..",
    ] {
        let heard = out(&mut host, tar_out(&root, &[pattern], &[]));
        assert_eq!(names(&heard.content), [""; 0], "{pattern}");
        let told = note(&heard, NoteCode::PathOutside);
        assert_eq!(told, Some((pattern.to_owned(), 0)), "{:?}", heard.notes);
    }
    let heard = out(&mut host, tar_out(&root, &["", "[x"], &[]));
    assert!(note(&heard, NoteCode::EmptyPattern).is_some());
    assert_eq!(note(&heard, NoteCode::Other), Some(("[x".into(), 0)));
}

/// GUEST-09
#[test]
fn symlinks_are_stored_and_never_followed_out() {
    let mut host = Host::start();
    let root = project(&host, &["in/file"]);
    write(&host.dir.path().join("outside/secret"), b"s");
    symlink("../outside", root.join("out")).unwrap();
    symlink("in", root.join("alias")).unwrap();
    symlink("missing", root.join("dangling")).unwrap();
    symlink("x".repeat(300), root.join("long")).unwrap();
    let heard = out(&mut host, tar_out(&root, &["**"], &[]));
    assert_eq!(
        names(&heard.content),
        ["alias", "dangling", "in/", "in/file", "long", "out"]
    );
    let mut archive = tar::Archive::new(&heard.content[..]);
    let targets: Vec<String> = archive
        .entries()
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().link_name_bytes()?.into_owned()))
        .map(|target| String::from_utf8(target).unwrap())
        .collect();
    assert_eq!(targets, ["in", "missing", &"x".repeat(300), "../outside"]);
    // A named path may lead through a symlink that stays inside, and through no other.
    let heard = out(&mut host, tar_out(&root, &["alias/file"], &[]));
    assert_eq!(names(&heard.content), ["alias/file"]);
    let heard = out(&mut host, tar_out(&root, &["out/secret", "out/*"], &[]));
    assert_eq!(names(&heard.content), [""; 0]);
    assert!(
        note(&heard, NoteCode::PathOutside).is_some(),
        "{:?}",
        heard.notes
    );
}

#[test]
fn modes_times_long_and_odd_names_survive_both_ways() {
    use std::os::unix::ffi::OsStrExt;
    let mut host = Host::start();
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(255));
    let root = project(&host, &["tool", "dir/x", &long]);
    let odd = root.join(std::ffi::OsStr::from_bytes(b"na\xffme\n"));
    write(&odd, b"odd");
    write(&root.join("empty"), b"");
    write(&root.join("big"), &vec![9; 300_001]);
    fs::create_dir(root.join("bare")).unwrap();
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o555)).unwrap();
    symlink("nowhere", root.join("link")).unwrap();
    let day = std::time::UNIX_EPOCH + std::time::Duration::from_secs(86_400);
    fs::File::open(root.join("tool"))
        .unwrap()
        .set_modified(day)
        .unwrap();
    fs::File::open(root.join("dir"))
        .unwrap()
        .set_modified(day)
        .unwrap();
    let tar = out(&mut host, tar_out(&root, &["**"], &[])).content;

    let copy = host.dir.path().join("copy");
    let heard = extract(&mut host, &copy, &tar);
    heard.done();
    let seen = |root: &Path| {
        let mut list = BTreeSet::new();
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let file = entry.unwrap().path();
                let meta = fs::symlink_metadata(&file).unwrap();
                let content = match (meta.is_file(), meta.is_symlink()) {
                    (true, _) => fs::read(&file).unwrap(),
                    (_, true) => path(&fs::read_link(&file).unwrap()),
                    _ => vec![],
                };
                if meta.is_dir() {
                    todo.push(file.clone());
                }
                let name = path(file.strip_prefix(root).unwrap());
                list.insert((name, meta.mode(), meta.mtime(), meta.uid(), content));
            }
        }
        list
    };
    assert_eq!(seen(&copy), seen(&root));
    fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(copy.join("dir"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_no_file_directory_or_symlink_is_left_out_and_said() {
    let mut host = Host::start();
    let root = project(&host, &["file"]);
    let made = std::process::Command::new("mkfifo")
        .arg(root.join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let heard = out(&mut host, tar_out(&root, &["*"], &[]));
    assert_eq!(names(&heard.content), ["file"]);
    assert_eq!(
        note(&heard, NoteCode::FileIgnored),
        Some(("pipe".into(), 0))
    );
}

#[test]
fn the_git_directory_is_said_once() {
    let mut host = Host::start();
    let root = project(&host, &[".git/HEAD", ".git/config", "x/.git/y"]);
    let heard = out(&mut host, tar_out(&root, &["**"], &[]));
    let said: Vec<_> = heard
        .notes
        .iter()
        .filter(|note| note.code == NoteCode::InsideGit)
        .collect();
    assert_eq!(said.len(), 1);
}

#[test]
fn a_list_has_no_content() {
    let mut host = Host::start();
    let root = project(&host, FILES);
    let tar = TarOut {
        list_only: true,
        ..tar_out(&root, &["foo/file.*"], &[])
    };
    let heard = out(&mut host, tar);
    assert_eq!(names(&heard.content), ["foo/file.md", "foo/file.txt"]);
    assert_eq!(heard.done().bytes, 0);
}

/// GUEST-08
#[test]
fn the_programs_own_commands_archive_and_extract() {
    let dir = tempfile::TempDir::new().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    write(&from.join("out/a.txt"), b"a");
    write(&from.join("out/a.o"), b"o");
    fs::create_dir(&to).unwrap();
    let mut archive = std::process::Command::new(crate::host::program());
    archive
        .arg("archive")
        .arg(&from)
        .args(["--exclude", "**/*.o", "--", "out/**"]);
    let archive = archive.output().unwrap();
    assert!(
        archive.status.success(),
        "{}",
        String::from_utf8_lossy(&archive.stderr)
    );
    assert_eq!(names(&archive.stdout), ["out/", "out/a.txt"]);
    fs::write(dir.path().join("tar"), &archive.stdout).unwrap();
    let mut extract = std::process::Command::new(crate::host::program());
    extract
        .arg("extract")
        .arg(&to)
        .stdin(fs::File::open(dir.path().join("tar")).unwrap());
    assert!(extract.status().unwrap().success());
    assert_eq!(fs::read(to.join("out/a.txt")).unwrap(), b"a");
}
