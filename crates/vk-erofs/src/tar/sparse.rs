//! Sparse maps that stand in tar blocks: GNU tar's old form, and the PAX form 1.0.

use std::io::Read;

use ::tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::data::Segments;
use crate::error::{Error, Fault};

use super::{Archive, BLOCK, field, pax};

impl<R: Read> Archive<R> {
    /// The map of an old GNU sparse file: four segments in the header, 21 in each block after it.
    pub(super) fn old_sparse_map(&mut self, header: &Header) -> Result<(u64, Segments), Error> {
        let gnu = header
            .as_gnu()
            .ok_or_else(|| self.fault(Fault::SparseMap))?;
        let real_size = field::unsigned(&gnu.realsize).ok_or_else(|| self.fault(Fault::Size))?;
        let mut segments = Vec::new();
        self.take_segments(&gnu.sparse, &mut segments)?;
        let mut more = gnu.isextended != [0];
        while more {
            let mut block = GnuExtSparseHeader::new();
            if !self.read_block(block.as_mut_bytes())? {
                return Err(self.truncated("a sparse map"));
            }
            self.take_segments(&block.sparse, &mut segments)?;
            more = block.isextended != [0];
        }
        Ok((real_size, segments))
    }

    fn take_segments(
        &self,
        headers: &[GnuSparseHeader],
        segments: &mut Segments,
    ) -> Result<(), Error> {
        for header in headers
            .iter()
            .take_while(|header| header.offset != [0; 12] || header.numbytes != [0; 12])
        {
            let offset = field::unsigned(&header.offset);
            let length = field::unsigned(&header.numbytes);
            let segment = offset
                .zip(length)
                .ok_or_else(|| self.fault(Fault::SparseMap))?;
            self.check_segment_count(segments)?;
            segments.push(segment);
        }
        Ok(())
    }

    /// The map that stands before the data: decimal lines, filled up to a whole block.
    pub(super) fn leading_sparse_map(&mut self) -> Result<Segments, Error> {
        let mut lines = Lines {
            block: [0; BLOCK],
            at: BLOCK,
        };
        let count = lines.next(self)?;
        if count > self.limits.segments as u64 {
            return Err(self.limit("sparse segments are", self.limits.segments as u64));
        }
        let mut segments = Vec::new();
        for _ in 0..count {
            let offset = lines.next(self)?;
            let length = lines.next(self)?;
            segments.push((offset, length));
        }
        Ok(segments)
    }

    fn check_segment_count(&self, segments: &Segments) -> Result<(), Error> {
        if segments.len() >= self.limits.segments {
            return Err(self.limit("sparse segments are", self.limits.segments as u64));
        }
        Ok(())
    }
}

/// Numbers, one a line, read a tar block at a time.
struct Lines {
    block: [u8; BLOCK],
    at: usize,
}

impl Lines {
    fn next<R: Read>(&mut self, archive: &mut Archive<R>) -> Result<u64, Error> {
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK {
                archive.read_content_block(&mut self.block)?;
                self.at = 0;
            }
            let byte = self.block.get(self.at).copied().unwrap_or(b'\n');
            self.at += 1;
            if byte == b'\n' {
                break;
            }
            if digits.len() >= 20 {
                return Err(archive.fault(Fault::SparseMap));
            }
            digits.push(byte);
        }
        pax::number(&digits).ok_or_else(|| archive.fault(Fault::SparseMap))
    }
}
