//! The socket in a job's directory. A socket's path has 107 bytes at most, a state directory may
//! lie deeper: both sides go through a descriptor of the directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

/// A short path to `name` in a directory, for as long as the file is kept.
pub(crate) fn short(directory: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(directory)?;
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    Ok((directory, path.into()))
}

/// Listens on `name` in a directory, in the place of a socket that was there.
pub(crate) fn listen(directory: &Path, name: &str) -> io::Result<UnixListener> {
    match std::fs::remove_file(directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_kept, path) = short(directory, name)?;
    UnixListener::bind(path)
}

/// Connects to `name` in a directory.
pub(crate) async fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let (_kept, path) = short(directory, name)?;
    UnixStream::connect(path).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_deep_directory_has_a_socket_too() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let listener = listen(&deep, "job.sock").unwrap();
        connect(&deep, "job.sock").await.unwrap();
        drop(listener);
        assert!(connect(&deep, "job.sock").await.is_err());
        listen(&deep, "job.sock").unwrap();
    }
}
