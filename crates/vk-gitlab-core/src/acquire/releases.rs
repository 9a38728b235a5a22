//! Reservations being given back: tried again only while their lease may last.

use std::collections::BTreeMap;
use std::time::Duration;

use vk_hub_proto::ReservationId;
use vk_step::Now;

use super::{Effect, Step};
use crate::{Backoff, HubFailure, Spread};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Release {
    asked: bool,
    next: Now,
    until: Now,
    backoff: Backoff,
}

/// The releases that are not answered yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Releases(BTreeMap<ReservationId, Release>);

impl Releases {
    /// Gives one back, whose lease lasts to `until` at most.
    pub(super) fn add(&mut self, now: Now, reservation: ReservationId, until: Now) {
        self.0.entry(reservation).or_insert(Release {
            asked: false,
            next: now,
            until,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
        });
    }

    /// Sends what is due.
    pub(super) fn advance(&mut self, now: Now, step: &mut Step) {
        for (reservation, release) in &mut self.0 {
            if !release.asked && release.next <= now {
                release.asked = true;
                step.effect(Effect::Release {
                    reservation: *reservation,
                });
            }
        }
    }

    /// Takes an answer. A failure is tried again where the lease lasts longer than the wait: after
    /// that the node has dropped it by itself.
    pub(super) fn answered(
        &mut self,
        now: Now,
        reservation: ReservationId,
        answer: &Result<(), HubFailure>,
        spread: &mut Spread,
    ) {
        let Some(release) = self.0.get_mut(&reservation) else {
            return;
        };
        if let Err(failure) = answer
            && failure.is_retryable()
        {
            let wait = release.backoff.fail();
            let next = now.after(spread.above(failure.wait().unwrap_or(wait).max(wait)));
            if next < release.until {
                release.asked = false;
                release.next = next;
                return;
            }
        }
        self.0.remove(&reservation);
    }

    /// Whether one waits for its first answer.
    pub(super) fn unanswered(&self) -> bool {
        self.0
            .values()
            .any(|release| release.backoff.failures() == 0)
    }

    /// When the next one is due.
    pub(super) fn due(&self) -> Option<Now> {
        let waiting = self.0.values().filter(|release| !release.asked);
        waiting.map(|release| release.next).min()
    }
}
