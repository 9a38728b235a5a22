//! Compressed streams, known by how they begin: media types and file names lie.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The largest window a zstd stream may ask us to keep: 128 MiB, the most its own tool takes without
/// being told to.
const ZSTD_WINDOW_LOG: u32 = 27;

/// A stream, decompressed. What is broken once stays broken: the decoders would say that it ends, or
/// go on behind the fault.
pub(crate) struct Decompressed<R: BufRead> {
    stream: Stream<R>,
    is_broken: bool,
}

enum Stream<R: BufRead> {
    Plain(R),
    Gzip(MultiGzDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

/// Buffers a stream and decompresses it as its first bytes say.
pub(crate) fn decompress<R: Read>(
    input: R,
) -> io::Result<(Compression, Decompressed<BufReader<R>>)> {
    let mut input = BufReader::with_capacity(128 << 10, input);
    let start = input.fill_buf()?;
    let (compression, stream) = if start.starts_with(GZIP) {
        let decoder = MultiGzDecoder::new(input);
        (Compression::Gzip, Stream::Gzip(decoder))
    } else if start.starts_with(ZSTD) {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        (Compression::Zstd, Stream::Zstd(decoder))
    } else {
        (Compression::None, Stream::Plain(input))
    };
    let is_broken = false;
    Ok((compression, Decompressed { stream, is_broken }))
}

impl<R: BufRead> Decompressed<R> {
    /// The compressed stream, to read what is left of it.
    pub(crate) fn into_inner(self) -> R {
        match self.stream {
            Stream::Plain(input) => input,
            Stream::Gzip(decoder) => decoder.into_inner(),
            Stream::Zstd(decoder) => decoder.finish(),
        }
    }
}

impl<R: BufRead> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_broken {
            return Err(io::Error::other("the stream was broken before"));
        }
        let read = match &mut self.stream {
            Stream::Plain(input) => input.read(buffer),
            Stream::Gzip(decoder) => decoder.read(buffer),
            Stream::Zstd(decoder) => decoder.read(buffer),
        };
        let is_fault = |error: &io::Error| error.kind() != io::ErrorKind::Interrupted;
        self.is_broken = read.as_ref().is_err_and(is_fault);
        read
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> (Compression, Vec<u8>) {
        let (compression, mut input) = decompress(bytes).unwrap();
        let mut out = Vec::new();
        input.read_to_end(&mut out).unwrap();
        (compression, out)
    }

    #[test]
    fn streams_are_known_by_their_first_bytes() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"text").unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(read(&gzip), (Compression::Gzip, b"text".to_vec()));
        let two = [gzip.clone(), gzip].concat();
        assert_eq!(
            read(&two),
            (Compression::Gzip, b"texttext".to_vec()),
            "members follow each other"
        );
        let zstd = zstd::encode_all(&b"text"[..], 1).unwrap();
        assert_eq!(read(&zstd), (Compression::Zstd, b"text".to_vec()));
        assert_eq!(read(b"text"), (Compression::None, b"text".to_vec()));
        assert_eq!(read(b""), (Compression::None, Vec::new()));
    }

    #[test]
    fn a_window_that_would_fill_the_memory_is_refused() {
        // A frame header that asks for a window of 2 GiB.
        let mut frame = ZSTD.to_vec();
        frame.extend_from_slice(&[0x00, 21 << 3, 0x01, 0x00, 0x00]);
        let (_, mut input) = decompress(&frame[..]).unwrap();
        assert!(input.read_to_end(&mut Vec::new()).is_err());
    }
}
