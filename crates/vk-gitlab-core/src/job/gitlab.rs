//! What GitLab is told while the job runs: commit, patches, keep-alives (GL-14, GL-18 to GL-24,
//! GL-29, GL-49 to GL-55). One call is on its way at a time (GL-55).

use std::time::Duration;

use vk_step::Now;

use super::machine::Job;
use super::trace::Piece;
use super::{
    CallId, Effect, GitLabAnswer, JobRecord, JobStatus, Note, Record, Span, Step, Update,
    UpdateState, WhyGivenUp,
};
use crate::Backoff;

/// The trace's update interval where GitLab names none, and in the final phase.
pub(super) const INTERVAL: Duration = Duration::from_secs(3);
/// The longest interval GitLab may ask for (GL-19).
pub(super) const LONGEST_INTERVAL: Duration = Duration::from_secs(900);
/// Silence after which GitLab is told that the job lives (GL-29).
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Patches are not sent closer together than this: 3 a second (GL-55).
const PACE: Duration = Duration::from_millis(334);
/// What a read may take to bring output once the interval has passed: then there is none to send.
const READS_TAKE: Duration = Duration::from_millis(250);
/// The longest wait a 429 may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// A call on its way to GitLab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// `state=running`: the commit, or the first question after a restart.
    Running,
    /// `state=running` with the trace's checksum.
    KeepAlive,
    /// The final state.
    Final,
    /// Bytes of the trace; of none, a question: its answer says how the job stands, and the
    /// interval, which no answer to a PUT does.
    Patch { offset: u64, len: u64 },
}

/// The conversation with GitLab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitLab {
    out: Option<(CallId, Call)>,
    /// Nothing is sent before this: GitLab asked to wait, or calls came too close.
    not_before: Now,
    asked_to_wait: Backoff,
    /// Whether `state=running` must be answered before anything else is said (STATE-25, ERR-32).
    asks_first: bool,
    running_at: Now,
    running: Backoff,
    keep_alive_at: Now,
    pub(super) interval: Duration,
    /// When a silent job's trace is asked about with a patch of no bytes; none while GitLab has
    /// named no interval.
    ask_at: Option<Now>,
    pub(super) final_at: Now,
    pub(super) final_failures: Backoff,
    pub(super) final_accepted: Backoff,
}

impl GitLab {
    /// A conversation that begins, or begins again: then GitLab is asked first how the job stands.
    pub(super) fn new(now: Now, asks_first: bool) -> GitLab {
        let hour = Duration::from_secs(3600);
        GitLab {
            out: None,
            not_before: now,
            asked_to_wait: Backoff::new(Duration::from_secs(5), Duration::from_secs(60)),
            asks_first,
            running_at: now,
            running: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
            keep_alive_at: now.after(KEEP_ALIVE),
            interval: INTERVAL,
            ask_at: None,
            final_at: now,
            final_failures: Backoff::new(Duration::from_secs(1), hour),
            final_accepted: Backoff::new(INTERVAL, hour),
        }
    }

    /// Whether GitLab must say how the job stands before the trace goes on.
    pub(super) const fn asks_first(&self) -> bool {
        self.asks_first
    }

    /// GitLab must be told `running` before the job can be failed (ERR-32).
    pub(super) fn ask_first(&mut self, now: Now) {
        self.asks_first = true;
        self.running_at = now;
    }
}

impl Job {
    pub(super) fn advance_gitlab(&mut self, now: Now, step: &mut Step) {
        let Some(job) = self.record.as_ref().filter(|job| !job.is_over()) else {
            return;
        };
        if self.gitlab.out.is_some() || now < self.gitlab.not_before {
            return;
        }
        if self.says_running(job) {
            if now >= self.gitlab.running_at {
                self.update(now, Call::Running, UpdateState::Running, step);
            }
            return;
        }
        if !self.traces(job) {
            return;
        }
        let (running, piece) = (job.ended.is_none(), self.trace.piece(job));
        if running && now >= self.gitlab.keep_alive_at {
            self.update(now, Call::KeepAlive, UpdateState::Running, step);
            return;
        }
        match piece {
            Piece::Patch(span) if now >= self.trace.patch_at => self.patch(now, span, step),
            Piece::Whole if !running => self.advance_final(now, step),
            Piece::Fetch { offset } if running && self.asks(now) => self.ask(now, offset, step),
            Piece::Fetch { offset } if self.trace.asks && now >= self.trace.patch_at => {
                self.ask(now, offset, step);
            }
            _ => {}
        }
    }

    /// Whether the interval passed and brought nothing to send. GitLab asks for a short one while
    /// someone watches the log: a cancel is learnt as soon as that, and so is the watching's end
    /// (GL-19, GL-58).
    fn asks(&self, now: Now) -> bool {
        let due = self.gitlab.ask_at.is_some_and(|at| now >= at);
        due && self.trace.gitlab == self.trace.sum.offset
    }

    /// Sends a patch of no bytes. It is no output: the keep-alive's time and the next patch's go on.
    fn ask(&mut self, now: Now, from: u64, step: &mut Step) {
        let offset = self.trace.gitlab;
        let call = self.next_call();
        self.gitlab.out = Some((call, Call::Patch { offset, len: 0 }));
        self.gitlab.not_before = now.after(PACE);
        step.effect(Effect::Patch {
            call,
            offset,
            span: Span::Output { from, len: 0 },
            crc: None,
        });
    }

    /// Whether `state=running` is due: a node accepted the job (GL-14), or GitLab must be asked
    /// first how it stands.
    fn says_running(&self, job: &JobRecord) -> bool {
        let accepted = self.view.accepted() && !job.committed && job.ended.is_none();
        accepted || self.gitlab.asks_first
    }

    fn update(&mut self, now: Now, kind: Call, state: UpdateState, step: &mut Step) {
        let output = match kind {
            Call::Running => None,
            Call::KeepAlive | Call::Final | Call::Patch { .. } => self.trace.checksum(),
        };
        let call = self.next_call();
        self.gitlab.out = Some((call, kind));
        self.gitlab.not_before = now.after(PACE);
        step.effect(Effect::Update {
            call,
            update: Update { state, output },
        });
    }

    /// Sends the final state.
    pub(super) fn update_final(&mut self, now: Now, state: UpdateState, step: &mut Step) {
        self.update(now, Call::Final, state, step);
    }

    fn patch(&mut self, now: Now, span: Span, step: &mut Step) {
        let offset = self.trace.gitlab;
        let carries_on = offset == self.trace.sum.offset;
        let crc = carries_on.then_some(self.trace.sum.crc);
        let call = self.next_call();
        let len = span.len();
        if len > 0 {
            self.trace.said = None;
        }
        if matches!(span, Span::Output { .. }) {
            self.trace.most = self.trace.most.max(offset.saturating_add(len));
        }
        self.gitlab.out = Some((call, Call::Patch { offset, len }));
        self.gitlab.not_before = now.after(PACE);
        step.effect(Effect::Patch {
            call,
            offset,
            span,
            crc,
        });
    }

    /// A patch did not go out after all; whether there was one.
    pub(super) fn patch_taken_back(&mut self, call: CallId) -> bool {
        let mut out = self.gitlab.out.iter();
        let was = out.any(|(out, what)| *out == call && matches!(what, Call::Patch { .. }));
        if was {
            self.gitlab.out = None;
        }
        was
    }

    /// Takes GitLab's answer to a PUT.
    pub(super) fn update_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: &GitLabAnswer,
        step: &mut Step,
    ) {
        match self.gitlab.out.filter(|(out, _)| *out == call) {
            Some((_, Call::Running)) => {
                self.gitlab.out = None;
                self.running_answered(now, answer, step);
            }
            Some((_, Call::KeepAlive)) => {
                self.gitlab.out = None;
                self.keep_alive_answered(now, answer, step);
            }
            Some((_, Call::Final)) => {
                self.gitlab.out = None;
                self.final_answered(now, answer, step);
            }
            Some((_, Call::Patch { .. })) | None => {}
        }
    }

    fn running_answered(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) {
        if self.was_delivered(answer) {
            // The final state had arrived before the restart (GL-51).
            self.report(true, step);
            return;
        }
        if self.heard(now, answer, step) {
            return;
        }
        if is_success(answer) {
            self.gitlab.asks_first = false;
            self.gitlab.running.succeed();
            self.gitlab.keep_alive_at = now.after(KEEP_ALIVE);
            self.trace.patch_at = now;
            if self.record.as_ref().is_some_and(|job| !job.committed) {
                self.keep(Record::Committed, step);
            }
        } else {
            let wait = self.gitlab.running.fail();
            self.gitlab.running_at = now.after(self.spread.above(wait));
            if self.view.is_over() || self.has_ended() {
                self.final_failed(now, answer, step);
            }
        }
    }

    /// Whether how the job ended is known and kept.
    fn has_ended(&self) -> bool {
        self.record.as_ref().is_some_and(|job| job.ended.is_some())
    }

    fn keep_alive_answered(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) {
        if self.heard(now, answer, step) {
            return;
        }
        let wait = if answer.status == Some(200) {
            KEEP_ALIVE
        } else {
            // A 202 does not count either (GL-69).
            self.gitlab.interval.min(KEEP_ALIVE)
        };
        self.gitlab.keep_alive_at = now.after(wait);
    }

    /// Takes GitLab's answer to a patch.
    pub(super) fn patch_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: &GitLabAnswer,
        crc: Option<u32>,
        step: &mut Step,
    ) {
        let out = self.gitlab.out.filter(|(out, _)| *out == call);
        let Some((_, Call::Patch { offset, len })) = out else {
            return;
        };
        self.gitlab.out = None;
        if self.waits_for_its_acknowledgement(answer) {
            self.gitlab.ask_first(now);
            return;
        }
        if self.heard(now, answer, step) {
            return;
        }
        let next = now.after(self.gitlab.interval).after(READS_TAKE);
        self.gitlab.ask_at = self.gitlab.ask_at.map(|_| next);
        if len == 0 && answer.status != Some(416) && !self.trace.asks {
            return;
        }
        let ended = self.has_ended();
        let pause = if ended { PACE } else { self.gitlab.interval };
        match answer.status {
            Some(202) => {
                self.gitlab.keep_alive_at = now.after(KEEP_ALIVE);
                self.gitlab.final_failures.succeed();
                self.trace.patch_at = now.after(pause);
                self.patched(now, offset, len, crc, step);
            }
            Some(416) => {
                self.elsewhere(answer.range_end.unwrap_or(0), step);
                if answer.range_end.is_none() {
                    self.trace.said = None;
                }
                let first = self.trace.mismatches <= 1;
                let wait = if first { PACE } else { self.gitlab.interval };
                self.trace.patch_at = now.after(wait);
            }
            Some(409 | 429) => self.trace.patch_at = now.after(self.gitlab.interval),
            _ if ended => self.final_failed(now, answer, step),
            _ => self.trace.patch_at = now.after(self.gitlab.interval),
        }
    }

    /// A job that was never committed and whose trace is refused, without being over: the GitLab of
    /// the 18.5 acknowledgement window wants `running` first (ERR-32).
    fn waits_for_its_acknowledgement(&self, answer: &GitLabAnswer) -> bool {
        let uncommitted = self.record.as_ref().is_some_and(|job| !job.committed);
        let over = matches!(
            answer.job_status,
            Some(JobStatus::Canceled | JobStatus::Failed | JobStatus::Success)
        );
        uncommitted && answer.status == Some(403) && !over && !self.gitlab.asks_first
    }

    /// What every answer may say beside its own: the interval, a wait, a cancel, the end (GL-35).
    /// Whether the job was given up.
    pub(super) fn heard(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) -> bool {
        if let Some(interval) = answer.interval.filter(|interval| !interval.is_zero()) {
            self.gitlab.interval = interval.min(LONGEST_INTERVAL);
            self.gitlab.ask_at.get_or_insert(now);
        }
        self.wait_as_asked(now, answer);
        if let Some(why) = why_given_up(answer) {
            self.give_up(why, step);
            return true;
        }
        if answer.job_status == Some(JobStatus::Canceling) {
            self.canceling(step);
        }
        false
    }

    /// A 429 holds everything back for as long as it says, or for longer each time (GL-55).
    pub(super) fn wait_as_asked(&mut self, now: Now, answer: &GitLabAnswer) {
        if answer.status != Some(429) {
            self.gitlab.asked_to_wait.succeed();
            return;
        }
        let fallback = self.gitlab.asked_to_wait.fail();
        let wait = match answer.retry_after.filter(|asked| !asked.is_zero()) {
            Some(asked) => asked.min(LONGEST_RETRY_AFTER),
            None => self.spread.above(fallback),
        };
        self.gitlab.not_before = self.gitlab.not_before.max(now.after(wait));
    }

    /// Nothing more is written to GitLab (GL-39).
    fn give_up(&mut self, why: WhyGivenUp, step: &mut Step) {
        if why == WhyGivenUp::NotFound {
            step.effect(Effect::Note(Note::ProxySuspected { status: 404 }));
        }
        self.keep(Record::GivenUp { why }, step);
        step.effect(Effect::Note(Note::GivenUp(why)));
    }

    /// Moments at which something is due towards GitLab.
    pub(super) fn gitlab_deadlines(&self) -> [Option<Now>; 5] {
        if self.gitlab.out.is_some() || self.record.as_ref().is_none_or(JobRecord::is_over) {
            return [None; 5];
        }
        [
            Some(self.gitlab.not_before),
            Some(self.gitlab.running_at),
            Some(self.gitlab.keep_alive_at),
            Some(self.gitlab.final_at),
            self.gitlab.ask_at,
        ]
    }
}

/// Whether an answer ends what is written to GitLab (GL-23, GL-24, GL-37 to GL-39, GL-52).
fn why_given_up(answer: &GitLabAnswer) -> Option<WhyGivenUp> {
    match (answer.job_status, answer.status) {
        (Some(JobStatus::Canceled), _) => Some(WhyGivenUp::Canceled),
        (Some(JobStatus::Failed), _) => Some(WhyGivenUp::Failed),
        (_, Some(403)) => Some(WhyGivenUp::Forbidden),
        (_, Some(404)) => Some(WhyGivenUp::NotFound),
        _ => None,
    }
}

/// Whether GitLab took a PUT `running`.
fn is_success(answer: &GitLabAnswer) -> bool {
    matches!(answer.status, Some(200..=202))
}
