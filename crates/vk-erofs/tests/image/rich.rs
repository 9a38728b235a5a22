//! One image with a bit of everything, and what must be found in it.

use crate::tarball::{Said, Tarball, header, pax};

/// A name of 255 bytes that is no UTF-8.
pub(crate) fn long_name() -> Vec<u8> {
    (0u8..=254)
        .map(|byte| {
            if matches!(byte, 0 | b'/' | b'.') {
                0xff
            } else {
                byte
            }
        })
        .collect()
}

/// Bytes that repeat at no power of two and hold no zero.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 | 1
    };
    (0..length).map(next).collect()
}

/// Two layers; devices only where the reader can make them.
pub(crate) fn layers(devices: bool) -> [Vec<u8>; 2] {
    [lower(devices), upper()]
}

fn lower(devices: bool) -> Vec<u8> {
    let times = Said::mode(0o644).record("mtime", "1350244992.023960108");
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut tar = Tarball::default()
        .dir("d")
        .file("d/gone", "x")
        .file("d/shared", "one inode, three names")
        .dir("opaque/below")
        .file("opaque/below/hidden", "x")
        .entry(b'0', b"timed", &times, b"", b"t")
        .entry(
            b'0',
            b"before-1970",
            &Said::mode(0o600).record("mtime", "-1.25"),
            b"",
            b"",
        )
        .entry(
            b'0',
            b"owned",
            &Said::mode(0o640).owner(3_000_000_000, 70_000),
            b"",
            b"o",
        )
        .entry(b'0', b"setuid", &Said::mode(0o4755), b"", &noise(5000))
        .entry(b'5', b"sticky", &Said::mode(0o1777), b"", b"")
        .entry(b'0', &long_name(), &Said::mode(0o644), b"", b"long")
        .entry(
            b'0',
            b"capable",
            &Said::mode(0o755).xattr("security.capability", capability),
            b"",
            b"c",
        )
        .entry(
            b'0',
            b"attributed",
            &Said::mode(0o644)
                .xattr("user.note", "a\nb=c\0d")
                .xattr("user.empty", "")
                .xattr("trusted.t", "v"),
            b"",
            &noise(3000),
        )
        .entry(
            b'0',
            b"many-attributes",
            &many_attributes(),
            b"",
            &noise(1000),
        )
        .symlink("link", "d/shared")
        .entry(b'2', b"long-link", &Said::mode(0o777), &[b'l'; 4000], b"")
        .file("one-block", noise(4096))
        .file("big", noise(300_000))
        .file("zeros", vec![0; 100_000])
        .file("holed", holed());
    for index in 0..3000 {
        tar = tar.file(&format!("crowd/entry-{index:04}"), format!("{index}"));
    }
    if devices {
        tar = tar
            .node(b'3', "null", 0o666, 1, 3)
            .node(b'4', "disk", 0o660, 259, 70_000)
            .node(b'6', "pipe", 0o600, 0, 0);
    }
    tar.finish()
}

fn upper() -> Vec<u8> {
    let sparse = header(b'0', b"GNUSparseFile.0/sparse", &Said::mode(0o644), b"", 10);
    let records = pax(&[
        (b"GNU.sparse.size".to_vec(), b"1000000".to_vec()),
        (
            b"GNU.sparse.map".to_vec(),
            b"0,4,500000,5,999999,1".to_vec(),
        ),
        (b"GNU.sparse.name".to_vec(), b"sparse".to_vec()),
    ]);
    let records_header = header(b'x', b"pax", &Said::mode(0o644), b"", records.len() as u64);
    Tarball::default()
        .file("d/.wh.gone", "")
        .hard_link("d/again", "d/shared")
        .hard_link("shared-too", "./d/shared")
        .dir("opaque")
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/new", "n")
        .raw(records_header, &records)
        .raw(sparse, b"headmiddle")
        .finish()
}

fn many_attributes() -> Said {
    (0..40).fold(Said::mode(0o644), |said, index| {
        said.xattr(&format!("user.attribute-{index}"), noise(200 + index))
    })
}

fn holed() -> Vec<u8> {
    let mut content = noise(1 << 20);
    content[100_000..700_000].fill(0);
    content
}
