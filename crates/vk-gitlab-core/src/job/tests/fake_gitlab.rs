//! GitLab's side of one job, as `gitlab-server.md` describes it, with faults to inject.

use std::collections::VecDeque;
use std::time::Duration;

use crate::job::{GitLabAnswer, JobStatus, SafePoint, Update, UpdateState};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The 18.5 acknowledgement window: handed out, not running yet.
    Pending,
    Running,
    Canceling,
    Canceled,
    Success,
    Failed,
}

/// What happens to the next call instead of its ordinary answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// This answer, and nothing is done.
    Answer(GitLabAnswer),
    /// It is done, and the answer does not arrive.
    AnswerLost,
}

#[derive(Clone, Debug)]
pub(super) struct FakeGitLab {
    pub(super) status: Status,
    pub(super) trace: Vec<u8>,
    pub(super) reason: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) output: Option<SafePoint>,
    pub(super) faults: VecDeque<Fault>,
    /// 202s to a final state before it is taken.
    pub(super) delays: u32,
    /// A job that is handed out and not running yet takes its trace.
    pub(super) takes_early: bool,
    pub(super) interval: Option<u64>,
    pub(super) calls: Vec<String>,
    /// The final states as they were told.
    pub(super) finals: Vec<Update>,
}

impl Default for FakeGitLab {
    fn default() -> FakeGitLab {
        FakeGitLab {
            status: Status::Running,
            trace: Vec::new(),
            reason: None,
            exit_code: None,
            output: None,
            faults: VecDeque::new(),
            delays: 0,
            takes_early: false,
            interval: None,
            calls: Vec::new(),
            finals: Vec::new(),
        }
    }
}

pub(super) fn status(status: u16) -> GitLabAnswer {
    GitLabAnswer {
        status: Some(status),
        ..GitLabAnswer::default()
    }
}

impl FakeGitLab {
    pub(super) fn fault(&mut self, answer: GitLabAnswer) {
        self.faults.push_back(Fault::Answer(answer));
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(
            self.status,
            Status::Canceled | Status::Success | Status::Failed
        )
    }

    fn job_status(&self) -> JobStatus {
        match self.status {
            Status::Pending => JobStatus::Other,
            Status::Running => JobStatus::Running,
            Status::Canceling => JobStatus::Canceling,
            Status::Canceled => JobStatus::Canceled,
            Status::Success => JobStatus::Success,
            Status::Failed => JobStatus::Failed,
        }
    }

    fn answer(&self, status: u16) -> GitLabAnswer {
        GitLabAnswer {
            status: Some(status),
            job_status: Some(self.job_status()),
            range_end: None,
            interval: self
                .interval
                .filter(|_| status == 202)
                .map(Duration::from_secs),
            retry_after: None,
        }
    }

    pub(super) fn put(&mut self, update: &Update) -> GitLabAnswer {
        let name = match &update.state {
            UpdateState::Running if update.output.is_some() => "keep-alive".to_owned(),
            UpdateState::Running => "running".to_owned(),
            UpdateState::Success => "success".to_owned(),
            UpdateState::Failed { reason, .. } => format!("failed {reason}"),
        };
        self.calls.push(name);
        if update.state != UpdateState::Running {
            self.finals.push(update.clone());
        }
        match self.faults.pop_front() {
            Some(Fault::Answer(answer)) => answer,
            Some(Fault::AnswerLost) => {
                self.take(update);
                GitLabAnswer::default()
            }
            None => self.take(update),
        }
    }

    fn take(&mut self, update: &Update) -> GitLabAnswer {
        if self.is_final() {
            return self.answer(403);
        }
        match (&update.state, self.status) {
            (UpdateState::Running, Status::Pending) => {
                self.status = Status::Running;
                self.answer(200)
            }
            (UpdateState::Running, _) => self.answer(200),
            (_, Status::Pending) => self.answer(400),
            _ if self.delays > 0 => {
                self.delays -= 1;
                self.answer(202)
            }
            (state, _) => {
                self.output = update.output;
                if let UpdateState::Failed { reason, exit_code } = state {
                    self.reason = Some(reason.clone());
                    self.exit_code = *exit_code;
                }
                self.status = match (state, self.status) {
                    (_, Status::Canceling) => Status::Canceled,
                    (UpdateState::Success, _) => Status::Success,
                    _ => Status::Failed,
                };
                self.answer(200)
            }
        }
    }

    pub(super) fn patch(&mut self, offset: u64, bytes: &[u8]) -> GitLabAnswer {
        self.calls.push(format!("patch {offset}+{}", bytes.len()));
        match self.faults.pop_front() {
            Some(Fault::Answer(answer)) => answer,
            Some(Fault::AnswerLost) => {
                self.append(offset, bytes);
                GitLabAnswer::default()
            }
            None => self.append(offset, bytes),
        }
    }

    fn append(&mut self, offset: u64, bytes: &[u8]) -> GitLabAnswer {
        let early = self.takes_early && self.status == Status::Pending;
        if !early && !matches!(self.status, Status::Running | Status::Canceling) {
            return self.answer(403);
        }
        let size = self.trace.len() as u64;
        if offset != size {
            return GitLabAnswer {
                status: Some(416),
                range_end: Some(size),
                ..GitLabAnswer::default()
            };
        }
        self.trace.extend_from_slice(bytes);
        GitLabAnswer {
            range_end: Some(self.trace.len() as u64),
            ..self.answer(202)
        }
    }

    /// The calls since the last look.
    pub(super) fn calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }
}
