//! Settings, and what the edge knows at start.

use std::collections::BTreeMap;
use std::time::Duration;

use vk_hub_proto::JobId;

use crate::Registry;

/// What a core is opened with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The operator's settings.
    pub settings: Settings,
    /// Seconds since the epoch by the edge's wall clock, read once at start: revisions begin at a
    /// thousand times this (API-65).
    pub wall_secs: u64,
    /// Durable output bytes of each job the store holds output of.
    pub outputs: BTreeMap<JobId, u64>,
}

/// The operator's settings; [`Settings::default`] has the contract's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether submissions need an operator's approval.
    pub approve: Approve,
    /// Between two signs of life a node may take three of these (FAIL-30).
    pub heartbeat: Duration,
    /// A node is lost for its jobs this long after it became unreachable (FAIL-17).
    pub job_lost_after: Duration,
    /// How long after a start of the hub its silence is nobody's fault (FAIL-30).
    pub redial_window: Duration,
    /// A job is ended this long after its timeout, whatever the network does (FAIL-37).
    pub overdue_grace: Duration,
    /// How long an offer may be unanswered (API-62).
    pub offer_within: Duration,
    /// After a refusal a node is asked again for the same placement after this long (API-62).
    pub ask_again_after: Duration,
    /// How long a renewal waits for its node.
    pub renew_within: Duration,
    /// How long a request is remembered (API-46).
    pub remember_requests: Duration,
    /// Requests without a job remembered at most; the oldest are forgotten first.
    pub remembered_requests: usize,
    /// Granted reservation requests remembered at most; the oldest are forgotten first.
    pub remembered_grants: usize,
    /// Unfinished jobs at most (API-68).
    pub unfinished_jobs: usize,
    /// Settled jobs kept (API-71).
    pub job_history: usize,
    /// Jobs that ended and that nobody settled are settled by the hub after this long; off by
    /// default (API-71).
    pub settle_after: Option<Duration>,
    /// Requests held at most.
    pub waiting_requests: usize,
    /// Placements whose capacity is remembered though nobody waits for it.
    pub placements: usize,
    /// Envelopes counted a node at most.
    pub fits_per_node: u32,
    /// GitLab servers kept at most.
    pub servers: usize,
    /// How often a relay may report another server or system ID than before: so many times at once,
    /// and once more for each such time that passes.
    pub relay_changes: (u32, Duration),
    /// Registries that jobs get tokens of their own for.
    pub registries: Vec<Registry>,
    /// Projects kept at most; the oldest of which nothing was decided is let go first.
    pub projects: usize,
}

/// Whether submissions need an operator's approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approve {
    /// Every server and project is taken, but for those that were rejected.
    All,
    /// Only those approved are; the others wait: `approval_pending` (ERR-10).
    Ask,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            approve: Approve::Ask,
            heartbeat: Duration::from_secs(5),
            job_lost_after: Duration::from_secs(300),
            redial_window: Duration::from_secs(60),
            overdue_grace: Duration::from_secs(1800),
            offer_within: Duration::from_secs(5),
            ask_again_after: Duration::from_secs(2),
            renew_within: Duration::from_secs(10),
            remember_requests: Duration::from_secs(86_400),
            remembered_requests: 65_536,
            remembered_grants: 65_536,
            unfinished_jobs: 16_384,
            job_history: 10_000,
            settle_after: None,
            waiting_requests: 8_192,
            placements: 1_024,
            fits_per_node: 1_024,
            servers: 1_024,
            relay_changes: (60, Duration::from_secs(5)),
            registries: Vec::new(),
            projects: 16_384,
        }
    }
}
