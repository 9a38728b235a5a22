//! Reservations: offered, renewed, released, expired. They live in memory only.

use vk_hub_proto::ReservationId;
use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::{GoneWhy, LeaseState, NodeJobMessage, OfferReply, RefusalReason};
use vk_step::Now;

use std::time::Duration;

use crate::NodeCore;
use crate::core::Out;
use crate::ledger::Amount;
use crate::standing::Refusal;
use crate::timers::Timer;

/// A reservation held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) envelope: Envelope,
    until: Now,
}

impl Lease {
    /// Whole seconds left (ADM-25).
    pub(crate) fn remaining_secs(&self, now: Now) -> u32 {
        u32::try_from(now.until(self.until).as_secs()).unwrap_or(u32::MAX)
    }
}

impl NodeCore {
    /// Decides an offer at once (DISP-35).
    pub(crate) fn offer(
        &mut self,
        reservation: ReservationId,
        envelope: Envelope,
        lease_secs: u32,
        out: &mut Out,
    ) {
        let reply = match self.decide_offer(reservation, envelope, lease_secs) {
            Ok(lease_secs) => OfferReply::Accepted { lease_secs },
            Err(refusal) => OfferReply::Refused {
                reason: refusal.reason,
                message: Some(refusal.message),
            },
        };
        self.send(NodeJobMessage::OfferReply { reservation, reply }, out);
    }

    fn decide_offer(
        &mut self,
        reservation: ReservationId,
        envelope: Envelope,
        lease_secs: u32,
    ) -> Result<u32, Refusal> {
        let invalid = |message| Refusal::new(RefusalReason::Invalid, message);
        if lease_secs == 0 {
            return Err(invalid("a lease of 0 seconds"));
        }
        if self.leases.contains_key(&reservation) {
            return Ok(self.extend(reservation, lease_secs));
        }
        if envelope.mem_mib == 0 || envelope.cpus == 0 {
            return Err(invalid("an envelope without memory or CPUs"));
        }
        self.check_new_work(envelope)?;
        let amount = Amount::from(envelope);
        self.ledger.admit(amount).map_err(Refusal::short)?;
        self.ledger.reserve(reservation, amount);
        let until = self.now;
        self.leases.insert(reservation, Lease { envelope, until });
        let granted = lease_secs.min(self.config.max_lease_secs);
        self.set_lease(reservation, granted);
        Ok(granted)
    }

    /// Extends a lease from now, where the node is not emptying itself (DISP-83); what is left of
    /// it is the answer.
    fn extend(&mut self, reservation: ReservationId, lease_secs: u32) -> u32 {
        if lease_secs > 0 && self.extends_leases() {
            self.set_lease(reservation, lease_secs.min(self.config.max_lease_secs));
        }
        self.leases
            .get(&reservation)
            .map_or(0, |lease| lease.remaining_secs(self.now))
    }

    fn set_lease(&mut self, reservation: ReservationId, secs: u32) {
        let until = self.now.after(Duration::from_secs(secs.into()));
        if let Some(lease) = self.leases.get_mut(&reservation) {
            lease.until = until;
            self.timers.set(Timer::Lease(reservation), until);
        }
    }

    pub(crate) fn renew(&mut self, reservation: ReservationId, lease_secs: u32, out: &mut Out) {
        let state = if self.leases.contains_key(&reservation) {
            LeaseState::Held {
                remaining_secs: self.extend(reservation, lease_secs),
            }
        } else {
            LeaseState::Gone {
                why: GoneWhy::Unknown,
            }
        };
        self.send(NodeJobMessage::Lease { reservation, state }, out);
    }

    /// Gives a reservation back; one that is not held is gone all the same.
    pub(crate) fn release(&mut self, reservation: ReservationId, out: &mut Out) {
        self.drop_lease(reservation);
        self.say_gone(reservation, GoneWhy::Released, out);
        self.grant_waiting(out);
    }

    /// A lease ran out (DISP-37).
    pub(crate) fn lease_expired(&mut self, reservation: ReservationId, out: &mut Out) {
        self.drop_lease(reservation);
        self.say_gone(reservation, GoneWhy::Expired, out);
        self.grant_waiting(out);
    }

    /// Gives every reservation back (DISP-40).
    pub(crate) fn release_all(&mut self, out: &mut Out) {
        let all: Vec<_> = self.leases.keys().copied().collect();
        for reservation in all {
            self.drop_lease(reservation);
            self.say_gone(reservation, GoneWhy::Released, out);
        }
        self.grant_waiting(out);
    }

    /// Forgets a reservation with what it had of the ledger.
    pub(crate) fn drop_lease(&mut self, reservation: ReservationId) -> Option<Lease> {
        self.timers.clear(Timer::Lease(reservation));
        self.ledger.release(reservation);
        self.leases.remove(&reservation)
    }

    pub(crate) fn say_gone(&self, reservation: ReservationId, why: GoneWhy, out: &mut Out) {
        let state = LeaseState::Gone { why };
        self.send(NodeJobMessage::Lease { reservation, state }, out);
    }
}
