//! A reservation as the daemon believes it to live.

use std::time::Duration;

use vk_hub_proto::ReservationId;
use vk_step::Now;

use super::REQUEST_BOUND;
use crate::{Backoff, HubFailure, Spread};

/// A held reservation. Its lease is counted from when the daemon sent the request that granted it,
/// so it always ends here before it ends on the node (ADM-27).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) reservation: ReservationId,
    until: Now,
    renew_at: Option<Now>,
    renewal_sent: Option<Now>,
    backoff: Backoff,
}

/// What the answer to a renewal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// The lease starts anew.
    Renewed,
    /// Not renewed; the lease still runs.
    Failed,
    /// The reservation is gone.
    Gone,
}

impl Held {
    /// A reservation granted for `lease_secs`, in answer to a request sent at `sent`.
    pub(super) fn granted(
        reservation: ReservationId,
        sent: Now,
        lease_secs: u32,
        every: Duration,
    ) -> Held {
        Held {
            reservation,
            until: sent.after(Duration::from_secs(lease_secs.into())),
            renew_at: Some(sent.after(every)),
            renewal_sent: None,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(30)),
        }
    }

    /// When it ends, as believed.
    pub(super) const fn until(&self) -> Now {
        self.until
    }

    /// Whether the lease is believed to have ended (ADM-28).
    pub(super) fn lapsed(&self, now: Now) -> bool {
        now >= self.until
    }

    /// Whether a job request may start on it (ADM-39).
    pub(super) fn covers_a_request(&self, now: Now) -> bool {
        now.until(self.until) >= REQUEST_BOUND
    }

    /// Whether a renewal is on its way.
    pub(super) const fn renewing(&self) -> bool {
        self.renewal_sent.is_some()
    }

    /// When the next renewal is due, if any is.
    pub(super) fn renewal_due(&self) -> Option<Now> {
        if self.renewing() { None } else { self.renew_at }
    }

    /// Wants a renewal now rather than when it is due; one that waits after a failure keeps waiting.
    pub(super) fn want_renewal(&mut self, now: Now) {
        if self.backoff.failures() == 0 {
            self.renew_at = Some(now);
        }
    }

    /// A renewal goes out.
    pub(super) fn renewal_goes_out(&mut self, now: Now) {
        self.renewal_sent = Some(now);
    }

    /// Takes the answer to the renewal on its way.
    pub(super) fn renewed(
        &mut self,
        now: Now,
        answer: &Result<u32, HubFailure>,
        every: Duration,
        spread: &mut Spread,
    ) -> Renewal {
        let Some(sent) = self.renewal_sent.take() else {
            return Renewal::Failed;
        };
        match answer {
            Ok(lease_secs) => {
                *self = Held::granted(self.reservation, sent, *lease_secs, every);
                Renewal::Renewed
            }
            Err(failure) if failure.is_retryable() => {
                let wait = self.backoff.fail();
                let wait = failure.wait().unwrap_or(wait).max(wait);
                self.renew_at = Some(now.after(spread.above(wait)));
                Renewal::Failed
            }
            Err(failure) if is_gone(failure) => Renewal::Gone,
            Err(_) => {
                // Never asked again (API-52); what is left of the lease still counts.
                self.renew_at = None;
                Renewal::Failed
            }
        }
    }
}

/// Whether the hub says that there is no such reservation, or none of ours.
fn is_gone(failure: &HubFailure) -> bool {
    use vk_hub_proto::client::ErrorCode::{NotFound, ReservationGone};
    matches!(failure.code, Some(ReservationGone | NotFound))
}
