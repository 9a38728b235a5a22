//! The "legacy" LZ4 stream that distribution kernels are compressed with: a magic number, then
//! blocks, each a length and a compressed block of at most 8 MiB once unpacked.

use lz4_flex::block::{decompress, get_maximum_output_size};

use super::BundleError;

const MAGIC: [u8; 4] = 0x184C_2102_u32.to_le_bytes();
/// The most one block unpacks to, by the format's definition.
const BLOCK: usize = 8 << 20;

/// Unpacks a legacy stream of at most `limit` bytes once unpacked.
///
/// A length that cannot be a block's ends the stream: kernels append four bytes of their own.
pub(super) fn unpack(stream: &[u8], limit: usize) -> Result<Vec<u8>, BundleError> {
    let corrupt = |why: &str| BundleError::Payload {
        format: "lz4",
        why: why.to_owned(),
    };
    let mut rest = stream
        .strip_prefix(&MAGIC)
        .ok_or_else(|| corrupt("no magic number"))?;
    let mut out = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length == 0 || length > get_maximum_output_size(BLOCK) {
            break;
        }
        let Some((block, tail)) = tail.split_at_checked(length) else {
            break;
        };
        let unpacked = decompress(block, BLOCK).map_err(|e| corrupt(&e.to_string()))?;
        if out.len().saturating_add(unpacked.len()) > limit {
            return Err(corrupt("larger than any kernel"));
        }
        out.extend_from_slice(&unpacked);
        rest = tail;
    }
    if out.is_empty() {
        Err(corrupt("no block"))
    } else {
        Ok(out)
    }
}

#[cfg(test)]
pub(super) fn pack(data: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for chunk in data.chunks(BLOCK) {
        let block = lz4_flex::block::compress(chunk);
        out.extend_from_slice(&u32::try_from(block.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&block);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_several_blocks_and_a_trailing_size_unpacks() {
        let data: Vec<u8> = (0..9_000_000_u32)
            .map(|i| u8::try_from(i % 251).unwrap())
            .collect();
        let mut stream = pack(&data);
        stream.extend_from_slice(&u32::try_from(data.len()).unwrap().to_le_bytes());
        assert!(unpack(&stream, 16 << 20).unwrap() == data);
    }

    #[test]
    fn a_stream_over_the_limit_is_refused() {
        let stream = pack(&vec![0; 4096]);
        assert!(unpack(&stream, 4095).is_err());
        assert_eq!(unpack(&stream, 4096).unwrap().len(), 4096);
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        for bytes in [
            &b""[..],
            b"\x02\x21\x4c\x18",
            b"gibberish",
            b"\x02\x21\x4c\x18\x04\0\0\0\xff\xff\xff\xff",
        ] {
            assert!(unpack(bytes, 1 << 20).is_err(), "{bytes:?}");
        }
    }
}
