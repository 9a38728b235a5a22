//! The merged tree, in memory: inodes, directories, and which layer set each name last.

mod arena;
mod remove;
mod walk;

use std::collections::BTreeMap;

use crate::data::Content;
use crate::error::Fault;
use crate::metadata::{Metadata, Node};
pub(crate) use arena::{Arena, InodeId};

/// One inode.
pub(crate) struct Inode {
    pub(crate) meta: Metadata,
    /// Directory entries that name it; 1 for the root.
    pub(crate) links: u32,
    pub(crate) body: Body,
}

/// What kind of inode it is, and what it holds.
pub(crate) enum Body {
    Dir(Dir),
    File(Content),
    Symlink(Box<[u8]>),
    Node(Node),
}

/// A directory.
pub(crate) struct Dir {
    pub(crate) parent: InodeId,
    pub(crate) entries: BTreeMap<Box<[u8]>, Dirent>,
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Dirent {
    pub(crate) inode: InodeId,
    /// The layer that made it or, for a directory, last put something below it.
    layer: u32,
}

/// The tree of all layers so far.
pub(crate) struct Tree {
    pub(crate) arena: Arena,
    pub(crate) root: InodeId,
    /// The layer being applied; 0 before the first.
    pub(crate) layer: u32,
    /// Bytes of memory that names, attributes, targets and contents hold, roughly.
    pub(crate) weight: u64,
    depth_max: usize,
    path_bytes: usize,
}

impl Tree {
    /// An empty root, mode 0755.
    pub(crate) fn new(depth_max: usize, path_bytes: usize) -> Self {
        let mut arena = Arena::default();
        let root = arena.insert_root(Metadata::with_mode(0o755));
        Self {
            arena,
            root,
            layer: 0,
            weight: 0,
            depth_max,
            path_bytes,
        }
    }

    /// Puts an inode at `path`. A directory on a directory takes over its metadata and keeps its
    /// entries; anything else replaces what is there, which is never followed.
    pub(crate) fn put(
        &mut self,
        path: &[&[u8]],
        meta: Metadata,
        body: NewBody,
    ) -> Result<(), Fault> {
        let Some((name, parents)) = path.split_last() else {
            return self.put_root(meta, &body);
        };
        let parent = self.resolve_or_make(parents)?;
        let existing = self.entry(parent, name);
        if let (NewBody::Dir, Some(dirent)) = (&body, existing)
            && self.arena[dirent.inode].is_dir()
        {
            self.set_meta(dirent.inode, meta);
            self.stamp(parent, name);
            return Ok(());
        }
        if existing.is_some() {
            self.unlink(parent, name);
        }
        let weight = body.weight() + meta.weight();
        let inode = self.arena.insert(Inode {
            meta,
            links: 0,
            body: body.into_body(parent),
        });
        self.weight += weight;
        self.link(parent, name, inode);
        Ok(())
    }

    fn put_root(&mut self, meta: Metadata, body: &NewBody) -> Result<(), Fault> {
        if !matches!(body, NewBody::Dir) {
            return Err(Fault::Root);
        }
        self.set_meta(self.root, meta);
        Ok(())
    }

    /// Makes `path` another name of what `target` names. The last component of neither is followed.
    pub(crate) fn hard_link(&mut self, path: &[&[u8]], target: &[&[u8]]) -> Result<(), Fault> {
        let (target_name, target_parents) = target.split_last().ok_or(Fault::LinkToDirectory)?;
        let from = self.resolve(target_parents)?.ok_or(Fault::LinkTarget)?;
        let inode = self
            .entry(from, target_name)
            .ok_or(Fault::LinkTarget)?
            .inode;
        if self.arena[inode].is_dir() {
            return Err(Fault::LinkToDirectory);
        }
        let (name, parents) = path.split_last().ok_or(Fault::Root)?;
        let parent = self.resolve_or_make(parents)?;
        match self.entry(parent, name) {
            Some(existing) if existing.inode == inode => self.stamp(parent, name),
            Some(_) => {
                // A directory in the way may hold the target: its inode is held meanwhile.
                self.arena[inode].links += 1;
                self.unlink(parent, name);
                self.arena[inode].links -= 1;
                self.link(parent, name, inode);
            }
            None => self.link(parent, name, inode),
        }
        Ok(())
    }

    pub(crate) fn entry(&self, dir: InodeId, name: &[u8]) -> Option<Dirent> {
        match &self.arena[dir].body {
            Body::Dir(dir) => dir.entries.get(name).copied(),
            _ => None,
        }
    }

    fn set_meta(&mut self, inode: InodeId, meta: Metadata) {
        self.weight += meta.weight();
        let old = std::mem::replace(&mut self.arena[inode].meta, meta);
        self.weight -= old.weight();
    }

    fn link(&mut self, dir: InodeId, name: &[u8], inode: InodeId) {
        let layer = self.layer;
        self.arena[inode].links += 1;
        if let Body::Dir(dir) = &mut self.arena[dir].body {
            dir.entries.insert(name.into(), Dirent { inode, layer });
            self.weight += dirent_weight(name);
        }
    }

    /// Marks a name as set by the present layer, so that the layer's own whiteouts spare it.
    fn stamp(&mut self, dir: InodeId, name: &[u8]) {
        let layer = self.layer;
        if let Body::Dir(dir) = &mut self.arena[dir].body
            && let Some(dirent) = dir.entries.get_mut(name)
        {
            dirent.layer = layer;
        }
    }
}

impl Inode {
    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    fn weight(&self) -> u64 {
        let body = match &self.body {
            Body::Dir(_) | Body::Node(_) => 0,
            Body::File(content) => content.weight(),
            Body::Symlink(target) => target.len() as u64,
        };
        INODE_WEIGHT + body + self.meta.weight()
    }
}

/// An inode to be put into the tree.
pub(crate) enum NewBody {
    Dir,
    File(Content),
    Symlink(Box<[u8]>),
    Node(Node),
}

impl NewBody {
    fn weight(&self) -> u64 {
        INODE_WEIGHT
            + match self {
                Self::Dir | Self::Node(_) => 0,
                Self::File(content) => content.weight(),
                Self::Symlink(target) => target.len() as u64,
            }
    }

    fn into_body(self, parent: InodeId) -> Body {
        match self {
            Self::Dir => Body::Dir(Dir {
                parent,
                entries: BTreeMap::new(),
            }),
            Self::File(content) => Body::File(content),
            Self::Symlink(target) => Body::Symlink(target),
            Self::Node(node) => Body::Node(node),
        }
    }
}

/// Memory of an inode besides what hangs from it.
const INODE_WEIGHT: u64 = 160;

fn dirent_weight(name: &[u8]) -> u64 {
    name.len() as u64 + 64
}
