//! An image under construction.

use std::io::{Read, Seek, Write};

use crate::data::{DataArea, Source};
use crate::disk::xattr;
use crate::error::{DisplayPath, Error, Fault};
use crate::image;
use crate::limits::Limits;
use crate::metadata::{Metadata, Node};
use crate::path;
use crate::tree::{NewBody, Tree};

/// How an image is built.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bounds on what goes in.
    pub limits: Limits,
    /// The file system's UUID. Zeros are fine; a part of a content's digest says more.
    pub uuid: [u8; 16],
}

/// What became of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Inodes of the image.
    pub inodes: u64,
    /// Bytes of the image.
    pub bytes: u64,
    /// Extended attributes left out: names of spaces that EROFS does not have, and overlayfs' own.
    pub dropped_xattrs: u64,
}

/// Builds one image into `W`, which must be empty: what is never written must read as zeros.
pub struct Builder<W: Write> {
    pub(crate) tree: Tree,
    pub(crate) data: DataArea<W>,
    pub(crate) limits: Limits,
    uuid: [u8; 16],
    /// Entries so far.
    pub(crate) entry: u64,
    /// Bytes read from layers so far.
    pub(crate) stream_bytes: u64,
    dropped_xattrs: u64,
}

impl<W: Write + Seek> Builder<W> {
    /// An image with nothing but its root directory, mode 0755 and owned by root.
    pub fn new(output: W, options: Options) -> Self {
        let Options { limits, uuid } = options;
        Self {
            tree: Tree::new(limits.depth, limits.path_bytes),
            data: DataArea::new(output, &limits),
            limits,
            uuid,
            entry: 0,
            stream_bytes: 0,
            dropped_xattrs: 0,
        }
    }

    /// Sets the file system's UUID, for who knows it only after the content went by.
    pub fn set_uuid(&mut self, uuid: [u8; 16]) {
        self.uuid = uuid;
    }

    /// Adds a directory, or gives an existing one this metadata. Of every entry: a path is taken
    /// from the root, its missing parents are made, links in it are followed inside the root.
    ///
    /// # Errors
    /// An entry that no image can hold or that goes beyond the limits.
    pub fn dir(&mut self, path: &[u8], meta: Metadata) -> Result<(), Error> {
        self.count()?;
        self.add(path, meta, NewBody::Dir)
    }

    /// Adds a symbolic link; its mode becomes 0777, as Linux shows every one.
    ///
    /// # Errors
    /// As [`Builder::dir`].
    pub fn symlink(&mut self, path: &[u8], mut meta: Metadata, target: &[u8]) -> Result<(), Error> {
        self.count()?;
        meta.mode = 0o777;
        let body = self.symlink_body(path, target.to_vec())?;
        self.add(path, meta, body)
    }

    /// Adds a device or a pipe.
    ///
    /// # Errors
    /// As [`Builder::dir`].
    pub fn node(&mut self, path: &[u8], meta: Metadata, node: Node) -> Result<(), Error> {
        self.count()?;
        self.add_node(path, meta, node)
    }

    pub(crate) fn add_node(
        &mut self,
        path: &[u8],
        meta: Metadata,
        node: Node,
    ) -> Result<(), Error> {
        if let Node::Char { major, minor } | Node::Block { major, minor } = node
            && (major >= 1 << 12 || minor >= 1 << 20)
        {
            return Err(self.at(path).fault(Fault::Device));
        }
        self.add(path, meta, NewBody::Node(node))
    }

    /// Adds a regular file of exactly `size` bytes read from `content`; blocks of zeros become
    /// holes.
    ///
    /// # Errors
    /// As [`Builder::dir`], and a content that fails or ends early.
    pub fn file<R: Read>(
        &mut self,
        path: &[u8],
        meta: Metadata,
        size: u64,
        mut content: R,
    ) -> Result<(), Error> {
        self.count()?;
        if size > self.limits.file_bytes {
            return Err(self.limit("bytes of a file are", self.limits.file_bytes));
        }
        let stored = self
            .data
            .store(&mut Source::new(&mut content, self.entry, size, None))?;
        self.add(path, meta, NewBody::File(stored))
    }

    /// Adds another name of an existing inode that is no directory.
    ///
    /// # Errors
    /// As [`Builder::dir`], and a target that is not there.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        self.count()?;
        self.add_hard_link(path, target)
    }

    pub(crate) fn add_hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        let at = self.at(path);
        let split = |path| path::components(path, self.limits.path_bytes);
        let parts = split(path).map_err(|fault| at.fault(fault))?;
        let target_parts = split(target).map_err(|fault| at.fault(fault))?;
        self.tree
            .hard_link(&parts, &target_parts)
            .map_err(|fault| at.fault(fault))?;
        self.check_weight()
    }

    /// Writes directories, inodes and the superblock; gives the output back, flushed but not synced.
    ///
    /// # Errors
    /// An output that fails, or an image beyond its limit.
    pub fn finish(self) -> Result<(W, Summary), Error> {
        let mut output = self.data.into_output();
        let (inodes, blocks) = image::write(&self.tree, &mut output, self.uuid, self.entry)?;
        let bytes = blocks * crate::disk::BLOCK;
        let summary = Summary {
            inodes,
            bytes,
            dropped_xattrs: self.dropped_xattrs,
        };
        Ok((output.into_inner()?, summary))
    }

    /// Entries made by the caller count like those of layers.
    fn count(&mut self) -> Result<(), Error> {
        self.entry += 1;
        if self.entry > self.limits.entries {
            return Err(self.limit("entries are", self.limits.entries));
        }
        Ok(())
    }

    fn add(&mut self, path: &[u8], meta: Metadata, body: NewBody) -> Result<(), Error> {
        let parts = path::components(path, self.limits.path_bytes)
            .map_err(|fault| self.at(path).fault(fault))?;
        self.put(path, &parts, meta, body)
    }

    pub(crate) fn put(
        &mut self,
        path: &[u8],
        parts: &[&[u8]],
        mut meta: Metadata,
        body: NewBody,
    ) -> Result<(), Error> {
        let at = self.at(path);
        self.keep_xattrs(&mut meta)
            .map_err(|fault| at.fault(fault))?;
        self.tree
            .put(parts, meta, body)
            .map_err(|fault| at.fault(fault))?;
        self.check_weight()
    }

    pub(crate) fn symlink_body(&self, path: &[u8], target: Vec<u8>) -> Result<NewBody, Error> {
        if target.is_empty() || target.contains(&0) {
            return Err(self.at(path).fault(Fault::Name));
        }
        if target.len() > self.limits.path_bytes {
            return Err(self.at(path).fault(Fault::PathTooLong));
        }
        Ok(NewBody::Symlink(target.into_boxed_slice()))
    }

    /// Leaves out what cannot be or must not be stored, and bounds the rest.
    fn keep_xattrs(&mut self, meta: &mut Metadata) -> Result<(), Fault> {
        let before = meta.xattrs.len();
        meta.xattrs
            .retain(|name, _| xattr::split(name).is_some() && !is_overlay(name));
        self.dropped_xattrs += (before - meta.xattrs.len()) as u64;
        let bytes: usize = meta
            .xattrs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let too_long = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            name.len() > crate::limits::NAME_MAX || value.len() > xattr::VALUE_MAX
        };
        let above = meta.xattrs.len() > self.limits.xattrs || bytes > self.limits.xattr_bytes;
        if above || meta.xattrs.iter().any(too_long) {
            return Err(Fault::Xattr);
        }
        Ok(())
    }

    fn check_weight(&self) -> Result<(), Error> {
        if self.tree.weight > self.limits.metadata_bytes {
            return Err(self.limit("bytes of metadata are", self.limits.metadata_bytes));
        }
        Ok(())
    }

    fn limit(&self, what: &'static str, limit: u64) -> Error {
        Error::Limit {
            entry: self.entry,
            what,
            limit,
        }
    }

    pub(crate) fn at(&self, path: &[u8]) -> At {
        At {
            entry: self.entry,
            path: DisplayPath::new(path),
        }
    }
}

/// Overlayfs reads these from its lower layers as orders: an image must not give them.
fn is_overlay(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
}

/// Which entry an error is about.
pub(crate) struct At {
    entry: u64,
    path: DisplayPath,
}

impl At {
    pub(crate) fn fault(&self, fault: Fault) -> Error {
        Error::Entry {
            entry: self.entry,
            path: self.path.clone(),
            fault,
        }
    }
}
