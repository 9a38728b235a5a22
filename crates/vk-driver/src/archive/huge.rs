//! Archives that need more than 32 bits for a size or a place, more than 16 for a count, or more than
//! there is room for. What takes gigabytes is done with `VK_LONG` alone.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use tar::{EntryType, Header};
use vk_hub_proto::job::ArtifactFormat;
use zip::ZipArchive;

use super::pack::pack_into;
use super::unpack::unpack_from;
use super::{Level, PackError, Packed};

const FOUR: u64 = 4 << 30;
const EIGHT: u64 = 8 << 30;
/// What a node takes, by default.
const CAP: u64 = 10 << 30;
/// What stands at the end of a large file.
const MARK: &[u8] = b"the end of it";

fn is_long(what: &str) -> bool {
    let long = std::env::var_os("VK_LONG").is_some();
    if !long {
        println!("{what}: gigabytes, with VK_LONG alone");
    }
    long
}

fn entry(name: &str, size: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(1_767_323_045);
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// The guest's tar of a large file of zeros with a mark at its end, and one small file more.
fn guests(size: u64) -> impl Read {
    let hole = io::repeat(0).take(size - MARK.len() as u64);
    let padding = usize::try_from(size.next_multiple_of(512) - size).unwrap();
    let small = [&entry("small", 5)[..], b"after", &[0; 507 + 1024]].concat();
    let large = io::Cursor::new(entry("large", size)).chain(hole);
    large
        .chain(MARK)
        .chain(io::Cursor::new(vec![0; padding]))
        .chain(io::Cursor::new(small))
}

/// A file in which zeros take no room.
struct Holes(File);

impl Holes {
    fn new() -> Holes {
        Holes(tempfile::tempfile().unwrap())
    }

    fn named(path: &Path) -> Holes {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        Holes(options.open(path).unwrap())
    }
}

impl Write for Holes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let count = bytes.len().min(ZEROS.len());
        let at = self.0.stream_position()?;
        let end = at + count as u64;
        if bytes[..count] != ZEROS[..count] || end <= self.0.metadata()?.len() {
            return self.0.write(&bytes[..count]);
        }
        self.0.set_len(end)?;
        self.0.seek(SeekFrom::Start(end))?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Holes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Counts what it is given and keeps nothing.
#[derive(Default)]
struct Counted {
    at: u64,
    length: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.at += bytes.len() as u64;
        self.length = self.length.max(self.at);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.length.checked_add_signed(by).unwrap(),
            SeekFrom::Current(by) => self.at.checked_add_signed(by).unwrap(),
        };
        Ok(self.at)
    }
}

fn pack(level: Level, from: impl Read, to: &mut Holes, format: ArtifactFormat) -> u64 {
    let packed = pack_into(level, from, || Ok(&mut *to), format, CAP).unwrap();
    to.seek(SeekFrom::Start(0)).unwrap();
    let Packed::Bytes(bytes) = packed else {
        panic!("{packed:?}")
    };
    assert_eq!(bytes, to.0.metadata().unwrap().len());
    bytes
}

/// Names, sizes and last bytes of a tar's files.
fn listed(tar: impl Read) -> Vec<(String, u64, Vec<u8>)> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().unwrap();
    let mut buffer = vec![0; 256 << 10];
    let one = |entry: io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let (path, size) = (entry.path().unwrap().display().to_string(), entry.size());
        let (mut read, mut last) = (0, Vec::new());
        loop {
            let count = entry.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            read += count as u64;
            last.extend_from_slice(&buffer[count.saturating_sub(MARK.len())..count]);
            last.drain(..last.len().saturating_sub(MARK.len()));
        }
        assert_eq!(read, size, "{path}");
        (path, size, last)
    };
    entries.map(one).collect()
}

/// What a zip unpacks to.
fn unpacked(zip: impl Read + Seek + Send) -> Vec<(String, u64, Vec<u8>)> {
    let (from, to) = io::pipe().unwrap();
    std::thread::scope(|scope| {
        let unpacking = scope.spawn(move || unpack_from(zip, to, 64 << 30));
        let listed = listed(from);
        unpacking.join().unwrap().unwrap();
        listed
    })
}

fn large_and_small(size: u64) -> Vec<(String, u64, Vec<u8>)> {
    let large = ("large".to_owned(), size, MARK.to_vec());
    vec![large, ("small".to_owned(), 5, b"after".to_vec())]
}

/// Runs a script of Python's with an archive; what it says. None where it is not here.
fn python(script: &str, path: &Path) -> Option<String> {
    let ran = Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .output();
    let Ok(ran) = ran else {
        println!("python3 is not here: nothing else reads the archive");
        return None;
    };
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    Some(String::from_utf8(ran.stdout).unwrap())
}

/// A zip whose second entry and directory lie beyond what 32 bits reach, and one of which only a
/// file's own size does.
#[test]
fn a_zip_of_a_file_over_four_gibibytes_goes_there_and_back_and_others_read_it() {
    if !is_long("a large file in a zip") {
        return;
    }
    let size = FOUR + 1;
    let (zip, zstd) = (ArtifactFormat::Zip, ArtifactFormat::Zipzstd);
    for (format, level, is_stored) in [
        (zip, Level::Fastest, true),
        (zip, Level::Default, false),
        (zstd, Level::Default, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive.zip");
        let mut to = Holes::named(&path);
        let bytes = pack(level, guests(size), &mut to, format);
        assert_eq!(bytes > FOUR, is_stored, "{bytes}");
        let mut read = ZipArchive::new(to.0.try_clone().unwrap()).unwrap();
        assert_eq!(read.central_directory_start() > FOUR, is_stored);
        let small = read.by_index_raw(1).unwrap();
        assert_eq!((small.name_raw(), small.size()), (&b"small"[..], 5));
        assert_eq!(small.header_start() > FOUR, is_stored);
        drop(small);
        to.seek(SeekFrom::Start(0)).unwrap();
        assert_eq!(unpacked(&mut to.0), large_and_small(size), "{level:?}");
        if format == zip {
            let script = "import sys,zipfile\nz=zipfile.ZipFile(sys.argv[1])\n\
                 assert z.testzip() is None\n\
                 print([(i.filename,i.file_size) for i in z.infolist()], z.read('small'))";
            if let Some(said) = python(script, &path) {
                let expected = format!("[('large', {size}), ('small', 5)] b'after'\n");
                assert_eq!(said, expected);
            }
        }
    }
}

/// A tar entry whose size needs more than eleven octal digits.
#[test]
fn a_file_over_eight_gibibytes_goes_there_and_back() {
    if !is_long("a very large file") {
        return;
    }
    let size = EIGHT + 1;
    let mut to = Holes::new();
    pack(Level::Fast, guests(size), &mut to, ArtifactFormat::Zip);
    assert_eq!(unpacked(&mut to.0), large_and_small(size));

    let mut to = Holes::new();
    pack(
        Level::Default,
        guests(size),
        &mut to,
        ArtifactFormat::Tarzstd,
    );
    let tar = zstd::stream::read::Decoder::new(&mut to.0).unwrap();
    assert_eq!(listed(tar), large_and_small(size));

    let mut to = Holes::new();
    let one = io::Cursor::new(entry("large", size)).chain(io::repeat(0).take(size + 511 + 1024));
    let bytes = pack(Level::Default, one, &mut to, ArtifactFormat::Raw);
    assert_eq!(bytes, size);
}

/// A gzip says its content's size in 32 bits, so only what is left of it.
#[test]
fn a_gzip_of_more_than_four_gibibytes_is_whole() {
    if !is_long("a large file in a gzip") {
        return;
    }
    let size = FOUR + 77;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive.gz");
    let mut to = Holes::named(&path);
    let one = io::Cursor::new(entry("large", size)).chain(io::repeat(0).take(size + 435 + 1024));
    pack(Level::Fast, one, &mut to, ArtifactFormat::Gzip);
    let mut decoder = flate2::read::MultiGzDecoder::new(&mut to.0);
    assert_eq!(io::copy(&mut decoder, &mut io::sink()).unwrap(), size);
    let mut last = [0; 4];
    to.seek(SeekFrom::End(-4)).unwrap();
    to.0.read_exact(&mut last).unwrap();
    assert_eq!(u32::from_le_bytes(last), 77);
    let tested = Command::new("gzip").arg("-t").arg(&path).status();
    assert!(tested.is_ok_and(|status| status.success()));
}

/// Content that does not compress becomes longer: with it a zip's entry may need 64 bits though its
/// file does not.
#[test]
fn a_file_that_is_just_short_of_four_gibibytes_may_become_longer() {
    if !is_long("noise") {
        return;
    }
    let size = 0xffff_0000_u64 - 512;
    let noise = io::Cursor::new(entry("noise", size))
        .chain(Noise(1).take(size))
        .chain(io::repeat(0).take(1024));
    let mut to = Counted::default();
    let packed = pack_into(Level::Fast, noise, || Ok(&mut to), ArtifactFormat::Zip, CAP);
    assert!(matches!(packed.unwrap(), Packed::Bytes(bytes) if bytes > FOUR));
}

/// Bytes that no compressor makes shorter.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for chunk in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let bytes = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(buffer.len())
    }
}

/// More files than zip's first count has bits for: there and back, and another program counts them.
#[test]
fn more_files_than_sixteen_bits_count_go_there_and_back() {
    let count = 65_536 + 100;
    let mut tar = Vec::new();
    for number in 0..count {
        tar.extend_from_slice(&entry(&format!("d/{number}"), 0));
    }
    tar.resize(tar.len() + 1024, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive.zip");
    let mut to = Holes::named(&path);
    let format = ArtifactFormat::Zip;
    // Stored: a compressor for each of them would be all that is measured.
    pack(Level::Fastest, &tar[..], &mut to, format);
    drop(tar);
    let mut names = 0;
    for (number, (name, size, _)) in unpacked(&mut to.0).into_iter().enumerate() {
        assert_eq!((name, size), (format!("d/{number}"), 0));
        names += 1;
    }
    assert_eq!(names, count);
    let script = "import sys,zipfile\nz=zipfile.ZipFile(sys.argv[1])\n\
         print(len(z.namelist()), z.namelist()[-1])";
    if let Some(said) = python(script, &path) {
        assert_eq!(said, format!("{count} d/{}\n", count - 1));
    }
}

/// Zips of Info-ZIP's `zip` and of Python's `zipfile`: sizes behind the content, in 32 bits and in 64,
/// and a directory that is found by its 64-bit record alone.
#[test]
fn a_zip_that_others_wrote_to_a_pipe_or_in_64_bits_is_read() {
    let (descriptor, in_64_bits) = (&b"PK\x07\x08"[..], &[1, 0, 16, 0][..]);
    let rows: [(&[u8], &[&[u8]]); 3] = [
        (include_bytes!("streamed-by-zip.zip"), &[descriptor]),
        (
            include_bytes!("zip64-by-zip.zip"),
            &[in_64_bits, b"PK\x06\x06"],
        ),
        (
            include_bytes!("streamed-by-python.zip"),
            &[descriptor, in_64_bits],
        ),
    ];
    let expected = [("a.txt".to_owned(), 6, b"hello\n".to_vec())];
    for (zip, has) in rows {
        for part in has {
            assert!(zip.windows(4).any(|four| four == *part));
        }
        assert_eq!(unpacked(io::Cursor::new(zip)), expected);
    }
    if !is_long("a large zip of Python's") {
        return;
    }
    let script = "import sys,zipfile\nz=zipfile.ZipFile(sys.stdout.buffer,'w',zipfile.ZIP_STORED)\n\
        w=z.open('large','w',force_zip64=True)\nb=bytes(1<<20)\n\
        for _ in range(4096): w.write(b)\nw.write(b'the end of it')\nw.close()\n\
        z.writestr('small','after')\nz.close()";
    let child = Command::new("python3")
        .args(["-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return println!("python3 is not here");
    };
    let mut to = Holes::new();
    io::copy(child.stdout.as_mut().unwrap(), &mut to).unwrap();
    assert!(child.wait().unwrap().success());
    to.seek(SeekFrom::Start(0)).unwrap();
    let size = FOUR + MARK.len() as u64;
    assert_eq!(unpacked(&mut to.0), large_and_small(size));
}

const FORMATS: [ArtifactFormat; 5] = [
    ArtifactFormat::Zip,
    ArtifactFormat::Zipzstd,
    ArtifactFormat::Gzip,
    ArtifactFormat::Raw,
    ArtifactFormat::Tarzstd,
];

/// GUEST-07: however much comes, no more is kept than the cap, and no more is read than that needs.
#[test]
fn an_archive_ends_at_its_cap_in_every_format_however_much_would_come() {
    let cap = 200 << 10;
    for format in FORMATS {
        let mut to = Counted::default();
        let mut come = 0;
        let endless = io::Cursor::new(entry("noise", 1 << 39)).chain(Noise(1));
        let counted = Counting {
            from: endless,
            count: &mut come,
        };
        let packed = pack_into(Level::Default, counted, || Ok(&mut to), format, cap);
        let error = packed.unwrap_err();
        assert!(matches!(error, PackError::TooLarge(204_800)), "{error}");
        assert!(error.to_string().contains("204800 bytes"), "{error}");
        assert!(to.length <= cap, "{format:?}: {}", to.length);
        assert!(come < 2 << 20, "{format:?}: {come} bytes were read");
    }
    if !is_long("ten gibibytes") {
        return;
    }
    for format in [ArtifactFormat::Zip, ArtifactFormat::Raw] {
        let mut to = Counted::default();
        let endless = io::Cursor::new(entry("zeros", 1 << 39)).chain(io::repeat(0));
        let packed = pack_into(Level::Fastest, endless, || Ok(&mut to), format, CAP);
        assert!(matches!(packed, Err(PackError::TooLarge(CAP))));
        assert!((CAP - (1 << 20)..=CAP).contains(&to.length));
    }
}

struct Counting<'a, R> {
    from: R,
    count: &'a mut u64,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        *self.count += read as u64;
        Ok(read)
    }
}

#[test]
fn a_disk_that_is_full_is_said_to_be_in_every_format() {
    for format in FORMATS {
        let noise = io::Cursor::new(entry("noise", 300 << 10))
            .chain(Noise(1).take(300 << 10))
            .chain(io::repeat(0).take(1024));
        let full = Path::new("/dev/full");
        let packed = super::pack_at(Level::Default, noise, full, format, CAP);
        let said = packed.unwrap_err().to_string();
        assert!(
            said.contains("No space left on device"),
            "{format:?}: {said}"
        );
        assert!(said.contains("cannot be written"), "{format:?}: {said}");
    }
}
