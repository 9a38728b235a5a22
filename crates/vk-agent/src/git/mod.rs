//! What git does not track, read from its own files: the image needs no git (GUEST-10).

mod index;
mod untracked;

pub(crate) use untracked::untracked;

use std::fmt;

/// Why untracked files cannot be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// There is no repository.
    NoRepository,
    /// Its index cannot be read; why.
    Index(String),
    /// A file or directory cannot be read; which, and why.
    Read(String, String),
    /// There are too many files to tell.
    TooMany(usize),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRepository => f.write_str("not a git repository"),
            Self::Index(why) => write!(f, "the index of git cannot be read: {why}"),
            Self::Read(path, why) => write!(f, "cannot read {path}: {why}"),
            Self::TooMany(most) => write!(f, "over {most} untracked files"),
        }
    }
}
