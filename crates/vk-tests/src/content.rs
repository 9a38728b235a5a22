//! What a file holds, as one digest, at a price that follows its data and not its size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::inode::hex;

/// Files above this size are hashed by their blocks that hold anything.
pub const WHOLE_MAX: u64 = 1 << 30;

/// What is read at once.
const PIECE: usize = 1 << 20;
/// A block that holds zeros alone is as good as a hole.
const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The digest of a file of `size` bytes: `sha256:` and the SHA-256 of its content, or, of a file
/// above `whole_max` bytes, `blocks-sha256:` and the SHA-256 of every 4 KiB block that holds anything
/// but zeros, each behind its offset (8 bytes, little-endian): as good a proof, at the price of reading
/// and not of hashing. Holes are not read where a file system tells them (`SEEK_DATA`), and which of
/// them it tells makes no difference; EROFS of Linux 6.1 tells none.
///
/// # Errors
/// A file that cannot be read, or ends before `size`.
pub fn digest(file: &File, size: u64, whole_max: u64) -> io::Result<String> {
    let mut context = Context::new(&SHA256);
    if size <= whole_max {
        read(file, 0, size, |_, bytes| context.update(bytes))?;
        return Ok(format!("sha256:{}", hex(context.finish().as_ref())));
    }
    let mut end = 0;
    while let Some(start) = seek_to(file, SeekFrom::Data(end))? {
        end = seek_to(file, SeekFrom::Hole(start))?.unwrap_or(size);
        // Blocks are counted from the file's start, wherever an extent begins.
        let from = start - start % BLOCK as u64;
        let to = end.next_multiple_of(BLOCK as u64).min(size);
        read(file, from, to, |at, bytes| blocks(&mut context, at, bytes))?;
        end = to;
    }
    Ok(format!("blocks-sha256:{}", hex(context.finish().as_ref())))
}

fn blocks(context: &mut Context, at: u64, bytes: &[u8]) {
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        if !ZEROS.starts_with(block) {
            context.update(&(at + (index * BLOCK) as u64).to_le_bytes());
            context.update(block);
        }
    }
}

/// The next data or hole; `None` behind the last.
fn seek_to(file: &File, position: SeekFrom) -> io::Result<Option<u64>> {
    match seek(file, position) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn read(file: &File, from: u64, to: u64, mut take: impl FnMut(u64, &[u8])) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut at = from;
    while at < to {
        let length = usize::try_from(to - at).unwrap_or(PIECE).min(PIECE);
        let piece = buffer.get_mut(..length).unwrap_or_default();
        file.read_exact_at(piece, at)?;
        take(at, piece);
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn file(size: u64, pieces: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for (at, bytes) in pieces {
            file.write_all_at(bytes, *at).unwrap();
        }
        file
    }

    #[test]
    fn a_small_file_is_hashed_whole() {
        assert_eq!(digest(&file(3, &[(0, b"abc")]), 3, 100).unwrap(), ABC);
    }

    #[test]
    fn a_file_that_is_shorter_than_it_says_is_an_error() {
        assert!(digest(&file(3, &[]), 4, 100).is_err());
    }

    #[test]
    fn of_a_large_file_every_byte_and_its_place_count_and_holes_do_not() {
        let size = 64 << 20;
        let of = |pieces: &[(u64, &[u8])]| digest(&file(size, pieces), size, 0).unwrap();
        let pieces: [(u64, &[u8]); 3] = [(0, b"a"), (20_000_000, b"b"), (size - 1, b"c")];
        let whole = of(&pieces);
        assert!(whole.starts_with("blocks-sha256:"));
        // Zeros that are written down are no holes to the file system.
        let zeros = vec![0; 1 << 20];
        let written = of(&[
            (0, b"a"),
            (20_000_000, b"b"),
            (40_000_000, &zeros),
            pieces[2],
        ]);
        assert_eq!(written, whole);
        for moved in [
            [(1, &b"a"[..]), pieces[1], pieces[2]],
            [pieces[0], (20_004_096, b"b"), pieces[2]],
            [pieces[0], pieces[1], (size - 1, b"d")],
        ] {
            assert_ne!(of(&moved), whole);
        }
        assert_ne!(of(&pieces[..2]), whole);
    }
}
