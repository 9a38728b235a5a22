use std::io;
use std::path::PathBuf;

/// Why a program could not be confined or held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The program that makes the walls could not be started.
    #[error("cannot start {helper}, which confines the programs of a VM")]
    Helper {
        /// The program.
        helper: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The walls could not be made.
    #[error(
        "this host does not let VMs be confined: {why}. Unprivileged user namespaces must be allowed \
         (sysctl user.max_user_namespaces; kernel.unprivileged_userns_clone on older Debian; \
         kernel.apparmor_restrict_unprivileged_userns on Ubuntu)"
    )]
    Walls {
        /// What the stage that failed said.
        why: String,
    },
    /// The holder ended or does not answer.
    #[error("the holder of the VM's processes is gone: {why}")]
    HolderGone {
        /// What is known of its end.
        why: String,
    },
    /// The holder could not start the program.
    #[error("cannot start {program} confined: {why}")]
    Launch {
        /// The program.
        program: PathBuf,
        /// Why.
        why: String,
    },
    /// What a program needs to run could not be found out.
    #[error("cannot find out what {program} needs to run: {why}")]
    Needs {
        /// The program.
        program: PathBuf,
        /// Why.
        why: String,
    },
    /// A socket, pipe or file of the supervision itself.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl ConfineError {
    /// Whether another try may end better.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::HolderGone { .. } | Self::Launch { .. } | Self::Io { .. } => true,
            Self::Helper { .. } | Self::Walls { .. } | Self::Needs { .. } => false,
        }
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
