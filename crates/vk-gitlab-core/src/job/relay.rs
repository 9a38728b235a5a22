//! Jobs of a relay that the hub has removed (AUTH-05, SESS-14).
//!
//! A 401 alone says little: most often a clock is off, and passes. A session has no clock in it: where
//! the hub says there that it knows the relay no more, and refuses a job's request too, nothing will
//! ever be learnt of the job again, for a relay that joins anew has another ID (ENR-15). Then, and only
//! then, the job is failed in GitLab as one that was lost.

use vk_hub_proto::client::ErrorCode;

use super::machine::Job;
use super::{Effect, Note, Step};
use crate::HubFailure;

/// What is known of the relay that the job belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Relay {
    /// The session's word that it was removed.
    pub(super) removed: Option<String>,
    /// A request was refused with 401, and none has been answered since.
    refused: bool,
    /// What follows from the two was done.
    done: bool,
}

impl Relay {
    /// A request failed.
    pub(super) fn heard(&mut self, failure: &HubFailure) {
        self.refused |= failure.code == Some(ErrorCode::Unauthorized);
    }

    /// A request was answered.
    pub(super) fn answered(&mut self) {
        self.refused = false;
    }

    /// Why nothing more is learnt from the hub, where it is so.
    pub(super) fn lost(&self) -> Option<&str> {
        self.removed.as_deref().filter(|_| self.refused)
    }
}

impl Job {
    /// What the trace has of the output is all of it, once nothing more can be read. Where its end is
    /// known, or none is expected, closing lines may stand behind it already.
    pub(super) fn advance_relay(&mut self, step: &mut Step) {
        if self.relay.lost().is_none() || self.relay.done {
            return;
        }
        self.relay.done = true;
        if self.expects_output() {
            self.output_ends_here();
        }
        step.effect(Effect::Note(Note::RelayRemoved));
    }
}
