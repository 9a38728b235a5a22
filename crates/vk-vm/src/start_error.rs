use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vk_net::NetError;

use crate::bundle::BundleError;
use crate::channel::GuestError;
use crate::confine::ConfineError;
use crate::death::Death;

/// Why a VM did not start. Nothing of it is left but its directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The machine asked for cannot be.
    #[error("no such VM is possible: {0}")]
    Machine(String),
    /// A program is not installed.
    #[error("{program} is not installed ({hint}), and VMs need it")]
    NoProgram {
        /// The program.
        program: String,
        /// Where it comes from.
        hint: &'static str,
    },
    /// The firmware of the microvm machine is nowhere.
    #[error("QEMU's firmware bios-microvm.bin is in none of {0:?} (package qemu-system-data)")]
    NoFirmware(Vec<PathBuf>),
    /// The boot bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The walls, or a program behind them.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// This host cannot give VMs the network that was asked for.
    #[error("VMs cannot have a network here")]
    Network(#[source] NetError),
    /// Without walls there is nothing to hold a network in.
    #[error(
        "net.mode = \"switch\" needs VMs to be confined, and executor.vm.unconfined is set: leave one \
         of them out"
    )]
    NetworkUnconfined,
    /// The VM's network could not be made.
    #[error("the VM's network could not be made: {why}")]
    NetworkFailed {
        /// What its keeper said.
        why: String,
    },
    /// A file, directory or socket of the VM.
    #[error("cannot {what} for a VM")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A program of the VM ended before the agent said hello.
    #[error("the VM did not start: {0}")]
    Died(Arc<Death>),
    /// The agent did not say hello in time; the VM was killed.
    #[error(
        "no agent within {} s of the VM's start; it was killed; the console ends with:\n{console}",
        limit.as_secs()
    )]
    BootTimeout {
        /// The limit.
        limit: Duration,
        /// The last lines of the console, safe to show.
        console: String,
    },
    /// The agent came and could not serve.
    #[error("the VM's agent cannot start")]
    Agent(#[source] GuestError),
    /// A VMM that is not for real jobs, and was not asked for aloud.
    #[error("the process VMM runs jobs without a VM: it is for tests, and must be allowed there")]
    ProcessNotAllowed,
}

impl StartError {
    /// Whether another try may end better: what this host lacks stays lacking, but a VM that died or
    /// was too slow, and what a host that is short of something refuses, need not be so again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NetworkFailed { .. }
            | Self::Io { .. }
            | Self::Died(_)
            | Self::BootTimeout { .. }
            | Self::Agent(_) => true,
            Self::Confine(error) => error.is_transient(),
            Self::Machine(_)
            | Self::NoProgram { .. }
            | Self::NoFirmware(_)
            | Self::Bundle(_)
            | Self::Network(_)
            | Self::NetworkUnconfined
            | Self::ProcessNotAllowed => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }
}
