//! Why a pipeline could not be run.

use std::io;
use std::path::{Path, PathBuf};

use vk_ci_config::ConfigError;

use crate::gitlab::spec::SpecError;
use crate::serve::{GitError, ServeError};

/// Why a pipeline could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or directory.
    #[error("cannot {what} {}: {source}", .path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The project is not as it must be.
    #[error("{}: {why}", .path.display())]
    Project {
        /// Its directory.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The configuration.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The pipeline.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// An option's value.
    #[error("{option}: {why}")]
    Option {
        /// Which.
        option: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The GitLab side.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Git.
    #[error(transparent)]
    Git(#[from] GitError),
    /// One of the programs is not there.
    #[error("there is no {name} beside this program ({}): build or install all of them together", .at.display())]
    Missing {
        /// The program.
        name: &'static str,
        /// Where it was looked for.
        at: PathBuf,
    },
    /// A command of ours failed.
    #[error("`{command}` failed ({how}): {said}")]
    Command {
        /// What was run.
        command: String,
        /// How it ended.
        how: String,
        /// What it said.
        said: String,
    },
    /// What a command of ours printed cannot be read.
    #[error("what `{command}` printed cannot be read: {source}; are all programs of one version?")]
    Answer {
        /// What was run.
        command: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A program ended although nobody asked it to.
    #[error("{name} ended by itself ({how}); its last words: {said}")]
    Ended {
        /// Which.
        name: String,
        /// How.
        how: String,
        /// The end of its log.
        said: String,
    },
    /// Something took too long.
    #[error("{what} is not there after {secs} s; its log ends: {said}")]
    Slow {
        /// What was waited for.
        what: &'static str,
        /// How long.
        secs: u64,
        /// The end of its log.
        said: String,
    },
    /// The keeper.
    #[error("the process that keeps the others in sight cannot be used: {0}")]
    Keeper(String),
    /// The system.
    #[error("cannot start: {0}")]
    System(#[source] io::Error),
}

impl RunError {
    /// Whether what was given is wrong, and nothing was started.
    pub(crate) fn is_of_input(&self) -> bool {
        match self {
            Self::Project { .. } | Self::Config(_) | Self::Spec(_) | Self::Option { .. } => true,
            Self::Serve(error) => error.is_of_input(),
            _ => false,
        }
    }
}

/// What failed on which file.
pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::File { what, path, source }
}
