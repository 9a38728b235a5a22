//! One layer put on the tree: entries, whiteouts, opaque directories.

use std::io::{Read, Seek, Write};

use crate::builder::Builder;
use crate::data::Source;
use crate::error::{Error, Fault};
use crate::path;
use crate::tar::{Archive, Entry, Kind};
use crate::tree::NewBody;

/// What names that begin with `.wh.` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteouts {
    /// As in an OCI layer: they remove what lower layers have.
    Oci,
    /// Nothing: the stream is a root file system, not a layer.
    Literal,
}

const PREFIX: &[u8] = b".wh.";
/// Of names that belong to the layer itself, not to its tree.
const META_PREFIX: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

impl<W: Write + Seek> Builder<W> {
    /// Puts one layer's decompressed tar stream on top of what is there. Returns at the archive's
    /// end; what follows it in `input` is the caller's.
    ///
    /// # Errors
    /// A stream that fails, is no tar, holds what no image can, or goes beyond the limits; and an
    /// output that fails. The image is lost then.
    pub fn layer<R: Read>(&mut self, input: R, whiteouts: Whiteouts) -> Result<(), Error> {
        self.tree.layer += 1;
        let mut limits = self.limits.clone();
        limits.stream_bytes = limits.stream_bytes.saturating_sub(self.stream_bytes);
        let mut archive = Archive::counting_from(input, &limits, self.entry);
        while let Some(entry) = archive.next_entry()? {
            self.entry = archive.entries();
            self.apply(&mut archive, entry, whiteouts)?;
        }
        self.entry = archive.entries();
        self.stream_bytes += archive.bytes();
        Ok(())
    }

    fn apply<R: Read>(
        &mut self,
        archive: &mut Archive<R>,
        entry: Entry,
        whiteouts: Whiteouts,
    ) -> Result<(), Error> {
        let Entry {
            path: whole,
            kind,
            meta,
            size,
            segments,
            ..
        } = entry;
        let at = self.at(&whole);
        let parts =
            path::components(&whole, self.limits.path_bytes).map_err(|fault| at.fault(fault))?;
        if whiteouts == Whiteouts::Oci
            && self
                .apply_whiteout(&parts)
                .map_err(|fault| at.fault(fault))?
        {
            return Ok(());
        }
        match kind {
            Kind::HardLink(target) => self.add_hard_link(&whole, &target),
            Kind::Dir => self.put(&whole, &parts, meta, NewBody::Dir),
            Kind::Symlink(target) => {
                let body = self.symlink_body(&whole, target)?;
                self.put(&whole, &parts, meta, body)
            }
            Kind::Node(node) => self.add_node(&whole, meta, node),
            Kind::File => {
                let mut content = archive.content();
                let mut source = Source::new(&mut content, self.entry, size, segments.as_ref());
                let stored = self.data.store(&mut source)?;
                self.put(&whole, &parts, meta, NewBody::File(stored))
            }
        }
    }

    /// Does what a whiteout says; false where the entry is none.
    fn apply_whiteout(&mut self, parts: &[&[u8]]) -> Result<bool, Fault> {
        let Some((name, parents)) = parts.split_last() else {
            return Ok(false);
        };
        if *name == OPAQUE {
            if let Some(dir) = self.tree.resolve(parents)? {
                self.tree.hide_lower(dir);
            }
            return Ok(true);
        }
        if parts
            .first()
            .is_some_and(|first| first.starts_with(META_PREFIX))
            || name.starts_with(META_PREFIX)
        {
            return Ok(true);
        }
        if parents.iter().any(|parent| parent.starts_with(PREFIX)) {
            return Err(Fault::Whiteout);
        }
        let Some(hidden) = name.strip_prefix(PREFIX) else {
            return Ok(false);
        };
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Fault::Whiteout);
        }
        if let Some(dir) = self.tree.resolve(parents)? {
            self.tree.white_out(dir, hidden);
        }
        Ok(true)
    }
}
