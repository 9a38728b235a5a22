//! The final state: told until GitLab has it, or never will (GL-30 to GL-34, GL-51, GL-54, GL-59,
//! GL-70).

use std::time::Duration;

use vk_step::Now;

use super::gitlab::INTERVAL;
use super::machine::Job;
use super::{Effect, Ended, GitLabAnswer, JobStatus, Note, Record, Step, UpdateState};

/// The longest wait between two of its tries.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// How long a final state is told where the job token's end is not known (GL-70).
const TOLD_SECS: u64 = 24 * 3600;
/// How long a GitLab that puts the final state off is waited for at least, from the job's end or the
/// daemon's start.
const WAITED_SECS: u64 = 3600;

impl Job {
    /// The final phase begins: what is left of the trace goes out without waiting for the interval.
    pub(super) fn final_phase(&mut self, now: Now) {
        self.gitlab.interval = INTERVAL;
        self.trace.patch_at = now;
        self.gitlab.final_at = now;
    }

    /// The final state is due: every byte before it is with GitLab.
    pub(super) fn advance_final(&mut self, now: Now, step: &mut Step) {
        if now < self.gitlab.final_at {
            return;
        }
        let Some(ended) = self.record.as_ref().and_then(|job| job.ended.clone()) else {
            return;
        };
        self.update_final(now, final_state(ended), step);
    }

    /// Takes GitLab's answer to the final state.
    pub(super) fn final_answered(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) {
        if answer.status == Some(200) || self.was_delivered(answer) {
            self.report(true, step);
            return;
        }
        self.wait_as_asked(now, answer);
        let uncommitted = self.record.as_ref().is_some_and(|job| !job.committed);
        match answer.status {
            Some(202) => self.final_waits(now, answer, step),
            Some(412) => {
                step.effect(Effect::Note(Note::ProxySuspected { status: 412 }));
                self.final_waits(now, answer, step);
                self.trace.begin_again(self.gitlab.final_at);
            }
            Some(400) if uncommitted && !self.gitlab.asks_first() => self.gitlab.ask_first(now),
            Some(status @ (403 | 404)) => {
                if status == 404 {
                    step.effect(Effect::Note(Note::ProxySuspected { status }));
                }
                self.undelivered(&format!("GitLab answered {status}"), step);
            }
            _ => self.final_failed(now, answer, step),
        }
    }

    /// GitLab wants to be told again, after its interval or after longer each time.
    fn final_waits(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) {
        // The token is taken yet, whenever it was thought to end.
        let ended = self.record.as_ref().and_then(|job| job.ended.as_ref());
        let began = ended.map_or(0, |ended| ended.at).max(self.config.wall);
        let is_new = self.wall(now) < began.saturating_add(WAITED_SECS);
        if !is_new && self.is_hopeless(now, answer, step) {
            return;
        }
        let wait = self.gitlab.final_accepted.fail();
        let wait = answer.interval.unwrap_or(wait).min(LONGEST_WAIT);
        self.gitlab.final_at = now.after(wait);
    }

    /// Whether there is no point in telling it any more: then it is undelivered (GL-70).
    fn is_hopeless(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) -> bool {
        let hopeless = self.wall(now) >= self.told_until();
        if hopeless {
            let last = answer.status.map_or_else(
                || "did not answer".to_owned(),
                |status| format!("answered {status}"),
            );
            self.undelivered(&format!("GitLab {last} until the job's token ended"), step);
        }
        hopeless
    }

    /// A call of the final phase failed: the next waits longer, until there is no point any more.
    pub(super) fn final_failed(&mut self, now: Now, answer: &GitLabAnswer, step: &mut Step) {
        if self.is_hopeless(now, answer, step) {
            return;
        }
        let wait = self.gitlab.final_failures.fail();
        let wait = self.spread.above(wait);
        self.gitlab.final_at = now.after(wait);
        self.trace.patch_at = now.after(wait);
    }

    /// Wall-clock time from which a failed try is the last.
    pub(super) fn told_until(&self) -> u64 {
        let Some(job) = &self.record else {
            return 0;
        };
        let ended = job.ended.as_ref().map_or(0, |ended| ended.at);
        job.taken
            .token_ends
            .unwrap_or(ended.max(job.taken.taken_at).saturating_add(TOLD_SECS))
    }

    /// Whether a 403 says that GitLab has our final state already, or needs none (GL-51).
    pub(super) fn was_delivered(&self, answer: &GitLabAnswer) -> bool {
        let ended = self.record.as_ref().and_then(|job| job.ended.as_ref());
        let Some(ended) = ended.filter(|_| answer.status == Some(403)) else {
            return false;
        };
        match answer.job_status {
            Some(JobStatus::Canceled) => true,
            Some(JobStatus::Success) => ended.success,
            Some(JobStatus::Failed) => !ended.success,
            _ => false,
        }
    }

    fn undelivered(&mut self, why: &str, step: &mut Step) {
        let ended = self.record.as_ref().and_then(|job| job.ended.as_ref());
        let reason = ended.and_then(|ended| ended.failure_reason.as_deref());
        let state = match ended {
            Some(ended) if ended.success => "success".to_owned(),
            _ => format!("failed, {}", reason.unwrap_or("unknown_failure")),
        };
        step.effect(Effect::Note(Note::Undelivered {
            state,
            why: why.to_owned(),
        }));
        self.report(false, step);
    }

    /// GitLab is done with the job.
    pub(super) fn report(&mut self, delivered: bool, step: &mut Step) {
        self.keep(Record::Reported { delivered }, step);
        if delivered {
            step.effect(Effect::Note(Note::Reported));
        }
    }
}

fn final_state(ended: Ended) -> UpdateState {
    if ended.success {
        return UpdateState::Success;
    }
    UpdateState::Failed {
        reason: ended
            .failure_reason
            .unwrap_or_else(|| "unknown_failure".to_owned()),
        exit_code: ended.exit_code,
    }
}
