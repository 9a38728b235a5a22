//! A job on its way to a node and on it: sent, taken, refused, running, over.

use vk_hub_proto::dispatch::{RefusalReason, RunState};
use vk_hub_proto::display::sanitized;
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::{JobId, NodeId, ReservationId};
use vk_step::Now;

use crate::book::Holding;
use crate::finish::RESTARTED;
use crate::fleet::{Fleet, Out};
use crate::job::Phase;
use crate::registry;
use crate::reservation::{ReservationPhase, refusal_text};
use crate::session::millis;
use crate::timers::Timer;
use crate::{Effect, Record};

/// The timeout of a job that names none, as GitLab's (FAIL-38).
const DEFAULT_TIMEOUT_SECS: u64 = 7_200;

const fn timeout_secs(given: u64) -> u64 {
    match given {
        0 => DEFAULT_TIMEOUT_SECS,
        given => given,
    }
}

impl Fleet {
    /// Sends the job to a node, which may take it from now on.
    pub(crate) fn start(
        &mut self,
        now: Now,
        id: JobId,
        node_id: NodeId,
        reservation: Option<ReservationId>,
        out: &mut Out,
    ) {
        let Some(session) = self.nodes.get(&node_id).and_then(|node| node.touch()) else {
            return;
        };
        self.unqueue(id);
        let envelope = self.take_over(id, node_id, reservation);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(placing) = job.placing.as_mut() else {
            return;
        };
        let envelope = envelope.unwrap_or(job.placement.envelope);
        placing.reservation = reservation;
        let spec = placing.spec.clone();
        let timeout_secs = timeout_secs(job.summary.timeout_secs);
        let token = self.nodes.get(&node_id).and_then(|node| {
            let registries = &self.settings.registries;
            registry::scope(registries, node, &spec, timeout_secs)
        });
        let at_ms = self.clock.served_ms(now);
        self.keep(
            Record::JobStarting {
                job: id,
                node: node_id,
                at_ms,
            },
            out,
        );
        if reservation.is_none()
            && let Some(node) = self.nodes.get_mut(&node_id)
        {
            node.book.ask(Holding::Job(id), envelope);
        }
        self.stirred.insert(node_id);
        self.watch_timeout(id, at_ms);
        self.bump(id);
        out.effect(Effect::Start {
            session,
            job: id,
            reservation,
            envelope,
            spec,
            token,
        });
    }

    /// The reservation becomes the job's: its envelope.
    fn take_over(
        &mut self,
        job: JobId,
        node: NodeId,
        reservation: Option<ReservationId>,
    ) -> Option<vk_hub_proto::client::Envelope> {
        let id = reservation?;
        let held = self.reservations.get_mut(&id)?;
        held.phase = ReservationPhase::Starting(job);
        self.timers.clear(Timer::Lease(id));
        let envelope = held.envelope;
        if let Some(node) = self.nodes.get_mut(&node) {
            node.book.start_on(id, job, envelope);
        }
        Some(envelope)
    }

    /// However it goes on, at this moment the job is overdue (FAIL-37).
    pub(crate) fn watch_timeout(&mut self, id: JobId, since_ms: u64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let timeout_secs = timeout_secs(job.summary.timeout_secs);
        let end_ms = since_ms
            .saturating_add(timeout_secs.saturating_mul(1000))
            .saturating_add(millis(self.settings.overdue_grace));
        self.timers
            .set(Timer::Overdue(id), self.clock.moment(end_ms));
    }

    pub(crate) fn on_job_state(
        &mut self,
        now: Now,
        node: NodeId,
        id: JobId,
        state: RunState,
        out: &mut Out,
    ) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_on(node)) else {
            return;
        };
        let starting = matches!(job.phase, Phase::Starting { .. });
        match state {
            RunState::Refused { reason, message } if starting => {
                self.start_refused(now, id, node, reason, message.as_deref(), out);
            }
            RunState::Refused { .. } => {
                if let Some(found) = self.nodes.get_mut(&node) {
                    found.book.drop(Holding::Job(id));
                    self.stirred.insert(node);
                }
                let why = format!("node {node} no longer holds the job");
                self.end_by_hub(now, id, FailureClass::Lost, why, out);
            }
            RunState::Running { stage, .. } => {
                self.taken(now, id, out);
                self.on_stage(id, &stage, out);
            }
            RunState::Accepted | RunState::Finished | RunState::Other => self.taken(now, id, out),
        }
    }

    /// The node has the job: it is placed for good, and its spec leaves memory (CRED-11).
    pub(crate) fn taken(&mut self, now: Now, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let Phase::Starting { node, .. } = job.phase else {
            return;
        };
        let cancel = job.cancel;
        let at_ms = self.clock.served_ms(now);
        self.keep(
            Record::JobRunning {
                job: id,
                node,
                at_ms,
                stage: None,
            },
            out,
        );
        self.spent(id, out);
        if let Some(found) = self.nodes.get_mut(&node) {
            found.book.took(Holding::Job(id), now);
        }
        self.stirred.insert(node);
        self.watch_timeout(id, at_ms);
        self.bump(id);
        if let Some(mode) = cancel {
            self.send_cancel(id, node, mode, out);
        }
    }

    /// Drops the spec, and the reservation the job was sent on.
    pub(crate) fn spent(&mut self, id: JobId, out: &mut Out) {
        let placing = self.jobs.get_mut(&id).and_then(|job| job.placing.take());
        if let Some(reservation) = placing.and_then(|placing| placing.reservation) {
            self.reservation_gone(reservation, out);
        }
    }

    fn on_stage(&mut self, id: JobId, stage: &str, out: &mut Out) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let Phase::Running {
            node,
            at_ms,
            stage: before,
        } = &job.phase
        else {
            return;
        };
        let stage = sanitized(stage);
        if before.as_ref() == Some(&stage) {
            return;
        }
        let record = Record::JobRunning {
            job: id,
            node: *node,
            at_ms: *at_ms,
            stage: Some(stage),
        };
        self.keep(record, out);
        self.bump(id);
    }

    /// The node cannot have started it: free to be placed again (API-29, FAIL-02).
    fn start_refused(
        &mut self,
        now: Now,
        id: JobId,
        node: NodeId,
        reason: RefusalReason,
        message: Option<&str>,
        out: &mut Out,
    ) {
        let text = refusal_text(node, reason, message);
        let of_this_job = matches!(
            reason,
            RefusalReason::Policy | RefusalReason::Invalid | RefusalReason::Other
        );
        let turn = self.turn();
        if let Some(found) = self.nodes.get_mut(&node) {
            found.book.drop(Holding::Job(id));
            self.stirred.insert(node);
        }
        let placing = self.jobs.get_mut(&id).and_then(|job| job.placing.as_mut());
        if let Some(placing) = placing {
            placing.last_refusal = Some(text);
            let class = placing.class;
            if of_this_job {
                // Behind the others: a job nobody wants must not stand in their way.
                placing.turn = turn;
                placing.refused.insert(node, now);
                self.next_round(now, class);
            } else {
                self.refused_by(now, class, node);
            }
        }
        self.place_again(now, id, out);
    }

    /// The job is on no node: it waits again, unless it was cancelled, its time is over, or its
    /// spec did not outlive the hub.
    pub(crate) fn place_again(&mut self, now: Now, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let node = job.phase.node();
        let cancelled = job.cancel.is_some();
        let until = job.placing.as_ref().map(|placing| placing.until);
        let reservation = job
            .placing
            .as_mut()
            .and_then(|placing| placing.reservation.take());
        if let Some(found) = node.and_then(|node| self.nodes.get_mut(&node)) {
            found.book.drop(Holding::Job(id));
        }
        self.stirred.extend(node);
        if let Some(reservation) = reservation {
            self.give_back(reservation, out);
        }
        self.timers.clear(Timer::Overdue(id));
        match until {
            _ if cancelled => self.end_canceled(now, id, out),
            None => self.end_by_hub(now, id, FailureClass::Lost, RESTARTED.to_owned(), out),
            Some(until) if until <= now => self.end_unplaced(now, id, out),
            Some(_) => {
                self.keep(Record::JobQueued { job: id }, out);
                self.queue(id);
                self.bump(id);
            }
        }
    }
}
