//! How many entries a zip says it has, before anything believes it.

use std::io::{self, Read, Seek, SeekFrom};

/// The end record that is not yet zip64's has 22 bytes and a comment of at most 64 KiB; before it
/// lies zip64's locator.
const TAIL: u64 = 22 + 0xffff + LOCATOR as u64;
const LOCATOR: usize = 20;
const LOCATOR_MAGIC: &[u8] = b"PK\x06\x07";
const RECORD_MAGIC: &[u8] = b"PK\x06\x06";
/// Of zip64's end record, what comes before its variable part.
const RECORD: usize = 56;

/// Whether any of zip64's end records that a locator near the end leads to says more than `most`.
/// (The older record's count has 16 bits.)
///
/// # Errors
/// A file that cannot be read.
pub(super) fn claims_too_many(file: &mut (impl Read + Seek), most: u32) -> io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    let from = length.saturating_sub(TAIL);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.by_ref().take(TAIL).read_to_end(&mut tail)?;
    let locators = tail
        .windows(LOCATOR)
        .filter(|it| it.starts_with(LOCATOR_MAGIC));
    let mut places: Vec<u64> = locators.filter_map(|it| number(it, 8)).collect();
    places.sort_unstable();
    places.dedup();
    for place in places.into_iter().filter(|place| *place < length) {
        let mut record = Vec::new();
        file.seek(SeekFrom::Start(place))?;
        file.by_ref().take(RECORD as u64).read_to_end(&mut record)?;
        let claimed = number(&record, 32).unwrap_or_default();
        if record.starts_with(RECORD_MAGIC) && claimed > u64::from(most) {
            return Ok(true);
        }
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(false)
}

/// Eight bytes at a place, the lowest first.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*field))
}
