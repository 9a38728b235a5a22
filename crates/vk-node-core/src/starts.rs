//! Starts: answered from the journal, refused, or journaled and then accepted; and waiting for
//! what a job needs beyond its reservation.

use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::{GoneWhy, NodeJobMessage, RefusalReason, RunState};
use vk_hub_proto::job::{CiJob, JobSpec};
use vk_hub_proto::limit::SPEC_BYTES;
use vk_hub_proto::{JobId, ReservationId};

use crate::NodeCore;
use crate::core::Out;
use crate::io::{Effect, Project, Record, RunPlan, StartFacts, StartedJob};
use crate::jobs::{Job, Process};
use crate::ledger::Amount;
use crate::sizing;
use crate::standing::Refusal;
use crate::timers::Timer;

impl NodeCore {
    /// Takes a job, once (DISP-41).
    pub(crate) fn start(
        &mut self,
        (id, reservation, envelope): (JobId, Option<ReservationId>, Envelope),
        spec: &JobSpec,
        facts: StartFacts,
        out: &mut Out,
    ) {
        if let Some(job) = self.jobs.get(&id) {
            let state = job.state();
            self.send(NodeJobMessage::Job { job: id, state }, out);
            return self.send_result(id, out);
        }
        if self.removing.contains(&id) || self.dropped.get(&id).is_some() {
            return self.answer_dropped(id, out);
        }
        let JobSpec::GitlabCi(job) = spec;
        let held = reservation.and_then(|r| self.leases.get(&r).map(|lease| (r, lease.envelope)));
        match self.check_start(job, envelope, facts, held.is_some()) {
            Ok(()) => {
                let has = held.map_or(envelope, |(_, reserved)| reserved).into();
                let taken = held.map(|(reservation, _)| reservation);
                self.take_job(id, taken, has, self.plan(job, envelope, facts), out);
            }
            Err(mut refusal) => {
                // With a reservation named, what matters to the hub is that it is not there.
                let full = [RefusalReason::Memory, RefusalReason::Disk];
                if reservation.is_some() && full.contains(&refusal.reason) {
                    refusal.reason = RefusalReason::NoReservation;
                }
                let state = RunState::Refused {
                    reason: refusal.reason,
                    message: Some(refusal.message),
                };
                self.send(NodeJobMessage::Job { job: id, state }, out);
            }
        }
    }

    /// A start on a reservation is taken whatever the node's state, its own runner or its caps:
    /// it replaces an entry already counted (PLACE-17, PLACE-45). Any other is admitted as an
    /// offer would be, without waiting (DISP-42).
    fn check_start(
        &self,
        job: &CiJob,
        envelope: Envelope,
        facts: StartFacts,
        held: bool,
    ) -> Result<(), Refusal> {
        check_spec(job, envelope, facts)?;
        if let Some(why) = &self.store_failed {
            let message = format!("the node's journal cannot be written: {why}");
            return Err(Refusal::new(RefusalReason::NotReady, message));
        }
        if held {
            return Ok(());
        }
        self.check_new_work(envelope)?;
        self.ledger.admit(envelope.into()).map_err(Refusal::short)
    }

    /// How a job is to run and what it asks of the ledger; its slots are drawn when it is taken.
    fn plan(&self, job: &CiJob, envelope: Envelope, facts: StartFacts) -> Planned {
        let sized = sizing::size(job, self.config.sizes);
        let reserved_mib = facts.history_mib.unwrap_or(sized.mem_mib);
        Planned {
            gitlab_id: job.job.id,
            project: Project {
                server: job.server_url.clone(),
                id: job.job.project_id,
            },
            plan: RunPlan {
                slot: 0,
                project_slot: 0,
                cpus: sized.cpus,
                mem_mib: sized.mem_mib,
                disk_bytes: envelope.disk_bytes,
                warnings: sized.warnings,
            },
            asked: Amount {
                mem_mib: reserved_mib.min(sized.mem_mib),
                disk_bytes: envelope.disk_bytes,
            },
        }
    }

    fn take_job(
        &mut self,
        id: JobId,
        reservation: Option<ReservationId>,
        has: Amount,
        planned: Planned,
        out: &mut Out,
    ) {
        let Planned {
            gitlab_id,
            project,
            mut plan,
            asked,
        } = planned;
        (plan.slot, plan.project_slot) = self.slots.take(&project);
        if let Some(reservation) = reservation {
            self.drop_lease(reservation);
        }
        let granted = self.ledger.enter(id, has, asked);
        let started = Box::new(StartedJob {
            job: id,
            gitlab_id,
            project,
            plan: plan.clone(),
            granted,
            asked,
        });
        out.record(Record::Started(started.clone()));
        let mut job = Job::new(started, self.next_order, Process::Spawning);
        self.next_order += 1;
        self.unfinished += 1;
        job.output.followed();
        self.jobs.insert(id, job);

        let state = RunState::Accepted;
        self.send(NodeJobMessage::Job { job: id, state }, out);
        if let Some(reservation) = reservation {
            self.say_gone(reservation, GoneWhy::Started, out);
        }
        out.effect(Effect::Spawn {
            job: id,
            plan: Box::new(plan),
        });
        self.wait_for_rest(id, asked, out);
        self.grant_waiting(out);
    }

    /// Lets a job wait for what exceeds its reservation, unless that can never be had.
    fn wait_for_rest(&mut self, id: JobId, asked: Amount, out: &mut Out) {
        if !self.ledger.waits(id) {
            return;
        }
        if self.ledger.never_fits(asked).is_some() {
            return self.deny(id, out);
        }
        let until = self.now.after(self.config.wait_timeout);
        self.timers.set(Timer::Wait(id), until);
    }

    /// A job waited long enough (ADM-34).
    pub(crate) fn waited_too_long(&mut self, id: JobId, out: &mut Out) {
        if self.store_failed.is_some() {
            // Asked again later: nothing can be decided now that would be kept.
            let again = self.now.after(self.config.result_repeat);
            return self.timers.set(Timer::Wait(id), again);
        }
        self.deny(id, out);
    }

    fn deny(&mut self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let asked = job.started.asked;
        let short = self.ledger.never_fits(asked);
        let Some(short) = short.or_else(|| self.ledger.short_of(id)) else {
            return;
        };
        job.denied = Some(short);
        out.record(Record::Denied { job: id, short });
        if job.process == Process::Alive {
            out.effect(Effect::Deny { job: id, short });
        }
        self.leave_ledger(id, out);
    }

    /// Gives the jobs first in line what they wait for, as far as there is room.
    pub(crate) fn grant_waiting(&mut self, out: &mut Out) {
        if self.store_failed.is_some() {
            return;
        }
        while let Some(id) = self.ledger.next_to_grant() {
            self.ledger.grant(id);
            self.timers.clear(Timer::Wait(id));
            out.record(Record::Granted { job: id });
            if let Some(job) = self.jobs.get_mut(&id) {
                job.granted = true;
                if job.process == Process::Alive {
                    out.effect(Effect::Grant { job: id });
                }
            }
        }
    }
}

struct Planned {
    gitlab_id: u64,
    project: Project,
    plan: RunPlan,
    asked: Amount,
}

/// What makes no sense whatever the node's state (DISP-81).
fn check_spec(job: &CiJob, envelope: Envelope, facts: StartFacts) -> Result<(), Refusal> {
    let invalid = |message: &str| Err(Refusal::new(RefusalReason::Invalid, message));
    if facts.spec_bytes > SPEC_BYTES {
        return invalid("the spec is larger than 512 KiB");
    }
    if job.job.id == 0 {
        return invalid("the job has no GitLab number");
    }
    if !is_project_path(&job.job.project_path) {
        return invalid("the project's path is not of GitLab's shape");
    }
    if envelope.mem_mib == 0 || envelope.cpus == 0 {
        return invalid("an envelope without memory or CPUs");
    }
    Ok(())
}

/// Components of `[A-Za-z0-9._-]` joined by `/`, none empty, `.` or `..`: the path names
/// directories here.
fn is_project_path(path: &str) -> bool {
    path.len() <= 4096
        && path.split('/').all(|part| {
            !matches!(part, "" | "." | "..")
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        })
}
