//! What goes in comes out: every kind of inode, every form of sparse file, large and small.

use std::io::{Cursor, Read};

use vk_erofs::{Builder, Metadata, Node, Options, Timestamp};

use crate::reader::Image;
use crate::rich::{self, noise};
use crate::tarball::{Said, Tarball, header, pax};
use crate::{build, tree};

#[test]
fn every_kind_of_inode_survives() {
    let image = Image::new(build(&rich::layers(true)).unwrap());
    let tree = image.tree();
    let inode = |path: &str| &tree[path.as_bytes()];
    assert!(!tree.contains_key(&b"d/gone"[..]) && !tree.contains_key(&b"opaque/below"[..]));
    assert!(tree.contains_key(&b"opaque/new"[..]));
    assert_eq!(inode("d/shared").nlink, 3);
    assert_eq!(inode("shared-too").nid, inode("d/again").nid);
    assert_eq!(inode("timed").mtime, (1_350_244_992, 23_960_108));
    assert_eq!(inode("before-1970").mtime, (-2, 750_000_000));
    assert_eq!(
        (inode("owned").uid, inode("owned").gid),
        (3_000_000_000, 70_000)
    );
    assert_eq!(inode("setuid").mode, 0o104_755);
    assert_eq!(inode("sticky").mode, 0o041_777);
    assert_eq!(image.content(&tree[&rich::long_name()]), b"long");
    assert_eq!(
        inode("capable").xattrs[&b"security.capability"[..]].len(),
        20
    );
    assert_eq!(inode("attributed").xattrs[&b"user.note"[..]], b"a\nb=c\0d");
    assert_eq!(inode("attributed").xattrs[&b"user.empty"[..]], b"");
    assert_eq!(inode("attributed").xattrs[&b"trusted.t"[..]], b"v");
    assert_eq!(inode("many-attributes").xattrs.len(), 40);
    assert_eq!(image.content(inode("many-attributes")), noise(1000));
    assert_eq!(image.content(inode("link")), b"d/shared");
    assert_eq!(image.content(inode("long-link")), [b'l'; 4000]);
    assert_eq!(image.content(inode("one-block")), noise(4096));
    assert_eq!(image.content(inode("big")), noise(300_000));
    assert_eq!((inode("null").mode, inode("null").rdev), (0o020_666, 0x103));
    assert_eq!(
        (inode("disk").mode, inode("disk").rdev),
        (0o060_660, 0x1111_0370)
    );
    assert_eq!(inode("pipe").mode, 0o010_600);
    assert_eq!(
        tree.keys()
            .filter(|path| path.starts_with(b"crowd/"))
            .count(),
        3000
    );
    assert_eq!(image.content(inode("crowd/entry-2999")), b"2999");
}

#[test]
fn runs_of_zeros_become_holes_and_nothing_else_does() {
    let image = Image::new(build(&rich::layers(false)).unwrap());
    let tree = image.tree();
    assert_eq!(tree[&b"zeros"[..]].extents, []);
    assert_eq!(image.content(&tree[&b"zeros"[..]]), vec![0; 100_000]);
    let holed = &tree[&b"holed"[..]];
    let stored: u64 = holed.extents.iter().map(|extent| extent.2).sum();
    assert!(stored < 700_000, "{stored}");
    let mut wanted = noise(1 << 20);
    wanted[100_000..700_000].fill(0);
    assert!(image.content(holed) == wanted);
}

#[test]
fn a_sparse_file_of_5_gib_adds_less_than_2_mib() {
    let gib5 = 5u64 << 30;
    let map = format!("0,4,{},6,{},1", 2u64 << 30, gib5 - 1);
    let said = Said::mode(0o644)
        .record("GNU.sparse.size", gib5.to_string())
        .record("GNU.sparse.map", map);
    let with = Tarball::default()
        .entry(b'0', b"sparse", &said, b"", b"headmiddle!")
        .finish();
    let bytes = build(&[with]).unwrap();
    let empty = build(&[Tarball::default().finish()]).unwrap();
    assert!(bytes.len() - empty.len() < 2 << 20, "{}", bytes.len());
    let image = Image::new(bytes);
    let sparse = image.tree().remove(&b"sparse"[..]).unwrap();
    assert_eq!(sparse.size, gib5);
    assert_eq!(sparse.extents.len(), 3);
    let at = |offset: u64, length: usize| {
        let (start, from, _) = *sparse.extents.iter().rfind(|e| e.0 <= offset).unwrap();
        image.bytes_at(from + offset - start, length).to_vec()
    };
    assert_eq!(at(0, 5), b"head\0");
    assert_eq!(at(2 << 30, 7), b"middle\0");
    assert_eq!(at(gib5 - 2, 2), b"\0!");
}

#[test]
fn a_file_without_any_data_has_one_null_chunk_whatever_its_size() {
    let said = Said::mode(0o644).record("GNU.sparse.size", (3u64 << 40).to_string());
    let said = said.record("GNU.sparse.map", "");
    let layer = Tarball::default()
        .entry(b'0', b"void", &said, b"", b"")
        .finish();
    let bytes = build(&[layer]).unwrap();
    assert_eq!(bytes.len(), 2 * 4096);
    assert_eq!(Image::new(bytes).tree()[&b"void"[..]].size, 3 << 40);
}

/// The three ways of GNU tar to write a sparse file into PAX, and its old one.
#[test]
fn all_forms_of_sparse_entries_are_read() {
    let mut wanted = vec![0; 300_000];
    wanted[..3].copy_from_slice(b"abc");
    wanted[200_000..200_004].copy_from_slice(b"defg");
    for (form, layer) in [form_0_0(), form_0_1(), form_1_0(), form_old()]
        .into_iter()
        .enumerate()
    {
        let image = Image::new(build(&[layer]).unwrap());
        let tree = image.tree();
        assert!(image.content(&tree[&b"s"[..]]) == wanted, "form {form}");
        assert_eq!(image.content(&tree[&b"after"[..]]), b"next", "form {form}");
    }
}

fn form_0_0() -> Vec<u8> {
    let said = Said::mode(0o644)
        .record("GNU.sparse.size", "300000")
        .record("GNU.sparse.numblocks", "2")
        .record("GNU.sparse.offset", "0")
        .record("GNU.sparse.numbytes", "3")
        .record("GNU.sparse.offset", "200000")
        .record("GNU.sparse.numbytes", "4");
    Tarball::default()
        .entry(b'0', b"s", &said, b"", b"abcdefg")
        .file("after", "next")
        .finish()
}

fn form_0_1() -> Vec<u8> {
    let said = Said::mode(0o644)
        .record("GNU.sparse.size", "300000")
        .record("GNU.sparse.name", "s")
        .record("GNU.sparse.map", "0,3,200000,4");
    let tar = Tarball::default().entry(b'0', b"GNUSparseFile.1/s", &said, b"", b"abcdefg");
    tar.file("after", "next").finish()
}

fn form_1_0() -> Vec<u8> {
    let said = Said::mode(0o644)
        .record("GNU.sparse.major", "1")
        .record("GNU.sparse.minor", "0")
        .record("GNU.sparse.realsize", "300000")
        .record("GNU.sparse.name", "s");
    let mut content = b"2\n0\n3\n200000\n4\n".to_vec();
    content.resize(512, 0);
    content.extend_from_slice(b"abcdefg");
    let tar = Tarball::default().entry(b'0', b"GNUSparseFile.1/s", &said, b"", &content);
    tar.file("after", "next").finish()
}

fn form_old() -> Vec<u8> {
    let mut head = header(b'S', b"s", &Said::mode(0o644), b"", 7);
    let gnu = head.as_gnu_mut().unwrap();
    gnu.set_real_size(300_000);
    gnu.sparse[0].set_offset(0);
    gnu.sparse[0].set_length(1);
    gnu.sparse[1].set_offset(1);
    gnu.sparse[1].set_length(1);
    gnu.sparse[2].set_offset(2);
    gnu.sparse[2].set_length(1);
    gnu.sparse[3].set_offset(200_000);
    gnu.sparse[3].set_length(1);
    gnu.set_is_extended(true);
    let mut more = tar::GnuExtSparseHeader::new();
    for (index, segment) in more.sparse_mut()[..3].iter_mut().enumerate() {
        segment.set_offset(200_001 + index as u64);
        segment.set_length(1);
    }
    let mut tail = more.as_bytes().to_vec();
    tail.extend_from_slice(b"abcdefg");
    Tarball::default()
        .raw(head, &tail)
        .file("after", "next")
        .finish()
}

#[test]
fn a_file_above_4_gib_keeps_its_size_and_ends() {
    let size = (4u64 << 30) + 70_001;
    let mut builder = Builder::new(tempfile::tempfile().unwrap(), Options::default());
    // Zeros but for the last bytes: read through, hardly written.
    let content = std::io::repeat(0).take(size - 3).chain(&b"end"[..]);
    builder
        .file(b"huge", Metadata::with_mode(0o600), size, content)
        .unwrap();
    let (mut file, summary) = builder.finish().unwrap();
    assert!(summary.bytes < 1 << 20);
    let mut bytes = Vec::new();
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let image = Image::new(bytes);
    let huge = image.tree().remove(&b"huge"[..]).unwrap();
    assert_eq!(huge.size, size);
    let (_, from, length) = *huge.extents.last().unwrap();
    assert_eq!(image.bytes_at(from + length - 4, 4), b"\0end");
}

#[test]
fn long_names_of_gnu_tar_are_read() {
    let name = format!("{}/{}", "d".repeat(200), "f".repeat(255));
    let mut long = name.clone().into_bytes();
    long.push(0);
    let tar = Tarball::default()
        .raw(
            header(
                b'L',
                b"././@LongLink",
                &Said::mode(0),
                b"",
                long.len() as u64,
            ),
            &long,
        )
        .raw(header(b'0', b"cut", &Said::mode(0o644), b"", 1), b"x")
        .raw(
            header(
                b'K',
                b"././@LongLink",
                &Said::mode(0),
                b"",
                long.len() as u64,
            ),
            &long,
        )
        .raw(header(b'1', b"h", &Said::mode(0o644), b"cut", 0), b"");
    let tree = tree(&[tar.finish()]);
    assert_eq!(tree[name.as_bytes()].nlink, 2);
}

#[test]
fn global_headers_and_links_with_sizes_are_read_as_runtimes_do() {
    let records = pax(&[(b"path".to_vec(), b"not-for-all".to_vec())]);
    let layer = Tarball::default()
        .raw(
            header(
                b'g',
                b"pax_global",
                &Said::mode(0),
                b"",
                records.len() as u64,
            ),
            &records,
        )
        .file("a", "1")
        .raw(header(b'1', b"b", &Said::mode(0o644), b"a", 999), b"")
        .raw(header(b'5', b"c", &Said::mode(0o755), b"", 999), b"")
        .finish();
    let names: Vec<_> = tree(&[layer]).into_keys().skip(1).collect();
    assert_eq!(names, [b"a", b"b", b"c"]);
}

#[test]
fn an_archive_that_just_ends_is_whole_and_what_follows_the_end_is_left() {
    let open = Tarball::default().file("a", "1").cut();
    assert_eq!(tree(&[open]).len(), 2);
    let mut bytes = Tarball::default().file("a", "1").finish();
    bytes.extend_from_slice(b"more");
    let mut builder = Builder::new(Cursor::new(Vec::new()), Options::default());
    let mut input = &bytes[..];
    builder.layer(&mut input, vk_erofs::Whiteouts::Oci).unwrap();
    assert!(input.ends_with(b"more"));
}

#[test]
fn attributes_no_image_may_have_are_dropped_and_counted() {
    let said = Said::mode(0o644)
        .xattr("com.apple.quarantine", "x")
        .xattr("trusted.overlay.redirect", "/etc")
        .xattr("user.overlay.opaque", "y")
        .xattr("user.kept", "z");
    let layer = Tarball::default()
        .entry(b'0', b"a", &said, b"", b"")
        .finish();
    let mut builder = Builder::new(Cursor::new(Vec::new()), Options::default());
    builder.layer(&layer[..], vk_erofs::Whiteouts::Oci).unwrap();
    let (output, summary) = builder.finish().unwrap();
    assert_eq!(summary.dropped_xattrs, 3);
    let tree = Image::new(output.into_inner()).tree();
    assert_eq!(
        tree[&b"a"[..]].xattrs.keys().collect::<Vec<_>>(),
        [b"user.kept"]
    );
}

#[test]
fn entries_made_by_the_caller_build_a_tree_too() {
    let meta = |mode| Metadata {
        mtime: Timestamp { secs: 5, nanos: 6 },
        uid: 1,
        gid: 2,
        ..Metadata::with_mode(mode)
    };
    let mut builder = Builder::new(Cursor::new(Vec::new()), Options::default());
    builder
        .file(b"src/main.c", meta(0o755), 4, &b"main"[..])
        .unwrap();
    builder.symlink(b"src/link", meta(0), b"main.c").unwrap();
    builder.dir(b"src", meta(0o750)).unwrap();
    builder.node(b"src/pipe", meta(0o600), Node::Fifo).unwrap();
    builder.hard_link(b"hard", b"src/main.c").unwrap();
    let (output, summary) = builder.finish().unwrap();
    assert_eq!(summary.inodes, 5);
    let image = Image::new(output.into_inner());
    let tree = image.tree();
    let main = &tree[&b"hard"[..]];
    assert_eq!(
        (main.mode, main.uid, main.gid, main.mtime),
        (0o100_755, 1, 2, (5, 6))
    );
    assert_eq!(image.content(main), b"main");
    assert_eq!(tree[&b"src"[..]].mode, 0o040_750);
    assert_eq!(tree[&b"src/link"[..]].mode, 0o120_777);
}

#[test]
fn directories_of_every_size_around_a_block_end_as_linux_wants() {
    // 15 names of 255 bytes with `.` and `..` fill a block up to the inode before them.
    for last in 230..=255 {
        for count in [14, 15, 16, 31] {
            let name =
                |index: usize, length: usize| format!("d/{index:02}{}", "n".repeat(length - 2));
            let mut tar = Tarball::default();
            for index in 0..count {
                tar = tar.file(&name(index, if index == 0 { last } else { 255 }), "");
            }
            assert_eq!(tree(&[tar.finish()]).len(), count + 2);
        }
    }
}

#[test]
fn an_empty_image_has_its_root() {
    let tree = tree(&[]);
    assert_eq!(tree.len(), 1);
    assert_eq!(tree[&b""[..]].mode, 0o040_755);
}
