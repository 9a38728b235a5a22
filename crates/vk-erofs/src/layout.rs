//! Where every inode stands: its number is its place.

use std::collections::btree_map;
use std::ops::Bound::{self, Excluded, Unbounded};

use crate::data::Content;
use crate::directory;
use crate::disk::{BLOCK, INODE, Layout, MAP_ENTRY, SLOT, xattr};
use crate::tree::{Body, Dir, Dirent, Inode, InodeId, Tree};

/// What an inode takes in the inode area, and what it needs outside.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    /// Bytes of content.
    pub(crate) size: u64,
    pub(crate) xattr_bytes: u64,
    /// Bytes beside the inode: the rest of a content, or a chunk map.
    pub(crate) beside: u64,
    /// Blocks that are still to be taken for the content.
    pub(crate) blocks: u64,
}

/// All inodes that the tree reaches, each once, in the order they are written.
pub(crate) struct Plan {
    pub(crate) order: Vec<Planned>,
    /// Number of each inode by its index in the arena; 0 for those not in the tree.
    nids: Vec<u64>,
    /// Bytes of the inode area.
    pub(crate) bytes: u64,
    pub(crate) chunked: bool,
}

/// One inode's place.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) inode: InodeId,
    pub(crate) nid: u64,
    pub(crate) shape: Shape,
}

/// The root's number. Not 0: some readers take a file with that number for none.
pub(crate) const ROOT_NID: u16 = 2;

impl Plan {
    /// Places the root first, then each directory's inodes together, so that a listing with all
    /// metadata reads few blocks.
    pub(crate) fn new(tree: &Tree) -> Self {
        let mut plan = Self {
            order: Vec::new(),
            nids: vec![0; tree.arena.capacity()],
            bytes: u64::from(ROOT_NID) * SLOT,
            chunked: false,
        };
        plan.place(tree, tree.root);
        let mut open = vec![tree.root];
        while let Some(id) = open.pop() {
            let Body::Dir(dir) = &tree.arena[id].body else {
                continue;
            };
            let first = open.len();
            for dirent in dir.entries.values() {
                if plan.nid(dirent.inode) == 0 {
                    plan.place(tree, dirent.inode);
                }
                if tree.arena[dirent.inode].is_dir() {
                    open.push(dirent.inode);
                }
            }
            if let Some(children) = open.get_mut(first..) {
                children.reverse();
            }
        }
        plan
    }

    pub(crate) fn nid(&self, inode: InodeId) -> u64 {
        self.nids.get(inode.index()).copied().unwrap_or(0)
    }

    fn place(&mut self, tree: &Tree, id: InodeId) {
        let shape = shape(&tree.arena[id]);
        let at = place(self.bytes, &shape);
        let nid = at / SLOT;
        if let Some(slot) = self.nids.get_mut(id.index()) {
            *slot = nid;
        }
        self.chunked |= shape.layout == Layout::Chunked;
        self.bytes = at + INODE + shape.xattr_bytes + shape.beside;
        self.order.push(Planned {
            inode: id,
            nid,
            shape,
        });
    }
}

/// The first place from `from` on where neither the inode's fixed part nor content beside it
/// crosses into another block.
fn place(from: u64, shape: &Shape) -> u64 {
    let mut at = from.next_multiple_of(SLOT);
    if at % BLOCK + INODE > BLOCK {
        at = at.next_multiple_of(BLOCK);
    }
    if shape.layout != Layout::Inline {
        return at;
    }
    let beside_at = at + INODE + shape.xattr_bytes;
    if beside_at % BLOCK + shape.beside <= BLOCK {
        return at;
    }
    // An inode and its attributes are less than a block where content stands beside (`may_inline`).
    at.next_multiple_of(BLOCK)
}

fn may_inline(xattr_bytes: u64, beside: u64) -> bool {
    INODE + xattr_bytes + beside <= BLOCK
}

fn shape(inode: &Inode) -> Shape {
    let xattr_bytes = xattr::body_bytes(&inode.meta.xattrs);
    match &inode.body {
        Body::Dir(dir) => of_directory(
            directory::size(names(dir).map(|(name, _)| name)),
            xattr_bytes,
        ),
        Body::Symlink(target) => of_bytes(target.len() as u64, xattr_bytes),
        Body::File(Content::Inline(bytes)) => of_bytes(bytes.len() as u64, xattr_bytes),
        Body::File(Content::Flat { size, .. }) => Shape {
            layout: Layout::Plain,
            size: *size,
            xattr_bytes,
            beside: 0,
            blocks: 0,
        },
        Body::File(Content::Chunked { size, runs, .. }) => {
            let chunks: u64 = runs.iter().map(|run| u64::from(run.chunks)).sum();
            let beside = chunks * MAP_ENTRY;
            Shape {
                layout: Layout::Chunked,
                size: *size,
                xattr_bytes,
                beside,
                blocks: 0,
            }
        }
        Body::Node(_) => Shape {
            layout: Layout::Plain,
            size: 0,
            xattr_bytes,
            beside: 0,
            blocks: 0,
        },
    }
}

/// A content held in memory, below a block: beside the inode where there is room.
fn of_bytes(size: u64, xattr_bytes: u64) -> Shape {
    let (layout, beside, blocks) = match size {
        0 => (Layout::Plain, 0, 0),
        _ if may_inline(xattr_bytes, size) => (Layout::Inline, size, 0),
        _ => (Layout::Plain, 0, size.div_ceil(BLOCK)),
    };
    Shape {
        layout,
        size,
        xattr_bytes,
        beside,
        blocks,
    }
}

/// Whole blocks of entries, then the last ones beside the inode where there is room.
fn of_directory(size: u64, xattr_bytes: u64) -> Shape {
    let rest = size % BLOCK;
    // Linux looks for the end of a block's last name up to the block's end or a zero byte, so one
    // follows the entries wherever they stand.
    if rest > 0 && may_inline(xattr_bytes, rest + 1) {
        let blocks = size / BLOCK;
        return Shape {
            layout: Layout::Inline,
            size,
            xattr_bytes,
            beside: rest + 1,
            blocks,
        };
    }
    let blocks = size.div_ceil(BLOCK);
    Shape {
        layout: Layout::Plain,
        size,
        xattr_bytes,
        beside: 0,
        blocks,
    }
}

/// A directory's names in the order of their bytes; `None` for itself, then its parent.
pub(crate) fn names(dir: &Dir) -> impl Iterator<Item = (&[u8], Link)> {
    let before = range(dir, Unbounded, Excluded(b"."));
    let between = range(dir, Excluded(b"."), Excluded(b".."));
    let after = range(dir, Excluded(b".."), Unbounded);
    before
        .map(named)
        .chain([(&b"."[..], Link::Itself)])
        .chain(between.map(named))
        .chain([(&b".."[..], Link::To(dir.parent))])
        .chain(after.map(named))
}

// The iterator over a map with boxed names gives references to boxes.
#[allow(clippy::borrowed_box)]
fn named<'a>((name, dirent): (&'a Box<[u8]>, &'a Dirent)) -> (&'a [u8], Link) {
    (name, Link::To(dirent.inode))
}

fn range<'a>(
    dir: &'a Dir,
    from: Bound<&'static [u8]>,
    to: Bound<&'static [u8]>,
) -> btree_map::Range<'a, Box<[u8]>, Dirent> {
    dir.entries.range::<[u8], _>((from, to))
}

/// What a name in a directory stands for.
#[derive(Clone, Copy)]
pub(crate) enum Link {
    /// The directory.
    Itself,
    /// An inode.
    To(InodeId),
}
