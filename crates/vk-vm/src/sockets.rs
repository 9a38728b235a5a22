//! Unix sockets at paths of any length.
//!
//! A socket's path is at most 107 bytes, and a job's directory may be longer; below an open
//! directory the path is always short.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// Listens at `path`.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let (_open, short) = shorten(path)?;
    UnixListener::bind(short)
}

/// Connects to the socket at `path`.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_open, short) = shorten(path)?;
    UnixStream::connect(short).await
}

/// The path as seen from its directory, for as long as that is open.
fn shorten(path: &Path) -> io::Result<(File, PathBuf)> {
    let none = || io::Error::new(io::ErrorKind::InvalidInput, "not the path of a socket");
    let name = path.file_name().ok_or_else(none)?;
    let open = File::open(path.parent().ok_or_else(none)?)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())).join(name);
    Ok((open, short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_longer_than_a_socket_takes_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("socket");
        let listener = listen(&path).unwrap();
        let (connected, accepted) = tokio::join!(connect(&path), listener.accept());
        connected.unwrap();
        accepted.unwrap();
    }
}
