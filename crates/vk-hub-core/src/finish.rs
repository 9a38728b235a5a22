//! Ends: a node's result, and the hub's own verdicts.

use vk_hub_proto::display::sanitized;
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_hub_proto::{JobId, NodeId};
use vk_step::Now;

use crate::book::Holding;
use crate::fleet::{Fleet, Out};
use crate::job::Phase;
use crate::timers::Timer;
use crate::{Effect, Record, SessionHandle};

/// Characters of a result's message kept at most.
const MESSAGE_CHARS: usize = 4_096;
/// Artifacts of a result kept at most.
const ARTIFACTS: usize = 1_024;

impl Fleet {
    /// Nobody took it in time (ADM-22).
    pub(crate) fn on_not_placed(&mut self, now: Now, id: JobId, out: &mut Out) {
        if self
            .jobs
            .get(&id)
            .is_some_and(|job| job.phase == Phase::Queued)
        {
            self.end_unplaced(now, id, out);
        }
    }

    pub(crate) fn end_unplaced(&mut self, now: Now, id: JobId, out: &mut Out) {
        let refusal = self
            .jobs
            .get_mut(&id)
            .and_then(|job| job.placing.as_mut()?.last_refusal.take())
            .unwrap_or_else(|| "no node of the pool had room for it".to_owned());
        let why = format!("no node took the job in time: {refusal}");
        self.end_by_hub(now, id, FailureClass::NoCapacity, why, out);
    }

    pub(crate) fn end_canceled(&mut self, now: Now, id: JobId, out: &mut Out) {
        let why = "canceled before a node took it".to_owned();
        self.end_by_hub(now, id, FailureClass::Canceled, why, out);
    }

    /// The hub ends a job.
    pub(crate) fn end_by_hub(
        &mut self,
        now: Now,
        id: JobId,
        failure: FailureClass,
        message: String,
        out: &mut Out,
    ) {
        let result = JobResult {
            failure: Some(failure),
            exit_code: None,
            message: Some(message),
            output_len: 0,
            artifacts: Vec::new(),
            usage: None,
        };
        self.finish(now, id, result, false, out);
    }

    /// Ends a job; the length of its output is what is durable.
    pub(crate) fn finish(
        &mut self,
        now: Now,
        id: JobId,
        mut result: JobResult,
        by_node: bool,
        out: &mut Out,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        result.output_len = job.output.durable();
        job.output.close(result.output_len);
        let at_ms = self.clock.served_ms(now);
        let record = Record::JobFinished {
            job: id,
            node: job.phase.node(),
            stage: job.phase.stage().cloned(),
            result,
            by_node,
            at_ms,
        };
        self.watch_unsettled(id, at_ms);
        self.unqueue(id);
        self.spent(id, out);
        self.timers.clear(Timer::Overdue(id));
        self.keep(record, out);
        self.bump(id);
        self.wake_readers(id, out);
    }

    /// A result is always answered `recorded` (DISP-78); that of a job on this node ends it.
    pub(crate) fn on_result(
        &mut self,
        now: Now,
        session: SessionHandle,
        node: NodeId,
        id: JobId,
        result: JobResult,
        out: &mut Out,
    ) {
        if self.jobs.get(&id).is_some_and(|job| job.is_on(node)) {
            self.finish(now, id, bounded(result), true, out);
        }
        if let Some(found) = self.nodes.get_mut(&node) {
            found.book.drop(Holding::Job(id));
            self.stirred.insert(node);
        }
        out.effect(Effect::Recorded { session, job: id });
    }
}

/// A node's result cut to the size the hub keeps.
fn bounded(mut result: JobResult) -> JobResult {
    if let Some(message) = &mut result.message {
        *message = message.chars().take(MESSAGE_CHARS).collect();
    }
    result.artifacts.truncate(ARTIFACTS);
    for artifact in &mut result.artifacts {
        artifact.name = sanitized(&artifact.name);
        artifact.artifact_type = sanitized(&artifact.artifact_type);
    }
    result
}

/// Why a job that no node had accepted ends with a restart of the hub (FAIL-25).
pub(crate) const RESTARTED: &str = "the hub restarted before a node had accepted the job";
