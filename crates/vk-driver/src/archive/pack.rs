//! The guest's tar as one of GitLab's formats.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use vk_erofs::tar::{Archive, Entry, Kind};
use vk_erofs::{Limits, Metadata};
use vk_hub_proto::job::ArtifactFormat;
use zip::write::FullFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::capped::Capped;
use super::level::Level;
use super::unpack::{DIRECTORY_MAX, ENTRIES_MAX};

/// Info-ZIP's extra field with owner and group.
const UNIX_OWNER: u16 = 0x7875;
/// A file that may need longer size fields than zip's first: content that does not compress becomes
/// longer, by less than the 256th part that zstd has for its own bound.
const LARGE: u64 = 0xfe00_0000;

/// Why an archive was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// What the format cannot hold (ART-16).
    #[error("{0}")]
    Unfit(String),
    /// The archive would have more bytes than it may (GUEST-07).
    #[error("it has more than the {0} bytes that an archive may have")]
    TooLarge(u64),
    /// The guest's archive cannot be read.
    #[error("the guest's archive cannot be read: {0}")]
    Tar(#[from] vk_erofs::Error),
    /// Writing failed.
    #[error("the archive cannot be written: {0}")]
    Io(#[from] io::Error),
    /// Writing zip failed.
    #[error("the archive cannot be written: {0}")]
    Zip(#[from] zip::result::ZipError),
}

/// What became of the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    /// There were none.
    Nothing,
    /// An archive of so many bytes.
    Bytes(u64),
}

/// An archive's file name (ART-13): that of `base`, without directories, and the format's ending.
pub(crate) fn file_name(base: &str, format: ArtifactFormat) -> String {
    let last = base
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let last = match last {
        "" | "." | ".." => "default",
        name => name,
    };
    let ending = match format {
        ArtifactFormat::Zip | ArtifactFormat::Zipzstd => ".zip",
        ArtifactFormat::Gzip => ".gz",
        ArtifactFormat::Tarzstd => ".tar.zst",
        ArtifactFormat::Raw => "",
    };
    format!("{last}{ending}")
}

/// Makes the archive `to` of the tar `from` as it comes (GUEST-05), with at most `cap` bytes.
///
/// # Errors
/// A file that the format cannot hold, a tar that is none, too many bytes, a disk that fails. What
/// is at `to` by then is of no use.
pub(crate) fn pack_at(
    level: Level,
    from: impl Read,
    to: &Path,
    format: ArtifactFormat,
    cap: u64,
) -> Result<Packed, PackError> {
    pack_into(level, from, || File::create(to), format, cap)
}

/// The same, into what is opened once there is something for it.
pub(super) fn pack_into<F: Write + Seek>(
    level: Level,
    from: impl Read,
    to: impl FnOnce() -> io::Result<F>,
    format: ArtifactFormat,
    cap: u64,
) -> Result<Packed, PackError> {
    let mut from = BufReader::new(from);
    let over = Cell::new(false);
    let packed = made(&mut from, to, (format, level), (cap, &over));
    if over.get() {
        return Err(PackError::TooLarge(cap));
    }
    if matches!(packed, Ok(_) | Err(PackError::Unfit(_))) {
        // Whoever sends it has more to say once all was taken. A sender that is gone says it itself.
        let _ = io::copy(&mut from, &mut io::sink());
    }
    packed
}

/// The same as gitlab-runner does where a job says nothing.
#[cfg(test)]
pub(super) fn pack(
    from: impl Read,
    to: &Path,
    format: ArtifactFormat,
    cap: u64,
) -> Result<Packed, PackError> {
    pack_at(Level::default(), from, to, format, cap)
}

fn made<F: Write + Seek>(
    from: &mut impl Read,
    to: impl FnOnce() -> io::Result<F>,
    (format, level): (ArtifactFormat, Level),
    (cap, over): (u64, &Cell<bool>),
) -> Result<Packed, PackError> {
    let output = || -> io::Result<_> { Ok(BufWriter::new(Capped::new(to()?, cap, over))) };
    if format == ArtifactFormat::Tarzstd {
        // Two empty blocks are an archive of nothing.
        let mut first = Vec::new();
        from.by_ref().take(512).read_to_end(&mut first)?;
        if first.iter().all(|byte| *byte == 0) {
            return Ok(Packed::Nothing);
        }
        let mut output = output()?;
        zstd::stream::copy_encode(first.chain(from), &mut output, level.zstd())?;
        return closed(output);
    }
    let mut tar = Archive::new(from, &Limits::default());
    let Some(first) = tar.next_entry()? else {
        return Ok(Packed::Nothing);
    };
    let output = output()?;
    closed(match format {
        ArtifactFormat::Zipzstd => {
            let of = (CompressionMethod::Zstd, i64::from(level.zstd()));
            zip(tar, first, output, of)?
        }
        ArtifactFormat::Gzip => gzip(tar, first, output, level)?,
        ArtifactFormat::Raw => raw(tar, &first, output)?,
        ArtifactFormat::Zip | ArtifactFormat::Tarzstd => {
            let of = match level.deflate() {
                0 => (CompressionMethod::Stored, 0),
                level => (CompressionMethod::Deflated, i64::from(level)),
            };
            zip(tar, first, output, of)?
        }
    })
}

fn closed<F: Write>(mut output: BufWriter<Capped<'_, F>>) -> Result<Packed, PackError> {
    output.flush()?;
    Ok(Packed::Bytes(output.get_ref().length()))
}

fn zip<R: Read, W: Write + Seek>(
    mut tar: Archive<R>,
    first: Entry,
    output: W,
    (method, level): (CompressionMethod, i64),
) -> Result<W, PackError> {
    let mut zip = ZipWriter::new(output);
    let mut directory = Directory::default();
    let mut next = Some(first);
    while let Some(entry) = next {
        let mut name = entry.path.clone();
        directory.add(name.len())?;
        let stored = CompressionMethod::Stored;
        match &entry.kind {
            Kind::File => {
                let options = options(&entry.meta, 0o100_000)?.compression_method(method);
                let options = options.large_file(entry.size >= LARGE);
                let options = match method {
                    CompressionMethod::Stored => options,
                    _ => options.compression_level(Some(level)),
                };
                zip.start_file_with_options(options.name(&name))?;
                io::copy(&mut tar.content(), &mut zip)?;
            }
            Kind::Dir => {
                if name.last() != Some(&b'/') {
                    name.push(b'/');
                }
                let options = options(&entry.meta, 0o040_000)?.compression_method(stored);
                zip.start_file_with_options(options.name(&name))?;
            }
            Kind::Symlink(target) => {
                let options = options(&entry.meta, 0o120_000)?.compression_method(stored);
                zip.start_file_with_options(options.name(&name))?;
                zip.write_all(target)?;
            }
            // The agent says which files it leaves out; a hard link is a file of its own there.
            Kind::HardLink(_) | Kind::Node(_) => {}
        }
        next = tar.next_entry()?;
    }
    Ok(zip.finish()?)
}

/// A zip's own directory, which its readers have whole in memory.
#[derive(Default)]
struct Directory {
    entries: u32,
    bytes: u64,
}

impl Directory {
    /// Bytes of an entry beside its name, at most: its head, owner, time, and long sizes.
    const ENTRY: u64 = 100;

    /// Counts one more.
    ///
    /// # Errors
    /// There are more than a later job's node would take of the archive.
    fn add(&mut self, name: usize) -> Result<(), PackError> {
        self.entries = self.entries.saturating_add(1);
        self.bytes = self.bytes.saturating_add(Self::ENTRY + name as u64);
        if self.entries <= ENTRIES_MAX && self.bytes <= DIRECTORY_MAX {
            return Ok(());
        }
        Err(PackError::Unfit(format!(
            "more than {ENTRIES_MAX} files, or {} MiB of their names: no later job could take such \
             an archive; select less, or put them into an archive of your own",
            DIRECTORY_MAX >> 20
        )))
    }
}

/// What stands with an entry: rights and type, owner and group, time.
fn options(meta: &Metadata, kind: u32) -> Result<FullFileOptions<'static, 'static>, PackError> {
    let mode = u32::from(meta.mode & 0o7777) | kind;
    let seconds = u32::try_from(meta.mtime.secs).unwrap_or_default();
    let mut owner = vec![1, 4];
    owner.extend_from_slice(&meta.uid.to_le_bytes());
    owner.push(4);
    owner.extend_from_slice(&meta.gid.to_le_bytes());
    let mut options = FullFileOptions::default()
        .system(zip::System::Unix)
        .external_attributes(mode << 16)
        .last_modified_time(dos_time(meta.mtime.secs))
        .with_extended_timestamp(Some(seconds), None, None)?;
    options.add_extra_field(UNIX_OWNER, owner, false)?;
    Ok(options)
}

/// A time in zip's own form, in UTC: from 1980 to 2107, two seconds a step. For programs that do not
/// read the exact one.
fn dos_time(secs: i64) -> zip::DateTime {
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Counted in years that begin in March, so that the leap day comes last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let small = |number: i64| u8::try_from(number).unwrap_or_default();
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    zip::DateTime::from_date_and_time(
        u16::try_from(year).unwrap_or_default(),
        small(month),
        small(day),
        small(hour),
        small(minute),
        small(second),
    )
    .unwrap_or_default()
}

fn gzip<R: Read, W: Write>(
    mut tar: Archive<R>,
    first: Entry,
    mut output: W,
    level: Level,
) -> Result<W, PackError> {
    let mut next = Some(first);
    while let Some(entry) = next {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        if entry.kind != Kind::File {
            let what = format!("the {path:?} is not a regular file: gzip holds only such");
            return Err(PackError::Unfit(what));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let builder = GzBuilder::new()
            .filename(gzip_text(name))
            .comment(gzip_text(&path))
            .mtime(u32::try_from(entry.meta.mtime.secs).unwrap_or_default());
        let mut member = builder.write(output, Compression::new(level.deflate()));
        io::copy(&mut tar.content(), &mut member)?;
        output = member.finish()?;
        next = tar.next_entry()?;
    }
    Ok(output)
}

/// Plain ASCII as it is, all else as `e:` and URL-escaped.
fn gzip_text(text: &str) -> String {
    if text
        .bytes()
        .all(|byte| byte.is_ascii() && byte != b'%' && byte != 0)
    {
        return text.to_owned();
    }
    let mut escaped = String::from("e:");
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b'$'
            | b'&'
            | b'+'
            | b':'
            | b'='
            | b'@' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn raw<R: Read, W: Write>(
    mut tar: Archive<R>,
    first: &Entry,
    mut output: W,
) -> Result<W, PackError> {
    if first.kind != Kind::File {
        let path = PathBuf::from(String::from_utf8_lossy(&first.path).into_owned());
        let what = format!(
            "{} is not a regular file: only such can be sent as raw",
            path.display()
        );
        return Err(PackError::Unfit(what));
    }
    io::copy(&mut tar.content(), &mut output)?;
    if tar.next_entry()?.is_some() {
        return Err(PackError::Unfit(
            "only one file can be sent as raw".to_owned(),
        ));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is uploaded a later job can take.
    #[test]
    fn a_zip_has_no_more_entries_and_names_than_are_taken() {
        let mut many = Directory::default();
        assert!((0..ENTRIES_MAX).all(|_| many.add(4).is_ok()));
        let said = many.add(4).unwrap_err().to_string();
        assert!(
            said.starts_with("more than 500000 files, or 64 MiB"),
            "{said}"
        );
        let mut long = Directory::default();
        let fits = DIRECTORY_MAX / (Directory::ENTRY + 4000);
        assert!((0..fits).all(|_| long.add(4000).is_ok()));
        assert!(long.add(4000).is_err());
    }

    #[test]
    fn a_zips_own_time_is_the_civil_one() {
        for (secs, text) in [
            (0, "1980-01-01 00:00:00"),
            (951_827_696, "2000-02-29 12:34:56"),
            (1_767_323_044, "2026-01-02 03:04:04"),
            (1_735_689_598, "2024-12-31 23:59:58"),
            (-5, "1980-01-01 00:00:00"),
        ] {
            assert_eq!(dos_time(secs).to_string(), text, "{secs}");
        }
    }
}
