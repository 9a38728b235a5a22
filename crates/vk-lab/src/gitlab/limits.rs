//! Rate limits (section 8): fixed windows of a minute, by runner token and by job token.

use super::ledger::Kind;
use super::reply::Reply;
use super::settings::CommitMode;
use super::state::Gitlab;

const WINDOW_MS: u64 = 60_000;

/// Calls of one key in its current window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bucket {
    window: u64,
    count: u32,
}

/// What a hit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    Under,
    /// The first of its window that is over.
    First,
    Over,
}

impl Bucket {
    fn hit(&mut self, hits: u32, limit: u32, now: u64) -> Hit {
        let window = now / WINDOW_MS;
        if self.window != window {
            *self = Self { window, count: 0 };
        }
        let before = self.count;
        self.count = self.count.saturating_add(hits);
        match (limit > 0 && self.count > limit, before > limit) {
            (false, _) => Hit::Under,
            (true, false) => Hit::First,
            (true, true) => Hit::Over,
        }
    }
}

/// The two buckets of a job's token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JobBuckets {
    trace: Bucket,
    other: Bucket,
}

/// Which of them a call fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobRate {
    /// Patches of the trace.
    Trace,
    /// Everything else.
    Other,
}

impl Gitlab {
    /// Counts a job request of a runner.
    ///
    /// # Errors
    ///
    /// The 429, once the limit is passed.
    pub(super) fn throttle_runner(&mut self, id: u64, now: u64) -> Result<(), Reply> {
        let limit = self.settings.rate_limits.request;
        let Some(runner) = self.runner_mut(id) else {
            return Ok(());
        };
        let hit = runner.requests_rate.hit(1, limit, now);
        let who = format!("job requests of runner {id}");
        self.throttled(hit, None, &who, limit)
    }

    /// Counts a call with a job's token.
    ///
    /// # Errors
    ///
    /// The 429, once the limit is passed.
    pub(super) fn throttle_job(
        &mut self,
        id: u64,
        token: &str,
        rate: JobRate,
        hits: u32,
        now: u64,
    ) -> Result<(), Reply> {
        let limits = self.settings.rate_limits;
        let known = self.jobs.get_mut(&id);
        let Some(job) = known.filter(|job| job.token.matches(token)) else {
            return Ok(());
        };
        let (bucket, limit, what) = match rate {
            JobRate::Trace => (&mut job.rates.trace, limits.trace, "trace patches"),
            JobRate::Other => (&mut job.rates.other, limits.job, "updates and transfers"),
        };
        let hit = bucket.hit(hits, limit, now);
        self.throttled(hit, Some(id), what, limit)
    }

    fn throttled(
        &mut self,
        hit: Hit,
        job: Option<u64>,
        what: &str,
        limit: u32,
    ) -> Result<(), Reply> {
        if hit == Hit::Under || self.settings.commit_mode == CommitMode::Legacy {
            return Ok(());
        }
        if hit == Hit::First {
            let detail = format!("more than {limit} {what} in a minute");
            self.ledger.note(Kind::RateExceeded, job, detail);
        }
        let reply = Reply::limited();
        let tells = self.settings.rate_limit_retry_after;
        Err(
            if tells && self.settings.commit_mode == CommitMode::Modern {
                reply.header("Retry-After", "60")
            } else {
                reply
            },
        )
    }

    /// The answer of every runner endpoint while the database is being migrated.
    ///
    /// # Errors
    ///
    /// That answer.
    pub fn migrating(&self) -> Result<(), Reply> {
        if !self.settings.migrating {
            return Ok(());
        }
        let text = "Executing database migrations. Please retry later.";
        Err(Reply::message(429, text).header("Retry-After", "60"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_minute_of_the_clock_and_0_is_no_limit() {
        let mut bucket = Bucket::default();
        let hits = [(59_000, 2), (59_999, 1), (59_999, 1), (60_000, 1)];
        let seen: Vec<Hit> = hits
            .iter()
            .map(|(now, hits)| bucket.hit(*hits, 2, *now))
            .collect();
        assert_eq!(seen, [Hit::Under, Hit::First, Hit::Over, Hit::Under]);
        assert_eq!(bucket.hit(9_999, 0, 60_000), Hit::Under);
    }
}
