//! Reservations: asked for, kept alive, given back (FLOW-08, ADM-18, ADM-19, ADM-29, ADM-41).

use std::mem;
use std::time::Duration;

use vk_hub_proto::ReservationId;
use vk_hub_proto::client::{ErrorCode, ReservationGrant};
use vk_hub_proto::limit::WAIT_SECS;
use vk_step::Now;

use super::gates::Gate;
use super::lane::{Holding, Lane, Requesting, Reserving};
use super::lease::{Held, Renewal};
use super::machine::{Acquire, lane_id};
use super::{Effect, LaneId, Note, REQUEST_BOUND, Step};
use crate::{Backoff, HubFailure, WithoutReservation};

/// Tries of one reservation before the runner goes back to the capacity poll.
const TRIES: u32 = 3;
/// The wait after a refusal that asking again will not change soon.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);
/// The wait after `no_capacity` where the hub names none (ERR-28).
const AFTER_NO_CAPACITY: Duration = Duration::from_secs(5);

impl Acquire {
    /// How often a lease is renewed (ADM-12).
    pub(super) fn renew_every(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.lease_secs) / 3)
    }

    /// Room was told: so many lanes reserve, where they may and a slot is free.
    pub(super) fn start_reserving(&mut self, now: Now, fits: u32) {
        if !self.slot_free {
            return;
        }
        for _ in 0..fits.min(self.startable(now)) {
            let ready =
                |lane: &Lane| matches!(lane, Lane::Idle { not_before } if *not_before <= now);
            let Some(lane) = self.lanes.iter_mut().find(|lane| ready(lane)) else {
                return;
            };
            let Some(request_id) = self.request_ids.pop_front() else {
                return;
            };
            *lane = Lane::Reserving(Reserving {
                request_id,
                first_sent: None,
                asked: false,
                next: now,
                backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
            });
        }
    }

    /// Does what a lane is due to do.
    pub(super) fn advance_lane(&mut self, now: Now, index: usize, step: &mut Step) {
        let gate = self.gate(now);
        let Some(place) = self.lanes.get_mut(index) else {
            return;
        };
        let lane = mem::replace(place, Lane::idle());
        let next = match lane {
            Lane::Reserving(reserving) => self.advance_reserving(now, index, gate, reserving, step),
            Lane::Holding(holding) => self.advance_holding(now, index, gate, holding, step),
            Lane::Requesting(requesting) => self.advance_request(now, index, requesting, step),
            lane @ (Lane::Idle { .. } | Lane::TakingSlot(_)) => lane,
        };
        if let Some(place) = self.lanes.get_mut(index) {
            *place = next;
        }
    }

    fn advance_reserving(
        &mut self,
        now: Now,
        index: usize,
        gate: Gate,
        mut reserving: Reserving,
        step: &mut Step,
    ) -> Lane {
        if reserving.asked {
            return Lane::Reserving(reserving);
        }
        if gate != Gate::Open {
            return Lane::idle();
        }
        if reserving.next <= now {
            reserving.asked = true;
            reserving.first_sent.get_or_insert(now);
            step.effect(Effect::Reserve {
                lane: lane_id(index),
                request_id: reserving.request_id,
                lease_secs: self.config.lease_secs,
                wait_secs: WAIT_SECS,
            });
        }
        Lane::Reserving(reserving)
    }

    /// Takes the hub's answer to a reservation.
    pub(super) fn reserved(
        &mut self,
        now: Now,
        lane: LaneId,
        answer: Result<ReservationGrant, HubFailure>,
        step: &mut Step,
    ) {
        let Some(index) = self.index(lane) else {
            return;
        };
        let Some(Lane::Reserving(mut reserving)) = self.lanes.get(index).cloned() else {
            return;
        };
        reserving.asked = false;
        let next = match answer {
            Ok(grant) => self.granted(now, &reserving, &grant, step),
            Err(failure) => self.not_granted(now, reserving, failure, step),
        };
        if let Some(place) = self.lanes.get_mut(index) {
            *place = next;
        }
    }

    fn granted(
        &mut self,
        now: Now,
        reserving: &Reserving,
        grant: &ReservationGrant,
        step: &mut Step,
    ) -> Lane {
        let sent = reserving.first_sent.unwrap_or(now);
        let held = Held::granted(
            grant.reservation,
            sent,
            grant.lease_secs,
            self.renew_every(),
        );
        if Duration::from_secs(grant.lease_secs.into()) < REQUEST_BOUND {
            return self.too_short(now, &held, grant.lease_secs, step);
        }
        Lane::Holding(Holding {
            renew: !held.covers_a_request(now),
            held,
            not_before: now,
            renewed: false,
        })
    }

    fn not_granted(
        &mut self,
        now: Now,
        mut reserving: Reserving,
        failure: HubFailure,
        step: &mut Step,
    ) -> Lane {
        let no_room = failure.code == Some(ErrorCode::NoCapacity);
        let wait = reserving.backoff.fail();
        let wait = self.spread.above(failure.wait().unwrap_or(wait).max(wait));
        let try_again = failure.is_retryable()
            && !no_room
            && reserving.backoff.failures() < TRIES
            && self.first_try_still_counts(now.after(wait), &reserving);
        if try_again {
            reserving.next = now.after(wait);
            self.note_hub("reservation", failure, step);
            return Lane::Reserving(reserving);
        }
        // Back to the capacity poll: a hub that cannot be reached counts as capacity 0 (ADM-31).
        let pause = if no_room {
            failure.wait().unwrap_or(AFTER_NO_CAPACITY)
        } else if failure.is_retryable() {
            wait
        } else {
            AFTER_REFUSAL
        };
        self.capacity.wait_until(now.after(pause));
        self.note_hub("reservation", failure, step);
        Lane::Idle {
            not_before: now.after(pause),
        }
    }

    /// Whether the same request ID is worth another try: its lease counts from its first sending,
    /// since the answer that was lost may have granted it then (ADM-27).
    fn first_try_still_counts(&self, at: Now, reserving: &Reserving) -> bool {
        let half = Duration::from_secs(u64::from(self.config.lease_secs) / 2);
        reserving
            .first_sent
            .is_none_or(|sent| at.since(sent) <= half)
    }

    fn advance_holding(
        &mut self,
        now: Now,
        index: usize,
        gate: Gate,
        mut holding: Holding,
        step: &mut Step,
    ) -> Lane {
        let until = holding.held.until();
        if holding.held.lapsed(now) {
            self.note_lost(&holding.held, WithoutReservation::Lapsed, step);
            return self.give_back(now, &holding.held);
        }
        let waits_past_its_lease = match gate {
            Gate::Open => holding.not_before >= until,
            Gate::Until(end) => end >= until,
            Gate::Shut => true,
        };
        if waits_past_its_lease {
            return self.give_back(now, &holding.held);
        }
        if gate != Gate::Open || holding.not_before > now {
            return Lane::Holding(holding);
        }
        if holding.renewed && !holding.held.covers_a_request(now) {
            return self.give_back(now, &holding.held);
        }
        if !holding.renewed && (holding.renew || !holding.held.covers_a_request(now)) {
            return self.renew_before_asking(now, index, holding, step);
        }
        step.effect(Effect::TakeSlot {
            lane: lane_id(index),
        });
        holding.renew = false;
        Lane::TakingSlot(holding.held)
    }

    fn renew_before_asking(
        &mut self,
        now: Now,
        index: usize,
        mut holding: Holding,
        step: &mut Step,
    ) -> Lane {
        if !holding.held.renewing() {
            holding.held.want_renewal(now);
        }
        self.renew_where_due(now, index, &mut holding.held, step);
        if !holding.held.renewing() && holding.held.renewal_due().is_none() {
            // The hub refused to renew it: what is left of it covers no request.
            return self.give_back(now, &holding.held);
        }
        Lane::Holding(holding)
    }

    /// Sends a renewal where one is due.
    fn renew_where_due(&self, now: Now, index: usize, held: &mut Held, step: &mut Step) {
        if held.renewal_due().is_some_and(|due| due <= now) && !held.lapsed(now) {
            held.renewal_goes_out(now);
            step.effect(Effect::Renew {
                lane: lane_id(index),
                reservation: held.reservation,
                lease_secs: self.config.lease_secs,
            });
        }
    }

    /// Keeps the reservation under an open request alive; losing it aborts nothing (ADM-13).
    fn advance_request(
        &mut self,
        now: Now,
        index: usize,
        mut requesting: Requesting,
        step: &mut Step,
    ) -> Lane {
        if let Ok(held) = &mut requesting.cover {
            if held.lapsed(now) {
                let held = held.clone();
                self.note_lost(&held, WithoutReservation::Lapsed, step);
                self.releases.add(now, held.reservation, held.until());
                requesting.cover = Err(WithoutReservation::Lapsed);
            } else {
                self.renew_where_due(now, index, held, step);
            }
        }
        Lane::Requesting(requesting)
    }

    /// Takes the hub's answer to a renewal.
    pub(super) fn renewed(
        &mut self,
        now: Now,
        lane: LaneId,
        reservation: ReservationId,
        answer: Result<ReservationGrant, HubFailure>,
        step: &mut Step,
    ) {
        let Some(index) = self.index(lane) else {
            return;
        };
        let Some(mut lane) = self.lanes.get(index).cloned() else {
            return;
        };
        let Some(held) = lane
            .held_mut()
            .filter(|held| held.reservation == reservation && held.renewing() && !held.lapsed(now))
        else {
            return;
        };
        let every = self.renew_every();
        let lease = answer.map(|grant| grant.lease_secs);
        let renewal = held.renewed(now, &lease, every, &mut self.spread);
        let held = held.clone();
        let short = lease
            .as_ref()
            .ok()
            .copied()
            .filter(|secs| Duration::from_secs((*secs).into()) < REQUEST_BOUND);
        if let Err(failure) = lease {
            self.note_hub("renewal", failure, step);
        }
        let next = match (lane, short) {
            (Lane::Holding(_), Some(secs)) => self.too_short(now, &held, secs, step),
            (lane, _) => self.after_renewal(lane, &held, renewal, step),
        };
        if let Some(place) = self.lanes.get_mut(index) {
            *place = next;
        }
    }

    fn after_renewal(&self, lane: Lane, held: &Held, renewal: Renewal, step: &mut Step) -> Lane {
        match (lane, renewal) {
            (Lane::Requesting(mut requesting), Renewal::Gone) => {
                self.note_lost(held, WithoutReservation::Gone, step);
                requesting.cover = Err(WithoutReservation::Gone);
                Lane::Requesting(requesting)
            }
            (Lane::Holding(_) | Lane::TakingSlot(_), Renewal::Gone) => Lane::idle(),
            (Lane::Holding(mut holding), Renewal::Renewed) => {
                holding.renewed = true;
                Lane::Holding(holding)
            }
            (Lane::Holding(mut holding), Renewal::Failed) => {
                // Asking again needs a lease that covers the request, not a fresh one.
                holding.renew = false;
                Lane::Holding(holding)
            }
            (lane, _) => lane,
        }
    }

    fn too_short(&mut self, now: Now, held: &Held, lease_secs: u32, step: &mut Step) -> Lane {
        step.effect(Effect::Note(Note::LeaseTooShort { lease_secs }));
        self.capacity.wait_until(now.after(AFTER_REFUSAL));
        self.releases.add(now, held.reservation, held.until());
        Lane::Idle {
            not_before: now.after(AFTER_REFUSAL),
        }
    }

    /// Releases a reservation under which nothing is open.
    pub(super) fn give_back(&mut self, now: Now, held: &Held) -> Lane {
        self.releases.add(now, held.reservation, held.until());
        Lane::idle()
    }

    pub(super) fn note_lost(&self, held: &Held, how: WithoutReservation, step: &mut Step) {
        step.effect(Effect::Note(Note::ReservationLost {
            reservation: held.reservation,
            how,
        }));
    }

    fn note_hub(&self, what: &'static str, failure: HubFailure, step: &mut Step) {
        step.effect(Effect::Note(Note::Hub { what, failure }));
    }
}
