//! Why a job could not even be recorded.

use std::path::PathBuf;

/// The job's own directory failed it: there is no result. Everything else that goes wrong is in the
/// result.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A file of the job's directory could not be made, written or synced.
    #[error("cannot {what} {}{}", path.display(), hint(source))]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The stage marks of an earlier life cannot be read.
    #[error("{}: {why}; the job cannot be judged by it", path.display())]
    Marks {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

fn hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            " (the disk is full: make room and run the job again)"
        }
        _ => "",
    }
}

impl DriverError {
    pub(crate) fn file(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> DriverError {
        let path = path.to_owned();
        move |source| DriverError::File { what, path, source }
    }
}
