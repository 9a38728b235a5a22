//! Words that a shell reads back byte for byte.

/// One word for bash, in its ANSI-C form where it needs one.
pub(super) fn ansi_c(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return b"''".to_vec();
    }
    if bytes.iter().all(|byte| is_plain(*byte)) {
        return bytes.to_vec();
    }
    let mut word = Vec::with_capacity(bytes.len() + bytes.len() / 4 + 3);
    word.extend_from_slice(b"$'");
    for byte in bytes {
        match byte {
            0x07 => word.extend_from_slice(b"\\a"),
            0x08 => word.extend_from_slice(b"\\b"),
            b'\t' => word.extend_from_slice(b"\\t"),
            b'\n' => word.extend_from_slice(b"\\n"),
            0x0b => word.extend_from_slice(b"\\v"),
            0x0c => word.extend_from_slice(b"\\f"),
            b'\r' => word.extend_from_slice(b"\\r"),
            b'\'' | b'\\' => word.extend_from_slice(&[b'\\', *byte]),
            0x20..=0x7e => word.push(*byte),
            _ => word.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    word.push(b'\'');
    word
}

/// One word for any shell: single quotes.
pub(super) fn single(bytes: &[u8]) -> Vec<u8> {
    if !bytes.is_empty() && bytes.iter().all(|byte| is_plain(*byte)) {
        return bytes.to_vec();
    }
    let mut word = Vec::with_capacity(bytes.len() + 2);
    word.push(b'\'');
    for byte in bytes {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            _ => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

/// The inside of double quotes.
pub(super) fn double(bytes: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if matches!(byte, b'"' | b'\\' | b'$' | b'`') {
            word.push(b'\\');
        }
        word.push(*byte);
    }
    word
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b',' | b'.' | b'/' | b'@' | b'_' | b'-')
}
