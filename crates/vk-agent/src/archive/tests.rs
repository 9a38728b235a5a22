use std::fs;

use tempfile::TempDir;

use super::*;
use vk_guest_proto::{FailureCode, NoteCode, TarIn, TarOut};

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

/// Passes on and counts.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: std::io::Write> std::io::Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// A file of more than eleven octal digits' size, with a small one behind it, out of a tree and into
/// another. `VK_LONG`, for it takes 8 GiB of room.
#[test]
fn a_file_over_eight_gibibytes_leaves_a_tree_and_comes_into_another() {
    if std::env::var_os("VK_LONG").is_none() {
        return println!("a very large file: with VK_LONG alone");
    }
    let size = (8_u64 << 30) + 1;
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let large = fs::File::create(from.path().join("large")).unwrap();
    large.set_len(size).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, b"end", size - 3).unwrap();
    fs::write(from.path().join("small"), "after").unwrap();
    let tar = TarOut {
        root: from.path().to_str().unwrap().into(),
        paths: vec![b"**".to_vec()],
        exclude: vec![],
        untracked: false,
        list_only: false,
    };
    let into = TarIn {
        root: to.path().to_str().unwrap().into(),
        owner: vec![],
        max_entries: 2,
        max_bytes: size + 5,
    };
    let (reader, writer) = std::io::pipe().unwrap();
    let made = std::thread::spawn(move || {
        let mut out = Counted {
            to: std::io::BufWriter::with_capacity(1 << 20, writer),
            bytes: 0,
        };
        let end = archive_to(&tar, &mut out, &mut |note| {
            assert_eq!(note.code, NoteCode::Matched);
        });
        (end, out.bytes)
    });
    let reader = std::io::BufReader::with_capacity(1 << 20, reader);
    let got = extract_from(&into, reader, &mut |note| panic!("{note:?}")).unwrap();
    let (end, bytes) = made.join().unwrap();
    assert_eq!((end.unwrap(), got.entries, got.bytes), (got, 2, size + 5));
    // Two headers, content in whole blocks, the end.
    assert_eq!(bytes, 512 * 6 + (8 << 30));
    let large = fs::File::open(to.path().join("large")).unwrap();
    assert_eq!(large.metadata().unwrap().len(), size);
    let mut last = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&large, &mut last, size - 4).unwrap();
    assert_eq!(&last, b"\0end");
    assert_eq!(fs::read(to.path().join("small")).unwrap(), b"after");
}

/// GUEST-12
#[test]
fn a_size_beyond_the_limit_is_refused_before_anything_of_it_is_written() {
    let dir = TempDir::new().unwrap();
    let into = TarIn {
        root: dir.path().to_str().unwrap().into(),
        owner: vec![],
        max_entries: 9,
        max_bytes: 8 << 30,
    };
    let mut header = tar::Header::new_gnu();
    header.set_path("large").unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size((8 << 30) + 1);
    header.set_cksum();
    let endless = std::io::Read::chain(&header.as_bytes()[..], std::io::repeat(0));
    let refused = extract_from(&into, endless, &mut |_| {}).unwrap_err();
    assert_eq!(refused.code, FailureCode::TooLarge, "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
