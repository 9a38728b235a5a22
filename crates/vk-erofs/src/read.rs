//! Images read back: those this crate writes, and uncompressed ones alike. What an image says is
//! checked, never believed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::disk::{
    BLOCK, BLOCK_BITS, BLOCK_LEN, DIRENT, INODE, INODE_LEN, MAP_ENTRY, MAP_ENTRY_LEN, NULL_BLOCK,
    SLOT, xattr,
};
use crate::disk::{INCOMPAT_CHUNKED_FILE, MAGIC, SUPERBLOCK_AT};

/// The chunk format's bits that are a size.
const CHUNK_BITS_MASK: u32 = 0x1f;

/// An image that is open.
pub(crate) struct Reader<'a> {
    file: &'a File,
    /// Of the image.
    bytes: u64,
    meta_at: u64,
    pub(crate) root: u64,
}

/// One inode, as far as it is needed here.
pub(crate) struct StoredInode {
    pub(crate) nid: u64,
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) links: u32,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    layout: u16,
    place: u32,
    /// Where content or a chunk map stands beside the inode.
    beside: u64,
}

/// A part of a content that has data: where in the content, where in the image, how long.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) from: u64,
    pub(crate) length: u64,
}

pub(crate) fn damaged(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("no usable EROFS image: {what}"),
    )
}

impl<'a> Reader<'a> {
    pub(crate) fn open(file: &'a File) -> io::Result<Self> {
        let mut block = [0; 128];
        file.read_exact_at(&mut block, SUPERBLOCK_AT as u64)?;
        let field = Fields(&block);
        if field.u32(0)? != MAGIC {
            return Err(damaged("the superblock is missing"));
        }
        if field.u8(12)? != BLOCK_BITS.to_le_bytes()[0] {
            return Err(damaged("its blocks are not of 4 KiB"));
        }
        if field.u32(80)? & !INCOMPAT_CHUNKED_FILE != 0 {
            return Err(damaged(
                "it has features that are not read here, such as compression",
            ));
        }
        Ok(Self {
            file,
            bytes: file.metadata()?.len(),
            meta_at: u64::from(field.u32(40)?) * BLOCK,
            root: field.u16(14)?.into(),
        })
    }

    pub(crate) fn inode(&self, nid: u64) -> io::Result<StoredInode> {
        let at = nid
            .checked_mul(SLOT)
            .and_then(|offset| offset.checked_add(self.meta_at));
        let at = at.ok_or_else(|| damaged("an inode out of range"))?;
        let mut head = [0; INODE_LEN];
        self.file.read_exact_at(&mut head, at)?;
        let field = Fields(&head);
        let format = field.u16(0)?;
        if format & 1 == 0 {
            return Err(damaged("a compact inode, which is not read here"));
        }
        let xattr_bytes = match u64::from(field.u16(2)?) {
            0 => 0,
            count => xattr::HEADER + 4 * (count - 1),
        };
        Ok(StoredInode {
            nid,
            mode: field.u16(4)?,
            size: field.u64(8)?,
            mtime: (field.u64(32)?.cast_signed(), field.u32(40)?),
            links: field.u32(44)?,
            xattrs: self.xattrs(at + INODE, xattr_bytes)?,
            layout: format >> 1 & 7,
            place: field.u32(16)?,
            beside: at + INODE + xattr_bytes,
        })
    }

    fn xattrs(&self, at: u64, bytes: u64) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut body = vec![0; usize::try_from(bytes).map_err(|_| damaged("attributes"))?];
        self.file.read_exact_at(&mut body, at)?;
        let mut rest = body.get(xattr::HEADER_LEN..).unwrap_or_default();
        let mut xattrs = BTreeMap::new();
        while let Some(((name, value), after)) = xattr::decode(rest) {
            xattrs.insert(name, value);
            rest = after;
        }
        Ok(xattrs)
    }

    /// The names in a directory, `.` and `..` left out.
    pub(crate) fn entries(&self, dir: &StoredInode) -> io::Result<Vec<(Vec<u8>, u64)>> {
        let content = self.held(dir)?;
        let mut entries = Vec::new();
        for block in content.chunks(BLOCK_LEN) {
            let field = Fields(block);
            let count = usize::from(field.u16(8)?) / DIRENT;
            for index in 0..count {
                let start = usize::from(field.u16(index * DIRENT + 8)?);
                let end = match index + 1 < count {
                    true => usize::from(field.u16((index + 1) * DIRENT + 8)?),
                    false => block.len(),
                };
                let name = block
                    .get(start..end)
                    .ok_or_else(|| damaged("a directory's names"))?;
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                if !matches!(name, b"." | b"..") {
                    entries.push((checked(name)?, field.u64(index * DIRENT)?));
                }
            }
        }
        Ok(entries)
    }

    /// A content that fits in memory: a directory's or a link's.
    pub(crate) fn held(&self, inode: &StoredInode) -> io::Result<Vec<u8>> {
        // Neither has holes.
        if inode.size > self.bytes {
            return Err(damaged("a directory or link larger than the image"));
        }
        let mut content = vec![0; usize::try_from(inode.size).map_err(|_| damaged("a size"))?];
        for Extent { at, from, length } in self.extents(inode)? {
            let range = usize::try_from(at)
                .ok()
                .zip(usize::try_from(at + length).ok());
            let part = range.and_then(|(start, end)| content.get_mut(start..end));
            self.file
                .read_exact_at(part.ok_or_else(|| damaged("a content"))?, from)?;
        }
        Ok(content)
    }

    /// Where a content's data is; the rest is holes.
    pub(crate) fn extents(&self, inode: &StoredInode) -> io::Result<Vec<Extent>> {
        let first = u64::from(inode.place) * BLOCK;
        let size = inode.size;
        match inode.layout {
            _ if size == 0 => Ok(Vec::new()),
            0 => Ok(vec![Extent {
                at: 0,
                from: first,
                length: size,
            }]),
            2 => {
                let whole = (size - 1) / BLOCK * BLOCK;
                let rest = Extent {
                    at: whole,
                    from: inode.beside,
                    length: size - whole,
                };
                let blocks = Extent {
                    at: 0,
                    from: first,
                    length: whole,
                };
                Ok([blocks, rest]
                    .into_iter()
                    .filter(|extent| extent.length > 0)
                    .collect())
            }
            4 => self.chunks(inode),
            _ => Err(damaged("a compressed file, which is not read here")),
        }
    }

    /// Chunks with data, those that follow each other joined.
    fn chunks(&self, inode: &StoredInode) -> io::Result<Vec<Extent>> {
        if inode.place & !CHUNK_BITS_MASK != 0 {
            return Err(damaged("a chunk format that is not read here"));
        }
        let chunk = BLOCK << inode.place;
        let mut extents: Vec<Extent> = Vec::new();
        let mut map = vec![0; BLOCK_LEN];
        let count = inode.size.div_ceil(chunk);
        for start in (0..count).step_by(BLOCK_LEN / MAP_ENTRY_LEN) {
            let taken = usize::try_from((count - start) * MAP_ENTRY)
                .unwrap_or(BLOCK_LEN)
                .min(BLOCK_LEN);
            let part = map.get_mut(..taken).unwrap_or_default();
            self.file
                .read_exact_at(part, inode.beside + start * MAP_ENTRY)?;
            for (index, entry) in (start..).zip(part.chunks_exact(MAP_ENTRY_LEN)) {
                let block = Fields(entry).u32(0)?;
                if block == NULL_BLOCK {
                    continue;
                }
                let at = index * chunk;
                let next = Extent {
                    at,
                    from: u64::from(block) * BLOCK,
                    length: chunk.min(inode.size - at),
                };
                match extents.last_mut() {
                    Some(last)
                        if last.at + last.length == at && last.from + last.length == next.from =>
                    {
                        last.length += next.length;
                    }
                    _ => extents.push(next),
                }
            }
        }
        Ok(extents)
    }
}

/// A name that stays within its directory.
fn checked(name: &[u8]) -> io::Result<Vec<u8>> {
    if name.is_empty() || name.contains(&b'/') || name.len() > crate::limits::NAME_MAX {
        return Err(damaged("a name that no directory has"));
    }
    Ok(name.to_vec())
}

/// Little-endian numbers at their offsets.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        let bytes = self
            .0
            .get(at..at + N)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| damaged("it is cut short"))
    }

    fn u8(&self, at: usize) -> io::Result<u8> {
        Ok(u8::from_le_bytes(self.take(at)?))
    }

    fn u16(&self, at: usize) -> io::Result<u16> {
        Ok(u16::from_le_bytes(self.take(at)?))
    }

    fn u32(&self, at: usize) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.take(at)?))
    }

    fn u64(&self, at: usize) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.take(at)?))
    }
}
