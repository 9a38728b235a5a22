//! Archives out and in.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use vk_guest_proto::*;

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

fn note(heard: &Heard, code: NoteCode) -> Option<(String, u64)> {
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
        assert_eq!(
            note(&heard, code).map(|note| note.1),
            Some(*count),
            "{written}"
        );
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
        assert!(
            note(&heard, NoteCode::PathOutside).is_some(),
            "{pattern}: {:?}",
            heard.notes
        );
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

pub(crate) fn tar_in(root: &Path) -> TarIn {
    TarIn {
        root: path(root),
        owner: vec![],
        max_entries: 1000,
        max_bytes: 1 << 30,
    }
}

fn extract(host: &mut Host, root: &Path, tar: &[u8]) -> Heard {
    let request = Request::TarIn { tar: tar_in(root) };
    host.run(&request, tar)
}

/// One entry as a tar writes it: type, name, link, content.
type Entry<'a> = (tar::EntryType, &'a str, &'a str, &'a [u8]);

fn tar_of(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, name, link, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(u64::try_from(content.len()).unwrap());
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        all.extend_from_slice(header.as_bytes());
        all.extend_from_slice(content);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

const FILE: tar::EntryType = tar::EntryType::Regular;
const LINK: tar::EntryType = tar::EntryType::Symlink;
const HARD: tar::EntryType = tar::EntryType::Link;
const DIR: tar::EntryType = tar::EntryType::Directory;

/// GUEST-09
#[test]
fn extraction_cannot_leave_the_root() {
    let mut host = Host::start();
    let outside = host.dir.path().join("outside");
    write(&outside.join("kept"), b"kept");
    let away = outside.to_str().unwrap();
    for (at, entries) in [
        &[(FILE, "../outside/new", "", &b"x"[..])][..],
        &[(FILE, "a/../../outside/new", "", b"x")],
        &[(FILE, "/etc/vk-agent-test", "", b"x")],
        &[(LINK, "l", "../outside", b""), (FILE, "l/new", "", b"x")],
        &[(LINK, "l", away, b""), (FILE, "l/new", "", b"x")],
        &[
            (LINK, "l", "/", b""),
            (FILE, "l/etc/vk-agent-test", "", b"x"),
        ],
        &[
            (LINK, "l", "..", b""),
            (LINK, "m", "l/outside", b""),
            (FILE, "m/new", "", b"x"),
        ],
        &[(LINK, "l", "../outside", b""), (DIR, "l/new", "", b"")],
        &[(LINK, "l", "../outside", b""), (LINK, "l/new", "x", b"")],
        &[(HARD, "h", "../outside/kept", b"")],
        &[(LINK, "l", "../outside", b""), (HARD, "h", "l/kept", b"")],
        &[
            (LINK, "l", "/proc/self/root", b""),
            (FILE, "l/etc/vk-agent-test", "", b"x"),
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let root = host.dir.path().join(format!("r{at}"));
        let heard = extract(&mut host, &root, &tar_of(entries));
        assert_eq!(
            heard.failure().code,
            FailureCode::Escapes,
            "{at}: {}",
            heard.failure()
        );
        let there: Vec<_> = fs::read_dir(&outside)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(there, ["kept"], "{at}");
        assert!(!Path::new("/etc/vk-agent-test").exists(), "{at}");
        assert!(!root.join("h").exists(), "{at}");
    }
}

/// GUEST-09
#[test]
fn what_lies_in_the_way_is_replaced_and_not_written_through() {
    let mut host = Host::start();
    let root = project(&host, &[]);
    write(&host.dir.path().join("victim"), b"kept");
    symlink("../victim", root.join("file")).unwrap();
    symlink("..", root.join("dir")).unwrap();
    write(&root.join("hard-target"), b"old");
    fs::hard_link(root.join("hard-target"), root.join("hard")).unwrap();
    let tar = tar_of(&[
        (FILE, "file", "", b"new"),
        (DIR, "dir/", "", b""),
        (FILE, "dir/victim", "", b"inner"),
        (FILE, "hard", "", b"changed"),
        (FILE, "a", "", b"one"),
        (HARD, "b", "a", b""),
        (LINK, "c", "a", b""),
        (HARD, "d", "./c", b""),
    ]);
    assert_eq!(extract(&mut host, &root, &tar).done().entries, 8);
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(
        fs::read_to_string(host.dir.path().join("victim")).unwrap(),
        "kept"
    );
    assert_eq!(
        (read("file"), read("dir/victim")),
        ("new".into(), "inner".into())
    );
    assert_eq!(
        (read("hard"), read("hard-target")),
        ("changed".into(), "old".into())
    );
    assert_eq!(fs::metadata(root.join("a")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(root.join("d")).unwrap(), Path::new("a"));
}

#[test]
fn a_symlink_inside_the_root_is_a_way_to_write() {
    let mut host = Host::start();
    let root = project(&host, &["real/x"]);
    symlink("real", root.join("alias")).unwrap();
    extract(&mut host, &root, &tar_of(&[(FILE, "alias/new", "", b"1")])).done();
    assert!(root.join("real/new").exists());
}

/// GUEST-12
#[test]
fn entries_and_bytes_are_bounded() {
    let mut host = Host::start();
    let root = host.dir.path().join("r");
    let tar = tar_of(&[(FILE, "a", "", &[1; 600]), (FILE, "b", "", &[1; 600])]);
    for (limits, code) in [
        ((1, 10_000), FailureCode::TooLarge),
        ((9, 1199), FailureCode::TooLarge),
    ] {
        let request = TarIn {
            max_entries: limits.0,
            max_bytes: limits.1,
            ..tar_in(&root)
        };
        let heard = host.run(&Request::TarIn { tar: request }, &tar);
        assert_eq!(heard.failure().code, code, "{limits:?}");
    }
    let request = TarIn {
        max_entries: 2,
        max_bytes: 1200,
        ..tar_in(&root)
    };
    host.run(&Request::TarIn { tar: request }, &tar).done();
}

/// GUEST-12
#[test]
fn an_archive_that_is_none_is_refused() {
    let mut host = Host::start();
    let root = host.dir.path().join("r");
    let good = tar_of(&[(FILE, "a", "", &[1; 600])]);
    let mut wrong_sum = good.clone();
    wrong_sum[0] = b'b';
    let mut long_name = tar_of(&[(tar::EntryType::GNULongName, "././@LongLink", "", b"x")]);
    // A long name of a gigabyte.
    long_name[124..136].copy_from_slice(b"10000000000\0");
    let sum: u32 = long_name[..512]
        .iter()
        .enumerate()
        .map(|(at, byte)| {
            u32::from(if (148..156).contains(&at) {
                b' '
            } else {
                *byte
            })
        })
        .sum();
    long_name[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    for (what, tar) in [
        ("nothing", &b""[..]),
        ("half a header", &good[..300]),
        ("half a file", &good[..800]),
        ("no end", &good[..512 + 1024]),
        ("a wrong checksum", &wrong_sum),
        ("a long name of a gigabyte", &long_name),
        ("a zip", &[b'P'; 2048]),
    ] {
        let heard = extract(&mut host, &root, tar);
        assert_eq!(
            heard.failure().code,
            FailureCode::BadArchive,
            "{what}: {}",
            heard.failure()
        );
    }
}

#[test]
fn devices_and_pipes_are_not_made() {
    let mut host = Host::start();
    let root = host.dir.path().join("r");
    let tar = tar_of(&[
        (tar::EntryType::Char, "null", "", b""),
        (tar::EntryType::Fifo, "pipe", "", b""),
        (FILE, "file", "", b"x"),
    ]);
    let heard = extract(&mut host, &root, &tar);
    heard.done();
    let there: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(there, ["file"]);
    assert_eq!(
        note(&heard, NoteCode::EntrySkipped),
        Some(("null".into(), 0))
    );
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
