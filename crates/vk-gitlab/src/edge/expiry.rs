//! When a runner's token expires: a warning from a week before, an error from then on (GL-41). Tokens
//! are never rotated from here (GL-42).

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::daemon::Daemon;
use super::runner::Seat;
use crate::clock::unix_now;

const DAY: u64 = 24 * 3600;
const WEEK: u64 = 7 * DAY;

/// What is to be said of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// It expires in so many seconds, a week at most.
    Soon(u64),
    /// It expired so many seconds ago.
    Expired(u64),
}

/// What GitLab says of a token it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    /// Its number of the runner, where it says one.
    pub(super) id: Option<u64>,
    /// When the token expires, as GitLab has it.
    pub(super) expires_at: Option<String>,
    /// Whether it takes nobody without a certificate, where that is known (CFG-16).
    pub(super) needs_certificate: Option<bool>,
}

/// When a token expires, and when that is looked at next.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// In seconds since 1970.
    at: Option<u64>,
    pub(super) look: Option<Instant>,
}

impl Expiry {
    /// What is to be said at a moment of the wall clock, and how long it stays as it is: a day at
    /// most, where there is something to say.
    fn said(at: u64, now: u64) -> (Option<Said>, u64) {
        match at.saturating_sub(now) {
            0 => (Some(Said::Expired(now.saturating_sub(at))), DAY),
            left if left > WEEK => (None, left - WEEK),
            left => (Some(Said::Soon(left)), left.min(DAY)),
        }
    }
}

/// Seconds since 1970 of GitLab's date.
fn seconds(date: &str) -> Option<u64> {
    let date: Timestamp = date.parse().ok()?;
    u64::try_from(date.as_second()).ok()
}

impl Daemon {
    /// GitLab took a runner's token.
    pub(super) fn verified(&mut self, seat: Seat, verified: &Verified) {
        let Some(runner) = self.runners.get_mut(seat.index) else {
            return;
        };
        if let Some(id) = verified.id {
            runner.translation.id = id;
        }
        if let Some(needs) = verified.needs_certificate {
            if needs && !runner.translation.needs_certificate {
                tracing::error!(
                    runner = runner.config.name,
                    "this GitLab takes nobody without a client certificate, and nodes have none: the \
                     runner's jobs are failed until GitLab takes nodes without one"
                );
            }
            runner.translation.needs_certificate = needs;
        }
        let date = verified.expires_at.as_deref();
        runner.expiry.at = date.and_then(seconds);
        if date.is_some() && runner.expiry.at.is_none() {
            tracing::warn!(
                runner = runner.config.name,
                "GitLab's date of the token's expiry cannot be read"
            );
        }
        self.look_at_expiry(seat.index);
    }

    /// Says what is to be said of a runner's token.
    pub(super) fn look_at_expiry(&mut self, index: usize) {
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        runner.expiry.look = None;
        let Some(at) = runner.expiry.at else {
            return;
        };
        let (said, wait) = Expiry::said(at, unix_now());
        let name = &runner.config.name;
        match said {
            Some(Said::Soon(left)) => tracing::warn!(
                runner = name,
                days = left / DAY,
                "the runner's token expires soon: give the runner a new one in GitLab, and write it to its token file"
            ),
            Some(Said::Expired(_)) => tracing::error!(
                runner = name,
                "the runner's token has expired: give the runner a new one in GitLab, and write it to its token file"
            ),
            None => {}
        }
        runner.expiry.look = Some(Instant::now() + Duration::from_secs(wait.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-41
    #[test]
    fn a_week_before_it_is_soon_and_from_the_moment_on_expired() {
        let at = 100 * DAY;
        assert_eq!(Expiry::said(at, at - WEEK - 5), (None, 5));
        assert_eq!(Expiry::said(at, at - WEEK), (Some(Said::Soon(WEEK)), DAY));
        assert_eq!(Expiry::said(at, at - 9), (Some(Said::Soon(9)), 9));
        assert_eq!(Expiry::said(at, at), (Some(Said::Expired(0)), DAY));
        assert_eq!(Expiry::said(at, at + 7), (Some(Said::Expired(7)), DAY));
    }

    #[test]
    fn gitlabs_dates_are_read() {
        assert_eq!(seconds("1970-01-02T00:00:00.000Z"), Some(DAY));
        assert_eq!(seconds("1970-01-02T01:00:00+01:00"), Some(DAY));
        assert_eq!(seconds("tomorrow"), None);
    }
}
