//! A call to the hub that is made again until it succeeds.

use std::time::Duration;

use vk_hub_proto::client::ErrorCode;
use vk_step::Now;

use super::CallId;
use crate::{Backoff, HubFailure, Spread};

/// The wait after a refusal that the contract does not call retryable, where the job can go no
/// other way.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// The longest such wait where nobody waits for the job any more: only an operator mends a refusal
/// such as that of a relay told `rebound` (ERR-08), and until then every record would ask for ever.
const AFTER_REFUSALS: Duration = Duration::from_secs(3600);

/// One kind of call: never more than one on its way, waits of 1 to 30 s between tries (API-50).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubCall {
    out: Option<(CallId, Now)>,
    next: Now,
    backoff: Backoff,
    refused: Backoff,
}

/// Whether GitLab still waits for what a call is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It does.
    Awaited,
    /// It has the job's end, and what is left is the hub's and the daemon's affair.
    Leftover,
}

impl HubCall {
    pub(super) fn new(now: Now) -> HubCall {
        HubCall {
            out: None,
            next: now,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
            refused: Backoff::new(AFTER_REFUSAL, AFTER_REFUSALS),
        }
    }

    /// Whether one may be made now.
    pub(super) fn is_due(&self, now: Now) -> bool {
        self.out.is_none() && self.next <= now
    }

    /// When one may be made, where none is on its way.
    pub(super) fn due(&self) -> Option<Now> {
        if self.out.is_some() {
            None
        } else {
            Some(self.next)
        }
    }

    /// Makes one.
    pub(super) fn goes_out(&mut self, call: CallId, now: Now) {
        self.out = Some((call, now));
    }

    /// Whether this answers the one on its way: when that was sent.
    pub(super) fn answered(&mut self, call: CallId) -> Option<Now> {
        let (_, sent) = self.out.filter(|(out, _)| *out == call)?;
        self.out = None;
        Some(sent)
    }

    /// It succeeded; the next may be made no earlier than `next`.
    pub(super) fn succeed(&mut self, next: Now) {
        self.backoff.succeed();
        self.refused.succeed();
        self.next = next;
    }

    /// It failed; the next waits, as long as the hub asks (API-51) or longer with every failure.
    pub(super) fn fail(
        &mut self,
        now: Now,
        failure: &HubFailure,
        urgency: Urgency,
        spread: &mut Spread,
    ) {
        let wait = if failure.is_retryable() {
            let wait = self.backoff.fail();
            failure.wait().unwrap_or(wait).max(wait)
        } else if urgency == Urgency::Leftover && lasts(failure) {
            self.refused.fail()
        } else {
            AFTER_REFUSAL
        };
        self.next = now.after(spread.above(wait));
    }
}

/// Whether a refusal is the hub's considered word. A 401 may be a clock's, a status of nobody's own
/// another program's, and a 409 is over when the job is.
const fn lasts(failure: &HubFailure) -> bool {
    !matches!(
        failure.code,
        None | Some(ErrorCode::Unauthorized | ErrorCode::Other | ErrorCode::Conflict)
    )
}
