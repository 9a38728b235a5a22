//! Archives that lie, climb, bomb or loop.

use std::io::{Cursor, Read};

use vk_erofs::{Builder, Error, Fault, Limits, Metadata, Node, Options, Whiteouts};

use crate::tarball::{Said, Tarball, header};
use crate::{build, build_within};

fn fault(layer: Vec<u8>) -> Fault {
    match build(&[layer]) {
        Err(Error::Entry { fault, .. }) => fault,
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    }
}

fn limited(layers: &[Vec<u8>], limits: Limits) -> &'static str {
    match build_within(layers, limits) {
        Err(Error::Limit { what, .. }) => what,
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    }
}

#[test]
fn a_whiteout_that_would_reach_out_of_its_directory_is_refused() {
    for name in [".wh..", ".wh...", ".wh.", "d/.wh..", "d/.wh..."] {
        assert_eq!(
            fault(Tarball::default().dir("d").file(name, "").finish()),
            Fault::Whiteout,
            "{name}"
        );
    }
    assert_eq!(
        fault(Tarball::default().file(".wh.d/file", "x").finish()),
        Fault::Whiteout
    );
}

#[test]
fn the_root_stays_a_directory() {
    assert_eq!(
        fault(Tarball::default().file("..", "x").finish()),
        Fault::Root
    );
    assert_eq!(
        fault(Tarball::default().symlink("/", "elsewhere").finish()),
        Fault::Root
    );
    let layer = Tarball::default()
        .file("a", "1")
        .hard_link("./", "a")
        .finish();
    assert_eq!(fault(layer), Fault::Root);
    assert_eq!(
        fault(Tarball::default().hard_link("a", "..").finish()),
        Fault::LinkToDirectory
    );
}

#[test]
fn links_in_a_circle_end_with_an_error() {
    let layer = Tarball::default()
        .symlink("a", "b")
        .symlink("b", "a")
        .file("a/x", "1")
        .finish();
    assert_eq!(fault(layer), Fault::Loop);
    // Each link doubles the way: short text, endless walk.
    let mut tar = Tarball::default().dir("d0");
    for index in 1..40 {
        let before = format!("d{}/", index - 1);
        tar = tar.symlink(
            &format!("d{index}"),
            &format!("{before}../{before}../{before}"),
        );
    }
    let error = fault(tar.file("d39/x", "1").finish());
    assert!(matches!(error, Fault::Loop | Fault::Depth), "{error:?}");
}

#[test]
fn a_way_through_a_file_is_refused() {
    let layer = Tarball::default().file("a", "1").file("a/b", "2").finish();
    assert_eq!(fault(layer), Fault::NotADirectory);
}

#[test]
fn links_to_nothing_or_to_directories_are_refused() {
    assert_eq!(
        fault(Tarball::default().hard_link("a", "absent").finish()),
        Fault::LinkTarget
    );
    assert_eq!(
        fault(Tarball::default().dir("d").hard_link("a", "d").finish()),
        Fault::LinkToDirectory
    );
    let outside = Tarball::default()
        .hard_link("a", "../../etc/shadow")
        .finish();
    assert_eq!(fault(outside), Fault::LinkTarget);
    assert_eq!(
        fault(Tarball::default().symlink("a", "").finish()),
        Fault::Name
    );
}

#[test]
fn entries_are_counted_over_all_layers() {
    let layer = Tarball::default().file("a", "1").file("b", "1").finish();
    let limits = Limits {
        entries: 3,
        ..Limits::default()
    };
    assert!(limited(&[layer.clone(), layer.clone()], limits.clone()).contains("entries"));
    assert!(build_within(&[layer], limits).is_ok());
}

#[test]
fn an_archive_without_end_ends_at_the_limit_which_is_a_million() {
    assert_eq!(Limits::default().entries, 1_000_000);
    // One header again and again, made as it is read.
    let endless = Endless {
        unit: Tarball::default().file("a", "").cut(),
        at: 0,
    };
    let limits = Limits {
        entries: 50_000,
        ..Limits::default()
    };
    let options = Options {
        limits,
        uuid: [0; 16],
    };
    let mut builder = Builder::new(Cursor::new(Vec::new()), options);
    let error = builder.layer(endless, Whiteouts::Oci).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Limit {
                entry: 50_001,
                limit: 50_000,
                ..
            }
        ),
        "{error}"
    );
}

struct Endless {
    unit: Vec<u8>,
    at: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let part = &self.unit[self.at..];
        let length = part.len().min(buffer.len());
        buffer[..length].copy_from_slice(&part[..length]);
        self.at = (self.at + length) % self.unit.len();
        Ok(length)
    }
}

#[test]
fn an_extension_header_is_not_read_when_it_says_too_much() {
    for kind in [b'x', b'g', b'L', b'K'] {
        let bomb = Tarball::default()
            .raw(header(kind, b"bomb", &Said::mode(0), b"", 8 << 30), b"")
            .finish();
        assert!(limited(&[bomb], Limits::default()).contains("extension header"));
    }
}

#[test]
fn attributes_are_bounded_in_number_and_size() {
    let many = (0..300).fold(Said::mode(0o644), |said, n| {
        said.xattr(&format!("user.{n}"), "v")
    });
    let layer = Tarball::default()
        .entry(b'0', b"a", &many, b"", b"")
        .finish();
    assert_eq!(fault(layer), Fault::Xattr);
    let large = Said::mode(0o644).xattr("user.a", vec![b'v'; 70_000]);
    assert_eq!(
        fault(
            Tarball::default()
                .entry(b'0', b"a", &large, b"", b"")
                .finish()
        ),
        Fault::Xattr
    );
    let long = Said::mode(0o644).xattr(&format!("user.{}", "n".repeat(251)), "v");
    assert_eq!(
        fault(
            Tarball::default()
                .entry(b'0', b"a", &long, b"", b"")
                .finish()
        ),
        Fault::Xattr
    );
}

#[test]
fn names_and_paths_beyond_linux_are_refused() {
    let long = Tarball::default().file(&"n".repeat(256), "").finish();
    assert_eq!(fault(long), Fault::NameTooLong);
    let deep = Tarball::default().file(&"d/".repeat(2048), "").finish();
    assert_eq!(fault(deep), Fault::PathTooLong);
    let deep = Tarball::default()
        .file(&format!("{}f", "d/".repeat(1500)), "")
        .finish();
    assert_eq!(fault(deep), Fault::Depth);
    let target = Tarball::default().symlink("a", &"t".repeat(4096)).finish();
    assert_eq!(fault(target), Fault::PathTooLong);
}

#[test]
fn sizes_that_lie_are_found_out() {
    let cut = Tarball::default()
        .raw(header(b'0', b"a", &Said::mode(0), b"", 5000), b"short")
        .cut();
    assert!(matches!(build(&[cut]), Err(Error::Truncated { .. })));
    let skipped = Tarball::default()
        .raw(header(b'V', b"a", &Said::mode(0), b"", 5000), b"")
        .cut();
    assert!(matches!(build(&[skipped]), Err(Error::Truncated { .. })));
    let mut half = Tarball::default().file("a", "1").cut();
    half.truncate(700);
    assert!(matches!(build(&[half]), Err(Error::Truncated { .. })));
    let alone = Tarball::default()
        .raw(header(b'x', b"p", &Said::mode(0), b"", 0), b"")
        .finish();
    assert!(matches!(build(&[alone]), Err(Error::Truncated { .. })));
    let mut large = header(b'0', b"a", &Said::mode(0), b"", 0);
    large.set_size(u64::MAX / 4);
    let large = Tarball::default().raw(large, b"").finish();
    assert!(limited(&[large], Limits::default()).contains("bytes of a file"));
}

#[test]
fn what_is_no_tar_is_refused() {
    assert!(matches!(
        build(&[b"hello world ".repeat(100)]),
        Err(Error::Header { .. })
    ));
    assert!(matches!(
        build(&[b"short".to_vec()]),
        Err(Error::Header { .. })
    ));
    let mut bytes = Tarball::default().file("a", "1").finish();
    bytes[0] ^= 1;
    assert!(matches!(build(&[bytes]), Err(Error::Header { .. })));
    let odd = Tarball::default()
        .entry(b'M', b"a", &Said::mode(0), b"", b"")
        .finish();
    assert_eq!(fault(odd), Fault::Type(b'M'));
}

#[test]
fn sparse_maps_that_lie_are_refused() {
    for (map, stored) in [
        ("0,3,2,3", 6),                // they overlap
        ("5,3,0,3", 6),                // out of order
        ("0,3,99,3", 6),               // beyond the end
        ("0,3,5,4", 6),                // more than is stored
        ("0,3", 6),                    // less than is stored
        ("18446744073709551615,3", 3), // beyond all numbers
        ("0", 0),                      // half a segment
        ("x,y", 0),
    ] {
        let said = Said::mode(0)
            .record("GNU.sparse.size", "100")
            .record("GNU.sparse.map", map);
        let layer = Tarball::default()
            .entry(b'0', b"a", &said, b"", &vec![b'x'; stored])
            .finish();
        assert_eq!(fault(layer), Fault::SparseMap, "{map}");
    }
    let said = Said::mode(0)
        .record("GNU.sparse.major", "1")
        .record("GNU.sparse.realsize", "100");
    for content in [&b"99999999999999999999999\n"[..], b"x\n", b"2\n0\n1\n5"] {
        let layer = Tarball::default()
            .entry(b'0', b"a", &said, b"", content)
            .finish();
        assert_eq!(fault(layer), Fault::SparseMap);
    }
    let mut content = b"1000000\n".to_vec();
    content.resize(512, 0);
    let layer = Tarball::default()
        .entry(b'0', b"a", &said, b"", &content)
        .finish();
    assert!(limited(&[layer], Limits::default()).contains("sparse segments"));
}

#[test]
fn metadata_stream_and_image_are_bounded() {
    let many = (0..100)
        .fold(Tarball::default(), |tar, n| tar.file(&format!("{n}"), "1"))
        .finish();
    let limits = Limits {
        metadata_bytes: 10_000,
        ..Limits::default()
    };
    assert!(limited(std::slice::from_ref(&many), limits).contains("metadata"));
    let limits = Limits {
        stream_bytes: 100_000,
        ..Limits::default()
    };
    assert!(
        build_within(
            std::slice::from_ref(&many),
            Limits {
                stream_bytes: 200_000,
                ..limits.clone()
            }
        )
        .is_ok()
    );
    assert!(limited(&[many.clone(), many], limits).contains("layers"));
    let big = Tarball::default()
        .file("a", crate::rich::noise(1 << 20))
        .finish();
    let limits = Limits {
        image_bytes: 1 << 20,
        ..Limits::default()
    };
    assert!(limited(&[big], limits).contains("image"));
}

#[test]
fn a_name_put_again_and_again_does_not_use_up_the_bounds() {
    let limits = Limits {
        metadata_bytes: 2000,
        ..Limits::default()
    };
    let mut tar = Tarball::default();
    for _ in 0..100 {
        tar = tar
            .file("d/a", "12345")
            .dir("d/a")
            .file("d/a/b", "1")
            .symlink("d/a", "x");
    }
    assert!(build_within(&[tar.finish()], limits).is_ok());
}

#[test]
fn owners_devices_and_times_out_of_range_are_refused() {
    let owner = Tarball::default().entry(b'0', b"a", &Said::mode(0).owner(1 << 32, 0), b"", b"");
    assert_eq!(fault(owner.finish()), Fault::Owner);
    assert_eq!(
        fault(Tarball::default().node(b'3', "a", 0, 4096, 0).finish()),
        Fault::Device
    );
    assert_eq!(
        fault(Tarball::default().node(b'4', "a", 0, 0, 1 << 20).finish()),
        Fault::Device
    );
    let time = Said::mode(0).record("mtime", "soon");
    assert_eq!(
        fault(
            Tarball::default()
                .entry(b'0', b"a", &time, b"", b"")
                .finish()
        ),
        Fault::Time
    );
    let mut builder = Builder::new(Cursor::new(Vec::new()), Options::default());
    let node = Node::Block {
        major: 4096,
        minor: 0,
    };
    assert!(builder.node(b"a", Metadata::default(), node).is_err());
}

#[test]
fn a_full_disk_is_an_error_of_writing() {
    let layer = Tarball::default()
        .file("a", crate::rich::noise(1 << 20))
        .finish();
    let mut small = [0; 64 << 10];
    let mut builder = Builder::new(Cursor::new(&mut small[..]), Options::default());
    let built = builder
        .layer(&layer[..], Whiteouts::Oci)
        .and_then(|()| builder.finish().map(drop));
    assert!(matches!(built, Err(Error::Write { .. })));
}

#[test]
fn errors_show_paths_escaped_and_cut() {
    let layer = Tarball::default()
        .file(&format!("\x1b[31m{}", "n".repeat(300)), "")
        .finish();
    let text = build(&[layer]).unwrap_err().to_string();
    assert!(
        text.contains("\\x1b[31m") && text.contains('…') && text.len() < 400,
        "{text}"
    );
}
