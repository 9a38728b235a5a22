//! Archives that nobody made on purpose, and those that somebody made to reach out of their place; and
//! patterns of any kind.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use tempfile::TempDir;
use vk_fuzz::inputs;
use vk_guest_proto::{Failure, TarIn, TarOut, TransferEnd};

use super::*;

/// Most that an archive of these tests may bring.
const ENTRIES: u64 = 6;
const BYTES: u64 = 900;

static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(sample);

/// A small tree with everything an archive may hold, as a tar.
fn sample() -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file"), vec![1; 700]).unwrap();
    fs::write(root.join(format!("a/{}", "n".repeat(120))), "long").unwrap();
    std::os::unix::fs::symlink("../x", root.join("a/b/link")).unwrap();
    let tar = TarOut {
        root: root.to_str().unwrap().into(),
        paths: vec![b"**".to_vec()],
        exclude: vec![],
        untracked: false,
        list_only: false,
    };
    let mut out = Vec::new();
    let end = archive_to(&tar, &mut out, &mut |_| {}).unwrap();
    assert_eq!(end.entries, 5);
    out
}

thread_local! {
    static PLACE: Place = Place::new();
}

/// A directory beside which lies a witness.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(TempDir::new().unwrap());
        fs::write(place.witness(), "w").unwrap();
        place
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    fn witness(&self) -> PathBuf {
        self.0.path().join("witness")
    }

    /// Extracts into the directory, empty before; nothing may have come to lie outside, and no more in it
    /// than is let in.
    fn extract(&self, tar: &[u8]) -> Result<Result<TransferEnd, Failure>, TestCaseError> {
        clear(&self.root());
        fs::create_dir(self.root()).unwrap();
        let request = TarIn {
            root: self.root().to_str().unwrap().into(),
            owner: vec![],
            max_entries: ENTRIES,
            max_bytes: BYTES,
        };
        let ended = extract_from(&request, tar, &mut |_| {});
        let witness = fs::symlink_metadata(self.witness()).unwrap();
        prop_assert!(witness.is_file() && witness.nlink() == 1, "{witness:?}");
        prop_assert_eq!(fs::read(self.witness()).unwrap(), b"w");
        let names = fs::read_dir(self.0.path()).unwrap();
        prop_assert_eq!(names.count(), 2, "something lies outside");
        if let Ok(end) = &ended {
            prop_assert!(end.entries <= ENTRIES && end.bytes <= BYTES, "{end:?}");
        }
        Ok(ended)
    }
}

/// Removes a tree, closed directories too.
fn clear(dir: &Path) {
    let Ok(there) = fs::symlink_metadata(dir) else {
        return;
    };
    if !there.is_dir() {
        return fs::remove_file(dir).unwrap();
    }
    if there.permissions().mode() & 0o700 != 0o700 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    }
    for entry in fs::read_dir(dir).unwrap() {
        clear(&entry.unwrap().path());
    }
    fs::remove_dir(dir).unwrap();
}

/// Sets a header's checksum right again, so that what was bent behind it is reached.
fn mend(tar: &mut [u8], block: usize) {
    let Some(header) = tar.chunks_exact_mut(512).nth(block) else {
        return;
    };
    let sum: u32 = (0..512)
        .map(|at| {
            u32::from(if (148..156).contains(&at) {
                b' '
            } else {
                header[at]
            })
        })
        .sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// GUEST-09, GUEST-12
#[test]
fn a_bent_archive_never_panics_and_writes_nothing_outside() {
    let bend = (0..14_usize, 0..512_usize, any::<u8>(), any::<bool>());
    let bends = prop::collection::vec(bend, 0..6);
    let cut = prop::option::of(0..7000_usize);
    inputs(256, (bends, cut), |(bends, cut)| {
        let mut tar = SAMPLE.clone();
        for (block, at, to, mended) in bends {
            if let Some(byte) = tar.get_mut(block * 512 + at) {
                *byte = to;
            }
            if mended {
                mend(&mut tar, block);
            }
        }
        tar.truncate(cut.unwrap_or(usize::MAX));
        let ended = PLACE.with(|place| place.extract(&tar))?;
        if tar == *SAMPLE {
            prop_assert_eq!(ended.map(|end| end.entries), Ok(5));
        }
        Ok(())
    });
}

/// One entry of an archive that is made by hand: its name, what it is, where it leads, what it holds.
type Sly = (&'static str, tar::EntryType, &'static str, Vec<u8>);

/// Names of which some are the others' directories, and ways out.
fn sly() -> impl Strategy<Value = Vec<Sly>> {
    let name = prop::sample::select(vec![
        "a",
        "b",
        "a/b",
        "a/b/c",
        "b/witness",
        "a/witness",
        "witness",
        "",
        ".",
        "./a",
        "a/",
        "a//b",
        "..",
        "../witness",
        "../root/a",
        "a/../b",
        "a/../../witness",
        "/",
        "/witness",
        "a/./b",
    ]);
    let target = prop::sample::select(vec![
        "a",
        "b",
        ".",
        "..",
        "../..",
        "../witness",
        "../../witness",
        "a/../..",
        "/",
        "",
        "a/b",
        "OUTSIDE",
        "OUTSIDE/witness",
        "OUTSIDE/new",
        "/proc/self/cwd",
        "/proc/self/root",
    ]);
    use tar::EntryType as Kind;
    let kind = prop_oneof![
        3 => Just(Kind::Regular),
        2 => Just(Kind::Directory),
        3 => Just(Kind::Symlink),
        2 => Just(Kind::Link),
        1 => prop::sample::select(vec![
            Kind::Fifo, Kind::Char, Kind::Block, Kind::Continuous, Kind::GNUSparse,
            Kind::GNULongName, Kind::GNULongLink, Kind::XHeader, Kind::XGlobalHeader,
        ]),
    ];
    let content = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec((name, kind, target, content), 1..8)
}

/// The archive, of which `outside` is where the witness lies.
fn made(entries: &[Sly], outside: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, target, content) in entries {
        let mut header = tar::Header::new_gnu();
        let target = target.replace("OUTSIDE", outside);
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        let link = matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link);
        let content = if link || kind.is_dir() {
            &[][..]
        } else {
            content
        };
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        let put = |field: &mut [u8], text: &str| {
            let both = field.iter_mut().zip(text.as_bytes());
            both.for_each(|(to, from)| *to = *from);
        };
        put(&mut old.name, name);
        put(&mut old.linkname, if link { &target } else { "" });
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// GUEST-09, GUEST-12
#[test]
fn an_archive_made_to_reach_out_writes_nothing_outside() {
    inputs(400, sly(), |entries| {
        PLACE.with(|place| {
            let tar = made(&entries, place.0.path().to_str().unwrap());
            let ended = place.extract(&tar)?;
            // Files of plain names are there as they were sent.
            let mut plain: Vec<&str> = entries.iter().map(|(name, ..)| *name).collect();
            plain.sort_unstable();
            plain.dedup();
            let is_plain = plain.len() == entries.len()
                && entries.iter().all(|(name, kind, ..)| {
                    ["a", "b", "witness"].contains(name) && *kind == tar::EntryType::Regular
                });
            if is_plain {
                prop_assert_eq!(ended.map(|end| end.entries), Ok(entries.len() as u64));
                for (name, _, _, content) in &entries {
                    prop_assert_eq!(&fs::read(place.root().join(name)).unwrap(), content);
                }
            }
            Ok(())
        })
    });
}

#[test]
fn a_pattern_of_any_bytes_is_read_or_refused() {
    let byte = prop_oneof![
        prop::sample::select(b"*?[]{},\\/!^-ab".to_vec()),
        any::<u8>()
    ];
    let pattern = prop::collection::vec(byte, 0..40);
    inputs(1000, (pattern, "[ab/]{0,12}"), |(pattern, path)| {
        if let Ok(pattern) = crate::glob::Pattern::new(&pattern) {
            let _ = pattern.matches(path.as_bytes());
        }
        Ok(())
    });
}

/// A pattern of a few parts that mean something, and text that it may match.
fn patterns(more: &[&'static str]) -> impl Strategy<Value = String> {
    let parts = [
        "*", "**", "?", "a", "b", "[ab]", "[!a]", "/", "/", "/**/", "\\*", "c*",
    ];
    let part = prop::sample::select([&parts[..], more].concat());
    prop::collection::vec(part, 0..7).prop_map(|parts| parts.concat())
}

/// The same by trying everything: no states, no bounds, for short texts only.
fn matches_slowly(pattern: &[&[u8]], path: &[&[u8]]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((first, rest)), _) if *first == b"**" => {
            matches_slowly(rest, path)
                || path
                    .split_first()
                    .is_some_and(|(_, path)| matches_slowly(pattern, path))
        }
        (Some(_), None) => false,
        (Some((first, rest)), Some((name, path))) => {
            takes(first, name) && matches_slowly(rest, path)
        }
    }
}

/// Whether a pattern of one name takes one.
fn takes(pattern: &[u8], name: &[u8]) -> bool {
    let one = |rest: &[u8], is: &dyn Fn(u8) -> bool| {
        let name = name.split_first();
        name.is_some_and(|(byte, name)| is(*byte) && takes(rest, name))
    };
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|at| takes(rest, &name[at..])),
        [b'?', rest @ ..] => one(rest, &|_| true),
        [b'\\', byte, rest @ ..] => one(rest, &|found| found == *byte),
        [b'[', b'!', byte, b']', rest @ ..] => one(rest, &|found| found != *byte),
        [b'[', first, second, b']', rest @ ..] => {
            one(rest, &|found| found == *first || found == *second)
        }
        [byte, rest @ ..] => one(rest, &|found| found == *byte),
    }
}

/// GUEST-09
#[test]
fn a_pattern_takes_what_it_takes_segment_by_segment() {
    let path = "[abc]{1,2}(/[abc]{1,2}){0,3}";
    // Braces come apart before segments do.
    inputs(1000, (patterns(&[]), path), |(pattern, path)| {
        if let Ok(whole) = crate::glob::Pattern::new(pattern.as_bytes()) {
            let segments: Vec<&[u8]> = pattern
                .as_bytes()
                .split(|b| *b == b'/')
                .filter(|part| !part.is_empty())
                .collect();
            let names: Vec<&[u8]> = path.as_bytes().split(|b| *b == b'/').collect();
            let slowly = matches_slowly(&segments, &names);
            prop_assert_eq!(
                whole.matches(path.as_bytes()),
                slowly,
                "{} on {}",
                pattern,
                path
            );
        }
        Ok(())
    });
}

/// GUEST-09
#[test]
fn a_walk_never_turns_back_before_what_matches() {
    let path = "[abc]{1,2}(/[abc]{1,2}){0,3}";
    let patterns = patterns(&["{a,b}", "{a/b,*}"]);
    inputs(1000, (patterns, path), |(pattern, path)| {
        if let Ok(pattern) = crate::glob::Pattern::new(pattern.as_bytes())
            && pattern.matches(path.as_bytes())
        {
            let mut state = pattern.start();
            for name in path.as_bytes().split(|b| *b == b'/') {
                prop_assert!(state.goes_on(), "{path}");
                state = pattern.step(&state, name);
            }
            prop_assert!(state.accepts());
        }
        Ok(())
    });
}
