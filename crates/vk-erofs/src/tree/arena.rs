//! Where inodes live.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use crate::metadata::{Metadata, Node};

use super::{Body, Dir, Inode};

/// An inode's place. Only [`Arena`] makes one, and nobody keeps one past its inode's removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InodeId(u32);

impl InodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// All inodes; places of removed ones are used again.
#[derive(Default)]
pub(crate) struct Arena {
    inodes: Vec<Inode>,
    free: Vec<InodeId>,
}

impl Arena {
    /// Places ever made: above every [`InodeId::index`].
    pub(crate) fn capacity(&self) -> usize {
        self.inodes.len()
    }

    /// The root, its own parent, linked once by itself.
    pub(super) fn insert_root(&mut self, meta: Metadata) -> InodeId {
        let parent = InodeId(0);
        let body = Body::Dir(Dir {
            parent,
            entries: BTreeMap::new(),
        });
        self.insert(Inode {
            meta,
            links: 1,
            body,
        })
    }

    // Entries, and so inodes, are bounded far below 2^32 (Limits::entries).
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn insert(&mut self, inode: Inode) -> InodeId {
        match self.free.pop() {
            Some(id) => {
                self[id] = inode;
                id
            }
            None => {
                self.inodes.push(inode);
                InodeId((self.inodes.len() - 1) as u32)
            }
        }
    }

    /// Gives the place back and returns what was there.
    pub(super) fn remove(&mut self, id: InodeId) -> Inode {
        self.free.push(id);
        let body = Body::Node(Node::Fifo);
        let empty = Inode {
            meta: Metadata::default(),
            links: 0,
            body,
        };
        std::mem::replace(&mut self[id], empty)
    }
}

// An InodeId comes from `insert` alone and the vector never shrinks.
#[allow(clippy::indexing_slicing)]
impl Index<InodeId> for Arena {
    type Output = Inode;

    fn index(&self, id: InodeId) -> &Inode {
        &self.inodes[id.index()]
    }
}

#[allow(clippy::indexing_slicing)]
impl IndexMut<InodeId> for Arena {
    fn index_mut(&mut self, id: InodeId) -> &mut Inode {
        &mut self.inodes[id.index()]
    }
}
