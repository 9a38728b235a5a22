//! Secrets in what was uploaded: in the file as it is, unpacked where it is gzip, and in each file
//! of a zip.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memchr::memmem;

use crate::gitlab::token::Secret;

/// Most unpacked bytes that are looked at; what is beyond is not.
const MAX_LOOKED: u64 = 1 << 30;
/// Bytes read at once.
const PART: usize = 64 << 10;

/// Names of the secrets whose value stands in a file.
///
/// # Errors
///
/// It cannot be read. One that is not what its name says is looked at as it is.
pub(super) fn secrets_in(path: &Path, secrets: &[(String, Secret)]) -> io::Result<Vec<String>> {
    let mut found = Found::new(secrets);
    let mut left = MAX_LOOKED;
    found.look(&mut File::open(path)?.take(left))?;
    let mut start = [0_u8; 2];
    let count = File::open(path)?.read(&mut start)?;
    match start.get(..count) {
        Some([0x1F, 0x8B]) => {
            let file = io::BufReader::new(File::open(path)?);
            let unpacked = flate2::read::MultiGzDecoder::new(file);
            // What breaks off was no gzip; its own bytes were looked at.
            let _ = found.look(&mut unpacked.take(left));
        }
        Some(b"PK") => {
            let Ok(mut archive) = zip::ZipArchive::new(io::BufReader::new(File::open(path)?))
            else {
                return Ok(found.names());
            };
            for at in 0..archive.len() {
                let Ok(entry) = archive.by_index(at) else {
                    continue;
                };
                let looked = found.look(&mut entry.take(left)).unwrap_or(0);
                left = left.saturating_sub(looked);
            }
        }
        _ => {}
    }
    Ok(found.names())
}

/// The secrets, and which of them were seen.
struct Found<'a> {
    secrets: &'a [(String, Secret)],
    seen: Vec<bool>,
    longest: usize,
}

impl<'a> Found<'a> {
    fn new(secrets: &'a [(String, Secret)]) -> Self {
        let lengths = secrets.iter().map(|(_, secret)| secret.expose().len());
        Self {
            secrets,
            seen: vec![false; secrets.len()],
            longest: lengths.max().unwrap_or(0),
        }
    }

    /// Looks through all that comes; how much that was. Parts overlap by the longest secret.
    fn look(&mut self, reader: &mut impl Read) -> io::Result<u64> {
        let mut window = Vec::with_capacity(PART + self.longest);
        let mut total = 0_u64;
        loop {
            let read = reader.by_ref().take(PART as u64).read_to_end(&mut window)?;
            if read == 0 {
                return Ok(total);
            }
            total += read as u64;
            for ((_, secret), seen) in self.secrets.iter().zip(&mut self.seen) {
                *seen = *seen || memmem::find(&window, secret.expose().as_bytes()).is_some();
            }
            let keep = window.len().saturating_sub(self.longest.saturating_sub(1));
            window.drain(..keep);
        }
    }

    fn names(&self) -> Vec<String> {
        let seen = self
            .secrets
            .iter()
            .zip(&self.seen)
            .filter(|(_, seen)| **seen);
        seen.map(|((name, _), _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn scan(bytes: &[u8]) -> Vec<String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let secrets = [
            ("ONE".to_owned(), Secret::new("s3cret-one")),
            ("TWO".to_owned(), Secret::new("s3cret-two")),
        ];
        secrets_in(file.path(), &secrets).unwrap()
    }

    fn zipped(text: &[u8]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file("a/first", options).unwrap();
        writer.write_all(b"nothing").unwrap();
        writer.start_file("b", options).unwrap();
        writer.write_all(text).unwrap();
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn a_secret_is_found_in_the_clear_in_gzip_and_in_a_zip() {
        let mut text = b"words and words ".repeat(20_000);
        text.extend_from_slice(b"s3cret-two");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&text).unwrap();
        for bytes in [text.clone(), gzip.finish().unwrap(), zipped(&text)] {
            assert_eq!(scan(&bytes), ["TWO"]);
        }
        assert!(scan(&zipped(b"clean")).is_empty());
        assert!(scan(b"PK is no zip, \x1f\x8b no gzip").is_empty());
    }

    #[test]
    fn a_secret_across_two_parts_is_found() {
        for before in PART - 10..=PART {
            let mut text = vec![b'x'; before];
            text.extend_from_slice(b"s3cret-one");
            assert_eq!(scan(&text), ["ONE"], "after {before} bytes");
        }
    }
}
