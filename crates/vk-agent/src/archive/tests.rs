use std::fs;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tempfile::TempDir;

use super::*;
use vk_guest_proto::{TarIn, TarOut};

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

/// Extracts below a directory beside which lies a witness; says what lies beside it afterwards.
fn extract_beside_a_witness(tar: &[u8]) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(dir.path().join("witness"), "w").unwrap();
    let request = TarIn {
        root: root.to_str().unwrap().into(),
        owner: vec![],
        max_entries: 50,
        max_bytes: 1 << 20,
    };
    let _ = extract_from(&request, tar, &mut |_| {});
    assert_eq!(fs::read_to_string(dir.path().join("witness")).unwrap(), "w");
    let names = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
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

/// `VK_LONG` makes a million of each; `VK_SEED` and `VK_FUZZ` say which and how many.
fn cases(few: u32) -> ProptestConfig {
    let asked = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let usual = match std::env::var_os("VK_LONG") {
        Some(_) => 1_000_000,
        None => few.into(),
    };
    ProptestConfig {
        cases: u32::try_from(asked("VK_FUZZ").unwrap_or(usual)).unwrap(),
        rng_seed: RngSeed::Fixed(asked("VK_SEED").unwrap_or(1)),
        // Nothing is written beside the sources.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(256))]

    /// GUEST-09, GUEST-12
    #[test]
    fn a_bent_archive_never_panics_and_writes_nothing_outside(
        bends in prop::collection::vec((0..14_usize, 0..512_usize, any::<u8>(), any::<bool>()), 1..6),
        cut in prop::option::of(0..7000_usize),
    ) {
        let mut tar = sample();
        for (block, at, to, mended) in bends {
            if let Some(byte) = tar.get_mut(block * 512 + at) {
                *byte = to;
            }
            if mended {
                mend(&mut tar, block);
            }
        }
        tar.truncate(cut.unwrap_or(usize::MAX));
        prop_assert_eq!(extract_beside_a_witness(&tar), ["root", "witness"]);
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn a_pattern_of_any_bytes_is_read_or_refused(
        pattern in prop::collection::vec(
            prop_oneof![prop::sample::select(b"*?[]{},\\/!^-ab".to_vec()), any::<u8>()],
            0..40,
        ),
        path in "[ab/]{0,12}",
    ) {
        if let Ok(pattern) = crate::glob::Pattern::new(&pattern) {
            let _ = pattern.matches(path.as_bytes());
        }
    }
}

/// A pattern of a few parts that mean something, and text that it may match.
fn patterns() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "*", "**", "?", "a", "b", "[ab]", "[!a]", "{a,b}", "{a/b,*}", "/", "/", "/**/", "\\*", "c*",
    ]);
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
            let one = crate::glob::Pattern::new(first);
            one.is_ok_and(|one| one.matches(name)) && matches_slowly(rest, path)
        }
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    /// GUEST-09
    #[test]
    fn a_pattern_takes_what_it_takes_segment_by_segment(
        pattern in patterns().prop_filter("braces come apart", |text| !text.contains('{')),
        path in "[abc]{1,2}(/[abc]{1,2}){0,3}",
    ) {
        if let Ok(whole) = crate::glob::Pattern::new(pattern.as_bytes()) {
            let segments: Vec<&[u8]> = pattern
                .as_bytes()
                .split(|b| *b == b'/')
                .filter(|part| !part.is_empty())
                .collect();
            let names: Vec<&[u8]> = path.as_bytes().split(|b| *b == b'/').collect();
            let slowly = matches_slowly(&segments, &names);
            prop_assert_eq!(whole.matches(path.as_bytes()), slowly, "{} on {}", pattern, path);
        }
    }

    /// GUEST-09
    #[test]
    fn a_walk_never_turns_back_before_what_matches(
        pattern in patterns(),
        path in "[abc]{1,2}(/[abc]{1,2}){0,3}",
    ) {
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
    }
}

/// A tree with these files, and whether the archive of `**` was said to reach into git's own.
fn reaches_git(files: &[&str]) -> bool {
    let dir = TempDir::new().unwrap();
    for file in files {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    let tar = TarOut {
        root: dir.path().to_str().unwrap().into(),
        paths: vec![b"**".to_vec()],
        exclude: vec![],
        untracked: false,
        list_only: false,
    };
    let mut said = 0;
    let mut count = |note: vk_guest_proto::Note| {
        said += u32::from(note.code == vk_guest_proto::NoteCode::InsideGit);
    };
    archive_to(&tar, &mut Vec::new(), &mut count).unwrap();
    assert!(said <= 1, "it is said once");
    said == 1
}

/// PORT-35
#[test]
fn only_the_projects_own_git_directory_is_warned_of() {
    for (files, expected) in [
        (&[".git/test"][..], true),
        (&[".git/test", ".git/\u{30c6}"], true),
        (&["test/.git/test"], false),
        (&[".gitignore", ".github/x"], false),
        (&["a"], false),
    ] {
        assert_eq!(reaches_git(files), expected, "{files:?}");
    }
}
