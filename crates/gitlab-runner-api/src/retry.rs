//! Trying again below a request (GL-64).

use std::time::Duration;

/// How often and how fast a request is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: u32,
    /// The first pause.
    pub first: Duration,
    /// The longest pause, whoever asks for it.
    pub longest: Duration,
}

impl Retry {
    /// One attempt: a job request, whose 60 s and lease must hold (GL-65).
    pub const ONCE: Retry = Retry {
        attempts: 1,
        first: Duration::ZERO,
        longest: Duration::ZERO,
    };

    /// Every other request: five attempts, from 100 ms to 60 s.
    pub const USUAL: Retry = Retry {
        attempts: 5,
        first: Duration::from_millis(100),
        longest: Duration::from_secs(60),
    };

    /// The pause before attempt `attempt` (the first is 1, and has none) after such an answer; none
    /// where the answer is to be taken as it is. `spread` is anything from 0 to 1, drawn.
    #[must_use]
    pub fn pause(
        &self,
        attempt: u32,
        status: u16,
        asked: Option<Duration>,
        spread: f64,
    ) -> Option<Duration> {
        if attempt > self.attempts || !is_retried(status) {
            return None;
        }
        if let Some(asked) = asked {
            return Some(asked.min(self.longest));
        }
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(attempt.saturating_sub(2))?);
        let whole = doubled.min(self.longest);
        let above = whole.saturating_sub(self.first);
        Some(self.first + above.mul_f64(spread.clamp(0.0, 1.0)))
    }
}

/// Statuses of a server that may do better soon.
const fn is_retried(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504) || status >= 512
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-64
    #[test]
    fn five_attempts_for_a_server_that_may_do_better() {
        for status in [408, 429, 500, 502, 503, 504, 512, 599] {
            let pauses = (2..).map_while(|n| Retry::USUAL.pause(n, status, None, 1.0));
            assert_eq!(
                pauses.map(|p| p.as_millis()).collect::<Vec<_>>(),
                [100, 200, 400, 800]
            );
        }
        for status in [
            200, 202, 204, 400, 401, 403, 404, 409, 412, 416, 501, 505, 511,
        ] {
            assert_eq!(Retry::USUAL.pause(2, status, None, 1.0), None, "{status}");
        }
    }

    /// GL-64
    #[test]
    fn a_wait_that_gitlab_asks_for_comes_before_our_own_and_is_capped() {
        let pause = |asked| Retry::USUAL.pause(2, 429, Some(Duration::from_secs(asked)), 0.0);
        assert_eq!(pause(7), Some(Duration::from_secs(7)));
        assert_eq!(pause(7000), Some(Duration::from_secs(60)));
    }

    /// GL-65
    #[test]
    fn a_job_request_has_one_attempt() {
        assert_eq!(Retry::ONCE.pause(2, 503, None, 1.0), None);
    }
}
