//! The hub's side of one job, with faults to inject.

use std::collections::VecDeque;

use vk_hub_proto::client::{CancelMode, ErrorCode, JobState, JobSubmission, JobView};
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_hub_proto::{JobId, NodeId};

use crate::HubFailure;
use crate::job::OutputRead;

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// This failure, and nothing is done.
    Fails(HubFailure),
    /// It is done, and the answer does not arrive.
    AnswerLost,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FakeHub {
    /// The first submission, as it came.
    pub(super) submission: Option<JobSubmission>,
    pub(super) submissions: u32,
    pub(super) output: Vec<u8>,
    /// Reads of the output that were answered: from which byte, and how many.
    pub(super) reads: Vec<(u64, u64)>,
    pub(super) state: Option<JobState>,
    pub(super) revision: u64,
    pub(super) stage: Option<String>,
    pub(super) cancel: Option<CancelMode>,
    pub(super) cancels: Vec<CancelMode>,
    pub(super) result: Option<JobResult>,
    pub(super) settled: bool,
    pub(super) forgotten: bool,
    pub(super) starts: u32,
    pub(super) settles: u32,
    /// A cancel takes its time: the job ends when the test says so.
    pub(super) slow_cancel: bool,
    pub(super) faults: VecDeque<Fault>,
    /// A submission of a job that is there has another body than the first.
    pub(super) conflicts: bool,
    /// Every call is answered so.
    pub(super) refuses: Option<HubFailure>,
}

pub(super) const HUB_JOB: JobId = JobId::from_bytes([9; 16]);

pub(super) fn result(failure: Option<FailureClass>) -> JobResult {
    JobResult {
        failure,
        exit_code: None,
        message: None,
        output_len: 0,
        artifacts: Vec::new(),
        usage: None,
    }
}

fn not_found() -> HubFailure {
    HubFailure::coded(ErrorCode::NotFound, 404, "no such job")
}

impl FakeHub {
    pub(super) fn fail(&mut self, failure: HubFailure) {
        self.faults.push_back(Fault::Fails(failure));
    }

    /// Runs a call through the faults waiting for one.
    fn call<T>(
        &mut self,
        serve: impl FnOnce(&mut FakeHub) -> Result<T, HubFailure>,
    ) -> Result<T, HubFailure> {
        if let Some(refusal) = &self.refuses {
            return Err(refusal.clone());
        }
        match self.faults.pop_front() {
            Some(Fault::Fails(failure)) => Err(failure),
            Some(Fault::AnswerLost) => {
                let _ = serve(self);
                Err(HubFailure::transport("cut"))
            }
            None => serve(self),
        }
    }

    pub(super) fn changed(&mut self) {
        self.revision += 1;
    }

    /// A node accepts the job.
    pub(super) fn accept(&mut self) {
        if self.state == Some(JobState::Queued) {
            self.state = Some(JobState::Running);
            self.starts += 1;
            self.changed();
        }
    }

    pub(super) fn finish(&mut self, result: JobResult) {
        if self.state != Some(JobState::Finished) {
            self.state = Some(JobState::Finished);
            self.result = Some(JobResult {
                output_len: self.output.len() as u64,
                ..result
            });
            self.changed();
        }
    }

    pub(super) fn submit(&mut self, submission: &JobSubmission) -> Result<JobView, HubFailure> {
        self.submissions += 1;
        self.call(|hub| {
            match &hub.submission {
                None => {
                    hub.submission = Some(submission.clone());
                    hub.state = Some(JobState::Queued);
                    hub.changed();
                }
                Some(_) if hub.conflicts => {
                    return Err(HubFailure {
                        job: Some(HUB_JOB),
                        ..HubFailure::coded(ErrorCode::Conflict, 409, "with another body")
                    });
                }
                Some(first) => assert_eq!(first, submission, "the same body each time (STATE-20)"),
            }
            hub.view_now()
        })
    }

    pub(super) fn view_now(&self) -> Result<JobView, HubFailure> {
        let Some(state) = self.state.filter(|_| !self.forgotten) else {
            return Err(not_found());
        };
        Ok(JobView {
            id: HUB_JOB,
            revision: self.revision,
            state,
            node: Some(NodeId::from_bytes([3; 16])),
            stage: self.stage.clone(),
            output_len: self.output.len() as u64,
            cancel: self.cancel,
            result: self.result.clone(),
        })
    }

    /// A view; none while a long poll would hold it.
    pub(super) fn view(
        &mut self,
        after: Option<u64>,
        held_out: bool,
    ) -> Option<Result<JobView, HubFailure>> {
        let waits = after.is_some_and(|after| self.revision <= after);
        let answers = self.faults.is_empty() && self.refuses.is_none();
        let held = waits && !held_out && !self.forgotten && answers;
        (!held).then(|| self.call(|hub| hub.view_now()))
    }

    /// Output from an offset; none while a long poll would hold it.
    pub(super) fn fetch(
        &mut self,
        offset: u64,
        max: u64,
        held_out: bool,
    ) -> Option<Result<(OutputRead, Vec<u8>), HubFailure>> {
        let total = self.output.len() as u64;
        let ended = self.state == Some(JobState::Finished);
        let held = offset == total && !ended && !held_out && !self.forgotten;
        if held && self.faults.is_empty() && self.refuses.is_none() {
            return None;
        }
        Some(self.call(|hub| {
            if hub.forgotten || hub.settled {
                return Err(not_found());
            }
            let from = usize::try_from(offset).expect("small");
            let bytes = hub.output.get(from..).unwrap_or_default();
            let most = usize::try_from(max).expect("small");
            let bytes = bytes[..bytes.len().min(most)].to_vec();
            let len = bytes.len() as u64;
            hub.reads.push((offset, len));
            let read = OutputRead {
                len,
                total,
                complete: ended && offset + len == total,
            };
            Ok((read, bytes))
        }))
    }

    pub(super) fn cancel(&mut self, mode: CancelMode) -> Result<JobView, HubFailure> {
        self.cancels.push(mode);
        self.call(|hub| {
            if hub.cancel < Some(mode) {
                hub.cancel = Some(mode);
                hub.changed();
            }
            if mode == CancelMode::Immediate && hub.state.is_some() && !hub.slow_cancel {
                hub.finish(result(Some(FailureClass::Canceled)));
            }
            hub.view_now()
        })
    }

    pub(super) fn settle(&mut self) -> Result<(), HubFailure> {
        self.settles += 1;
        self.call(|hub| {
            if hub.state != Some(JobState::Finished) {
                return Err(HubFailure::coded(ErrorCode::Conflict, 409, "not finished"));
            }
            hub.settled = true;
            Ok(())
        })
    }
}
