//! The paths in git's index, format versions 2, 3 and 4.

use std::collections::BTreeSet;

use super::Unknown;

/// Most entries that are read.
const MAX_ENTRIES: u32 = 4_000_000;

/// How long the repository's object names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    fn len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// What git tracks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tracked {
    /// Files and symlinks.
    pub(super) files: BTreeSet<Vec<u8>>,
    /// Submodules, and directories that a sparse index does not list the files of: all below them
    /// is somebody else's, or tracked.
    pub(super) trees: BTreeSet<Vec<u8>>,
}

/// Bytes of an entry before its object name: times, device, inode, mode, owner, size.
const STAT_LEN: usize = 40;
/// Where the mode stands among them.
const MODE_AT: usize = 24;
const GITLINK: u32 = 0o160_000;
const SPARSE_TREE: u32 = 0o040_000;
const KIND: u32 = 0o170_000;
const EXTENDED: u16 = 0x4000;

struct Cursor<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Unknown> {
        let (head, tail) = self
            .rest
            .split_at_checked(n)
            .ok_or_else(|| bad("it ends early"))?;
        self.rest = tail;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, Unknown> {
        let bytes = self
            .take(4)?
            .first_chunk::<4>()
            .ok_or_else(|| bad("it ends early"))?;
        Ok(u32::from_be_bytes(*bytes))
    }

    fn u16(&mut self) -> Result<u16, Unknown> {
        let bytes = self
            .take(2)?
            .first_chunk::<2>()
            .ok_or_else(|| bad("it ends early"))?;
        Ok(u16::from_be_bytes(*bytes))
    }

    fn until_nul(&mut self) -> Result<&'a [u8], Unknown> {
        let end = self
            .rest
            .iter()
            .position(|b| *b == 0)
            .ok_or_else(|| bad("a name without end"))?;
        let name = self.take(end)?;
        self.take(1)?;
        Ok(name)
    }

    fn at(&self) -> usize {
        self.whole - self.rest.len()
    }

    /// The number that says how much of the last name to drop: seven bits a byte, each further byte
    /// counting from one higher.
    fn offset(&mut self) -> Result<usize, Unknown> {
        let mut value = 0_usize;
        for round in 0..10 {
            let byte = *self.take(1)?.first().ok_or_else(|| bad("it ends early"))?;
            let low = usize::from(byte & 0x7f);
            value = value
                .checked_add(usize::from(round > 0))
                .and_then(|value| value.checked_mul(128))
                .and_then(|value| value.checked_add(low))
                .ok_or_else(|| bad("a number out of range"))?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(bad("a number without end"))
    }
}

fn bad(why: &str) -> Unknown {
    Unknown::Index(why.to_owned())
}

/// Reads an index. Its checksum is not looked at: git itself may leave it out.
pub(super) fn parse(bytes: &[u8], format: ObjectFormat) -> Result<Tracked, Unknown> {
    let mut from = Cursor {
        rest: bytes,
        whole: bytes.len(),
    };
    if from.take(4)? != b"DIRC" {
        return Err(bad("it does not begin as one"));
    }
    let version = from.u32()?;
    if !(2..=4).contains(&version) {
        return Err(Unknown::Index(format!(
            "format version {version} is not known"
        )));
    }
    let count = from.u32()?;
    if count > MAX_ENTRIES {
        return Err(Unknown::Index(format!(
            "{count} entries; at most {MAX_ENTRIES} are read"
        )));
    }
    let mut tracked = Tracked::default();
    let mut last = Vec::new();
    for _ in 0..count {
        let mode = entry(&mut from, version, format, &mut last)?;
        match mode & KIND {
            GITLINK | SPARSE_TREE => {
                let path = last.strip_suffix(b"/").unwrap_or(&last);
                tracked.trees.insert(path.to_vec());
            }
            _ => {
                tracked.files.insert(last.clone());
            }
        }
    }
    extensions(&mut from, format)?;
    Ok(tracked)
}

/// Reads an entry; its path goes to `last`, which holds the one before.
fn entry(
    from: &mut Cursor<'_>,
    version: u32,
    format: ObjectFormat,
    last: &mut Vec<u8>,
) -> Result<u32, Unknown> {
    let start = from.at();
    let stat = from.take(STAT_LEN)?;
    let mode = stat.get(MODE_AT..).and_then(|rest| rest.first_chunk::<4>());
    let mode = u32::from_be_bytes(*mode.ok_or_else(|| bad("it ends early"))?);
    from.take(format.len())?;
    let flags = from.u16()?;
    if flags & EXTENDED != 0 {
        if version < 3 {
            return Err(bad("an extended entry in format version 2"));
        }
        from.u16()?;
    }
    if version == 4 {
        let drop = from.offset()?;
        let keep = last
            .len()
            .checked_sub(drop)
            .ok_or_else(|| bad("a name shorter than nothing"))?;
        last.truncate(keep);
        last.extend_from_slice(from.until_nul()?);
    } else {
        last.clear();
        last.extend_from_slice(from.until_nul()?);
        // Entries are padded to eight bytes, with one NUL at least, which is taken already.
        let len = from.at() - start;
        from.take((8 - len % 8) % 8)?;
    }
    Ok(mode)
}

/// Looks whether an extension says that the entries are not all there.
fn extensions(from: &mut Cursor<'_>, format: ObjectFormat) -> Result<(), Unknown> {
    while from.rest.len() > format.len() {
        let name = from.take(4)?;
        let len = usize::try_from(from.u32()?).unwrap_or(usize::MAX);
        match name {
            b"link" => return Err(bad("it is split in two (core.splitIndex)")),
            // A small first letter: not to be read without understanding it.
            b"sdir" => {}
            [b'a'..=b'z', ..] => {
                let name = String::from_utf8_lossy(name);
                return Err(Unknown::Index(format!(
                    "its extension {name:?} is not known"
                )));
            }
            _ => {}
        }
        from.take(len)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_index_is_said() {
        assert_eq!(parse(b"", ObjectFormat::Sha1), Err(bad("it ends early")));
        assert_eq!(
            parse(b"PACK\0\0\0\x02", ObjectFormat::Sha1),
            Err(bad("it does not begin as one"))
        );
        let five = parse(b"DIRC\0\0\0\x05\0\0\0\0", ObjectFormat::Sha1);
        assert!(matches!(five, Err(Unknown::Index(why)) if why.contains("version 5")));
        let many = parse(b"DIRC\0\0\0\x02\xff\xff\xff\xff", ObjectFormat::Sha1);
        assert!(matches!(many, Err(Unknown::Index(why)) if why.contains("at most")));
        let split = b"DIRC\0\0\0\x02\0\0\0\0link\0\0\0\x14aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        assert!(
            matches!(parse(split, ObjectFormat::Sha1), Err(Unknown::Index(why)) if why.contains("split"))
        );
    }

    proptest! {
        #[test]
        fn a_bent_index_never_panics(
            version in 2..=4_u8,
            count in 0..4_u8,
            rest in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..400),
        ) {
            let head = [b"DIRC\0\0\0".as_slice(), &[version], b"\0\0\0", &[count]].concat();
            let _ = parse(&[head, rest].concat(), ObjectFormat::Sha1);
        }
    }
}
