//! The daemon's system ID, kept beside its configuration (GL-02, GL-67).

use std::io;
use std::path::Path;

/// The ID in the file; a missing or bad one is made anew and kept.
///
/// # Errors
/// The file can be neither read nor written, or the system gave no randomness.
pub(crate) fn read_or_make(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) if is_system_id(text.trim()) => return Ok(text.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let made = make()?;
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.write(true).create(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, made.as_bytes())?;
    file.sync_all()?;
    Ok(made)
}

fn is_system_id(text: &str) -> bool {
    let rest = text.strip_prefix("s_").or_else(|| text.strip_prefix("r_"));
    rest.is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn make() -> io::Result<String> {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = [0; 12];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no randomness"))?;
    let letters = bytes.iter().map(|byte| {
        let index = usize::from(*byte) % ALPHABET.len();
        char::from(ALPHABET.get(index).copied().unwrap_or(b'A'))
    });
    Ok(format!("r_{}", letters.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-02, GL-67
    #[test]
    fn an_id_is_kept_and_a_bad_one_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("id");
        let first = read_or_make(&path).unwrap();
        assert!(is_system_id(&first), "{first}");
        assert_eq!(read_or_make(&path).unwrap(), first);
        std::fs::write(&path, "s_0123456789ab\n").unwrap();
        assert_eq!(read_or_make(&path).unwrap(), "s_0123456789ab");
        for bad in ["x_0123456789ab", "s_012345678", "s_0123456789a-", ""] {
            std::fs::write(&path, bad).unwrap();
            let made = read_or_make(&path).unwrap();
            assert!(is_system_id(&made) && made != bad);
        }
    }
}
