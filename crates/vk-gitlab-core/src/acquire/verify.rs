//! `/runners/verify`: at start, daily, and as a sign of life (GL-40, ADM-36).

use std::time::Duration;

use vk_step::Now;

use super::{Effect, Note, Step, VerifyAnswer};
use crate::{Backoff, Spread};

/// How often the token is verified (GL-40).
const DAILY: Duration = Duration::from_secs(24 * 3600);
/// The longest silence towards GitLab of a runner that could take jobs: 10 min, less what an
/// answer may take (ADM-36).
const SILENCE: Duration = Duration::from_secs(570);
/// The longest wait before a failed verify is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Whether GitLab takes the runner's token, and when it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verify {
    asked: bool,
    /// None before the first answer that says so.
    token_taken: Option<bool>,
    answered: bool,
    next: Now,
    contact: Now,
    backoff: Backoff,
}

impl Verify {
    pub(super) fn new(now: Now) -> Verify {
        Verify {
            asked: false,
            token_taken: None,
            answered: false,
            next: now,
            contact: now,
            backoff: Backoff::new(Duration::from_secs(5), LONGEST_RETRY),
        }
    }

    /// Whether GitLab takes the token; none before its first answer.
    pub(super) const fn token_taken(&self) -> Option<bool> {
        self.token_taken
    }

    /// Whether jobs may be asked for: the token is not known to be refused, and a verify came first.
    /// One without an answer that counts stops nothing: a job request will say (SPEC-80).
    pub(super) fn lets_ask(&self) -> bool {
        self.answered && self.token_taken != Some(false)
    }

    /// Whether verifying fails without an answer.
    pub(super) const fn is_failing(&self) -> bool {
        self.backoff.failures() > 0
    }

    /// GitLab heard of the runner.
    pub(super) fn contact(&mut self, now: Now) {
        self.contact = now;
    }

    /// A job request was refused with 403: only a later verify undoes that (GL-62).
    pub(super) fn refused(&mut self, now: Now) {
        self.token_taken = Some(false);
        self.next = now.after(DAILY);
    }

    /// When the next one is due; `silent` says that silence must be broken.
    pub(super) fn due(&self, silent: bool) -> Option<Now> {
        if self.asked {
            None
        } else if silent && self.token_taken == Some(true) {
            Some(self.next.min(self.contact.after(SILENCE)))
        } else {
            Some(self.next)
        }
    }

    /// Sends one where it is due.
    pub(super) fn advance(&mut self, now: Now, silent: bool, step: &mut Step) {
        if self.due(silent).is_some_and(|due| due <= now) {
            self.asked = true;
            self.contact = now;
            step.effect(Effect::Verify);
        }
    }

    /// Takes the answer.
    pub(super) fn answered(
        &mut self,
        now: Now,
        answer: VerifyAnswer,
        spread: &mut Spread,
        step: &mut Step,
    ) {
        self.asked = false;
        self.answered = true;
        match answer {
            VerifyAnswer::Taken => {
                if self.token_taken == Some(false) {
                    step.effect(Effect::Note(Note::TokenTaken));
                }
                self.token_taken = Some(true);
                self.backoff.succeed();
                self.contact = now;
                self.next = now.after(DAILY);
            }
            VerifyAnswer::Refused => {
                if self.token_taken != Some(false) {
                    step.effect(Effect::Note(Note::TokenRefused));
                }
                self.backoff.succeed();
                self.refused(now);
            }
            VerifyAnswer::Unavailable { retry_after } => {
                let wait = self.backoff.fail();
                let wait = retry_after.unwrap_or(wait).max(wait).min(DAILY);
                self.next = now.after(spread.above(wait));
                self.contact = self.contact.max(now);
            }
        }
    }
}
