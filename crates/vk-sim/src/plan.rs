//! How large a run is and what befalls it.

/// A run's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes of the fleet.
    pub nodes: usize,
    /// Jobs at least.
    pub jobs: u64,
    /// Jobs at most, should kills still be due.
    pub most_jobs: u64,
    /// Kills of the daemon, of the hub, and of each node.
    pub kills: u32,
    /// A life ends within so many boundaries.
    pub kill_spread: u64,
    /// Sessions cut.
    pub cuts: u32,
    /// Each of them for longer than a job waits for room.
    pub long_cuts: bool,
    /// Processes of jobs killed.
    pub job_kills: u32,
    /// Nodes that lose all they have.
    pub disk_losses: u32,
    /// Requests and answers are lost now and then.
    pub small_faults: bool,
    /// Cuts and kills of jobs fall before this moment, in milliseconds.
    pub busy_ms: u64,
    /// Everything must be at rest by this moment, in milliseconds.
    pub until_ms: u64,
    /// Whether to write down what happens.
    pub log: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            nodes: 3,
            jobs: 8,
            most_jobs: 48,
            kills: 3,
            kill_spread: 45,
            cuts: 4,
            long_cuts: false,
            job_kills: 1,
            disk_losses: 1,
            small_faults: true,
            busy_ms: 240_000,
            until_ms: 48 * 3_600_000,
            log: false,
        }
    }
}
