//! The capacity long poll: no reservation without room (FLOW-07, ADM-06).

use std::time::Duration;

use vk_hub_proto::client::Capacity;
use vk_hub_proto::limit::WAIT_SECS;
use vk_step::Now;

use super::{Effect, Note, Step};
use crate::{Backoff, HubFailure, Spread};

/// Polls that bring no room are not sent closer together than this, however fast revisions move.
const APART: Duration = Duration::from_secs(1);

/// What is known of the room on the fleet. Room is never remembered: it is used the moment it is
/// told, or asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CapacityPoll {
    asked: Option<Now>,
    /// The revision that had no room: the next poll waits for a later one.
    full_at: Option<u64>,
    /// The last word was that no node is in the pool.
    no_nodes: bool,
    not_before: Now,
    backoff: Backoff,
}

impl CapacityPoll {
    pub(super) fn new() -> CapacityPoll {
        CapacityPoll {
            asked: None,
            full_at: None,
            no_nodes: false,
            not_before: Now::ZERO,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
        }
    }

    /// Whether the last word was that there is no room, or none came.
    pub(super) const fn is_zero(&self) -> bool {
        self.full_at.is_some() || self.backoff.failures() > 0
    }

    /// Waits before asking again, as after a reservation that failed (ADM-31).
    pub(super) fn wait_until(&mut self, at: Now) {
        self.not_before = self.not_before.max(at);
    }

    /// When a poll may be sent, where none is open.
    pub(super) fn due(&self) -> Option<Now> {
        if self.asked.is_some() {
            None
        } else {
            Some(self.not_before)
        }
    }

    /// Asks, where the time has come.
    pub(super) fn advance(&mut self, now: Now, step: &mut Step) {
        if self.due().is_some_and(|due| due <= now) {
            self.asked = Some(now);
            step.effect(Effect::AskCapacity {
                after: self.full_at,
                wait_secs: WAIT_SECS,
            });
        }
    }

    /// Takes the answer: how many envelopes fit. A hub that does not answer has no room (ADM-31).
    pub(super) fn answered(
        &mut self,
        now: Now,
        answer: Result<Capacity, HubFailure>,
        spread: &mut Spread,
        step: &mut Step,
    ) -> u32 {
        let sent = self.asked.take().unwrap_or(now);
        match answer {
            Ok(capacity) => {
                self.backoff.succeed();
                self.full_at = (capacity.fits == 0).then_some(capacity.revision);
                let told = std::mem::replace(&mut self.no_nodes, capacity.no_nodes);
                if capacity.no_nodes && !told {
                    step.effect(Effect::Note(Note::NoNodes));
                }
                if capacity.fits == 0 {
                    self.wait_until(sent.after(APART));
                }
                capacity.fits
            }
            Err(failure) => {
                let wait = self.backoff.fail();
                let wait = failure.wait().unwrap_or(wait).max(wait);
                self.full_at = None;
                self.wait_until(now.after(spread.above(wait)));
                step.effect(Effect::Note(Note::Hub {
                    what: "capacity",
                    failure,
                }));
                0
            }
        }
    }
}
