use std::io;

/// Why a job has no network, or has one no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A program is not installed.
    #[error("{program} is not installed (package {package}), and net.mode = \"switch\" needs it")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Where it comes from.
        package: &'static str,
    },
    /// The device that taps are made with cannot be opened.
    #[error(
        "cannot open {device}, and net.mode = \"switch\" needs it: load the module tun, and let this \
         user read and write the device (mode 0666, as udev gives it)"
    )]
    NoTun {
        /// The device.
        device: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A system call, file or socket.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program of the network's failed.
    #[error("{program} failed: {said}")]
    Program {
        /// The program.
        program: &'static str,
        /// What it said, at most a few hundred bytes, or how it ended.
        said: String,
    },
    /// The host has or reaches all networks that a job could have.
    #[error(
        "the host's own networks overlap all that a job could be given: free one of 198.18.254.0/23, \
         198.19.254.0/23, 10.213.254.0/23, 172.29.254.0/23 and 192.168.254.0/23"
    )]
    NoRoom,
    /// There are too many addresses to deny.
    #[error("the host has more than {0} addresses and local routes: they cannot all be denied")]
    TooMany(usize),
    /// What the kernel said makes no sense.
    #[error("cannot read what the kernel says of the host's addresses: {0}")]
    Netlink(&'static str),
    /// Nothing came in time.
    #[error("{what} within {secs} s")]
    Late {
        /// What did not happen.
        what: &'static str,
        /// How long it was waited for.
        secs: u64,
    },
}

impl NetError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }
}
