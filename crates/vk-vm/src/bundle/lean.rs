//! A kernel module without what costs a guest time at every boot and is of no use to it: the signature
//! at its end, which a kernel that does not insist on it checks all the same, and the name of its type
//! information (BTF), by which a kernel finds and checks that. Under emulation both together are a third
//! of the time that loading takes.
//!
//! That a module is the one that was packed is the bundle's to know, by its manifest.

/// What ends a signed module.
const SIGNED: &[u8] = b"~Module signature appended~\n";
/// The record before it; the signature's length is its last field, big-endian.
const RECORD: usize = 12;
const ELF_64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
/// The name of the section of type information, and one that means nothing to a kernel.
const BTF: &[u8] = b".BTF\0";
const UNKNOWN: &[u8] = b".btf\0";

/// The module as guests get it; one that is not understood is left as it is.
pub(super) fn lean(mut module: Vec<u8>) -> Vec<u8> {
    if let Some(length) = without_signature(&module) {
        module.truncate(length);
        if let Some(at) = name_of_btf(&module)
            && let Some(name) = module.get_mut(at..at + BTF.len())
        {
            name.copy_from_slice(UNKNOWN);
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

/// Where the name of the section of type information stands.
fn name_of_btf(module: &[u8]) -> Option<usize> {
    if !module.starts_with(ELF_64_LITTLE_ENDIAN) {
        return None;
    }
    let sections = number::<8>(module, 0x28)?;
    let size = number::<2>(module, 0x3a)?;
    let count = number::<2>(module, 0x3c)?;
    let names = number::<2>(module, 0x3e)?;
    let section = |index: usize| sections.checked_add(index.checked_mul(size)?);
    let names = number::<8>(module, section(names)?.checked_add(0x18)?)?;
    (0..count).find_map(|index| {
        let name = number::<4>(module, section(index)?)?;
        let at = names.checked_add(name)?;
        module.get(at..)?.starts_with(BTF).then_some(at)
    })
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

    /// A module with two sections, named `.text` and `.BTF`.
    fn module() -> Vec<u8> {
        let mut module = ELF_64_LITTLE_ENDIAN.to_vec();
        module.resize(0x40, 0);
        let names = module.len();
        module.extend_from_slice(b"\0.text\0.BTF\0.shstrtab\0");
        let sections = module.len();
        for (name, offset) in [(1_u32, 0), (7, 0), (12, names)] {
            let mut section = vec![0; 0x40];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[0x18..0x20].copy_from_slice(&u64::try_from(offset).unwrap().to_le_bytes());
            module.extend_from_slice(&section);
        }
        module[0x28..0x30].copy_from_slice(&u64::try_from(sections).unwrap().to_le_bytes());
        module[0x3a..0x40].copy_from_slice(&[0x40, 0, 3, 0, 2, 0]);
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
    fn a_signed_module_loses_its_signature_and_the_name_of_its_types() {
        let lean = lean(signed(module(), 11));
        let mut expected = module();
        let at = expected.windows(5).position(|at| at == BTF).unwrap();
        expected[at..at + 5].copy_from_slice(UNKNOWN);
        assert_eq!(lean, expected);
    }

    #[test]
    fn a_module_that_is_not_signed_or_not_understood_is_left_as_it_is() {
        assert_eq!(lean(module()), module());
        let lying = signed(module(), u32::MAX);
        assert_eq!(lean(lying.clone()), lying);
        let short = signed(Vec::new(), 11);
        assert_eq!(lean(short), Vec::<u8>::new());
        for end in 0..module().len() {
            let cut = module()[..end].to_vec();
            assert_eq!(lean(signed(cut, 11)).len(), end);
        }
    }
}
