use std::io;
use std::sync::Arc;
use std::time::Duration;

use vk_guest_proto::{DecodeError, EncodeError, Failure};

use crate::death::Death;

/// Why the guest did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// The agent could not, and says why. The VM lives.
    #[error("the guest cannot {what}: {failure}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The agent's reason.
        failure: Failure,
    },
    /// The VM or its agent is gone.
    #[error("{0}")]
    Dead(Arc<Death>),
    /// The guest did not answer in time.
    #[error("the guest did not {what} within {} s", after.as_secs_f32())]
    Timeout {
        /// What was asked.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The stream broke although the VM lives.
    #[error("the stream to {what} broke: {why}")]
    Broken {
        /// What the stream was for.
        what: &'static str,
        /// How it broke.
        why: String,
    },
    /// What should be sent is over a bound of the protocol.
    #[error("cannot ask the guest to {what}")]
    TooLong {
        /// What should have been asked.
        what: &'static str,
        /// The bound.
        #[source]
        source: EncodeError,
    },
    /// The host's own end of a transfer failed.
    #[error("cannot {what}: the host's side of the transfer failed: {why}")]
    Local {
        /// What the transfer was for.
        what: &'static str,
        /// The host's error.
        why: String,
    },
    /// A command's output was more than its caller takes.
    #[error("the command wrote more than {0} bytes")]
    OutputTooLong(usize),
}

impl GuestError {
    pub(super) fn broken(what: &'static str) -> impl Fn(BrokenStream) -> Self {
        move |broken| match broken {
            BrokenStream::Dead(death) => Self::Dead(death),
            other => Self::Broken {
                what,
                why: other.to_string(),
            },
        }
    }
}

/// How a connection came to be of no more use.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenStream {
    #[error("{0}")]
    Dead(Arc<Death>),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Decode(#[from] DecodeError),
    #[error("{0}")]
    Encode(#[from] EncodeError),
    #[error("no progress for {} s", .0.as_secs())]
    Stalled(Duration),
    #[error("the agent sent a frame out of turn")]
    OutOfTurn,
    #[error("more than {0} notes")]
    TooManyNotes(usize),
}
