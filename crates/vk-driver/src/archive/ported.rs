//! gitlab-runner's own tests of its archives (MIT; see NOTICE), said anew with their values, and what
//! a stream is: never whole on the disk, never more than its bound.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::rc::Rc;

use tar::{Builder, EntryType, Header};
use vk_hub_proto::job::ArtifactFormat;
use zip::ZipArchive;

use super::unpack::unpack_from;
use super::{ENTRIES_MAX, PackError, UnpackError, pack};

const CAP: u64 = 1 << 30;
const JAPANESE: &str = "\u{30c6}\u{30b9}\u{30c8}";

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

/// The files of gitlab-runner's test: a file, a link that leads nowhere and a directory, and the
/// same with names that are not ASCII.
fn upstreams() -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for suffix in ["", JAPANESE] {
        let name = format!("test_file{suffix}.txt");
        let mut file = header(EntryType::Regular, 0o640, 12);
        tar.append_data(&mut file, name, &b"test content"[..])
            .unwrap();
        let mut link = header(EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut link, format!("new_symlink{suffix}"), "old_symlink")
            .unwrap();
        let mut dir = header(EntryType::Directory, 0o711, 0);
        tar.append_data(&mut dir, format!("test_directory{suffix}/"), io::empty())
            .unwrap();
    }
    tar.into_inner().unwrap()
}

/// The fields of a zip's extra data, those that zip writers know: id, length.
fn fields(mut extra: &[u8]) -> Vec<(u16, u16)> {
    let mut fields = Vec::new();
    while let [a, b, c, d, ..] = *extra {
        let length = u16::from_le_bytes([c, d]);
        fields.push((u16::from_le_bytes([a, b]), length));
        extra = &extra[4 + usize::from(length)..];
    }
    fields
}

/// PORT-35
#[test]
fn a_zip_has_what_gitlab_runners_has() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("zip");
    pack(upstreams().as_slice(), &to, ArtifactFormat::Zip, CAP).unwrap();
    let mut zip = ZipArchive::new(File::open(&to).unwrap()).unwrap();
    let mut shown = Vec::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        let mode = entry.unix_mode().unwrap();
        shown.push(format!(
            "{} {mode:o} {} {content}",
            entry.name().unwrap(),
            entry.is_dir()
        ));
        // Info-ZIP's times and owner, of the lengths that gitlab-runner writes.
        let extra = entry.extra_data().unwrap();
        let mut fields = fields(&extra);
        fields.sort_unstable();
        assert_eq!(
            fields,
            [(0x5455, 5), (0x7875, 11)],
            "{}",
            entry.name().unwrap()
        );
        assert_eq!(extra.len(), 24);
    }
    let expected = ["", JAPANESE].map(|suffix| {
        [
            format!("test_file{suffix}.txt 100640 false test content"),
            format!("new_symlink{suffix} 120777 false old_symlink"),
            format!("test_directory{suffix}/ 40711 true "),
        ]
    });
    assert_eq!(shown, expected.concat());
}

/// PORT-35
#[test]
fn modes_times_and_owners_come_out_of_a_zip_again() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("zip");
    pack(upstreams().as_slice(), &to, ArtifactFormat::Zip, CAP).unwrap();
    let mut back = Vec::new();
    super::unpack(&to, &mut back, CAP).unwrap();
    let shown = |tar: &[u8]| -> Vec<String> {
        let mut tar = tar::Archive::new(tar);
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let head = entry.header();
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            format!(
                "{} {:?} {:o} {} {} {}",
                name.trim_end_matches('/'),
                head.entry_type(),
                head.mode().unwrap(),
                head.uid().unwrap(),
                head.gid().unwrap(),
                head.mtime().unwrap()
            )
        });
        entries.collect()
    };
    assert_eq!(shown(&back), shown(&upstreams()));
    assert_eq!(shown(&back).len(), 6);
}

/// PORT-35
#[test]
fn a_file_of_another_programs_zip_is_extracted_and_one_that_is_missing_is_an_error() {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("temporary_file.txt", options).unwrap();
    zip.write_all(b"test file").unwrap();
    zip.start_file(".git/test_file", options).unwrap();
    zip.write_all(b"test git file").unwrap();
    let zip = zip.finish().unwrap().into_inner();
    let mut tar = Vec::new();
    unpack_from(Cursor::new(zip), &mut tar, CAP).unwrap();
    let mut archive = tar::Archive::new(tar.as_slice());
    let sizes: Vec<u64> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().size())
        .collect();
    assert_eq!(sizes, [9, 13]);
    let none = super::unpack(Path::new("/no/such.zip"), io::sink(), CAP);
    assert!(matches!(none, Err(UnpackError::Io(_))), "{none:?}");
}

/// PORT-35
#[test]
fn a_links_mode_is_never_its_targets() {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o600);
    zip.start_file("file", options).unwrap();
    let link = zip::write::SimpleFileOptions::default()
        .system(zip::System::Unix)
        .external_attributes(0o120_777 << 16)
        .name(b"link");
    zip.start_file_with_options(link).unwrap();
    zip.write_all(b"file").unwrap();
    let mut tar = Vec::new();
    unpack_from(
        Cursor::new(zip.finish().unwrap().into_inner()),
        &mut tar,
        CAP,
    )
    .unwrap();
    let mut archive = tar::Archive::new(tar.as_slice());
    let shown: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.header().entry_type(), entry.header().mode().unwrap())
        })
        .collect();
    let expected = [(EntryType::Regular, 0o600), (EntryType::Symlink, 0o777)];
    assert_eq!(shown, expected);
}

/// A tar of one file, made as it is read.
struct Growing {
    head: Cursor<Vec<u8>>,
    left: u64,
    tail: Cursor<Vec<u8>>,
    /// Told of how much was read so far.
    read: Rc<Cell<u64>>,
    watch: Box<dyn FnMut(u64)>,
}

fn growing(size: u64, watch: impl FnMut(u64) + 'static) -> Growing {
    let mut head = header(EntryType::Regular, 0o644, 0);
    head.set_path("large").unwrap();
    head.set_size(size);
    head.set_cksum();
    Growing {
        head: Cursor::new(head.as_bytes().to_vec()),
        left: size,
        tail: Cursor::new(vec![0; 1024]),
        read: Rc::default(),
        watch: Box::new(watch),
    }
}

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = self.head.read(buffer)?;
        if count == 0 && self.left > 0 {
            count = buffer.len().min(usize::try_from(self.left).unwrap());
            let mut state = self.left;
            for byte in &mut buffer[..count] {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            self.left -= count as u64;
        } else if count == 0 {
            count = self.tail.read(buffer)?;
        }
        self.read.set(self.read.get() + count as u64);
        (self.watch)(self.read.get());
        Ok(count)
    }
}

/// GUEST-05, GUEST-06
#[test]
fn an_archive_is_written_while_its_files_still_come_and_nothing_else_is() {
    const SIZE: u64 = 4 << 20;
    for format in [
        ArtifactFormat::Zip,
        ArtifactFormat::Zipzstd,
        ArtifactFormat::Gzip,
        ArtifactFormat::Raw,
        ArtifactFormat::Tarzstd,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().to_owned();
        let furthest = Rc::new(Cell::new(0));
        let behind = Rc::clone(&furthest);
        let from = growing(SIZE, move |read| {
            let written = fs::metadata(place.join("to")).map_or(0, |file| file.len());
            behind.set(behind.get().max(read.saturating_sub(written)));
            assert!(fs::read_dir(&place).unwrap().count() <= 1);
        });
        pack(from, &dir.path().join("to"), format, CAP).unwrap();
        // What does not compress is written about as it comes: a compressor keeps a window of it.
        let kept = furthest.get();
        assert!(kept < SIZE * 3 / 4, "{format:?}: {kept} bytes were kept");
    }
}

/// GUEST-07, GUEST-11
#[test]
fn an_archive_stops_at_the_cap() {
    for format in [
        ArtifactFormat::Zip,
        ArtifactFormat::Zipzstd,
        ArtifactFormat::Gzip,
        ArtifactFormat::Raw,
        ArtifactFormat::Tarzstd,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let error = pack(growing(1 << 20, |_| {}), &to, format, 300 << 10).unwrap_err();
        assert!(
            matches!(error, PackError::TooLarge(cap) if cap == 300 << 10),
            "{error}"
        );
        let left = fs::metadata(&to).unwrap().len();
        assert!(left <= 300 << 10, "{format:?}: {left}");
        pack(growing(1 << 20, |_| {}), &to, format, 2 << 20).unwrap();
    }
}

/// A sink that sees how far the reading came.
struct Watching {
    written: u64,
    input: Rc<Cell<u64>>,
    first: Option<u64>,
}

impl Write for Watching {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len() as u64;
        self.first.get_or_insert(self.input.get());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Counting<R>(R, Rc<Cell<u64>>);

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.set(self.1.get() + count as u64);
        Ok(count)
    }
}

impl<R: io::Seek> io::Seek for Counting<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// GUEST-05
#[test]
fn a_download_is_given_on_while_it_is_read() {
    let mut zip = Cursor::new(Vec::new());
    let mut writer = zip::ZipWriter::new(&mut zip);
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    writer.start_file("large", stored).unwrap();
    io::copy(&mut growing(4 << 20, |_| {}), &mut writer).unwrap();
    writer.finish().unwrap();
    zip.rewind().unwrap();
    let read = Rc::new(Cell::new(0));
    let mut out = Watching {
        written: 0,
        input: Rc::clone(&read),
        first: None,
    };
    unpack_from(Counting(zip, read), &mut out, CAP).unwrap();
    assert!(out.written > 4 << 20);
    let first = out.first.unwrap();
    assert!(
        first < 1 << 20,
        "{first} bytes were read before one was given on"
    );
}

/// GUEST-12: names that expand without end, and more entries than there are.
#[test]
fn a_zip_that_claims_too_much_is_refused_by_its_claim() {
    let zip = |count: u64| {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.resize(100, 0);
        let record = bytes.len() as u64;
        bytes.extend_from_slice(b"PK\x06\x06");
        bytes.extend_from_slice(&44_u64.to_le_bytes());
        bytes.extend_from_slice(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        bytes.extend_from_slice(&record.to_le_bytes());
        bytes.extend_from_slice(&[1, 0, 0, 0]);
        bytes.extend_from_slice(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff");
        bytes.extend_from_slice(&[0xff; 8]);
        bytes.extend_from_slice(&[0, 0]);
        bytes
    };
    let told = |count| unpack_from(Cursor::new(zip(count)), io::sink(), CAP).unwrap_err();
    let most = u64::from(ENTRIES_MAX);
    for count in [most + 1, u64::MAX] {
        let error = told(count);
        let says = error.to_string();
        assert!(matches!(error, UnpackError::TooMuch(_)), "{says}");
        assert!(says.contains("500000 entries"), "{says}");
    }
    assert!(matches!(told(most), UnpackError::Zip(_)));
}

/// GUEST-12: overlapping files, a whole gigabyte in a few bytes.
#[test]
fn what_would_grow_beyond_the_bound_is_refused_before_anything_is_given_on() {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for name in ["a", "b"] {
        zip.start_file(name, zip::write::SimpleFileOptions::default())
            .unwrap();
        io::copy(&mut io::repeat(0).take(1 << 20), &mut zip).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    assert!(zip.len() < 10_000);
    let mut out = Vec::new();
    let error = unpack_from(Cursor::new(&zip), &mut out, (2 << 20) - 1).unwrap_err();
    assert!(matches!(error, UnpackError::TooMuch(_)), "{error}");
    assert!(out.is_empty());
    unpack_from(Cursor::new(&zip), &mut out, 2 << 20).unwrap();
}
