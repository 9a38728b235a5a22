//! Parts of byte strings by the 64-bit numbers that offsets are.

/// At most `len` bytes from `from` on; fewer where there are no more.
pub(crate) fn part(bytes: &[u8], from: u64, len: u64) -> Vec<u8> {
    let size = bytes.len() as u64;
    let start = from.min(size);
    let end = start.saturating_add(len).min(size);
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    bytes
        .get(index(start)..index(end))
        .unwrap_or_default()
        .to_vec()
}
