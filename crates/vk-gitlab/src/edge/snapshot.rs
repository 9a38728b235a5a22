//! How the daemon stands, for those who look.

use std::collections::BTreeMap;

use vk_gitlab_core::job::Phase;
use vk_hub_proto::relay_session::RelayRunnerState;

use super::daemon::Daemon;
use super::runner::{JobEdge, RunnerEdge};
use crate::metrics::{RunnerNow, Snapshot};

/// Every phase, in a job's order.
const PHASES: [Phase; 5] = [
    Phase::Taken,
    Phase::Submitted,
    Phase::Committed,
    Phase::Reported,
    Phase::Abandoned,
];

/// A phase's word in the state file.
pub(crate) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Taken => "taken",
        Phase::Submitted => "submitted",
        Phase::Committed => "committed",
        Phase::Reported => "reported",
        Phase::Abandoned => "abandoned",
    }
}

const fn state_name(state: RelayRunnerState) -> &'static str {
    match state {
        RelayRunnerState::Polling => "polling",
        RelayRunnerState::WaitingCapacity => "waiting_capacity",
        RelayRunnerState::ServerPending => "server_pending",
        RelayRunnerState::TokenRefused => "token_refused",
        RelayRunnerState::Unhealthy => "unhealthy",
        RelayRunnerState::Other => "other",
    }
}

impl JobEdge {
    /// Bytes of its trace that GitLab does not have yet, of those the hub is known to have.
    fn lag(&self) -> u64 {
        let Some(record) = self.core.record().filter(|record| !record.is_over()) else {
            return 0;
        };
        let has = record.preamble().len() as u64 + self.output_len;
        has.saturating_sub(self.core.trace_offset())
    }

    /// Whether it ended and GitLab does not know how yet.
    fn is_pending(&self) -> bool {
        let record = self.core.record();
        record.is_some_and(|record| record.ended.is_some() && !record.is_over())
    }
}

impl Daemon {
    /// How it stands now. A runner that was removed is shown while it has jobs.
    pub(super) fn snapshot(&self) -> Snapshot {
        let runners = self.runners.iter().enumerate();
        let shown = |(index, runner): (usize, &RunnerEdge)| {
            let jobs: Vec<&JobEdge> = self
                .jobs
                .values()
                .filter(|job| job.runner == index)
                .collect();
            let gone = runner.drained && runner.leaving && jobs.is_empty();
            (!gone).then(|| self.runner_now(runner, &jobs))
        };
        Snapshot {
            runners: runners.filter_map(shown).collect(),
        }
    }

    fn runner_now(&self, runner: &RunnerEdge, jobs: &[&JobEdge]) -> RunnerNow {
        let mut phases: BTreeMap<&'static str, u64> = BTreeMap::new();
        for record in jobs.iter().filter_map(|job| job.core.record()) {
            *phases.entry(phase_name(record.phase())).or_default() += 1;
        }
        let beat = runner.acquire.beat(self.now(), runner.config.name.clone());
        let of = |phase| {
            let name = phase_name(phase);
            (name, phases.get(name).copied().unwrap_or(0))
        };
        RunnerNow {
            name: beat.name,
            state: state_name(beat.state),
            jobs: PHASES.map(of).to_vec(),
            requests: beat.requests.into(),
            trace_lag: jobs.iter().map(|job| job.lag()).sum(),
            undelivered: jobs.iter().filter(|job| job.is_pending()).count() as u64,
            since_poll: beat.last_answer.map(|answer| answer.age_secs),
            stores: !runner.store_failed,
        }
    }
}
