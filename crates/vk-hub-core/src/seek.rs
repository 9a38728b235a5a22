//! Reservation requests: one envelope, offered to one node after the other.

use std::collections::VecDeque;
use std::time::Duration;

use vk_hub_proto::client::{ReservationGrant, ReservationRequest};
use vk_hub_proto::dispatch::OfferReply;
use vk_hub_proto::limit::{LEASE_SECS, WAIT_SECS};
use vk_hub_proto::{NodeId, ReservationId};
use vk_step::Now;

use crate::book::Holding;
use crate::class::ClassId;
use crate::fleet::{Fleet, Out};
use crate::request::{Asker, RequestKey};
use crate::reservation::{Reservation, ReservationPhase, gone, refusal_text};
use crate::timers::Timer;
use crate::wait::Wait;
use crate::{Answer, Digest, Effect, Refusal, RequestHandle, SessionHandle};

/// A reservation request being served.
#[derive(Debug)]
pub(crate) struct Seek {
    /// Who waits; nobody once the client hung up (API-61).
    to: Option<RequestHandle>,
    digest: Digest,
    class: ClassId,
    turn: u64,
    lease_secs: u32,
    until: Now,
    /// The offer under way.
    offer: Option<ReservationId>,
    next: ReservationId,
    last_refusal: Option<String>,
}

impl Fleet {
    pub(crate) fn on_reserve(
        &mut self,
        now: Now,
        asker: Asker,
        request: &ReservationRequest,
        digest: Digest,
        fresh: ReservationId,
        out: &mut Out,
    ) {
        let Asker { to, by } = asker;
        let key = RequestKey {
            owner: by,
            request: request.request_id,
        };
        if let Some(answer) = self.repeated_reserve(now, key, digest) {
            return self.answer(to, answer, out);
        }
        if let Err(why) = request.validate() {
            return self.refuse(to, Refusal::invalid(why.to_string()), out);
        }
        if self.waits.len() >= self.settings.waiting_requests {
            let refusal = Refusal::unavailable("too many requests wait already");
            return self.refuse(to, refusal, out);
        }
        let class = self.class_of(&request.placement);
        let wait = Duration::from_secs(u64::from(request.wait_secs.min(WAIT_SECS)));
        let seek = Seek {
            to: Some(to),
            digest,
            class,
            turn: self.turn(),
            lease_secs: request.lease_secs,
            until: now.after(wait),
            offer: None,
            next: fresh,
            last_refusal: None,
        };
        self.waits.insert(to, Wait::Reserve(key));
        self.timers.set(Timer::Seek(key), seek.until);
        self.seeks.insert(key, seek);
        self.seek_on(key);
    }

    /// The answer to a create that was seen before (API-46, API-48, API-59).
    fn repeated_reserve(&self, now: Now, key: RequestKey, digest: Digest) -> Option<Answer> {
        let refused = |refusal| Some(Answer::Refused(refusal));
        if let Some(seek) = self.seeks.get(&key) {
            if seek.digest != digest {
                return refused(other_body());
            }
            let why = "this request is being served: ask again";
            return refused(Refusal::unavailable(why));
        }
        let (first, grant) = self.grants.get(key)?;
        if *first != digest {
            return refused(other_body());
        }
        // The client counts the lease from this answer's request: what has passed of it must not
        // count twice (ADM-27).
        let left = self
            .reservations
            .get(&grant.reservation)
            .filter(|one| one.phase == ReservationPhase::Held)
            .map(|one| now.until(one.until).as_secs());
        let Some(left) = left else {
            return refused(gone(grant.reservation));
        };
        Some(Answer::Granted(ReservationGrant {
            lease_secs: u32::try_from(left)
                .unwrap_or(u32::MAX)
                .min(grant.lease_secs),
            ..grant.clone()
        }))
    }

    /// The request waits for a node, in its turn.
    fn seek_on(&mut self, key: RequestKey) {
        let Some(seek) = self.seeks.get(&key) else {
            return;
        };
        if let Some(class) = self.classes.get_mut(seek.class) {
            class.seeks.insert((seek.turn, key));
            self.woken.insert(seek.class);
        }
    }

    /// Offers the envelope to a node (API-21).
    pub(crate) fn offer(&mut self, now: Now, key: RequestKey, id: NodeId, out: &mut Out) {
        let Some(seek) = self.seeks.get_mut(&key) else {
            return;
        };
        let Some(class) = self.classes.get_mut(seek.class) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(session) = node.touch() else {
            return;
        };
        class.seeks.remove(&(seek.turn, key));
        let reservation = seek.next;
        seek.next = successor(reservation);
        seek.offer = Some(reservation);
        let envelope = class.placement.envelope;
        let lease_secs = seek.lease_secs;
        node.book.ask(Holding::Reservation(reservation), envelope);
        node.reservations.insert(reservation);
        self.stirred.insert(id);
        let offered = Reservation {
            owner: key.owner,
            node: id,
            envelope,
            phase: ReservationPhase::Offered(key),
            until: now.after(self.settings.offer_within),
            renewals: VecDeque::new(),
        };
        self.timers.set(Timer::Offer(reservation), offered.until);
        self.reservations.insert(reservation, offered);
        out.effect(Effect::Offer {
            session,
            reservation,
            envelope,
            lease_secs,
        });
    }

    pub(crate) fn on_offer_reply(
        &mut self,
        now: Now,
        session: SessionHandle,
        node: NodeId,
        reservation: ReservationId,
        reply: OfferReply,
        out: &mut Out,
    ) {
        let offered = self.reservations.get(&reservation).and_then(|one| {
            let ReservationPhase::Offered(key) = one.phase else {
                return None;
            };
            (one.node == node).then_some(key)
        });
        match (offered, reply) {
            (Some(key), OfferReply::Accepted { lease_secs }) => {
                self.grant(now, key, reservation, lease_secs.min(LEASE_SECS), out);
            }
            (Some(key), OfferReply::Refused { reason, message }) => {
                let refusal = refusal_text(node, reason, message.as_deref());
                self.offer_failed(now, key, reservation, refusal, out);
            }
            (Some(key), OfferReply::Other) => {
                let refusal = format!("node {node} answered what this hub does not know");
                self.offer_failed(now, key, reservation, refusal, out);
            }
            // Abandoned, or never offered: the node must not keep it (API-62).
            (None, OfferReply::Accepted { .. }) => {
                let known = self
                    .reservations
                    .get(&reservation)
                    .is_some_and(|one| one.node == node);
                if !known {
                    out.effect(Effect::Release {
                        session,
                        reservation,
                    });
                }
            }
            (None, _) => {}
        }
    }

    fn grant(
        &mut self,
        now: Now,
        key: RequestKey,
        reservation: ReservationId,
        lease_secs: u32,
        out: &mut Out,
    ) {
        self.timers.clear(Timer::Offer(reservation));
        self.timers.clear(Timer::Seek(key));
        let Some(seek) = self.seeks.remove(&key) else {
            return;
        };
        let Some(held) = self.reservations.get_mut(&reservation) else {
            return;
        };
        held.phase = ReservationPhase::Held;
        held.until = now.after(Duration::from_secs(u64::from(lease_secs)));
        self.timers.set(Timer::Lease(reservation), held.until);
        let grant = ReservationGrant {
            reservation,
            node: held.node,
            envelope: held.envelope,
            lease_secs,
        };
        if let Some(node) = self.nodes.get_mut(&held.node) {
            node.book.took(Holding::Reservation(reservation), now);
        }
        self.grants.put(
            now,
            key,
            seek.digest,
            grant.clone(),
            self.settings.remember_requests,
            self.settings.remembered_grants,
        );
        if let Some(to) = seek.to {
            self.answer(to, Answer::Granted(grant), out);
        }
    }

    /// A node did not take the offer: on to the next, while there is time (API-22).
    fn offer_failed(
        &mut self,
        now: Now,
        key: RequestKey,
        reservation: ReservationId,
        refusal: String,
        out: &mut Out,
    ) {
        let node = self.reservations.get(&reservation).map(|one| one.node);
        self.reservation_gone(reservation, out);
        let Some(seek) = self.seeks.get_mut(&key) else {
            return;
        };
        seek.offer = None;
        seek.last_refusal = Some(refusal);
        let class = seek.class;
        let over = seek.to.is_none() || seek.until <= now;
        if let Some(node) = node {
            self.refused_by(now, class, node);
        }
        if over {
            self.end_seek(key, out);
        } else {
            self.seek_on(key);
        }
    }

    pub(crate) fn on_offer_unanswered(
        &mut self,
        now: Now,
        reservation: ReservationId,
        out: &mut Out,
    ) {
        let Some(one) = self.reservations.get(&reservation) else {
            return;
        };
        let ReservationPhase::Offered(key) = one.phase else {
            return;
        };
        let refusal = format!("node {} did not answer the offer", one.node);
        self.offer_failed(now, key, reservation, refusal, out);
    }

    /// Offers on a session that is gone.
    pub(crate) fn withdraw_offers(&mut self, now: Now, node: NodeId, out: &mut Out) {
        let Some(found) = self.nodes.get(&node) else {
            return;
        };
        let offered: Vec<_> = found
            .reservations
            .iter()
            .filter_map(|id| match self.reservations.get(id)?.phase {
                ReservationPhase::Offered(key) => Some((*id, key)),
                _ => None,
            })
            .collect();
        for (reservation, key) in offered {
            let refusal = format!("node {node} lost its session");
            self.offer_failed(now, key, reservation, refusal, out);
        }
    }

    /// The wait is over; an offer under way may still be accepted.
    pub(crate) fn on_seek_over(&mut self, key: RequestKey, out: &mut Out) {
        if self
            .seeks
            .get(&key)
            .is_some_and(|seek| seek.offer.is_none())
        {
            self.end_seek(key, out);
        }
    }

    pub(crate) fn seek_hung_up(&mut self, key: RequestKey) {
        let Some(seek) = self.seeks.get_mut(&key) else {
            return;
        };
        seek.to = None;
        if seek.offer.is_none() {
            self.drop_seek(key);
        }
    }

    fn end_seek(&mut self, key: RequestKey, out: &mut Out) {
        let Some(seek) = self.drop_seek(key) else {
            return;
        };
        if let Some(to) = seek.to {
            let why = seek
                .last_refusal
                .unwrap_or_else(|| "no node of the pool has room for it".to_owned());
            let refusal = Refusal::no_capacity(format!("no node took the reservation: {why}"));
            self.refuse(to, refusal, out);
        }
    }

    fn drop_seek(&mut self, key: RequestKey) -> Option<Seek> {
        self.timers.clear(Timer::Seek(key));
        let seek = self.seeks.remove(&key)?;
        if let Some(class) = self.classes.get_mut(seek.class) {
            class.seeks.remove(&(seek.turn, key));
        }
        Some(seek)
    }
}

/// The ID counted on by one.
fn successor(id: ReservationId) -> ReservationId {
    ReservationId::from_bytes(
        u128::from_be_bytes(*id.as_bytes())
            .wrapping_add(1)
            .to_be_bytes(),
    )
}

pub(crate) fn other_body() -> Refusal {
    Refusal::conflict("this request_id came before with another body")
}
