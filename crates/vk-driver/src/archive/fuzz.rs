//! Archives that nobody made on purpose: bent, cut, glued.

use std::fs::File;
use std::io::{Cursor, Read as _, Write as _};
use std::path::Path;

use proptest::prelude::*;
use vk_fuzz::inputs;
use vk_hub_proto::job::ArtifactFormat;

use super::unpack::unpack_from;
use super::{PackError, pack};

/// Most content that is let in, and most bytes that an archive may have.
const MOST: u64 = 1 << 16;
/// Entries that a bent archive of these tests may come to: each costs a tar's blocks.
const BLOCKS: u64 = 16 << 10;

/// One entry: its name, what it is, what it holds.
type Entry = (Vec<u8>, u8, Vec<u8>);

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c]{1,3}(/[a-c.]{1,3}){0,2}".prop_map(String::into_bytes),
        prop::sample::select(vec![
            b"../x".to_vec(),
            b"/x".to_vec(),
            b"a/../../x".to_vec(),
            b"..".to_vec(),
            b"a//b".to_vec(),
            b"./a".to_vec(),
            b"a/".to_vec(),
        ]),
        prop::collection::vec(any::<u8>(), 1..8),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let content = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0..3000_usize).prop_map(|count| vec![7; count]),
    ];
    prop::collection::vec((names(), 0..3_u8, content), 0..4)
}

/// Changes of single bytes, the last counted from the end, where an archive's directory lies.
fn bends() -> impl Strategy<Value = Vec<(bool, usize, u8)>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0, 1, 0xff, 0x7f, b'/', b'.'])
    ];
    prop::collection::vec((any::<bool>(), 0..400_usize, byte), 0..6)
}

fn bend(bytes: &mut Vec<u8>, bends: &[(bool, usize, u8)], cut: Option<usize>) {
    for (from_end, at, to) in bends {
        let at = match from_end {
            true => bytes.len().checked_sub(at + 1),
            false => Some(*at),
        };
        if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
            *byte = *to;
        }
    }
    bytes.truncate(cut.unwrap_or(usize::MAX));
}

fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, kind, content) in entries {
        let mode = match kind {
            0 => 0o100_644,
            1 => 0o040_755,
            _ => 0o120_777,
        };
        let options = zip::write::SimpleFileOptions::default()
            .system(zip::System::Unix)
            .external_attributes(mode << 16)
            .name(name.as_slice());
        // Two of one name are more than the writer writes.
        if zip.start_file_with_options(options).is_ok() {
            zip.write_all(content).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_gnu();
        let (flag, content) = match kind {
            0 => (tar::EntryType::Regular, content.as_slice()),
            1 => (tar::EntryType::Directory, &[][..]),
            _ => (tar::EntryType::Symlink, &[][..]),
        };
        header.set_entry_type(flag);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        let field = &mut header.as_old_mut().name;
        field
            .iter_mut()
            .zip(name)
            .for_each(|(to, from)| *to = *from);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
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

/// What a guest would be given: no name leads out, and all is bounded.
fn check_tar(tar: &[u8]) -> Result<(), TestCaseError> {
    let mut left = MOST;
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path_bytes().into_owned();
        prop_assert!(!name.starts_with(b"/"), "{name:?}");
        prop_assert!(
            name.split(|b| *b == b'/').all(|part| part != b".."),
            "{name:?}"
        );
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        prop_assert!(content.len() as u64 <= left);
        left -= content.len() as u64;
    }
    Ok(())
}

/// Two zips by hand, one behind the other, or a directory that is told twice.
fn glued(first: &[u8], second: &[u8]) -> Vec<u8> {
    [first, second].concat()
}

/// GUEST-12, ART-17
#[test]
fn a_bent_zip_gives_a_tar_that_is_whole_and_within_bounds_or_an_error() {
    inputs(
        400,
        (
            entries(),
            prop::option::of(entries()),
            bends(),
            prop::option::weighted(0.1, 0..400_usize),
        ),
        |(entries, more, bends, cut)| {
            let mut bytes = zip(&entries);
            if let Some(more) = more {
                bytes = glued(&bytes, &zip(&more));
            }
            bend(&mut bytes, &bends, cut);
            let mut out = Vec::new();
            let unpacked = unpack_from(Cursor::new(&bytes), &mut out, MOST);
            prop_assert!(out.len() as u64 <= MOST + BLOCKS);
            if unpacked.is_ok() {
                check_tar(&out)?;
            }
            Ok(())
        },
    );
}

/// GUEST-12, GUEST-07
#[test]
fn a_bent_tar_becomes_an_archive_within_the_cap_or_an_error() {
    inputs(
        400,
        (
            entries(),
            bends(),
            prop::collection::vec(0..8_usize, 0..3),
            prop::option::weighted(0.1, 0..4000_usize),
            0..4000_u64,
            prop::sample::select(vec![
                ArtifactFormat::Zip,
                ArtifactFormat::Zipzstd,
                ArtifactFormat::Gzip,
                ArtifactFormat::Raw,
                ArtifactFormat::Tarzstd,
            ]),
        ),
        |(entries, bends, mended, cut, cap, format)| {
            let mut bytes = tar(&entries);
            bend(&mut bytes, &bends, cut);
            for block in mended {
                mend(&mut bytes, block);
            }
            SCRATCH.with(|dir| {
                let to = dir.path().join("archive");
                // What an earlier one left is not this one's.
                let _ = std::fs::remove_file(&to);
                let packed = pack(bytes.as_slice(), &to, format, cap);
                let made = std::fs::metadata(&to).map_or(0, |file| file.len());
                prop_assert!(made <= cap, "{made} of {cap}: {packed:?}");
                if let Err(PackError::TooLarge(told)) = packed {
                    prop_assert_eq!(told, cap);
                }
                Ok(())
            })?;
            Ok(())
        },
    );
}

/// ART-16
#[test]
fn files_of_any_name_are_joined_by_gzip_and_read_back() {
    inputs(
        400,
        prop::collection::vec(
            (
                prop::collection::vec(1..=255_u8, 1..60),
                prop::collection::vec(any::<u8>(), 0..60),
            ),
            1..4,
        ),
        |files| {
            let files: Vec<Entry> = files
                .into_iter()
                .map(|(name, content)| {
                    // A tar's name has no slash at its end where it is a file's.
                    let name = [name.as_slice(), b"x"].concat();
                    (name, 0, content)
                })
                .collect();
            let bytes = tar(&files);
            SCRATCH.with(|dir| {
                let to = dir.path().join("gzip");
                pack(bytes.as_slice(), &to, ArtifactFormat::Gzip, MOST).unwrap();
                prop_assert_eq!(
                    gunzip(&to),
                    files
                        .iter()
                        .flat_map(|file| file.2.clone())
                        .collect::<Vec<_>>()
                );
                Ok(())
            })?;
            Ok(())
        },
    );
}

fn gunzip(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(File::open(path).unwrap());
    decoder.read_to_end(&mut bytes).unwrap();
    bytes
}

thread_local! {
    static SCRATCH: tempfile::TempDir = tempfile::tempdir().unwrap();
}
