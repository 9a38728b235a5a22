//! Reservations: held, given back, gone.

use std::collections::VecDeque;

use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::RefusalReason;
use vk_hub_proto::{JobId, NodeId, ReservationId};
use vk_step::Now;

use crate::book::Holding;
use crate::fleet::{Fleet, Out};
use crate::lease::Renewal;
use crate::request::{Asker, RequestKey};
use crate::timers::Timer;
use crate::{Answer, Effect, Principal, Refusal};

/// An envelope on a node, offered or held.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) owner: Principal,
    pub(crate) node: NodeId,
    pub(crate) envelope: Envelope,
    pub(crate) phase: ReservationPhase,
    /// The end of its lease by the hub's count, which is never before the node's.
    pub(crate) until: Now,
    /// Renewals the node has not answered, oldest first.
    pub(crate) renewals: VecDeque<Renewal>,
}

/// How far a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationPhase {
    /// The node has not answered.
    Offered(RequestKey),
    /// The node holds it.
    Held,
    /// A job was sent to start on it.
    Starting(JobId),
}

impl Fleet {
    /// A client gives a reservation back (API-25, API-64).
    pub(crate) fn on_release(&mut self, asker: Asker, id: ReservationId, out: &mut Out) {
        let Asker { to, by } = asker;
        let known = self.reservations.get(&id);
        if known.is_some_and(|one| one.owner != by) {
            return self.refuse(to, no_such_reservation(id), out);
        }
        if known.is_some_and(|one| one.phase == ReservationPhase::Held) {
            self.give_back(id, out);
        }
        self.answer(to, Answer::Released, out);
    }

    /// Ends a held reservation and tells its node.
    pub(crate) fn give_back(&mut self, id: ReservationId, out: &mut Out) {
        let node = self.reservations.get(&id).map(|one| one.node);
        let session = node.and_then(|node| self.nodes.get(&node)?.touch());
        self.reservation_gone(id, out);
        if let Some(session) = session {
            out.effect(Effect::Release {
                session,
                reservation: id,
            });
        }
    }

    /// The reservation is no longer there, whoever ended it.
    pub(crate) fn reservation_gone(&mut self, id: ReservationId, out: &mut Out) {
        let Some(gone_one) = self.reservations.remove(&id) else {
            return;
        };
        self.timers.clear(Timer::Offer(id));
        self.timers.clear(Timer::Lease(id));
        if let Some(node) = self.nodes.get_mut(&gone_one.node) {
            node.book.drop(Holding::Reservation(id));
            node.reservations.remove(&id);
            self.stirred.insert(gone_one.node);
        }
        for to in gone_one.renewals.into_iter().filter_map(Renewal::waiter) {
            self.refuse(to, gone(id), out);
        }
    }
}

/// What a refusal says, for whoever asks why nothing was found.
pub(crate) fn refusal_text(node: NodeId, reason: RefusalReason, message: Option<&str>) -> String {
    let reason = match reason {
        RefusalReason::Memory => "memory is short",
        RefusalReason::Disk => "disk is short",
        RefusalReason::Cpus => "it gives no guest so many CPUs",
        RefusalReason::NotReady => "it is not ready",
        RefusalReason::Policy => "its policy forbids it",
        RefusalReason::NoReservation => "it holds no such reservation and has no room without",
        RefusalReason::Invalid => "the job makes no sense to it",
        RefusalReason::Ceiling => "the hub's ceiling is reached",
        RefusalReason::Concurrency => "its own limit is reached",
        RefusalReason::Runner => "its host runs a gitlab-runner",
        RefusalReason::Other => "it gave a reason this hub does not know",
    };
    let message = message.map(vk_hub_proto::display::sanitized);
    match message.filter(|text| !text.is_empty()) {
        Some(text) => format!("node {node}: {reason} ({text})"),
        None => format!("node {node}: {reason}"),
    }
}

pub(crate) fn gone(id: ReservationId) -> Refusal {
    Refusal::reservation_gone(format!("reservation {id} lapsed, was released or used"))
}

pub(crate) fn no_such_reservation(id: ReservationId) -> Refusal {
    Refusal::not_found(format!("there is no reservation {id}"))
}
