//! Files that decide who is believed.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// Bytes of one at most.
const LARGEST: u64 = 65_536;

/// Reads one; `secret`: not everybody may read it.
///
/// # Errors
/// It cannot be read, or others than the hub's user and root decide what it holds; the text says
/// what to do.
pub(super) fn read(path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} does not exist: create it"),
        io::ErrorKind::PermissionDenied => {
            format!("{shown} cannot be read by this user: let the hub's user own it")
        }
        _ => format!("{shown} cannot be read: {error}"),
    };
    // A pipe in its place must not hold the hub.
    let about = std::fs::metadata(path).map_err(cannot)?;
    if !about.is_file() {
        return Err(format!("{shown} is no file: name one in PEM"));
    }
    let file = File::open(path).map_err(cannot)?;
    check(path, &file.metadata().map_err(cannot)?, secret)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!(
            "{shown} is larger than {LARGEST} bytes: it is no such file"
        ));
    }
    Ok(bytes)
}

fn check(path: &Path, about: &Metadata, secret: bool) -> Result<(), String> {
    let shown = path.display();
    let mode = about.mode() & 0o777;
    let own = geteuid().as_raw();
    if about.uid() != 0 && about.uid() != own {
        return Err(format!(
            "{shown} belongs to user {}, who could put another in its place: let the hub's user \
             own it",
            about.uid()
        ));
    }
    if mode & 0o022 != 0 {
        return Err(format!(
            "{shown} can be written by others (mode {mode:04o}): chmod go-w {shown}"
        ));
    }
    if secret && mode & 0o007 != 0 {
        return Err(format!(
            "{shown} can be read by everybody (mode {mode:04o}): chmod 0600 {shown}"
        ));
    }
    Ok(())
}
