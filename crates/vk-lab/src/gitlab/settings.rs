//! What of GitLab can be switched while it runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which GitLab it is: what a 201 commits to, and the words of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
pub enum CommitMode {
    /// 19.x: a 201 means that the job is running; `pending` is refused.
    #[default]
    #[serde(rename = "modern")]
    Modern,
    /// 18.5 until the removal, with its flag on: a job of a runner that says `two_phase_job_commit`
    /// stays pending until `running`, for two minutes after the last sign of life.
    #[serde(rename = "ack-18.5")]
    Acknowledged,
    /// Before 18.5: as today, in the old words, without rate limits of the runner API.
    #[serde(rename = "legacy")]
    Legacy,
}

impl CommitMode {
    /// Whether the failure reasons of 19.x are unknown to it.
    pub(super) fn is_old(self) -> bool {
        self != Self::Modern
    }
}

/// Most calls a minute; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimits {
    /// Job requests on one runner token, all its managers together.
    pub request: u32,
    /// Patches of a trace on one job token.
    pub trace: u32,
    /// Updates, uploads (two hits each) and downloads on one job token.
    pub job: u32,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            request: 2_000,
            trace: 200,
            job: 200,
        }
    }
}

/// What can be switched while it runs. Bounds: none of these numbers can make it keep more than
/// the bounds of what it keeps allow.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long a job request is held, in nanoseconds; 0 is off (GitLab's own default is 50).
    pub long_poll_ns: u64,
    /// A live trace: final updates with a checksum are answered 202 until it is stored.
    pub live_trace: bool,
    /// How long storing a live trace takes, in milliseconds.
    pub store_delay_ms: u64,
    /// Largest trace in MiB, as GitLab's plan limit counts; 0 is no limit.
    pub trace_limit_mib: u64,
    /// Largest artifact in bytes.
    pub artifact_limit: u64,
    /// Largest artifact of a type, in bytes; the smaller one that is not 0 counts.
    pub artifact_limits: BTreeMap<String, u64>,
    /// Artifacts are taken at all.
    pub artifacts_enabled: bool,
    /// Downloads that ask for it are sent to the object store (`listen`, `as: "store"`).
    pub direct_download: bool,
    /// Which GitLab it is.
    pub commit_mode: CommitMode,
    /// The known defect of 18.5: the timeout of a job that waits to be acknowledged is sent as 0.
    pub ack_timeout_zero: bool,
    /// Silent jobs are dropped after 30 minutes instead of an hour.
    pub lower_stuck_timeouts: bool,
    /// Silent jobs are looked for at multiples of so many seconds only, as GitLab's hourly task
    /// does (3600); 0 looks at every sweep.
    pub sweep_every_secs: u64,
    /// Every runner endpoint answers that the database is being migrated.
    pub migrating: bool,
    /// Rate limits.
    pub rate_limits: RateLimits,
    /// A rate limit's 429 says `Retry-After: 60`; the one of 18.5 did not.
    pub rate_limit_retry_after: bool,
    /// Length of job tokens in bytes; a JWT is longer than 1,000.
    pub job_token_bytes: usize,
    /// Traces of ended jobs are judged, summed up and dropped.
    pub sum_ended_traces: bool,
    /// A job whose runner was told of a cancel has to end within so many milliseconds; 0 is no
    /// limit.
    pub cancel_within_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            long_poll_ns: 50,
            live_trace: false,
            store_delay_ms: 2_000,
            trace_limit_mib: 100,
            artifact_limit: 100 << 20,
            artifact_limits: BTreeMap::new(),
            artifacts_enabled: true,
            direct_download: false,
            commit_mode: CommitMode::default(),
            ack_timeout_zero: false,
            lower_stuck_timeouts: false,
            sweep_every_secs: 0,
            migrating: false,
            rate_limits: RateLimits::default(),
            rate_limit_retry_after: true,
            job_token_bytes: 26,
            sum_ended_traces: false,
            cancel_within_ms: 0,
        }
    }
}

impl Settings {
    /// The largest artifact of a type: the nearest limit, or the type's own where that is smaller.
    pub fn artifact_limit_of(&self, kind: &str) -> u64 {
        let own = self.artifact_limits.get(kind).copied().unwrap_or(0);
        let both = [self.artifact_limit, own].into_iter();
        both.filter(|limit| *limit > 0).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_that_is_not_0_counts() {
        let limit = |all: u64, own: u64| Settings {
            artifact_limit: all,
            artifact_limits: BTreeMap::from([("junit".into(), own)]),
            ..Settings::default()
        };
        let rows = [(100, 5, 5), (100, 0, 100), (5, 100, 5), (0, 0, u64::MAX)];
        for (all, own, want) in rows {
            assert_eq!(limit(all, own).artifact_limit_of("junit"), want);
            let other = if all == 0 { u64::MAX } else { all };
            assert_eq!(limit(all, own).artifact_limit_of("dotenv"), other);
        }
    }

    #[test]
    fn a_setting_that_is_not_known_is_refused() {
        assert!(serde_json::from_str::<Settings>(r#"{"nope":1}"#).is_err());
        assert!(serde_json::from_str::<Settings>(r#"{"commit_mode":"nope"}"#).is_err());
    }
}
