use std::fs;

use proptest::prelude::*;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

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
