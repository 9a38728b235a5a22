//! `held`: the single point at which hub and node compare what they know (DISP-64 to DISP-66,
//! DISP-72, DISP-80, DISP-84, FAIL-04, FAIL-20, FAIL-26).

use std::collections::BTreeSet;

use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{HeldJob, HeldReservation, RunState};
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::{JobId, NodeId};
use vk_step::Now;

use crate::book::Holding;
use crate::fleet::{Fleet, Out};
use crate::job::{Job, Phase};
use crate::reservation::ReservationPhase;
use crate::{Effect, SessionHandle};

impl Fleet {
    pub(crate) fn on_held(
        &mut self,
        now: Now,
        session: SessionHandle,
        id: NodeId,
        reservations: &[HeldReservation],
        jobs: &[HeldJob],
        out: &mut Out,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(open) = node.session.as_mut() else {
            return;
        };
        if open.held {
            // Starts may be on their way that a second one does not name.
            let why = "a second `held` in one session".to_owned();
            return self.violation(now, session, why, out);
        }
        open.held = true;
        self.stirred.insert(id);
        self.end_silence(id, out);
        self.end_absent_reservations(id, reservations, out);
        for held in jobs {
            self.compare_job(now, session, id, held, out);
        }
        self.end_absent_jobs(now, id, reservations, jobs, out);
        self.compare_reservations(now, session, id, reservations, out);
    }

    /// Jobs that were sent to the node and that it does not name: never accepted ones may be
    /// placed again, on their reservation if the node still holds it; others are lost.
    fn end_absent_jobs(
        &mut self,
        now: Now,
        id: NodeId,
        reservations: &[HeldReservation],
        jobs: &[HeldJob],
        out: &mut Out,
    ) {
        let named: BTreeSet<JobId> = jobs.iter().map(|held| held.job).collect();
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let absent: Vec<JobId> = node.jobs.difference(&named).copied().collect();
        for job in absent {
            if !self.jobs.get(&job).is_some_and(Job::is_starting) {
                let why = format!("node {id} no longer holds the job");
                self.end_by_hub(now, job, FailureClass::Lost, why, out);
                continue;
            }
            match self.still_reserved(now, job, reservations) {
                None => self.place_again(now, job, out),
                Some(held) => {
                    let holding = Holding::Reservation(held.reservation);
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.book.held(holding, Some(held.envelope));
                    }
                    self.start(now, job, id, Some(held.reservation), out);
                }
            }
        }
    }

    /// The reservation a job was sent on, if the job may still start and the node still has it.
    fn still_reserved(
        &self,
        now: Now,
        job: JobId,
        reservations: &[HeldReservation],
    ) -> Option<HeldReservation> {
        let job = self.jobs.get(&job)?;
        let placing = job.placing.as_ref()?;
        let id = placing.reservation?;
        if job.cancel.is_some() || placing.until <= now || !self.reservations.contains_key(&id) {
            return None;
        }
        let held = reservations.iter().find(|held| held.reservation == id);
        held.copied()
    }

    fn compare_job(
        &mut self,
        now: Now,
        session: SessionHandle,
        node: NodeId,
        held: &HeldJob,
        out: &mut Out,
    ) {
        let id = held.job;
        let known = self.jobs.get(&id);
        let envelope = known.map(|job| job.placement.envelope);
        if let Some(found) = self.nodes.get_mut(&node) {
            found.book.held(Holding::Job(id), envelope);
        }
        match known {
            Some(job) if job.is_on(node) => {
                let cancel = job
                    .cancel
                    .filter(|_| matches!(job.phase, Phase::Running { .. }));
                // A start whose answer was lost: it was taken (FAIL-04). Its cancel goes with it.
                self.ack(session, id, out);
                self.on_job_state(now, node, id, as_taken(&held.state), out);
                if let Some(mode) = cancel {
                    self.send_cancel(id, node, mode, out);
                }
            }
            Some(job) if has_result_of(&job.phase, node) => {
                // Its `recorded` was lost.
                if let Some(found) = self.nodes.get_mut(&node) {
                    found.book.drop(Holding::Job(id));
                }
                out.effect(Effect::Recorded { session, job: id });
            }
            // Given up, placed elsewhere, or never heard of.
            _ => out.effect(Effect::Cancel {
                session,
                job: id,
                mode: CancelMode::Immediate,
            }),
        }
    }

    fn end_absent_reservations(
        &mut self,
        id: NodeId,
        reservations: &[HeldReservation],
        out: &mut Out,
    ) {
        let named: BTreeSet<_> = reservations.iter().map(|held| held.reservation).collect();
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let absent: Vec<_> = node.reservations.difference(&named).copied().collect();
        for reservation in absent {
            self.reservation_gone(reservation, out);
        }
    }

    fn compare_reservations(
        &mut self,
        now: Now,
        session: SessionHandle,
        node: NodeId,
        reservations: &[HeldReservation],
        out: &mut Out,
    ) {
        for held in reservations {
            let id = held.reservation;
            let known = self.reservations.get(&id).filter(|one| one.node == node);
            let phase = known.map(|one| one.phase);
            if phase == Some(ReservationPhase::Held) {
                if let Some(found) = self.nodes.get_mut(&node) {
                    found
                        .book
                        .held(Holding::Reservation(id), Some(held.envelope));
                }
                self.confirm_lease(now, id, held.remaining_secs, out);
            } else if !matches!(phase, Some(ReservationPhase::Starting(_))) {
                out.effect(Effect::Release {
                    session,
                    reservation: id,
                });
            }
        }
    }
}

/// A job that the node names is not refused, whatever it says of its state.
fn as_taken(state: &RunState) -> RunState {
    match state {
        RunState::Refused { .. } => RunState::Accepted,
        other => other.clone(),
    }
}

fn has_result_of(phase: &Phase, node: NodeId) -> bool {
    matches!(phase, Phase::Finished { by_node: true, .. }) && phase.node() == Some(node)
}
