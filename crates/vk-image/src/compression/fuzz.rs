//! Compressed streams that a registry may send: whole, bent, cut, glued, with headers of any kind.

use std::io::{self, Read, Write as _};

use flate2::{Crc, GzBuilder};
use proptest::prelude::*;
use vk_erofs::Limits;
use vk_erofs::tar::Archive;
use vk_fuzz::inputs;

use super::decompress;

/// What deflate makes of one byte at most.
const RATIO: usize = 1032;
/// The least that a member of a gzip stream has: its header and trailer.
const LEAST: usize = 18;

/// A member: its text, what its header says, how well it is compressed.
#[derive(Clone, Debug)]
struct Member {
    text: Vec<u8>,
    extra: Option<Vec<u8>>,
    name: Option<Vec<u8>>,
    comment: Option<Vec<u8>>,
    time: u32,
    level: u32,
}

impl Member {
    fn bytes(&self) -> Vec<u8> {
        let mut builder = GzBuilder::new().mtime(self.time);
        if let Some(extra) = &self.extra {
            builder = builder.extra(extra.as_slice());
        }
        if let Some(name) = &self.name {
            builder = builder.filename(name.as_slice());
        }
        if let Some(comment) = &self.comment {
            builder = builder.comment(comment.as_slice());
        }
        let level = flate2::Compression::new(self.level);
        let mut encoder = builder.write(Vec::new(), level);
        encoder.write_all(&self.text).unwrap();
        encoder.finish().unwrap()
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec!["a", "ab", "\0", "text ", "\u{1f}\u{8b}"]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(word, 0..60).prop_map(|words| words.concat().into_bytes()),
        // As a bomb has it.
        (any::<u8>(), 0..20_000_usize).prop_map(|(byte, times)| vec![byte; times]),
    ]
}

fn member() -> impl Strategy<Value = Member> {
    // Without NUL: it ends a name.
    let field = || prop::option::weighted(0.3, prop::collection::vec(1..=255_u8, 0..40));
    (text(), field(), field(), field(), any::<u32>(), 0..10_u32).prop_map(
        |(text, extra, name, comment, time, level)| Member {
            text,
            extra,
            name,
            comment,
            time,
            level,
        },
    )
}

/// Changes of a stream: a byte, counted from its end or its beginning, becomes another.
fn bends() -> impl Strategy<Value = Vec<(bool, usize, u8)>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0, 1, 4, 8, 0x1f, 0xff])
    ];
    prop::collection::vec((any::<bool>(), 0..80_usize, byte), 0..5)
}

fn bend(bytes: &mut [u8], bends: &[(bool, usize, u8)]) {
    for (from_end, at, to) in bends {
        let at = match from_end {
            true => bytes.len().checked_sub(at + 1),
            false => Some(*at),
        };
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
            *byte = *to;
        }
    }
}

/// Reads all of a stream, in pieces; an error ends it for good.
fn read(bytes: &[u8], pieces: &[usize]) -> Result<io::Result<Vec<u8>>, TestCaseError> {
    let mut input = match decompress(bytes) {
        Ok((_, input)) => input,
        Err(error) => return Ok(Err(error)),
    };
    let mut out = Vec::new();
    let mut buffer = [0; 4096];
    for piece in pieces.iter().cycle() {
        let room = &mut buffer[..*piece];
        match input.read(room) {
            Ok(0) => break,
            Ok(read) => out.extend_from_slice(&room[..read]),
            Err(error) => {
                // Who asks again is given no more, and no end as if all were well.
                for _ in 0..3 {
                    let again = input.read(&mut buffer);
                    prop_assert!(again.is_err(), "{:?} after {}", again, error);
                }
                return Ok(Err(error));
            }
        }
        let most = bytes.len().saturating_mul(RATIO);
        prop_assert!(out.len() <= most, "{} bytes of {}", out.len(), bytes.len());
    }
    prop_assert_eq!(input.read(&mut buffer).unwrap(), 0, "more after the end");
    Ok(Ok(out))
}

/// What a stream's one member says of its text, by its last eight bytes.
fn is_sealed(stream: &[u8], text: &[u8]) -> bool {
    let mut crc = Crc::new();
    crc.update(text);
    let seal = [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].concat();
    stream.ends_with(&seal)
}

#[test]
fn gzip_of_any_kind_is_read_as_it_was_written_and_bent_never_as_another() {
    let members = prop::collection::vec(member(), 1..4);
    let cut = prop::option::weighted(0.15, 0..400_usize);
    let pieces = prop::collection::vec(
        prop_oneof![1 => 1..9_usize, 9 => 100..4096_usize, 9 => Just(4096)],
        1..5,
    );
    inputs(
        400,
        (members, bends(), cut, pieces),
        |(members, bends, cut, pieces)| {
            let whole: Vec<u8> = members.iter().flat_map(Member::bytes).collect();
            let text: Vec<u8> = members.iter().flat_map(|one| one.text.clone()).collect();
            let mut bytes = whole.clone();
            bend(&mut bytes, &bends);
            bytes.truncate(cut.unwrap_or(usize::MAX));
            match read(&bytes, &pieces)? {
                Ok(out) if bytes == whole => prop_assert!(out == text, "another text"),
                Err(error) if bytes == whole => prop_assert!(false, "{error}"),
                // What does not begin as gzip is no gzip, and taken as it is.
                Ok(out) if !bytes.starts_with(&[0x1f, 0x8b]) => prop_assert!(out == bytes),
                // Of one member, all is sealed; of several, each is, and none is longer than it may be.
                Ok(out) => {
                    prop_assert!(bytes.len() >= LEAST, "{bytes:?}");
                    let one = members.len() == 1;
                    prop_assert!(
                        !one || is_sealed(&bytes, &out),
                        "bent, and read all the same"
                    );
                }
                Err(_) => {}
            }
            Ok(())
        },
    );
}

/// A tar of so many files.
fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content.as_slice())
            .unwrap();
    }
    tar.into_inner().unwrap()
}

/// Layers as a registry stores them, the archive bent, then packed: what the limits let in is all that is read.
#[test]
fn a_bent_layer_is_read_to_its_end_or_refused() {
    let file = ("[a-c]{1,3}(/[a-c]{1,3}){0,2}", text());
    let files = prop::collection::vec(file, 0..4);
    let at = prop::collection::vec((0..2000_usize, any::<u8>(), any::<bool>()), 0..4);
    let packed = prop::sample::select(vec!["gzip", "zstd", "none"]);
    inputs(
        400,
        (files, at, packed, bends()),
        |(files, at, packed, bends)| {
            let mut layer = tar(&files);
            let whole = layer.clone();
            for (nth, to, is_mended) in at {
                if let Some(byte) = layer.get_mut(nth) {
                    *byte = to;
                }
                if is_mended {
                    mend(&mut layer, nth / 512);
                }
            }
            let is_whole = layer == whole;
            let mut bytes = match packed {
                "gzip" => {
                    let level = flate2::Compression::fast();
                    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                    encoder.write_all(&layer).unwrap();
                    encoder.finish().unwrap()
                }
                "zstd" => zstd::encode_all(layer.as_slice(), 1).unwrap(),
                _ => layer.clone(),
            };
            let sent = bytes.clone();
            bend(&mut bytes, &bends);
            let entries = entries(&bytes, layer.len());
            if is_whole && bytes == sent {
                let wanted: Vec<Vec<u8>> =
                    files.iter().map(|(_, content)| content.clone()).collect();
                prop_assert!(
                    entries.as_ref() == Ok(&wanted),
                    "another tree: {:?}",
                    entries.err()
                );
            }
            Ok(())
        },
    );
}

/// What the files of a layer hold.
fn entries(bytes: &[u8], most: usize) -> Result<Vec<Vec<u8>>, String> {
    let (_, input) = decompress(bytes).map_err(|error| error.to_string())?;
    // A stream that says the same for ever would be cut here, and not by the archive.
    let input = input.take(2 * most as u64 + (64 << 10));
    let mut archive = Archive::new(input, &Limits::default());
    let mut found = Vec::new();
    while let Some(_entry) = archive.next_entry().map_err(|error| error.to_string())? {
        let mut content = Vec::new();
        archive
            .content()
            .read_to_end(&mut content)
            .map_err(|error| error.to_string())?;
        found.push(content);
    }
    Ok(found)
}

/// Sets a header's sum right, so that what was bent behind it is reached.
fn mend(tar: &mut [u8], block: usize) {
    let Some(header) = tar.chunks_exact_mut(512).nth(block) else {
        return;
    };
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
