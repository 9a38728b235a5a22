//! A kernel module without what costs a guest time at every boot and is of no use to it: the signature
//! at its end, which a kernel that does not insist on it checks all the same, and the sections that are
//! [`UNUSED`] in it. Under emulation all of it together is two fifths of the time that loading takes.
//!
//! That a module is the one that was packed is the bundle's to know, by its manifest.

/// What ends a signed module.
const SIGNED: &[u8] = b"~Module signature appended~\n";
/// The record before it; the signature's length is its last field, big-endian.
const RECORD: usize = 12;
const ELF_64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
/// Sections that a kernel works on for each module and that a guest does not miss: types (BTF), which
/// are checked; tables to unwind stacks by, of which each entry is relocated and sorted; and the
/// descriptions of events to trace. The places of indirect calls and of returns are not among them,
/// though each is decoded: by them a kernel puts in what its processor needs against speculation.
const UNUSED: [&[u8]; 4] = [
    b".BTF\0",
    b".orc_unwind\0",
    b".orc_unwind_ip\0",
    b"_ftrace_events\0",
];
/// The letter of such a name that is written in the other case, which makes it one that no kernel looks
/// for. That it is not in memory does not suffice: some are looked for among all.
const LETTER: usize = 1;
const OTHER_CASE: u8 = b'a' ^ b'A';
/// Where a section's header has its flags, and the one of them that says that it is in memory. A kernel
/// passes over the relocations of a section without it.
const FLAGS: usize = 0x08;
const ALLOC: u8 = 2;

/// The module as guests get it; one that is not understood is left as it is.
pub(super) fn lean(mut module: Vec<u8>) -> Vec<u8> {
    let Some(length) = without_signature(&module) else {
        return module;
    };
    module.truncate(length);
    for Unused { header, letter, of } in unused(&module).unwrap_or_default() {
        if let Some(letter) = module.get_mut(letter) {
            *letter = of ^ OTHER_CASE;
        }
        if let Some(flags) = module.get_mut(header + FLAGS) {
            *flags &= !ALLOC;
        }
    }
    module
}

/// How long a signed module is without its signature. Of one that has none nothing is changed: its
/// kernel may be one that was told to take no module that differs.
fn without_signature(module: &[u8]) -> Option<usize> {
    let rest = module.strip_suffix(SIGNED)?;
    let record = rest.len().checked_sub(RECORD)?;
    let (_, length) = rest.get(record..)?.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    record.checked_sub(length)
}

/// A section that is [`UNUSED`]: where its header and its name's [`LETTER`] stand, and which that is.
struct Unused {
    header: usize,
    letter: usize,
    of: u8,
}

/// Those of an ELF file that is whole.
fn unused(module: &[u8]) -> Option<Vec<Unused>> {
    if !module.starts_with(ELF_64_LITTLE_ENDIAN) {
        return None;
    }
    let first = number::<8>(module, 0x28)?;
    let size = number::<2>(module, 0x3a)?;
    let count = number::<2>(module, 0x3c)?;
    let names = number::<2>(module, 0x3e)?;
    let header = |index: usize| first.checked_add(index.checked_mul(size)?);
    let names = number::<8>(module, header(names)?.checked_add(0x18)?)?;
    let mut found = Vec::new();
    for index in 0..count {
        let header = header(index)?;
        let name = names.checked_add(number::<4>(module, header)?)?;
        let is = module.get(name..)?;
        if let Some(unused) = UNUSED.iter().find(|unused| is.starts_with(unused)) {
            found.push(Unused {
                header,
                letter: name + LETTER,
                of: *unused.get(LETTER)?,
            });
        }
    }
    Some(found)
}

/// A little-endian number of `N` bytes, at most 8.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(N)?)?;
    let number = field
        .iter()
        .rev()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in memory of a module's sections: in the order of [`module`].
    const FIVE: [u8; 5] = [ALLOC | 4, 0, ALLOC, ALLOC, 0];

    /// A module with the sections `.text`, `.BTF`, `.orc_unwind_ip`, `.rodata` and the names' own.
    fn module(flags: [u8; 5]) -> Vec<u8> {
        let mut module = ELF_64_LITTLE_ENDIAN.to_vec();
        module.resize(0x40, 0);
        let names = module.len();
        // As linkers write it: one name is the end of another.
        module.extend_from_slice(b"\0.text\0.BTF\0.rela.orc_unwind_ip\0.rodata\0.shstrtab\0");
        let sections = module.len();
        let all = [(1_u32, 0), (7, 0), (17, 0), (32, 0), (40, names)];
        for ((name, offset), flags) in all.into_iter().zip(flags) {
            let mut section = vec![0; 0x40];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[FLAGS] = flags;
            section[0x18..0x20].copy_from_slice(&u64::try_from(offset).unwrap().to_le_bytes());
            module.extend_from_slice(&section);
        }
        module[0x28..0x30].copy_from_slice(&u64::try_from(sections).unwrap().to_le_bytes());
        module[0x3a..0x40].copy_from_slice(&[0x40, 0, 5, 0, 4, 0]);
        module
    }

    fn signed(mut module: Vec<u8>, length: u32) -> Vec<u8> {
        module.extend_from_slice(b"a signature");
        module.extend_from_slice(&[0; 8]);
        module.extend_from_slice(&length.to_be_bytes());
        module.extend_from_slice(SIGNED);
        module
    }

    #[test]
    fn a_signed_module_loses_its_signature_and_what_is_unused() {
        let lean = lean(signed(module(FIVE), 11));
        let mut expected = module([ALLOC | 4, 0, 0, ALLOC, 0]);
        for (name, unknown) in [(".BTF", ".bTF"), (".orc_unwind_ip", ".Orc_unwind_ip")] {
            let name = name.as_bytes();
            let at = expected.windows(name.len()).position(|at| at == name);
            let at = at.unwrap();
            expected[at..at + name.len()].copy_from_slice(unknown.as_bytes());
        }
        assert_eq!(lean, expected);
    }

    #[test]
    fn a_module_that_is_not_signed_or_not_understood_is_left_as_it_is() {
        assert_eq!(lean(module(FIVE)), module(FIVE));
        let lying = signed(module(FIVE), u32::MAX);
        assert_eq!(lean(lying.clone()), lying);
        let short = signed(Vec::new(), 11);
        assert_eq!(lean(short), Vec::<u8>::new());
        for end in 0..module(FIVE).len() {
            let cut = module(FIVE)[..end].to_vec();
            assert_eq!(lean(signed(cut, 11)).len(), end);
        }
    }
}
