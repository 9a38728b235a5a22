//! A model of GitLab's side of a job: hand-out, trace, state, cancel.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use vk_gitlab_core::job::{GitLabAnswer, JobStatus, Update, UpdateState};

use crate::script::Script;

/// How a job stands with GitLab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for a runner.
    Pending,
    /// Handed out.
    Running,
    /// Handed out, to be stopped gracefully.
    Canceling,
    /// Over: it succeeded.
    Success,
    /// Over: it failed.
    Failed,
    /// Over: it was cancelled.
    Canceled,
}

impl State {
    /// Whether the job is over.
    #[must_use]
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, State::Success | State::Failed | State::Canceled)
    }

    const fn header(self) -> Option<JobStatus> {
        Some(match self {
            State::Pending => JobStatus::Other,
            State::Running => JobStatus::Running,
            State::Canceling => JobStatus::Canceling,
            State::Success => JobStatus::Success,
            State::Failed => JobStatus::Failed,
            State::Canceled => JobStatus::Canceled,
        })
    }
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// What it does.
    pub(crate) script: Script,
    /// How it stands.
    pub(crate) state: State,
    /// Its trace.
    pub(crate) trace: Vec<u8>,
    /// Times it was handed out.
    pub(crate) handed: u32,
    /// A force-cancel ended it.
    pub(crate) forced: bool,
    /// The reason it failed with.
    pub(crate) reason: Option<String>,
    /// The exit code it failed with.
    pub(crate) exit_code: Option<i32>,
    /// Final states it took.
    pub(crate) finals: u32,
    /// 202s it still gives to the final state.
    pub(crate) pending_finals: u32,
    /// The end of the trace was lost and no patch has come since: nobody could have noticed.
    pub(crate) forgotten: bool,
}

/// The server.
#[derive(Clone, Debug, Default)]
pub(crate) struct GitLab {
    /// Its jobs by number.
    pub(crate) jobs: BTreeMap<u64, Job>,
    queue: VecDeque<u64>,
    /// What it never should have seen.
    pub(crate) complaints: Vec<String>,
}

/// The interval it answers while nobody watches.
const INTERVAL: Duration = Duration::from_secs(60);

impl GitLab {
    /// A new pending job; `pending_finals` 202s come before its final state is taken.
    pub(crate) fn add(&mut self, script: Script, pending_finals: u32) {
        let job = Job {
            script,
            state: State::Pending,
            trace: Vec::new(),
            handed: 0,
            forced: false,
            reason: None,
            exit_code: None,
            finals: 0,
            pending_finals,
            forgotten: false,
        };
        self.jobs.insert(script.gitlab_job, job);
        self.queue.push_back(script.gitlab_job);
    }

    /// Hands out the oldest pending job.
    pub(crate) fn hand_out(&mut self) -> Option<Script> {
        let number = self.queue.pop_front()?;
        let job = self.jobs.get_mut(&number)?;
        job.state = State::Running;
        job.handed += 1;
        Some(job.script)
    }

    /// Somebody cancels a job: gracefully, or by force.
    pub(crate) fn cancel(&mut self, number: u64, force: bool) {
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        match job.state {
            State::Pending => {
                self.queue.retain(|queued| *queued != number);
                job.state = State::Canceled;
            }
            State::Running if !force => job.state = State::Canceling,
            State::Running | State::Canceling if force => {
                job.state = State::Canceled;
                job.forced = true;
            }
            _ => {}
        }
    }

    /// `PATCH /jobs/:id/trace`.
    pub(crate) fn patch(&mut self, number: u64, offset: u64, bytes: &[u8]) -> GitLabAnswer {
        let Some(job) = self.jobs.get_mut(&number) else {
            return status(404, None);
        };
        if job.state.is_final() {
            return status(403, job.state.header());
        }
        let size = job.trace.len() as u64;
        if offset != size {
            return GitLabAnswer {
                range_end: Some(size),
                ..status(416, None)
            };
        }
        job.forgotten = false;
        job.trace.extend_from_slice(bytes);
        let range_end = Some(job.trace.len() as u64);
        GitLabAnswer {
            range_end,
            interval: Some(INTERVAL),
            ..status(202, job.state.header())
        }
    }

    /// `PUT /jobs/:id`.
    pub(crate) fn update(&mut self, number: u64, update: &Update) -> GitLabAnswer {
        let Some(job) = self.jobs.get_mut(&number) else {
            return status(404, None);
        };
        if job.state.is_final() {
            return status(403, job.state.header());
        }
        let state = match &update.state {
            UpdateState::Running => {
                return status(200, job.state.header());
            }
            UpdateState::Success => State::Success,
            UpdateState::Failed { reason, exit_code } => {
                job.reason = Some(reason.clone());
                job.exit_code = *exit_code;
                State::Failed
            }
        };
        if job.pending_finals > 0 {
            job.pending_finals -= 1;
            let interval = Some(Duration::from_secs(2));
            return GitLabAnswer {
                interval,
                ..status(202, job.state.header())
            };
        }
        if let Some(sum) = update.output {
            let crc = crc32fast::hash(&job.trace);
            let differs = sum.offset != job.trace.len() as u64 || sum.crc != crc;
            if differs && !job.forgotten {
                self.complaints.push(format!(
                    "job {number}: the final state says {} bytes with CRC {:08x}, the trace has {} with {crc:08x}",
                    sum.offset, sum.crc, job.trace.len(),
                ));
            }
        } else {
            self.complaints
                .push(format!("job {number}: a final state without checksum"));
        }
        job.state = if job.state == State::Canceling {
            State::Canceled
        } else {
            state
        };
        job.finals += 1;
        status(200, job.state.header())
    }

    /// GitLab loses the end of a trace.
    pub(crate) fn forget(&mut self, number: u64, keep: u64) {
        if let Some(job) = self.jobs.get_mut(&number) {
            job.trace
                .truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            job.forgotten = true;
        }
    }
}

fn status(status: u16, job_status: Option<JobStatus>) -> GitLabAnswer {
    GitLabAnswer {
        status: Some(status),
        job_status,
        ..GitLabAnswer::default()
    }
}
