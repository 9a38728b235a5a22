//! Archives, there and back, and hostile ones.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};
use vk_hub_proto::job::ArtifactFormat;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::{Level, PackError, Packed, UnpackError, file_name, pack_at};

const CAP: u64 = 1 << 30;

fn pack(from: &Path, to: &Path, format: ArtifactFormat) -> Result<Packed, PackError> {
    super::pack(File::open(from).unwrap(), to, format, CAP)
}

fn unpack(from: &Path, to: &Path, most: u64) -> Result<(), UnpackError> {
    super::unpack(from, File::create(to).unwrap(), most)
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(1000);
    header.set_gid(1001);
    header.set_mtime(1_767_323_045);
    header.set_size(size as u64);
    header
}

/// A tar of these files.
fn tar(dir: &Path, files: &[(&str, &[u8])]) -> PathBuf {
    let path = dir.join("in.tar");
    let mut tar = Builder::new(File::create(&path).unwrap());
    for (name, content) in files {
        let mut header = header(EntryType::Regular, 0o640, content.len());
        tar.append_data(&mut header, name, *content).unwrap();
    }
    tar.into_inner().unwrap();
    path
}

fn whole(dir: &Path) -> PathBuf {
    let path = dir.join("in.tar");
    let mut tar = Builder::new(File::create(&path).unwrap());
    let mut of = header(EntryType::Directory, 0o755, 0);
    tar.append_data(&mut of, "out", std::io::empty()).unwrap();
    let mut of = header(EntryType::Symlink, 0o777, 0);
    tar.append_link(&mut of, "out/link", "a.txt").unwrap();
    let mut of = header(EntryType::Regular, 0o750, 6);
    tar.append_data(&mut of, "out/a.txt", &b"hello\n"[..])
        .unwrap();
    tar.into_inner().unwrap();
    path
}

/// Path, type, mode, owner, group, time, content or target of each entry.
fn listed(path: &Path) -> Vec<String> {
    let mut tar = tar::Archive::new(File::open(path).unwrap());
    let one = |entry: std::io::Result<tar::Entry<'_, File>>| {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        let head = entry.header();
        format!(
            "{} {:?} {:o} {} {} {} {:?} {content:?}",
            entry.path().unwrap().display(),
            head.entry_type(),
            head.mode().unwrap(),
            head.uid().unwrap(),
            head.gid().unwrap(),
            head.mtime().unwrap(),
            entry.link_name().unwrap(),
        )
    };
    tar.entries().unwrap().map(one).collect()
}

/// ART-13
#[test]
fn a_zip_brings_files_links_and_directories_back_as_they_were() {
    for format in [ArtifactFormat::Zip, ArtifactFormat::Zipzstd] {
        let dir = tempfile::tempdir().unwrap();
        let from = whole(dir.path());
        let zip = dir.path().join("zip");
        assert!(matches!(
            pack(&from, &zip, format).unwrap(),
            Packed::Bytes(1..)
        ));
        let back = dir.path().join("back.tar");
        unpack(&zip, &back, 1 << 20).unwrap();
        let same = |lines: Vec<String>| {
            lines
                .into_iter()
                .map(|line| line.replace("out/ ", "out "))
                .collect::<Vec<_>>()
        };
        assert_eq!(same(listed(&back)), same(listed(&from)));
    }
}

#[test]
fn other_programs_read_our_zip() {
    let dir = tempfile::tempdir().unwrap();
    let zip = dir.path().join("zip");
    pack(&whole(dir.path()), &zip, ArtifactFormat::Zip).unwrap();
    let script = "import sys,zipfile\nz=zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
        print([(i.filename, oct(i.external_attr>>16)) for i in z.infolist()])";
    let ran = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&zip)
        .output();
    let Ok(ran) = ran else {
        println!("python3 is not here: nothing else reads the zip");
        return;
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let expected = "[('out/', '0o40755'), ('out/link', '0o120777'), ('out/a.txt', '0o100750')]\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&ran.stderr));
}

/// ART-16
#[test]
fn gzip_joins_members_and_raw_takes_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let two = tar(dir.path(), &[("a/é.txt", b"one\n"), ("b.txt", b"two\n")]);
    pack(&two, &to, ArtifactFormat::Gzip).unwrap();
    let mut text = String::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(File::open(&to).unwrap());
    assert_eq!(
        decoder.header().unwrap().filename(),
        Some(&b"e:%C3%A9.txt"[..])
    );
    assert_eq!(
        decoder.header().unwrap().comment(),
        Some(&b"e:a%2F%C3%A9.txt"[..])
    );
    decoder.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\n");
    let error = pack(&two, &to, ArtifactFormat::Raw).unwrap_err();
    assert!(error.to_string().contains("only one file"), "{error}");
    let one = tar(dir.path(), &[("a.txt", b"one\n")]);
    assert_eq!(
        pack(&one, &to, ArtifactFormat::Raw).unwrap(),
        Packed::Bytes(4)
    );
    assert_eq!(fs::read(&to).unwrap(), b"one\n");
    for format in [ArtifactFormat::Gzip, ArtifactFormat::Raw] {
        let error = pack(&whole(dir.path()), &to, format).unwrap_err();
        assert!(matches!(error, PackError::Unfit(_)), "{error}");
    }
}

/// ART-13
#[test]
fn a_tar_under_zstd_is_the_guests_own() {
    let dir = tempfile::tempdir().unwrap();
    let from = whole(dir.path());
    let to = dir.path().join("to");
    pack(&from, &to, ArtifactFormat::Tarzstd).unwrap();
    let back = zstd::stream::decode_all(File::open(&to).unwrap()).unwrap();
    assert_eq!(back, fs::read(&from).unwrap());
}

#[test]
fn no_files_make_no_archive() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let none = tar(dir.path(), &[]);
    assert_eq!(
        pack(&none, &to, ArtifactFormat::Zip).unwrap(),
        Packed::Nothing
    );
}

/// ART-13
#[test]
fn an_archive_is_called_as_gitlab_runner_calls_it() {
    for (base, format, name) in [
        ("artifacts", ArtifactFormat::Zip, "artifacts.zip"),
        ("", ArtifactFormat::Zip, "default.zip"),
        (".", ArtifactFormat::Zipzstd, "default.zip"),
        ("a/b", ArtifactFormat::Gzip, "b.gz"),
        ("..", ArtifactFormat::Tarzstd, "default.tar.zst"),
        ("junit.xml", ArtifactFormat::Raw, "junit.xml"),
    ] {
        assert_eq!(file_name(base, format), name, "{base:?}");
    }
}

fn zip_of(dir: &Path, name: &[u8], content: &[u8]) -> PathBuf {
    let path = dir.join("hostile.zip");
    let mut zip = ZipWriter::new(File::create(&path).unwrap());
    zip.start_file_with_options(SimpleFileOptions::default().name(name))
        .unwrap();
    zip.write_all(content).unwrap();
    zip.finish().unwrap();
    path
}

#[test]
fn an_archive_that_leads_out_or_is_too_much_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    for name in [&b"../x"[..], b"a/../../x", b"/etc/passwd", b"a/.."] {
        let error = unpack(&zip_of(dir.path(), name, b"x"), &to, 1 << 20).unwrap_err();
        assert!(
            matches!(error, UnpackError::Escapes(_)),
            "{name:?}: {error}"
        );
    }
    let zip = zip_of(dir.path(), b"a", &[0; 1000]);
    assert!(matches!(
        unpack(&zip, &to, 999),
        Err(UnpackError::TooMuch(_))
    ));
    unpack(&zip, &to, 1000).unwrap();
}

/// ART-17
#[test]
fn what_is_no_zip_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("x"), dir.path().join("to"));
    for content in [&b""[..], b"P", b"\x1f\x8b", b"<html>"] {
        fs::write(&path, content).unwrap();
        assert!(matches!(unpack(&path, &to, 10), Err(UnpackError::NotZip)));
    }
    fs::write(&path, b"PK and nothing more").unwrap();
    assert!(matches!(unpack(&path, &to, 10), Err(UnpackError::Zip(_))));
    assert!(ZipArchive::new(File::open(&path).unwrap()).is_err());
}

/// Each level is the same content; the fastest stores where gitlab-runner's does.
#[test]
fn a_level_says_how_small_an_archive_is_and_nothing_of_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..60_000_u32)
        .map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) % 977))
        .collect();
    let mut builder = Builder::new(Vec::new());
    let mut of = header(EntryType::Regular, 0o644, text.len());
    builder
        .append_data(&mut of, "text", text.as_bytes())
        .unwrap();
    let tar = builder.into_inner().unwrap();
    let to = dir.path().join("archive");
    let at = |level, format| {
        let packed = pack_at(level, tar.as_slice(), &to, format, CAP).unwrap();
        let Packed::Bytes(bytes) = packed else {
            panic!("{packed:?}");
        };
        usize::try_from(bytes).unwrap()
    };
    let levels = [Level::Fastest, Level::Default, Level::Slowest];
    for format in [ArtifactFormat::Zip, ArtifactFormat::Gzip] {
        let sizes = levels.map(|level| at(level, format));
        assert!(sizes[0] > text.len(), "{format:?} {sizes:?}");
        assert!(sizes.is_sorted_by(|a, b| a > b), "{format:?} {sizes:?}");
    }
    for format in [ArtifactFormat::Zipzstd, ArtifactFormat::Tarzstd] {
        let sizes = levels.map(|level| at(level, format));
        assert!(
            sizes[0] > sizes[2] && sizes[0] < text.len(),
            "{format:?} {sizes:?}"
        );
    }
    for level in levels {
        at(level, ArtifactFormat::Zip);
        let mut zip = ZipArchive::new(File::open(&to).unwrap()).unwrap();
        let mut back = String::new();
        zip.by_name("text")
            .unwrap()
            .read_to_string(&mut back)
            .unwrap();
        assert_eq!(back, text);
    }
}
