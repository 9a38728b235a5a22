use std::time::Duration;

use vk_hub_proto::limit::{CHUNK_BYTES, LEASE_SECS, WINDOW_BYTES};

use crate::io::Budgets;
use crate::sizing::Sizes;

/// Settings fixed for the core's life, and what the edge knows at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// What may be granted until [`crate::Input::Budgets`] says otherwise.
    pub budgets: Budgets,
    /// Default and largest sizes of a job's VM.
    pub sizes: Sizes,
    /// The node's own limit of reservations and unfinished jobs (DISP-33).
    pub max_concurrency: Option<u32>,
    /// The host's own gitlab-runner, where one was found (PLACE-15).
    pub own_runner: Option<String>,
    /// How long a job may wait for what exceeds its reservation (ADM-34).
    pub wait_timeout: Duration,
    /// How long cleaning up after a dead job may take (FAIL-32).
    pub cleanup_timeout: Duration,
    /// After how long an unanswered result is sent again (DISP-77).
    pub result_repeat: Duration,
    /// Longest lease in seconds (DISP-38).
    pub max_lease_secs: u32,
    /// Output bytes sent past the last ack at most (DISP-47).
    pub window_bytes: u64,
    /// Output bytes in one message at most (DISP-19).
    pub chunk_bytes: u64,
    /// Reservations and unfinished jobs at most, whatever the other limits say.
    pub max_entries: usize,
    /// Dropped jobs whose start is still recognized.
    pub remembered_jobs: usize,
    /// Commands whose answer is still known.
    pub remembered_commands: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            budgets: Budgets::default(),
            sizes: Sizes::default(),
            max_concurrency: None,
            own_runner: None,
            wait_timeout: Duration::from_secs(600),
            cleanup_timeout: Duration::from_secs(300),
            result_repeat: Duration::from_secs(15),
            max_lease_secs: LEASE_SECS,
            window_bytes: WINDOW_BYTES,
            chunk_bytes: CHUNK_BYTES as u64,
            max_entries: 1024,
            remembered_jobs: 1024,
            remembered_commands: 4096,
        }
    }
}
