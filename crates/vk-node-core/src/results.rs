//! The end of a job: journaled, told to the hub once it has every byte, repeated until the hub
//! recorded it, then removed.

use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::{NodeJobMessage, RunState};
use vk_hub_proto::job::{FailureClass, JobResult};

use crate::NodeCore;
use crate::core::Out;
use crate::io::{Effect, Record};
use crate::jobs::Process;
use crate::timers::Timer;

impl NodeCore {
    /// A job is over: its result is kept, its secrets and what it held are not.
    pub(crate) fn finish(&mut self, id: JobId, result: JobResult, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.process = Process::Over;
        self.timers.clear(Timer::CleanUp(id));
        if self.store_failed.is_some() {
            job.unkept = Some(result);
            return self.leave_ledger(id, out);
        }
        out.record(Record::Finished {
            job: id,
            result: result.clone(),
        });
        job.result = Some(result);
        let started = &job.started;
        let (slot, project_slot) = (started.plan.slot, started.plan.project_slot);
        self.slots.give(&started.project, slot, project_slot);
        self.unfinished = self.unfinished.saturating_sub(1);
        out.effect(Effect::DropSecrets { job: id });
        if self.session.is_some_and(|s| s.held) {
            let state = RunState::Finished;
            self.send(NodeJobMessage::Job { job: id, state }, out);
        }
        self.leave_ledger(id, out);
        self.pump(id, out);
        self.send_result(id, out);
    }

    /// Sends a result, where there is one and the hub has every byte before it (DISP-53), and
    /// again after a while without an answer (DISP-77).
    pub(crate) fn send_result(&mut self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let Some(result) = job.result.as_ref().filter(|_| job.output.is_delivered()) else {
            return;
        };
        let result = result.clone();
        self.send(NodeJobMessage::Result { job: id, result }, out);
        let again = self.now.after(self.config.result_repeat);
        self.timers.set(Timer::Repeat(id), again);
    }

    /// The hub stored a result: the job is none of the node's any more.
    pub(crate) fn recorded(&mut self, id: JobId, out: &mut Out) {
        let over = self.jobs.get(&id).is_some_and(|job| job.result.is_some());
        // Without a journal the job stays: the result is sent again, and answered again.
        if !over || self.store_failed.is_some() {
            return;
        }
        self.jobs.remove(&id);
        self.timers.clear(Timer::Repeat(id));
        self.removing.insert(id);
        out.record(Record::Recorded { job: id });
        out.effect(Effect::Remove { job: id });
    }

    /// A job's directory is gone.
    pub(crate) fn removed(&mut self, id: JobId, out: &mut Out) {
        if self.store_failed.is_none() && self.removing.remove(&id) {
            self.dropped.add(id, ());
            out.record(Record::Dropped { job: id });
        }
    }

    /// Answers a start of a job that ran here, was recorded and is gone: it must not run again.
    pub(crate) fn answer_dropped(&self, id: JobId, out: &mut Out) {
        let state = RunState::Finished;
        self.send(NodeJobMessage::Job { job: id, state }, out);
        let result = JobResult {
            failure: Some(FailureClass::System),
            exit_code: None,
            message: Some("the job ran on this node before and its result was recorded".to_owned()),
            output_len: 0,
            artifacts: Vec::new(),
            usage: None,
        };
        self.send(NodeJobMessage::Result { job: id, result }, out);
    }
}
