//! Tar headers and records: GNU long names on the way out; those and PAX on the way in, bounded.

use std::io::{self, Read, Write};

use tar::{EntryType, Header};
use vk_guest_proto::limits::MAX_PATH;
use vk_guest_proto::{Failure, FailureCode};

use crate::context::{OrFail, fail};

pub(super) const BLOCK: usize = 512;
/// Most bytes of an extension record (a long name, a set of PAX fields).
const MAX_EXTENSION: u64 = 1 << 20;
/// What a header's own name field holds.
const SHORT: usize = 100;

/// Writes an entry's header, and before it what does not fit there.
pub(super) fn write_header(
    out: &mut impl Write,
    header: &mut Header,
    path: &[u8],
    link: &[u8],
) -> io::Result<()> {
    for (kind, text) in [
        (EntryType::GNULongLink, link),
        (EntryType::GNULongName, path),
    ] {
        if text.len() > SHORT {
            let mut long = Header::new_gnu();
            long.set_entry_type(kind);
            set_name(&mut long, b"././@LongLink");
            long.set_size(u64::try_from(text.len()).unwrap_or(0) + 1);
            long.set_cksum();
            out.write_all(long.as_bytes())?;
            out.write_all(text)?;
            out.write_all(&[0])?;
            pad(out, text.len() + 1)?;
        }
    }
    set_name(header, path);
    let field = &mut header.as_old_mut().linkname;
    field.fill(0);
    field
        .iter_mut()
        .zip(link)
        .for_each(|(to, from)| *to = *from);
    header.set_cksum();
    out.write_all(header.as_bytes())
}

fn set_name(header: &mut Header, name: &[u8]) {
    let field = &mut header.as_old_mut().name;
    field.fill(0);
    field
        .iter_mut()
        .zip(name)
        .for_each(|(to, from)| *to = *from);
}

/// Fills the last block of content of `len` bytes.
pub(super) fn pad(out: &mut impl Write, len: usize) -> io::Result<()> {
    let rest = len % BLOCK;
    let zeros = [0; BLOCK];
    if rest == 0 {
        Ok(())
    } else {
        out.write_all(zeros.get(rest..).unwrap_or_default())
    }
}

/// The two empty blocks that end an archive.
pub(super) fn write_end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

/// An entry's header, all extensions applied.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: EntryType,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    /// Seconds and nanoseconds.
    pub(super) mtime: (i64, u32),
}

/// What extension records say of the next entry, or of all.
#[derive(Clone, Debug, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
}

/// Reads an archive's headers. Content is the caller's to read, whole, between two of them.
pub(super) struct Items<R> {
    from: R,
    global: Extension,
}

impl<R: Read> Items<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            global: Extension::default(),
        }
    }

    /// The next entry; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Item>, Failure> {
        let mut extension = self.global.clone();
        loop {
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = header.entry_size().or_else(bad)?;
            match header.entry_type() {
                EntryType::GNULongName => extension.path = Some(self.long(size)?),
                EntryType::GNULongLink => extension.link = Some(self.long(size)?),
                EntryType::XHeader => {
                    let record = self.record(size)?;
                    extension.apply(&record)?;
                }
                EntryType::XGlobalHeader => {
                    let record = self.record(size)?;
                    self.global.apply(&record)?;
                    extension.apply(&record)?;
                }
                _ => return item(&header, extension).map(Some),
            }
        }
    }

    /// Content of the entry just given; reading past it is the caller's fault.
    pub(super) fn content(&mut self) -> &mut R {
        &mut self.from
    }

    /// Skips what fills the last block.
    pub(super) fn skip_padding(&mut self, size: u64) -> Result<(), Failure> {
        let block = u64::try_from(BLOCK).unwrap_or(1);
        self.skip((block - size % block) % block)
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), Failure> {
        let skipped = io::copy(&mut self.from.by_ref().take(count), &mut io::sink());
        if skipped.or_else(bad)? == count {
            Ok(())
        } else {
            truncated()
        }
    }

    /// What follows the end is dropped: writers pad to their record size.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        io::copy(&mut self.from, &mut io::sink())
            .or_else(bad)
            .map(|_| ())
    }

    fn header(&mut self) -> Result<Option<Header>, Failure> {
        let mut header = Header::new_old();
        self.from.read_exact(header.as_mut_bytes()).or_else(bad)?;
        if header.as_bytes().iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let sum: u32 = header
            .as_bytes()
            .iter()
            .enumerate()
            .fold(0, |sum, (at, byte)| {
                // The sum's own field counts as blanks.
                sum + u32::from(if (148..156).contains(&at) {
                    b' '
                } else {
                    *byte
                })
            });
        match header.cksum() {
            Ok(said) if said == sum => Ok(Some(header)),
            _ => fail(
                FailureCode::BadArchive,
                "a tar header with a wrong checksum",
            ),
        }
    }

    fn record(&mut self, size: u64) -> Result<Vec<u8>, Failure> {
        if size > MAX_EXTENSION {
            let message = format!("a tar extension of {size} bytes; at most {MAX_EXTENSION}");
            return fail(FailureCode::BadArchive, message);
        }
        let mut bytes = Vec::new();
        self.from
            .by_ref()
            .take(size)
            .read_to_end(&mut bytes)
            .or_else(bad)?;
        if u64::try_from(bytes.len()) != Ok(size) {
            return truncated();
        }
        self.skip_padding(size)?;
        Ok(bytes)
    }

    fn long(&mut self, size: u64) -> Result<Vec<u8>, Failure> {
        let mut name = self.record(size)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }
}

impl Extension {
    fn apply(&mut self, record: &[u8]) -> Result<(), Failure> {
        for field in tar::PaxExtensions::new(record) {
            let field = field.or_else(bad)?;
            let value = field.value_bytes();
            let number = || {
                std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok())
            };
            match field.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number().ok_or_else(bad_number)?),
                b"uid" => self.uid = Some(number().ok_or_else(bad_number)?),
                b"gid" => self.gid = Some(number().ok_or_else(bad_number)?),
                b"mtime" => self.mtime = Some(pax_time(value).ok_or_else(bad_number)?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Decimal seconds, with a fraction cut to nanoseconds.
fn pax_time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let (seconds, nanos): (i64, u32) = (seconds.parse().ok()?, digits.parse().ok()?);
    if text.starts_with('-') && nanos > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos));
    }
    Some((seconds, nanos))
}

fn item(header: &Header, extension: Extension) -> Result<Item, Failure> {
    let path = extension
        .path
        .unwrap_or_else(|| header.path_bytes().into_owned());
    let own_link = || {
        header
            .link_name_bytes()
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_default()
    };
    let link = extension.link.unwrap_or_else(own_link);
    if path.len() >= MAX_PATH || link.len() >= MAX_PATH {
        return fail(FailureCode::BadArchive, "a tar entry's name is too long");
    }
    let kind = header.entry_type();
    let size = match extension.size {
        Some(size) => size,
        None => header.entry_size().or_else(bad)?,
    };
    // Fields that some writers leave blank count as zero; the size may not.
    let seconds = header
        .mtime()
        .ok()
        .and_then(|time| i64::try_from(time).ok())
        .unwrap_or(0);
    Ok(Item {
        // Old archives mark a directory by its name alone.
        kind: if kind.is_file() && path.ends_with(b"/") {
            EntryType::Directory
        } else {
            kind
        },
        path,
        link,
        size,
        mode: header.mode().unwrap_or(0o644) & 0o7777,
        uid: extension.uid.or_else(|| header.uid().ok()).unwrap_or(0),
        gid: extension.gid.or_else(|| header.gid().ok()).unwrap_or(0),
        mtime: extension.mtime.unwrap_or((seconds, 0)),
    })
}

fn bad_number() -> Failure {
    Failure::new(FailureCode::BadArchive, "a PAX field that is no number")
}

fn truncated<T>() -> Result<T, Failure> {
    fail(
        FailureCode::BadArchive,
        "the archive ends in the middle of an entry",
    )
}

fn bad<T>(error: io::Error) -> Result<T, Failure> {
    Err(error)
        .or_fail(|| "read the archive".into())
        .map_err(|mut failure: Failure| {
            failure.code = FailureCode::BadArchive;
            failure
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_from_the_second_below() {
        assert_eq!(pax_time(b"12"), Some((12, 0)));
        assert_eq!(pax_time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(pax_time(b"12.0000000019"), Some((12, 1)));
        assert_eq!(pax_time(b"-1.5"), Some((-2, 500_000_000)));
        assert_eq!(pax_time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(pax_time(b"x"), None);
        assert_eq!(pax_time(b"1.x"), None);
    }

    fn entry(kind: EntryType, size: u64) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        let mut bytes = Vec::new();
        write_header(&mut bytes, &mut header, b"a", b"").unwrap();
        bytes
    }

    /// Eleven octal digits hold less than 8 GiB: above it stands the number itself, or PAX says it.
    #[test]
    fn a_size_of_any_length_is_written_and_read() {
        let octal = 0o77_777_777_777;
        for size in [0, octal, octal + 1, (9 << 30) + 1, 1 << 40] {
            let header = entry(EntryType::Regular, size);
            let field = header.get(124..136).unwrap();
            assert_eq!(field[0] == 0x80, size > octal, "{field:?}");
            let item = Items::new(&header[..]).next().unwrap().unwrap();
            assert_eq!((item.size, &item.path[..]), (size, &b"a"[..]));

            let digits = size.to_string();
            let length = digits.len() + " size=\n".len() + 2;
            let record = format!("{length} size={digits}\n");
            // A field's length counts its own digits.
            let length = record.len();
            let record = format!("{length} size={digits}\n");
            let mut pax = entry(EntryType::XHeader, record.len() as u64);
            pax.extend_from_slice(record.as_bytes());
            pad(&mut pax, record.len()).unwrap();
            // Its own header may say anything: the extension counts.
            pax.extend_from_slice(&entry(EntryType::Regular, 0));
            let item = Items::new(&pax[..]).next().unwrap().unwrap();
            assert_eq!(item.size, size);
        }
    }
}
