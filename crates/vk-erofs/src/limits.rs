//! What an archive may ask for.

/// Bounds on everything an archive can make us hold, write or walk. The defaults admit every image
/// a registry serves in practice and keep the memory of one build below about 1 GiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tar headers over all layers, extension headers included, and entries made by the caller.
    pub entries: u64,
    /// Bytes of one path or link target, as in Linux' `PATH_MAX`.
    pub path_bytes: usize,
    /// Directories on the way to an entry, those that symbolic links lead through included.
    pub depth: usize,
    /// Bytes of one extension header: a PAX header, a GNU long name, a sparse map.
    pub extension_bytes: u64,
    /// Extended attributes of one inode.
    pub xattrs: usize,
    /// Bytes of the names and values of one inode's extended attributes.
    pub xattr_bytes: usize,
    /// Data segments of one sparse file.
    pub segments: usize,
    /// Bytes of names, targets, attributes, chunk maps and inline contents held in memory.
    pub metadata_bytes: u64,
    /// Bytes of one file's content, holes included.
    pub file_bytes: u64,
    /// Bytes of the whole image.
    pub image_bytes: u64,
    /// Bytes read from all layers.
    pub stream_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 1_000_000,
            path_bytes: 4095,
            depth: 1024,
            extension_bytes: 1 << 20,
            xattrs: 256,
            xattr_bytes: 128 << 10,
            segments: 1 << 17,
            metadata_bytes: 512 << 20,
            file_bytes: 16 << 40,
            image_bytes: 256 << 30,
            stream_bytes: 1 << 40,
        }
    }
}

/// Bytes of one name, as in Linux' `NAME_MAX` and in EROFS.
pub(crate) const NAME_MAX: usize = 255;

/// Symbolic links followed on the way to one entry, as in Linux' path walk.
pub(crate) const FOLLOW_MAX: usize = 40;
