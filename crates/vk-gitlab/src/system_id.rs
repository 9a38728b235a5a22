//! The daemon's system ID, kept beside its configuration (GL-02, GL-67).
//!
//! It goes by the machine: where there is a machine ID, it is derived from it, and the file says from
//! which. A file that came here with a copied disk would make two daemons one to GitLab, so it is made
//! anew. A file that says nothing of a machine was written by somebody else and is left alone.

use std::io;
use std::path::Path;

use aws_lc_rs::hmac;

/// Where systemd keeps a machine's ID.
const MACHINE_ID: &str = "/etc/machine-id";

/// The ID in the file; a missing or bad one, or another machine's, is made anew and kept.
///
/// # Errors
/// The file can be neither read nor written, or the system gave no randomness.
pub(crate) fn read_or_make(path: &Path) -> io::Result<String> {
    let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    read_or_make_on(path, machine.trim())
}

/// The same on a machine with this ID; none where it is empty.
fn read_or_make_on(path: &Path, machine: &str) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let mut lines = text.lines().map(str::trim);
            let id = lines.next().unwrap_or_default();
            let others = lines.find_map(|line| line.strip_prefix("machine "));
            let ours = others.is_none_or(|theirs| theirs == derived(machine, "machine"));
            if is_system_id(id) && ours {
                return Ok(id.to_owned());
            }
            if !ours {
                tracing::warn!(path = %path.display(), "the system ID is another machine's: a new one is made");
            }
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let (made, text) = match machine {
        "" => {
            let made = format!("r_{}", random()?);
            (made.clone(), format!("{made}\n"))
        }
        machine => {
            let made = format!("s_{}", derived(machine, "system ID"));
            let text = format!("{made}\nmachine {}\n", derived(machine, "machine"));
            (made, text)
        }
    };
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.write(true).create(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()?;
    Ok(made)
}

fn is_system_id(text: &str) -> bool {
    let rest = text.strip_prefix("s_").or_else(|| text.strip_prefix("r_"));
    rest.is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Twelve digits that go by the machine and do not tell its ID, which is not for strangers.
fn derived(machine: &str, what: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, machine.as_bytes());
    let tag = hmac::sign(&key, format!("vk-gitlab {what}").as_bytes());
    let six = tag.as_ref().get(..6).unwrap_or_default();
    six.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random() -> io::Result<String> {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = [0; 12];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no randomness"))?;
    let letters = bytes.iter().map(|byte| {
        let index = usize::from(*byte) % ALPHABET.len();
        char::from(ALPHABET.get(index).copied().unwrap_or(b'A'))
    });
    Ok(letters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "0123456789abcdef0123456789abcdef";
    const THERE: &str = "fedcba9876543210fedcba9876543210";

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
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    /// GL-67
    #[test]
    fn an_id_goes_by_the_machine_and_does_not_move_with_a_copied_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("id");
        let here = read_or_make_on(&path, HERE).unwrap();
        assert!(here.starts_with("s_") && is_system_id(&here), "{here}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&HERE[..12]), "the machine's ID is not told");
        assert_eq!(read_or_make_on(&path, HERE).unwrap(), here);
        let there = read_or_make_on(&path, THERE).unwrap();
        assert_ne!(there, here);
        assert_eq!(read_or_make_on(&path, THERE).unwrap(), there);
        assert_eq!(read_or_make_on(&path, HERE).unwrap(), here, "and back");
    }

    /// GL-67
    #[test]
    fn without_a_machines_id_it_is_drawn_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("id");
        let drawn = read_or_make_on(&path, "").unwrap();
        assert!(drawn.starts_with("r_") && is_system_id(&drawn), "{drawn}");
        assert_eq!(read_or_make_on(&path, "").unwrap(), drawn);
        assert_eq!(read_or_make_on(&path, HERE).unwrap(), drawn);
    }
}
