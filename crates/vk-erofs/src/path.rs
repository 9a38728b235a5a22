//! Paths of archives, brought inside the root.

use crate::error::Fault;
use crate::limits::NAME_MAX;

/// The components of `path` as seen from the root: `.` and empty ones left out, `..` taken back by
/// one and never above the root, as container runtimes do it.
pub(crate) fn components(path: &[u8], path_bytes: usize) -> Result<Vec<&[u8]>, Fault> {
    if path.len() > path_bytes {
        return Err(Fault::PathTooLong);
    }
    if path.contains(&0) {
        return Err(Fault::Name);
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            name if name.len() > NAME_MAX => return Err(Fault::NameTooLong),
            name => parts.push(name),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(path: &str) -> String {
        let parts = components(path.as_bytes(), 4095).unwrap();
        parts
            .iter()
            .map(|p| String::from_utf8_lossy(p))
            .collect::<Vec<_>>()
            .join("/")
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        assert_eq!(joined("/etc/passwd"), "etc/passwd");
        assert_eq!(joined("./a//b/."), "a/b");
        assert_eq!(joined("../../../etc/passwd"), "etc/passwd");
        assert_eq!(joined("a/../../b"), "b");
        assert_eq!(joined("/"), "");
        assert_eq!(joined("a/b/.."), "a");
    }

    #[test]
    fn names_and_paths_are_bounded() {
        let name = vec![b'n'; 255];
        assert_eq!(components(&name, 4095).unwrap(), vec![&name[..]]);
        assert_eq!(components(&[b'n'; 256], 4095), Err(Fault::NameTooLong));
        assert_eq!(components(&vec![b'/'; 4096], 4095), Err(Fault::PathTooLong));
        assert_eq!(components(b"a\0b", 4095), Err(Fault::Name));
    }
}
