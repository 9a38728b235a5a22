//! The layer of a cache: the guest's tar, compressed on its way by the node and never read by it.
//! The same tar gives the same bytes, so that unchanged content has the same digest (CACHE-07).

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Handle;
use vk_oci::{Digest, Hasher};

/// Bytes on their way between the guest's stream and the thread that converts them.
pub(crate) const PIPE: usize = 256 << 10;
const CHUNK: usize = 128 << 10;
/// A layer may not make its reader hold more of what it has read than this power of two.
const WINDOW_LOG_MAX: u32 = 27;

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of the layer: it lies on the job's disk (GUEST-07).
    pub(crate) layer: u64,
    /// Bytes of the tar: more would not fit into a guest again.
    pub(crate) tar: u64,
}

/// A layer that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// Why a layer was not made, or not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayerError {
    #[error("the archive has more than the {0} that one may have")]
    TooLarge(String),
    #[error("the archive cannot be converted: {0}")]
    Io(#[from] io::Error),
}

impl LayerError {
    /// Whether the other end of a pipe is gone: it knows why.
    pub(crate) fn is_other_end(&self) -> bool {
        matches!(self, LayerError::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Compresses a tar into a file, hashing what is written.
pub(crate) fn pack(
    mut tar: impl Read,
    to: &Path,
    level: i32,
    limits: Limits,
) -> Result<Packed, LayerError> {
    let out = Hashed {
        file: File::create(to)?,
        hasher: Hasher::default(),
        size: 0,
    };
    let mut encoder = zstd::stream::write::Encoder::new(out, level)?;
    let mut buffer = vec![0; CHUNK];
    let mut taken = 0;
    loop {
        let read = tar.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        taken += read as u64;
        if taken > limits.tar {
            return Err(LayerError::TooLarge(super::words::size(limits.tar)));
        }
        encoder.write_all(buffer.get(..read).unwrap_or_default())?;
        if encoder.get_ref().size > limits.layer {
            return Err(LayerError::TooLarge(super::words::size(limits.layer)));
        }
    }
    let out = encoder.finish()?;
    if out.size > limits.layer {
        return Err(LayerError::TooLarge(super::words::size(limits.layer)));
    }
    Ok(Packed {
        digest: out.hasher.finish(),
        size: out.size,
    })
}

/// Gives a layer's tar.
pub(crate) fn unpack(layer: &Path, mut to: impl Write, limits: Limits) -> Result<(), LayerError> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(BufReader::new(File::open(layer)?))?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    let mut buffer = vec![0; CHUNK];
    let mut given = 0;
    loop {
        let read = decoder.read(&mut buffer)?;
        if read == 0 {
            return Ok(to.flush()?);
        }
        given += read as u64;
        if given > limits.tar {
            return Err(LayerError::TooLarge(super::words::size(limits.tar)));
        }
        to.write_all(buffer.get(..read).unwrap_or_default())?;
    }
}

struct Hashed {
    file: File,
    hasher: Hasher,
    size: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// One end of a pipe, for a thread that may wait.
pub(crate) struct Waiting {
    pub(crate) pipe: DuplexStream,
    pub(crate) runtime: Handle,
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.runtime.block_on(self.pipe.read(buffer))
    }
}

impl Write for Waiting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.runtime.block_on(self.pipe.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.runtime.block_on(self.pipe.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Limits = Limits {
        layer: 1 << 20,
        tar: 4 << 20,
    };

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    /// CACHE-07, GUEST-05
    #[test]
    fn the_same_tar_makes_the_same_layer_and_comes_out_of_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let tar = [noise(300_000), vec![0; 700_000]].concat();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let packed = pack(&tar[..], &one, 3, ROOM).unwrap();
        // However the bytes come in.
        let (left, right) = tar.split_at(77_777);
        assert_eq!(
            pack(Read::chain(left, right), &two, 3, ROOM).unwrap(),
            packed
        );
        let layer = std::fs::read(&one).unwrap();
        assert_eq!(packed.digest, Digest::of(&layer));
        assert_eq!(packed.size, layer.len() as u64);
        assert!(packed.size < 400_000, "{packed:?}");
        let mut out = Vec::new();
        unpack(&one, &mut out, ROOM).unwrap();
        assert!(out == tar);
    }

    /// GUEST-07, GUEST-11
    #[test]
    fn neither_a_layer_nor_its_tar_may_be_larger_than_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        let small = Limits {
            layer: 10_000,
            tar: 1 << 20,
        };
        let noise = noise(900_000);
        let error = pack(&noise[..], &path, 3, small).unwrap_err();
        assert!(error.to_string().contains("10.00 KB"), "{error}");
        // What compresses to nothing is bounded as it is.
        let error = pack(io::repeat(0).take(2 << 20), &path, 3, small).unwrap_err();
        assert!(error.to_string().contains("1.05 MB"), "{error}");
        // And as it comes out.
        pack(io::repeat(0).take(3 << 20), &path, 3, ROOM).unwrap();
        let error = unpack(&path, io::sink(), small).unwrap_err();
        assert!(error.to_string().contains("1.05 MB"), "{error}");
    }

    #[test]
    fn a_layer_that_is_none_or_ends_early_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        pack(&noise(300_000)[..], &path, 3, ROOM).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        unpack(&path, io::sink(), ROOM).unwrap_err();
        std::fs::write(&path, b"PK\x03\x04 a zip").unwrap();
        unpack(&path, io::sink(), ROOM).unwrap_err();
    }
}
