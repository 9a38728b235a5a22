//! An image with a bit of everything over busybox: its layers, and the tree they must become.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use vk_tests::content::{WHOLE_MAX, digest};
use vk_tests::inode::Inode;

use crate::entry::{Entry, Kind, layer};

/// The sparse file's size: 5 GiB.
pub(crate) const SPARSE: u64 = 5 << 30;

/// What the upper layer takes away from the lower one, by a whiteout, an opaque directory or by
/// standing in its place.
const GONE: [&str; 6] = [
    "rich/d/gone",
    "rich/gone-tree",
    "rich/gone-tree/file",
    "rich/opaque/below",
    "rich/opaque/below/hidden",
    "rich/replaced",
];

pub(crate) fn lower() -> Vec<u8> {
    layer(&lower_entries())
}

pub(crate) fn upper() -> Vec<u8> {
    layer(&upper_entries())
}

/// Every entry of the merged tree.
pub(crate) fn merged() -> Vec<Entry> {
    let upper = upper_entries();
    let is_gone = |entry: &Entry| {
        let again = upper.iter().any(|above| above.path == entry.path);
        again || GONE.iter().any(|gone| gone.as_bytes() == entry.path)
    };
    let mut merged: Vec<Entry> = lower_entries()
        .into_iter()
        .filter(|of| !is_gone(of))
        .collect();
    let is_mark = |entry: &Entry| {
        let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap();
        name.starts_with(b".wh.")
    };
    merged.extend(upper.into_iter().filter(|of| !is_mark(of)));
    merged
}

/// A name of 255 bytes that is no UTF-8, with every byte that a name may have.
fn long_name() -> Vec<u8> {
    let name: Vec<u8> = (1..=255)
        .map(|byte| if byte == b'/' { 0xfe } else { byte })
        .collect();
    assert!(name.len() == 255 && std::str::from_utf8(&name).is_err());
    name
}

/// Bytes that repeat at no power of two and hold no zero.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0] | 1
    };
    (0..length).map(next).collect()
}

fn lower_entries() -> Vec<Entry> {
    let dir = |path: &str| Entry::new(path, Kind::Dir);
    let symlink = |path: &str, to: &[u8]| Entry::new(path, Kind::Symlink(to.to_vec()));
    // Revision 2, effective: CAP_NET_BIND_SERVICE permitted.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let many = (0..40).fold(
        Entry::file("rich/many-attributes", noise(1000)),
        |entry, index| entry.xattr(&format!("user.attribute-{index}"), noise(200 + index)),
    );
    let mut holed = noise(1 << 20);
    holed[100_000..700_000].fill(0);
    let mut entries = vec![
        dir("rich").mtime(1_600_000_000, 1),
        dir("rich/d")
            .mode(0o2750)
            .owner(12, 34)
            .mtime(1_600_000_001, 999_999_999),
        Entry::file("rich/d/gone", "x"),
        Entry::file("rich/d/shared", "one inode, four names")
            .mode(0o604)
            .mtime(1_234_567_890, 5),
        Entry::new(
            "rich/shared-here",
            Kind::HardLink(b"rich/d/shared".to_vec()),
        ),
        dir("rich/gone-tree"),
        Entry::file("rich/gone-tree/file", "x"),
        dir("rich/opaque").mode(0o700),
        dir("rich/opaque/below"),
        Entry::file("rich/opaque/below/hidden", "x"),
        Entry::file("rich/replaced", "a file, and above it a symlink"),
        dir("rich/changed").mode(0o700),
        Entry::file("rich/changed/stays", "below a directory whose mode changes"),
        Entry::file("rich/timed", "t").mtime(1_350_244_992, 23_960_108),
        Entry::file("rich/before-1970", "")
            .mode(0o600)
            .mtime(-2, 750_000_000),
        Entry::file("rich/after-2038", "").mtime(4_300_000_000, 1),
        Entry::file("rich/owned", "o")
            .mode(0o640)
            .owner(3_000_000_000, 70_000),
        Entry::file("rich/setuid", noise(5000)).mode(0o4755),
        Entry::file("rich/setgid", "").mode(0o2755).owner(0, 7),
        dir("rich/sticky").mode(0o1777),
        Entry::file([b"rich/", &long_name()[..]].concat(), "long"),
        Entry::file("rich/capable", "c")
            .mode(0o755)
            .xattr("security.capability", capability),
        Entry::file("rich/attributed", noise(3000))
            .xattr("user.note", "a\nb=c\0d")
            .xattr("user.empty", "")
            .xattr("trusted.t", "v"),
        dir("rich/attributed-dir").xattr("user.of", "a directory"),
        many,
        symlink("rich/link", b"d/shared")
            .mtime(1_000_000_000, 7)
            .owner(5, 6),
        symlink("rich/long-link", &[b'l'; 4000]),
        symlink("rich/strange-link", &[0xff, b' ', b'\n', 0x80]),
        Entry::file("rich/no-content", ""),
        Entry::file("rich/one-block", noise(4096)),
        Entry::file("rich/a-block-and-a-byte", noise(4097)),
        Entry::file("rich/big", noise(300_000)),
        Entry::file("rich/zeros", vec![0; 100_000]),
        Entry::file("rich/holed", holed),
        Entry::new("rich/null", Kind::Char(1, 3)).mode(0o666),
        Entry::new("rich/disk", Kind::Block(259, 70_000))
            .mode(0o660)
            .owner(0, 6),
        Entry::new("rich/pipe", Kind::Fifo).mode(0o600),
        dir("rich/crowd"),
    ];
    let crowd = |index: usize| Entry::file(format!("rich/crowd/{index:04}"), index.to_string());
    entries.extend((0..2000).map(crowd));
    entries
}

fn upper_entries() -> Vec<Entry> {
    let link = |path: &str| Entry::new(path, Kind::HardLink(b"rich/d/shared".to_vec()));
    vec![
        Entry::file("rich/d/.wh.gone", ""),
        Entry::file("rich/.wh.gone-tree", ""),
        link("rich/d/again"),
        link("rich/shared-too"),
        Entry::new("rich/opaque", Kind::Dir)
            .mode(0o751)
            .mtime(1_650_000_000, 2),
        Entry::file("rich/opaque/.wh..wh..opq", ""),
        Entry::file("rich/opaque/new", "n"),
        Entry::new("rich/replaced", Kind::Symlink(b"opaque/new".to_vec())),
        Entry::new("rich/changed", Kind::Dir)
            .mode(0o711)
            .owner(1, 2),
    ]
}

/// A layer with the sparse file, archived by tar itself, and its inode.
pub(crate) fn sparse(scratch: &Path, whole: bool) -> (Vec<u8>, Inode) {
    fs::create_dir_all(scratch.join("rich")).unwrap();
    let path = scratch.join("rich/sparse");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(SPARSE).unwrap();
    let pieces = [
        (0, noise(5000)),
        (2 << 30, noise(9)),
        ((4 << 30) + 123, noise(70_000)),
    ];
    for (at, piece) in pieces {
        file.write_all_at(&piece, at).unwrap();
    }
    file.write_all_at(b"!", SPARSE - 1).unwrap();
    let archived = Command::new("tar")
        .args([
            "--create",
            "--file=-",
            "--format=pax",
            "--sparse",
            "--sparse-version=1.0",
        ])
        .args([
            "--owner=:8",
            "--group=:9",
            "--mode=0640",
            "--mtime=@1600000009.000000003",
        ])
        .arg("--directory")
        .arg(scratch)
        .arg("rich/sparse")
        .output()
        .unwrap();
    assert!(
        archived.status.success(),
        "{}",
        String::from_utf8_lossy(&archived.stderr)
    );
    assert!(archived.stdout.len() < 1 << 20, "tar kept the holes");
    let whole_max = if whole { u64::MAX } else { WHOLE_MAX };
    let inode = Inode {
        mode: 0o100_640,
        uid: 8,
        gid: 9,
        size: SPARSE,
        mtime: (1_600_000_009, 3),
        nlink: 1,
        content: digest(&file, SPARSE, whole_max).unwrap(),
        ..Inode::default()
    };
    (archived.stdout, inode)
}
