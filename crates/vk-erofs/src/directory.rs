//! A directory's content: blocks of entries sorted bytewise, `.` and `..` among them.

use crate::disk::{BLOCK_LEN, DIRENT, FileType};

/// One entry to be written.
pub(crate) struct Name<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) nid: u64,
    pub(crate) file_type: FileType,
}

/// How many bytes a directory with these names has, names given in order.
pub(crate) fn size<'a>(names: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut full_blocks = 0;
    let mut used = 0;
    for name in names {
        let wanted = DIRENT + name.len();
        if used + wanted > BLOCK_LEN {
            full_blocks += 1;
            used = 0;
        }
        used += wanted;
    }
    full_blocks * BLOCK_LEN as u64 + used as u64
}

/// The content; all blocks but the last are filled up with zeros.
pub(crate) fn encode(names: &[Name<'_>], out: &mut Vec<u8>) {
    let mut rest = names;
    while !rest.is_empty() {
        let (block, others) = rest.split_at(block_len(rest));
        encode_block(block, out);
        rest = others;
        if !rest.is_empty() {
            out.resize(out.len().next_multiple_of(BLOCK_LEN), 0);
        }
    }
}

/// How many of these names go into one block.
fn block_len(names: &[Name<'_>]) -> usize {
    let mut used = 0;
    let fits = |name: &&Name<'_>| {
        used += DIRENT + name.name.len();
        used <= BLOCK_LEN
    };
    names.iter().take_while(fits).count()
}

// Offsets within a block are below 4096.
#[allow(clippy::cast_possible_truncation)]
fn encode_block(names: &[Name<'_>], out: &mut Vec<u8>) {
    let mut name_at = DIRENT * names.len();
    for name in names {
        out.extend_from_slice(&name.nid.to_le_bytes());
        out.extend_from_slice(&(name_at as u16).to_le_bytes());
        out.extend_from_slice(&[name.file_type as u8, 0]);
        name_at += name.name.len();
    }
    for name in names {
        out.extend_from_slice(name.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_foretold_is_the_size_written() {
        for count in [0usize, 1, 2, 14, 15, 16, 200, 5000] {
            for length in [1usize, 7, 100, 255] {
                let owned: Vec<Vec<u8>> = (0..count).map(|_| vec![b'n'; length]).collect();
                let names: Vec<Name<'_>> = owned
                    .iter()
                    .map(|name| Name {
                        name,
                        nid: 7,
                        file_type: FileType::Regular,
                    })
                    .collect();
                let mut out = Vec::new();
                encode(&names, &mut out);
                assert_eq!(out.len() as u64, size(owned.iter().map(Vec::as_slice)));
            }
        }
    }
}
