//! One entry from its headers: extension headers first, then the entry's own.

use std::io::Read;

use ::tar::Header;

use crate::data::{Segments, check_segments};
use crate::error::{Error, Fault};
use crate::metadata::{Metadata, Node, Timestamp};

use super::pax::{Pax, PaxLimits};
use super::{Archive, BLOCK, Entry, Kind, field};

/// What the headers before an entry's own say about it.
#[derive(Default)]
pub(super) struct Extensions {
    pax: Option<Pax>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Extensions {
    pub(super) fn is_empty(&self) -> bool {
        self.pax.is_none() && self.long_path.is_none() && self.long_link.is_none()
    }
}

impl<R: Read> Archive<R> {
    /// Takes an extension header in; false for an entry's own header.
    pub(super) fn take_extension(
        &mut self,
        header: &Header,
        extensions: &mut Extensions,
    ) -> Result<bool, Error> {
        match type_of(header) {
            b'x' => {
                let bytes = self.extension_bytes(header)?;
                let limits = PaxLimits {
                    xattrs: self.limits.xattrs,
                    segments: self.limits.segments,
                };
                extensions.pax =
                    Some(Pax::parse(&bytes, &limits).map_err(|fault| self.fault(fault))?);
            }
            b'L' => extensions.long_path = Some(until_zero(self.extension_bytes(header)?)),
            b'K' => extensions.long_link = Some(until_zero(self.extension_bytes(header)?)),
            // A global header, or a volume's label: of no entry.
            b'g' | b'V' => drop(self.extension_bytes(header)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn extension_bytes(&mut self, header: &Header) -> Result<Vec<u8>, Error> {
        let size = self.size_field(header)?;
        if size > self.limits.extension_bytes {
            return Err(self.limit(
                "bytes of an extension header are",
                self.limits.extension_bytes,
            ));
        }
        let mut bytes = Vec::new();
        let mut block = [0; BLOCK];
        let mut left = usize::try_from(size).unwrap_or(0);
        while left > 0 {
            if !self.read_block(&mut block)? {
                return Err(self.truncated("an extension header"));
            }
            let take = left.min(BLOCK);
            bytes.extend_from_slice(block.get(..take).unwrap_or_default());
            left -= take;
        }
        Ok(bytes)
    }

    fn size_field(&self, header: &Header) -> Result<u64, Error> {
        field::unsigned(&header.as_old().size).ok_or_else(|| self.header("its size is no number"))
    }

    /// The entry of this header.
    pub(super) fn finish_entry(
        &mut self,
        header: &Header,
        extensions: Extensions,
    ) -> Result<Entry, Error> {
        let mut pax = extensions.pax.unwrap_or_default();
        let path = extensions
            .long_path
            .or(pax.sparse.name.take())
            .or(pax.path.take())
            .unwrap_or_else(|| header.path_bytes().into_owned());
        self.path.clone_from(&path);
        let link = extensions.long_link.or(pax.link.take());
        let kind = self.kind(header, &path, link)?;
        let meta = self.metadata(header, &kind, &mut pax)?;
        let mut entry = Entry {
            path,
            kind,
            meta,
            size: 0,
            data_at: self.at,
            segments: None,
        };
        if entry.kind == Kind::File {
            self.begin_content(header, &pax, &mut entry)?;
        }
        Ok(entry)
    }

    fn kind(&self, header: &Header, path: &[u8], link: Option<Vec<u8>>) -> Result<Kind, Error> {
        let target = || link.unwrap_or_else(|| until_zero(header.as_old().linkname.to_vec()));
        Ok(match type_of(header) {
            0 if path.ends_with(b"/") => Kind::Dir,
            b'0' | 0 | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink(target()),
            b'2' => Kind::Symlink(target()),
            b'3' => self.device(header, |major, minor| Node::Char { major, minor })?,
            b'4' => self.device(header, |major, minor| Node::Block { major, minor })?,
            b'5' => Kind::Dir,
            b'6' => Kind::Node(Node::Fifo),
            other => return Err(self.fault(Fault::Type(other))),
        })
    }

    fn device(&self, header: &Header, node: fn(u32, u32) -> Node) -> Result<Kind, Error> {
        let (major, minor) = match (header.as_ustar(), header.as_gnu()) {
            (Some(ustar), _) => (&ustar.dev_major, &ustar.dev_minor),
            (None, Some(gnu)) => (&gnu.dev_major, &gnu.dev_minor),
            (None, None) => return Err(self.fault(Fault::Device)),
        };
        let number =
            |field: &[u8]| field::unsigned(field).and_then(|value| u32::try_from(value).ok());
        let numbers = number(major).zip(number(minor));
        let (major, minor) = numbers.ok_or_else(|| self.fault(Fault::Device))?;
        Ok(Kind::Node(node(major, minor)))
    }

    fn metadata(&self, header: &Header, kind: &Kind, pax: &mut Pax) -> Result<Metadata, Error> {
        let old = header.as_old();
        let owner = |pax: Option<u32>, field: &[u8]| {
            let stored = || field::unsigned(field).and_then(|value| u32::try_from(value).ok());
            pax.or_else(stored).ok_or_else(|| self.fault(Fault::Owner))
        };
        let mtime = match pax.mtime {
            Some(time) => time,
            None => {
                let secs = field::signed(&old.mtime).ok_or_else(|| self.fault(Fault::Time))?;
                Timestamp { secs, nanos: 0 }
            }
        };
        let mode = match kind {
            // As Linux shows every symbolic link.
            Kind::Symlink(_) => 0o777,
            _ => {
                field::unsigned(&old.mode).ok_or_else(|| self.header("its mode is no number"))?
                    & 0o7777
            }
        };
        Ok(Metadata {
            mode: u16::try_from(mode).unwrap_or(0),
            uid: owner(pax.uid, &old.uid)?,
            gid: owner(pax.gid, &old.gid)?,
            mtime,
            xattrs: std::mem::take(&mut pax.xattrs),
        })
    }

    /// Finds out how much content is stored and which holes it has.
    fn begin_content(
        &mut self,
        header: &Header,
        pax: &Pax,
        entry: &mut Entry,
    ) -> Result<(), Error> {
        let stored = match pax.size {
            Some(size) => size,
            None => self.size_field(header)?,
        };
        self.content = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
        entry.size = stored;
        let sparse = if type_of(header) == b'S' {
            Some(self.old_sparse_map(header)?)
        } else if pax.sparse.is_present() {
            Some(self.pax_sparse_map(pax)?)
        } else {
            None
        };
        if let Some((size, segments)) = sparse {
            self.check_sparse(size, &segments)?;
            entry.size = size;
            entry.segments = Some(segments);
        }
        if entry.size > self.limits.file_bytes {
            return Err(self.limit("bytes of a file are", self.limits.file_bytes));
        }
        entry.data_at = self.at;
        Ok(())
    }

    fn pax_sparse_map(&mut self, pax: &Pax) -> Result<(u64, Segments), Error> {
        let size = pax
            .sparse
            .real_size
            .ok_or_else(|| self.fault(Fault::SparseMap))?;
        let segments = match &pax.sparse.segments {
            Some(segments) => segments.clone(),
            None => self.leading_sparse_map()?,
        };
        Ok((size, segments))
    }

    fn check_sparse(&self, size: u64, segments: &Segments) -> Result<(), Error> {
        let data = check_segments(segments, size).map_err(|fault| self.fault(fault))?;
        if data != self.content {
            return Err(self.fault(Fault::SparseMap));
        }
        Ok(())
    }
}

fn type_of(header: &Header) -> u8 {
    let [linkflag] = header.as_old().linkflag;
    linkflag
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}
