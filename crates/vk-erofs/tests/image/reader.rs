//! A reader of EROFS images for these tests, written from the format's description and apart from
//! the writer. It checks what Linux checks on its way.

use std::collections::BTreeMap;

/// An image in memory.
pub(crate) struct Image {
    bytes: Vec<u8>,
    meta: u64,
    root: u64,
    inodes: u64,
}

/// Everything one inode says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) nid: u64,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) nlink: u32,
    pub(crate) rdev: u32,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Data ranges, holes left out: offset in the file, offset in the image, length.
    pub(crate) extents: Vec<(u64, u64, u64)>,
}

/// Inodes by path, the root's being empty.
pub(crate) type Tree = BTreeMap<Vec<u8>, Inode>;

impl Image {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut image = Self {
            bytes,
            meta: 0,
            root: 0,
            inodes: 0,
        };
        assert_eq!(image.u32(1024), 0xe0f5_e1e2);
        assert_eq!(image.bytes[1024 + 12], 12, "4 KiB blocks");
        assert_eq!(
            image.bytes.len() as u64,
            u64::from(image.u32(1024 + 36)) * 4096
        );
        assert_eq!(
            image.u32(1024 + 80) & !4,
            0,
            "only chunked files may be needed"
        );
        image.root = u64::from(image.u16(1024 + 14));
        image.inodes = image.u64(1024 + 16);
        image.meta = u64::from(image.u32(1024 + 40)) * 4096;
        image
    }

    /// The whole tree, links and counts checked against each other.
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        self.walk(Vec::new(), self.root, self.root, &mut tree);
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        for inode in tree.values().filter(|inode| !inode.is_dir()) {
            *names.entry(inode.nid).or_default() += 1;
        }
        for inode in tree.values().filter(|inode| !inode.is_dir()) {
            assert_eq!(inode.nlink, names[&inode.nid]);
        }
        let distinct: std::collections::BTreeSet<u64> = tree.values().map(|i| i.nid).collect();
        assert_eq!(distinct.len() as u64, self.inodes);
        tree
    }

    pub(crate) fn content(&self, inode: &Inode) -> Vec<u8> {
        let mut content = vec![0; inode.size as usize];
        for (at, from, length) in &inode.extents {
            let part = &self.bytes[*from as usize..(from + length) as usize];
            content[*at as usize..(at + length) as usize].copy_from_slice(part);
        }
        content
    }

    pub(crate) fn bytes_at(&self, from: u64, length: usize) -> &[u8] {
        &self.bytes[from as usize..from as usize + length]
    }

    fn walk(&self, path: Vec<u8>, nid: u64, parent: u64, tree: &mut Tree) {
        let inode = self.inode(nid);
        if inode.is_dir() {
            let mut subdirectories = 0;
            for (name, child, kind) in self.entries(&inode) {
                match &name[..] {
                    b"." => assert_eq!(child, nid),
                    b".." => assert_eq!(child, parent),
                    _ => {
                        let mut below = path.clone();
                        if !below.is_empty() {
                            below.push(b'/');
                        }
                        below.extend_from_slice(&name);
                        self.walk(below.clone(), child, nid, tree);
                        let mode = tree[&below].mode;
                        assert_eq!(kind, kind_of(mode), "{}", below.escape_ascii());
                        subdirectories += u32::from(mode & 0o170_000 == 0o040_000);
                    }
                }
            }
            assert_eq!(inode.nlink, subdirectories + 2);
        }
        assert!(tree.insert(path, inode).is_none());
    }

    /// All entries, found sorted over all blocks.
    fn entries(&self, dir: &Inode) -> Vec<(Vec<u8>, u64, u8)> {
        let content = self.content(dir);
        let mut entries = Vec::new();
        for block in content.chunks(4096) {
            let at =
                |offset: usize| usize::from(u16::from_le_bytes([block[offset], block[offset + 1]]));
            let count = at(8) / 12;
            for index in 0..count {
                let start = at(index * 12 + 8);
                let end = if index + 1 < count {
                    at(index * 12 + 20)
                } else {
                    block.len()
                };
                let name = &block[start..end];
                let name = name.split(|byte| *byte == 0).next().unwrap().to_vec();
                assert!(!name.is_empty() && name.len() <= 255);
                let nid = u64::from_le_bytes(block[index * 12..index * 12 + 8].try_into().unwrap());
                entries.push((name, nid, block[index * 12 + 10]));
            }
        }
        assert!(
            entries.is_sorted_by(|a, b| a.0 < b.0),
            "sorted and without doubles"
        );
        assert!(entries.iter().any(|entry| entry.0 == b"."));
        self.check_end(dir);
        entries
    }

    /// Linux reads a last name up to a zero byte or the block's end, whatever the directory's size.
    fn check_end(&self, dir: &Inode) {
        let (_, from, length) = *dir.extents.last().unwrap();
        let end = from + length;
        if !dir.size.is_multiple_of(4096) {
            assert!(
                end % 4096 != 0 && self.bytes[end as usize] == 0,
                "no zero in the block"
            );
        }
    }

    fn inode(&self, nid: u64) -> Inode {
        let at = self.meta + nid * 32;
        assert!(at % 4096 + 64 <= 4096, "an inode crosses blocks");
        let format = self.u16(at as usize);
        assert_eq!(format & 1, 1, "extended inodes only");
        let place = self.u32(at as usize + 16);
        let xattr_bytes = match u64::from(self.u16(at as usize + 2)) {
            0 => 0,
            count => 12 + 4 * (count - 1),
        };
        let mode = self.u16(at as usize + 4);
        let size = self.u64(at as usize + 8);
        let beside = at + 64 + xattr_bytes;
        let has_data = matches!(mode & 0o170_000, 0o100_000 | 0o040_000 | 0o120_000);
        let extents = match (format >> 1, has_data && size > 0) {
            (_, false) => Vec::new(),
            (0, _) => vec![(0, u64::from(place) * 4096, size)],
            (2, _) => inline_extents(u64::from(place) * 4096, beside, size),
            (4, _) => self.chunk_extents(place, beside, size),
            (other, _) => panic!("layout {other}"),
        };
        Inode {
            nid,
            mode,
            uid: self.u32(at as usize + 24),
            gid: self.u32(at as usize + 28),
            size,
            mtime: (
                self.u64(at as usize + 32).cast_signed(),
                self.u32(at as usize + 40),
            ),
            nlink: self.u32(at as usize + 44),
            rdev: if has_data { 0 } else { place },
            xattrs: self.xattrs(at + 64, xattr_bytes),
            extents,
        }
    }

    fn chunk_extents(&self, format: u32, map: u64, size: u64) -> Vec<(u64, u64, u64)> {
        assert_eq!(format & !0x1f, 0);
        let chunk = 4096u64 << format;
        let mut extents = Vec::new();
        for index in 0..size.div_ceil(chunk) {
            let block = self.u32((map + index * 4) as usize);
            if block != u32::MAX {
                let start = index * chunk;
                extents.push((start, u64::from(block) * 4096, chunk.min(size - start)));
            }
        }
        extents
    }

    fn xattrs(&self, at: u64, bytes: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut xattrs = BTreeMap::new();
        if bytes == 0 {
            return xattrs;
        }
        assert!(bytes > 12, "Linux refuses attributes without one");
        assert_eq!(self.bytes[at as usize + 4], 0, "no shared attributes");
        let mut at = at as usize + 12;
        let end = at + bytes as usize - 12;
        while at < end {
            let prefix: &[u8] = match self.bytes[at + 1] {
                1 => b"user.",
                2 => b"system.posix_acl_access",
                3 => b"system.posix_acl_default",
                4 => b"trusted.",
                6 => b"security.",
                other => panic!("name space {other}"),
            };
            let name_end = at + 4 + usize::from(self.bytes[at]);
            let value_end = name_end + usize::from(self.u16(at + 2));
            let name = [prefix, &self.bytes[at + 4..name_end]].concat();
            assert!(
                xattrs
                    .insert(name, self.bytes[name_end..value_end].to_vec())
                    .is_none()
            );
            at = value_end.next_multiple_of(4);
        }
        assert_eq!(at, end);
        xattrs
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes[at..at + 2].try_into().unwrap())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }
}

fn inline_extents(first: u64, beside: u64, size: u64) -> Vec<(u64, u64, u64)> {
    let rest = (size - 1) % 4096 + 1;
    assert!(
        beside % 4096 + rest <= 4096,
        "content beside an inode crosses blocks"
    );
    let whole = size - rest;
    let mut extents = Vec::new();
    if whole > 0 {
        extents.push((0, first, whole));
    }
    extents.push((whole, beside, rest));
    extents
}

impl Inode {
    pub(crate) fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

fn kind_of(mode: u16) -> u8 {
    match mode & 0o170_000 {
        0o100_000 => 1,
        0o040_000 => 2,
        0o020_000 => 3,
        0o060_000 => 4,
        0o010_000 => 5,
        0o120_000 => 7,
        other => panic!("type {other:o}"),
    }
}
