//! The little of ELF that is asked here: where a program's segments are, and two questions on them.

/// The note by which a kernel says where PVH enters it (XEN_ELFNOTE_PHYS32_ENTRY).
const PVH_ENTRY_NOTE: u32 = 18;
const SEGMENT_INTERPRETER: u32 = 3;
const SEGMENT_NOTE: u32 = 4;

/// Whether these are the first bytes of a 64-bit little-endian ELF file.
pub(crate) fn is_elf(bytes: &[u8]) -> bool {
    bytes.get(..6) == Some(b"\x7fELF\x02\x01")
}

/// The program interpreter (dynamic linker) an ELF file asks for; `None` when it is static.
pub(crate) fn interpreter(elf: &[u8]) -> Option<&str> {
    let path = segments(elf, SEGMENT_INTERPRETER).next()?;
    std::str::from_utf8(path.strip_suffix(b"\0")?).ok()
}

/// The file without what no segment needs to run: section names, symbols, debugging information.
///
/// Those lie behind everything that is loaded. A file of another make is given back as it is.
pub(crate) fn without_sections(elf: &[u8]) -> Vec<u8> {
    let mut out = elf.to_vec();
    let Some((table, size, count)) = program_headers(elf).filter(|_| is_elf(elf)) else {
        return out;
    };
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    let segment_end = |index: usize| {
        let at = header(index)?;
        let start = u64_at(elf, at.checked_add(8)?)?;
        usize::try_from(start.checked_add(u64_at(elf, at.checked_add(32)?)?)?).ok()
    };
    let ends: Option<Vec<usize>> = (0..count).map(segment_end).collect();
    let needed = ends.and_then(|ends| ends.into_iter().chain(header(count)).max());
    if let Some(length) = needed.filter(|length| (0x40..=elf.len()).contains(length)) {
        out.truncate(length);
        // Where the section headers were (8 bytes at 0x28), how large, how many, which names them.
        for range in [0x28..0x30, 0x3a..0x40] {
            out.get_mut(range)
                .into_iter()
                .flatten()
                .for_each(|byte| *byte = 0);
        }
    }
    out
}

/// Whether an ELF file carries the note that says where PVH enters it.
pub(crate) fn has_pvh_entry(elf: &[u8]) -> bool {
    segments(elf, SEGMENT_NOTE).any(notes_name_pvh)
}

/// The contents of all segments of a kind that lie inside the file.
fn segments(elf: &[u8], kind: u32) -> impl Iterator<Item = &[u8]> {
    let table = if is_elf(elf) {
        program_headers(elf)
    } else {
        None
    };
    let (start, size, count) = table.unwrap_or((0, 0, 0));
    (0..count)
        .filter_map(move |index| start.checked_add(index.checked_mul(size)?))
        .filter(move |at| u32_at(elf, *at) == Some(kind))
        .filter_map(|at| segment(elf, at))
}

/// Where the table of program headers starts, how large each is, how many there are.
fn program_headers(elf: &[u8]) -> Option<(usize, usize, usize)> {
    let start = usize::try_from(u64_at(elf, 0x20)?).ok()?;
    Some((
        start,
        usize::from(u16_at(elf, 0x36)?),
        usize::from(u16_at(elf, 0x38)?),
    ))
}

fn segment(elf: &[u8], header: usize) -> Option<&[u8]> {
    let start = usize::try_from(u64_at(elf, header.checked_add(8)?)?).ok()?;
    let length = usize::try_from(u64_at(elf, header.checked_add(32)?)?).ok()?;
    elf.get(start..start.checked_add(length)?)
}

fn notes_name_pvh(mut notes: &[u8]) -> bool {
    let mut next = || {
        let name = usize::try_from(u32_at(notes, 0)?).ok()?;
        let content = usize::try_from(u32_at(notes, 4)?).ok()?;
        let kind = u32_at(notes, 8)?;
        let owner = notes.get(12..12_usize.checked_add(name)?)?;
        let found = kind == PVH_ENTRY_NOTE && owner == b"Xen\0";
        let whole = 12_usize
            .checked_add(name.checked_next_multiple_of(4)?)?
            .checked_add(content.checked_next_multiple_of(4)?)?;
        notes = notes.get(whole..)?;
        Some(found)
    };
    while let Some(found) = next() {
        if found {
            return true;
        }
    }
    false
}

/// A little-endian number at an offset; `None` past the end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_le_bytes(*b))
}

/// As [`u16_at`].
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

/// A 64-bit ELF file of one segment of this kind and content.
#[cfg(test)]
pub(crate) fn with_segment(kind: u32, content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 0x40 + 56];
    let start = u64::try_from(out.len()).unwrap();
    out[..6].copy_from_slice(b"\x7fELF\x02\x01");
    out[0x20..0x28].copy_from_slice(&0x40_u64.to_le_bytes());
    out[0x36..0x38].copy_from_slice(&56_u16.to_le_bytes());
    out[0x38..0x3a].copy_from_slice(&1_u16.to_le_bytes());
    out[0x40..0x44].copy_from_slice(&kind.to_le_bytes());
    out[0x48..0x50].copy_from_slice(&start.to_le_bytes());
    out[0x60..0x68].copy_from_slice(&u64::try_from(content.len()).unwrap().to_le_bytes());
    out.extend_from_slice(content);
    out
}

/// A 64-bit ELF file whose one note has this owner and type.
#[cfg(test)]
pub(crate) fn with_note(owner: &[u8; 4], kind: u32) -> Vec<u8> {
    let mut note: Vec<u8> = [4, 8, kind]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    note.extend_from_slice(owner);
    note.extend_from_slice(&0x100_0000_u64.to_le_bytes());
    with_segment(SEGMENT_NOTE, &note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_xen_note_of_type_18_is_a_pvh_entry() {
        assert!(has_pvh_entry(&with_note(b"Xen\0", 18)));
        assert!(!has_pvh_entry(&with_note(b"Xen\0", 17)));
        assert!(!has_pvh_entry(&with_note(b"GNU\0", 18)));
    }

    #[test]
    fn a_static_program_has_no_interpreter() {
        let dynamic = with_segment(SEGMENT_INTERPRETER, b"/lib64/ld-linux-x86-64.so.2\0");
        assert_eq!(interpreter(&dynamic), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(interpreter(&with_note(b"GNU\0", 3)), None);
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn what_lies_behind_the_segments_is_cut_off_and_the_rest_still_reads() {
        let kept = with_segment(SEGMENT_INTERPRETER, b"/lib64/ld.so\0");
        let mut with_sections = kept.clone();
        with_sections.extend_from_slice(b"symbols and sections");
        with_sections[0x28] = 7;
        with_sections[0x3c] = 9;
        let cut = without_sections(&with_sections);
        assert_eq!(cut, kept);
        assert_eq!(interpreter(&cut), Some("/lib64/ld.so"));
        assert_eq!(without_sections(b"#!/bin/sh"), b"#!/bin/sh");
    }

    proptest::proptest! {
        #[test]
        fn a_file_broken_anywhere_never_panics(
            mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512),
            whole in proptest::prelude::any::<bool>(),
        ) {
            if whole && bytes.len() > 6 {
                bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            }
            let _ = (has_pvh_entry(&bytes), interpreter(&bytes), without_sections(&bytes));
        }
    }
}
