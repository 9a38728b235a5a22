//! What stands in a repository for a large file.

/// The first line of every pointer.
const VERSION: &str = "version https://git-lfs.github.com/spec/v1";

/// A file by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// SHA-256, 64 digits.
    pub(super) oid: String,
    /// Bytes.
    pub(super) size: u64,
}

impl Pointer {
    /// Reads a pointer; none where a file is none.
    pub(super) fn read(text: &[u8]) -> Option<Pointer> {
        let text = std::str::from_utf8(text).ok()?;
        let mut lines = text.lines();
        if lines.next() != Some(VERSION) {
            return None;
        }
        let (mut oid, mut size) = (None, None);
        for line in lines {
            match line.split_once(' ')? {
                ("oid", value) => oid = value.strip_prefix("sha256:"),
                ("size", value) => size = value.parse().ok(),
                _ => {}
            }
        }
        let oid = oid.filter(|oid| is_oid(oid))?.to_owned();
        Some(Pointer { oid, size: size? })
    }
}

fn is_oid(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_read_and_nothing_else_is_one() {
        let oid = "ab".repeat(32);
        let text = format!("{VERSION}\noid sha256:{oid}\nsize 12345\n");
        let expected = Pointer { oid, size: 12345 };
        assert_eq!(Pointer::read(text.as_bytes()), Some(expected.clone()));
        let more = text.replace("oid", "ext-0-foo sha256:00\noid");
        assert_eq!(Pointer::read(more.as_bytes()), Some(expected));
        for bad in [
            String::new(),
            text.replace("spec/v1", "spec/v9"),
            text.replace("ab", "AB"),
            text.replace("ab", "/."),
            text.replace("12345", "-1"),
            text.replace("sha256", "md5"),
            text.replace("oid sha256:ab", "oid sha256:../ab"),
            format!("x{text}"),
        ] {
            assert_eq!(Pointer::read(bad.as_bytes()), None, "{bad}");
        }
    }
}
