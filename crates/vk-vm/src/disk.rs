//! The job's writable disk: a sparse file with an empty ext4, made without any right.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::programs::find;

/// Making a file system takes milliseconds; this long means that the disk does not answer.
const MAKING: Duration = Duration::from_secs(60);
/// A file system smaller than this is of no use to a job.
pub const SCRATCH_MIN: u64 = 16 << 20;

/// No journal, for nothing outlives a crash; block groups left unwritten until they are used, which
/// needs their checksums; and what every ext4 has.
const FEATURES: &str = "none,dir_index,dir_nlink,ext_attr,extent,extra_isize,filetype,flex_bg,\
                        huge_file,large_file,sparse_super,uninit_bg,64bit";

/// Why a disk could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// `mke2fs` is nowhere.
    #[error("mke2fs is not installed (package e2fsprogs), and a job's disk needs it")]
    NoProgram,
    /// A size no file system fits in.
    #[error("a disk of {0} bytes is too small: at least {SCRATCH_MIN}")]
    TooSmall(u64),
    /// The file could not be made.
    #[error("cannot make the disk {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `mke2fs` failed.
    #[error("mke2fs cannot make a file system in {path}: {why}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What it said.
        why: String,
    },
}

impl DiskError {
    /// Whether another try may end better.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Format { .. })
    }
}

/// Makes a writable disk of `bytes` at the new file `path`: sparse, ext4 without a journal.
///
/// It does not outlive its job, so nothing ever syncs it.
///
/// # Errors
/// Any [`DiskError`]; the file is then removed.
pub async fn create_scratch(path: &Path, bytes: u64) -> Result<(), DiskError> {
    if bytes < SCRATCH_MIN {
        return Err(DiskError::TooSmall(bytes));
    }
    let program = find("mke2fs").ok_or(DiskError::NoProgram)?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|file| file.set_len(bytes))
        .map_err(|source| DiskError::File {
            path: path.to_owned(),
            source,
        })?;
    let made = format(&program, path).await;
    if made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made
}

async fn format(program: &Path, path: &Path) -> Result<(), DiskError> {
    let failed = |why: String| DiskError::Format {
        path: path.to_owned(),
        why,
    };
    let mut making = Command::new(program);
    making
        .args([
            "-q", "-F", "-m", "0", "-b", "4096", "-i", "16384", "-I", "256",
        ])
        .args(["-O", FEATURES])
        .args(["-E", "lazy_itable_init=1,nodiscard,root_owner=0:0"])
        .arg(path)
        .env_clear()
        // Its own settings and nobody else's.
        .env("MKE2FS_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(MAKING, making.output())
        .await
        .map_err(|_| failed(format!("no end within {} s", MAKING.as_secs())))?
        .map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        crate::console::shown(&output.stderr).trim().to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    async fn a_disk_is_sparse_and_holds_an_ext4() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scratch");
        match create_scratch(&path, 8 << 30).await {
            // A machine without e2fsprogs can run no job either, and says so.
            Err(DiskError::NoProgram) => return,
            made => made.unwrap(),
        }
        let file = std::fs::metadata(&path).unwrap();
        assert_eq!(file.len(), 8 << 30);
        assert!(
            file.blocks() * 512 < 16 << 20,
            "{} blocks are taken",
            file.blocks()
        );
        let mut magic = [0; 2];
        let file = std::fs::File::open(&path).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, 1024 + 0x38).unwrap();
        assert_eq!(u16::from_le_bytes(magic), 0xef53);
        assert!(matches!(
            create_scratch(&path, 8 << 30).await,
            Err(DiskError::File { .. })
        ));
    }

    #[tokio::test]
    async fn a_disk_too_small_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scratch");
        let error = create_scratch(&path, SCRATCH_MIN - 1).await.unwrap_err();
        assert!(matches!(error, DiskError::TooSmall(_)));
        assert!(!path.exists());
    }
}
