//! Leases: renewed, confirmed, over.

use std::time::Duration;

use vk_hub_proto::client::{RenewRequest, ReservationGrant};
use vk_hub_proto::dispatch::LeaseState;
use vk_hub_proto::limit::LEASE_SECS;
use vk_hub_proto::{NodeId, ReservationId};
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::request::Asker;
use crate::reservation::{Reservation, ReservationPhase, gone, no_such_reservation};
use crate::timers::Timer;
use crate::wait::Wait;
use crate::{Answer, Effect, Refusal, RequestHandle};

/// Renewals of one reservation under way at most.
const RENEWALS: usize = 16;

/// A renewal the node has not answered. The node answers them in order, so that one nobody waits
/// for any more still takes its answer: the next one's must not be believed too long (ADM-27).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    to: Option<RequestHandle>,
    lease_secs: u32,
    sent: bool,
}

impl Renewal {
    /// Who waits for it.
    pub(crate) const fn waiter(self) -> Option<RequestHandle> {
        self.to
    }
}

impl Reservation {
    /// A client no longer waits for its renewal.
    pub(crate) fn nobody_waits(&mut self, to: RequestHandle) {
        self.renewals.retain(|one| one.sent || one.to != Some(to));
        for one in &mut self.renewals {
            if one.to == Some(to) {
                one.to = None;
            }
        }
    }
}

impl Fleet {
    pub(crate) fn on_renew(
        &mut self,
        now: Now,
        asker: Asker,
        id: ReservationId,
        request: RenewRequest,
        out: &mut Out,
    ) {
        let Asker { to, by } = asker;
        if let Err(why) = request.validate() {
            return self.refuse(to, Refusal::invalid(why.to_string()), out);
        }
        let Some(held) = self.reservations.get(&id) else {
            return self.refuse(to, gone(id), out);
        };
        if held.owner != by {
            return self.refuse(to, no_such_reservation(id), out);
        }
        if held.phase != ReservationPhase::Held {
            return self.refuse(to, gone(id), out);
        }
        let secs = u32::try_from(self.settings.renew_within.as_secs()).unwrap_or(u32::MAX);
        if held.renewals.len() >= RENEWALS || !self.hold(now, to, Wait::Renew(id), secs) {
            let refusal = Refusal::unavailable("too many requests wait already");
            return self.refuse(to, refusal, out);
        }
        if let Some(held) = self.reservations.get_mut(&id) {
            held.renewals.push_back(Renewal {
                to: Some(to),
                lease_secs: request.lease_secs,
                sent: false,
            });
        }
        self.send_renewals(id, out);
    }

    /// Sends what was not sent yet, if the node is in touch.
    pub(crate) fn send_renewals(&mut self, id: ReservationId, out: &mut Out) {
        let Some(held) = self.reservations.get_mut(&id) else {
            return;
        };
        let Some(session) = self.nodes.get(&held.node).and_then(|node| node.touch()) else {
            return;
        };
        for one in held.renewals.iter_mut().filter(|one| !one.sent) {
            one.sent = true;
            out.effect(Effect::Renew {
                session,
                reservation: id,
                lease_secs: one.lease_secs,
            });
        }
    }

    /// A session is gone: what it was sent may not have arrived and is sent again on the next.
    pub(crate) fn pause_renewals(&mut self, node: NodeId) {
        let Some(node) = self.nodes.get(&node) else {
            return;
        };
        for id in &node.reservations {
            if let Some(held) = self.reservations.get_mut(id) {
                held.renewals.retain(|one| one.to.is_some());
                held.renewals.iter_mut().for_each(|one| one.sent = false);
            }
        }
    }

    /// A node says how a reservation stands (API-23, API-24).
    pub(crate) fn on_lease(
        &mut self,
        now: Now,
        node: NodeId,
        id: ReservationId,
        state: &LeaseState,
        out: &mut Out,
    ) {
        let known = self.reservations.get_mut(&id);
        let Some(held) = known.filter(|one| one.node == node) else {
            return;
        };
        match (state, held.phase) {
            (LeaseState::Held { remaining_secs }, ReservationPhase::Held) => {
                let lease_secs = (*remaining_secs).min(LEASE_SECS);
                held.until = now.after(Duration::from_secs(u64::from(lease_secs)));
                self.timers.set(Timer::Lease(id), held.until);
                let sent = held.renewals.front().is_some_and(|one| one.sent);
                let answered = sent.then(|| held.renewals.pop_front()).flatten();
                let grant = ReservationGrant {
                    reservation: id,
                    node,
                    envelope: held.envelope,
                    lease_secs,
                };
                if let Some(to) = answered.and_then(Renewal::waiter) {
                    self.answer(to, Answer::Renewed(grant), out);
                }
            }
            // The node's answer to the start decides about job and reservation.
            (_, ReservationPhase::Starting(_)) => {}
            // No answer to an offer: that comes as one.
            (_, ReservationPhase::Offered(_)) => {}
            (LeaseState::Gone { .. } | LeaseState::Other, ReservationPhase::Held) => {
                self.reservation_gone(id, out);
            }
        }
    }

    /// The lease is over by the hub's count, and so by the node's; a renewal the node may have
    /// taken in time is waited for.
    pub(crate) fn on_lease_over(&mut self, now: Now, id: ReservationId, out: &mut Out) {
        let Some(held) = self.reservations.get(&id) else {
            return;
        };
        if held.phase != ReservationPhase::Held {
            return;
        }
        let awaited = held.renewals.iter().any(|one| one.sent);
        if awaited && now < held.until.after(self.settings.renew_within) {
            let at = held.until.after(self.settings.renew_within);
            return self.timers.set(Timer::Lease(id), at);
        }
        self.give_back(id, out);
    }

    /// The node names a reservation it holds (DISP-84).
    pub(crate) fn confirm_lease(
        &mut self,
        now: Now,
        id: ReservationId,
        remaining_secs: u32,
        out: &mut Out,
    ) {
        let Some(held) = self.reservations.get_mut(&id) else {
            return;
        };
        let left = Duration::from_secs(u64::from(remaining_secs.min(LEASE_SECS)));
        held.until = now.after(left);
        self.timers.set(Timer::Lease(id), held.until);
        self.send_renewals(id, out);
    }
}
