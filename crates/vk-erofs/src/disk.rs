//! EROFS as it stands on disk: little-endian, 4 KiB blocks, extended inodes.
//!
//! After Linux' `Documentation/filesystems/erofs.rst` and `fs/erofs/erofs_fs.h`.

use crate::metadata::{Metadata, Node};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 1 << BLOCK_BITS;
/// A block as a length in memory.
pub(crate) const BLOCK_LEN: usize = 1 << BLOCK_BITS;
pub(crate) const BLOCK_BITS: u32 = 12;

/// Powers of two that a chunk may have above a block's.
pub(crate) const MAX_CHUNK_BITS: u32 = 31;

/// Bytes of the unit that inode numbers count.
pub(crate) const SLOT: u64 = 32;
/// Bytes of an extended inode.
pub(crate) const INODE: u64 = INODE_LEN as u64;
pub(crate) const INODE_LEN: usize = 64;
/// Bytes of a directory entry before its name.
pub(crate) const DIRENT: usize = 12;
/// Bytes of one entry of a chunk map.
pub(crate) const MAP_ENTRY: u64 = MAP_ENTRY_LEN as u64;
pub(crate) const MAP_ENTRY_LEN: usize = 4;
/// A map entry that is a hole.
pub(crate) const NULL_BLOCK: u32 = u32::MAX;

pub(crate) const MAGIC: u32 = 0xe0f5_e1e2;
pub(crate) const SUPERBLOCK_AT: usize = 1024;
const COMPAT_CHECKSUM: u32 = 1;
const COMPAT_MTIME: u32 = 2;
pub(crate) const INCOMPAT_CHUNKED_FILE: u32 = 4;

/// How an inode's content is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All of it in blocks.
    Plain = 0,
    /// Whole blocks, then the rest beside the inode.
    Inline = 2,
    /// By a chunk map.
    Chunked = 4,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    Regular = 1,
    Directory = 2,
    Char = 3,
    Block = 4,
    Fifo = 5,
    Symlink = 7,
}

impl FileType {
    /// The type's bits of `st_mode`.
    fn mode(self) -> u16 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Char => 0o020_000,
            Self::Block => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Symlink => 0o120_000,
        }
    }
}

impl From<Node> for FileType {
    fn from(node: Node) -> Self {
        match node {
            Node::Char { .. } => Self::Char,
            Node::Block { .. } => Self::Block,
            Node::Fifo => Self::Fifo,
        }
    }
}

/// A device's number as the kernel keeps it on disk; 0 for a pipe.
pub(crate) fn device(node: Node) -> u32 {
    match node {
        Node::Char { major, minor } | Node::Block { major, minor } => {
            (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
        }
        Node::Fifo => 0,
    }
}

/// The format word of a chunk-based inode.
pub(crate) fn chunk_format(chunk_bits: u32) -> u32 {
    chunk_bits - BLOCK_BITS
}

/// An inode's fixed part.
pub(crate) struct InodeHead<'a> {
    pub(crate) meta: &'a Metadata,
    pub(crate) file_type: FileType,
    pub(crate) layout: Layout,
    pub(crate) links: u32,
    pub(crate) size: u64,
    /// First block, chunk format or device number, as the layout and type want it.
    pub(crate) place: u32,
    pub(crate) number: u32,
    /// Bytes of the attributes that follow, header included.
    pub(crate) xattr_bytes: u64,
}

impl InodeHead<'_> {
    // The attribute count is bounded far below 2^16 by Limits::xattr_bytes (checked by
    // xattr::body_bytes); the format word is below 16.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let format = 1 | (self.layout as u16) << 1;
        let mode = self.file_type.mode() | (self.meta.mode & 0o7777);
        let xattr_count = match self.xattr_bytes {
            0 => 0,
            bytes => ((bytes - xattr::HEADER) / 4 + 1) as u16,
        };
        out.extend_from_slice(&format.to_le_bytes());
        out.extend_from_slice(&xattr_count.to_le_bytes());
        out.extend_from_slice(&mode.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.place.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.meta.uid.to_le_bytes());
        out.extend_from_slice(&self.meta.gid.to_le_bytes());
        out.extend_from_slice(&self.meta.mtime.secs.to_le_bytes());
        out.extend_from_slice(&self.meta.mtime.nanos.to_le_bytes());
        out.extend_from_slice(&self.links.to_le_bytes());
        out.extend_from_slice(&[0; 16]);
    }
}

/// What the superblock says of the image.
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    pub(crate) root: u16,
    pub(crate) inodes: u64,
    pub(crate) blocks: u32,
    pub(crate) meta_block: u32,
    pub(crate) chunked: bool,
}

impl Superblock {
    /// The image's first block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; SUPERBLOCK_AT];
        block.extend_from_slice(&MAGIC.to_le_bytes());
        block.extend_from_slice(&[0; 4]); // the checksum, below
        block.extend_from_slice(&(COMPAT_CHECKSUM | COMPAT_MTIME).to_le_bytes());
        block.extend_from_slice(&[BLOCK_BITS.to_le_bytes()[0], 0]);
        block.extend_from_slice(&self.root.to_le_bytes());
        block.extend_from_slice(&self.inodes.to_le_bytes());
        block.extend_from_slice(&[0; 12]); // build time: every inode has its own
        block.extend_from_slice(&self.blocks.to_le_bytes());
        block.extend_from_slice(&self.meta_block.to_le_bytes());
        block.extend_from_slice(&[0; 4]); // no shared attributes
        block.extend_from_slice(&self.uuid);
        block.extend_from_slice(&[0; 16]); // no volume name
        let incompat = if self.chunked {
            INCOMPAT_CHUNKED_FILE
        } else {
            0
        };
        block.extend_from_slice(&incompat.to_le_bytes());
        block.resize(BLOCK_LEN, 0);
        let checksum = crc32c(block.get(SUPERBLOCK_AT..).unwrap_or_default());
        if let Some(place) = block.get_mut(SUPERBLOCK_AT + 4..SUPERBLOCK_AT + 8) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
        block
    }
}

/// CRC-32C as the kernel computes it here: seeded with ones, not inverted at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(crc & 1));
        }
    }
    crc
}

pub(crate) mod xattr;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_32c() {
        // The check value of CRC-32C, without the final inversion.
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn device_numbers_have_the_kernels_long_form() {
        assert_eq!(device(Node::Char { major: 1, minor: 3 }), 0x103);
        assert_eq!(
            device(Node::Block {
                major: 0xabc,
                minor: 0xd_ef12
            }),
            0xdefa_bc12
        );
        assert_eq!(device(Node::Fifo), 0);
    }
}
