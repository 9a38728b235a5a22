//! Archives into the guest: whole, bounded, and nowhere but into their root.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use vk_guest_proto::*;

use crate::archives::{note, project, write};
use crate::host::{Heard, Host, path};

fn tar_in(root: &Path) -> TarIn {
    TarIn {
        root: path(root),
        owner: vec![],
        max_entries: 1000,
        max_bytes: 1 << 30,
    }
}

pub(crate) fn extract(host: &mut Host, root: &Path, tar: &[u8]) -> Heard {
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
        header.set_mode(if *kind == DIR { 0o755 } else { 0o644 });
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
        &[(FILE, "a/../comes-back", "", b"x")],
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

/// GUEST-12
#[test]
fn a_name_of_megabytes_is_refused_before_it_is_read() {
    let mut host = Host::start();
    let root = host.dir.path().join("r");
    let name = vec![b'n'; 2 << 20];
    let tar = tar_of(&[(tar::EntryType::GNULongName, "././@LongLink", "", &name)]);
    let heard = extract(&mut host, &root, &tar);
    let said = &heard.failure().message;
    assert!(said.contains("extension of 2097152 bytes"), "{said}");
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
