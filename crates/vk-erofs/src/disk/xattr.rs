//! Extended attributes beside their inode.

use std::collections::BTreeMap;

/// Bytes before the attributes: name filter, shared count, reserved.
pub(crate) const HEADER: u64 = HEADER_LEN as u64;
pub(crate) const HEADER_LEN: usize = 12;
const ENTRY: usize = 4;

/// A value's bytes at most: the entry has 16 bits for them.
pub(crate) const VALUE_MAX: usize = u16::MAX as usize;

/// Name spaces that EROFS knows, and how it writes them.
const PREFIXES: [(&[u8], u8); 5] = [
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// The name space's index and the rest of the name; `None` where EROFS has no place for the name.
pub(crate) fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(prefix, index)| {
        let rest = name.strip_prefix(*prefix)?;
        let whole = !prefix.ends_with(b".");
        (whole == rest.is_empty()).then_some((*index, rest))
    })
}

/// Bytes of all attributes with their header, as a multiple of 4; 0 for none.
pub(crate) fn body_bytes(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    let entries: u64 = xattrs
        .iter()
        .filter_map(|(name, value)| {
            let (_, rest) = split(name)?;
            Some(((ENTRY + rest.len() + value.len()) as u64).next_multiple_of(4))
        })
        .sum();
    if entries == 0 { 0 } else { HEADER + entries }
}

// Name and value lengths are checked when an attribute enters the tree.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn encode(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>, out: &mut Vec<u8>) {
    if body_bytes(xattrs) == 0 {
        return;
    }
    out.extend_from_slice(&[0; HEADER_LEN]);
    for (name, value) in xattrs {
        let Some((index, rest)) = split(name) else {
            continue;
        };
        out.extend_from_slice(&[rest.len() as u8, index]);
        out.extend_from_slice(&(value.len() as u16).to_le_bytes());
        out.extend_from_slice(rest);
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// The first attribute and what follows it; `None` at the end, or where nothing can be read.
#[allow(clippy::type_complexity)]
pub(crate) fn decode(bytes: &[u8]) -> Option<((Vec<u8>, Vec<u8>), &[u8])> {
    let (head, _) = bytes.split_at_checked(ENTRY)?;
    let &[name_length, index, low, high] = head else {
        return None;
    };
    let (prefix, _) = PREFIXES.iter().find(|(_, known)| *known == index)?;
    let name_end = ENTRY + usize::from(name_length);
    let value_end = name_end + usize::from(u16::from_le_bytes([low, high]));
    let name = [prefix, bytes.get(ENTRY..name_end)?].concat();
    let value = bytes.get(name_end..value_end)?.to_vec();
    Some((
        (name, value),
        bytes
            .get(value_end.next_multiple_of(4)..)
            .unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_spaces_of_the_format_are_split() {
        assert_eq!(split(b"user.x"), Some((1, &b"x"[..])));
        assert_eq!(split(b"security.capability"), Some((6, &b"capability"[..])));
        assert_eq!(split(b"system.posix_acl_access"), Some((2, &b""[..])));
        assert_eq!(split(b"system.posix_acl_access2"), None);
        assert_eq!(split(b"user."), None);
        assert_eq!(split(b"com.apple.quarantine"), None);
    }
}
