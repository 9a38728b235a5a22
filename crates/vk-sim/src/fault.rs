//! What goes wrong, by kind, and how often it did.

use std::collections::BTreeMap;
use std::fmt;

use crate::rng::Rng;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The daemon is killed before a step's records are written.
    DaemonKilledBefore,
    /// The daemon is killed after a sync, before an effect.
    DaemonKilledSynced,
    /// The daemon is killed after an effect.
    DaemonKilledAfter,
    /// The hub is killed before a step's records are written.
    HubKilledBefore,
    /// The hub is killed after a sync, before an effect.
    HubKilledSynced,
    /// The hub is killed after an effect.
    HubKilledAfter,
    /// A node is killed before a step's records are written.
    NodeKilledBefore,
    /// A node is killed after a sync, before an effect.
    NodeKilledSynced,
    /// A node is killed after an effect.
    NodeKilledAfter,
    /// A job's process is killed.
    JobKilled,
    /// A node loses its journal and its jobs.
    DiskLost,
    /// A start comes to its node once more, however much later.
    StartRepeated,
    /// A node's session is cut.
    SessionCut,
    /// A node is out of touch for longer than its jobs wait.
    NodePartitioned,
    /// A request to the hub never arrives.
    HubRequestLost,
    /// The hub acts and its answer is lost.
    HubAnswerLost,
    /// A request to GitLab never arrives.
    GitLabRequestLost,
    /// GitLab acts and its answer is lost.
    GitLabAnswerLost,
    /// GitLab answers 5xx, 429 or 409 without acting.
    GitLabRefuses,
    /// GitLab has less of a trace than it said.
    TraceForgotten,
    /// Somebody cancels a job that can be cancelled gracefully.
    CancelGraceful,
    /// Somebody force-cancels a job.
    CancelForced,
    /// The daemon's session with the hub is cut.
    RelayCut,
    /// An operator rejects GitLab's server.
    ServerRejected,
}

/// Which process a kill hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The daemon.
    Daemon,
    /// The hub.
    Hub,
    /// A node.
    Node,
}

/// Where between two records or effects a kill falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Boundary {
    /// Before a step's records are written.
    Before,
    /// After the sync, before the next effect.
    Synced,
    /// After an effect.
    After,
}

impl Fault {
    /// The kind of a kill.
    #[must_use]
    pub const fn kill(victim: Victim, at: Boundary) -> Fault {
        match (victim, at) {
            (Victim::Daemon, Boundary::Before) => Fault::DaemonKilledBefore,
            (Victim::Daemon, Boundary::Synced) => Fault::DaemonKilledSynced,
            (Victim::Daemon, Boundary::After) => Fault::DaemonKilledAfter,
            (Victim::Hub, Boundary::Before) => Fault::HubKilledBefore,
            (Victim::Hub, Boundary::Synced) => Fault::HubKilledSynced,
            (Victim::Hub, Boundary::After) => Fault::HubKilledAfter,
            (Victim::Node, Boundary::Before) => Fault::NodeKilledBefore,
            (Victim::Node, Boundary::Synced) => Fault::NodeKilledSynced,
            (Victim::Node, Boundary::After) => Fault::NodeKilledAfter,
        }
    }
}

/// How often each kind happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<Fault, u64>);

impl Faults {
    /// One more of a kind.
    pub fn count(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// How many of a kind.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or_default()
    }

    /// Kills of a victim.
    #[must_use]
    pub fn kills(&self, victim: Victim) -> u64 {
        [Boundary::Before, Boundary::Synced, Boundary::After]
            .into_iter()
            .map(|at| self.of(Fault::kill(victim, at)))
            .sum()
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Faults) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(fault, count)| writeln!(f, "{count:>8}  {fault:?}"))
    }
}

/// When a process is killed: after so many more boundaries, so many times.
#[derive(Clone, Debug)]
pub(crate) struct KillPlan {
    left: u32,
    countdown: u64,
    spread: u64,
}

impl KillPlan {
    /// `kills` kills, each within `spread` boundaries of the last life's start.
    #[must_use]
    pub(crate) const fn new(rng: &mut Rng, kills: u32, spread: u64) -> KillPlan {
        KillPlan {
            left: kills,
            countdown: rng.between(1, spread),
            spread,
        }
    }

    /// A boundary was reached: whether the process dies here.
    pub(crate) const fn is_due(&mut self, rng: &mut Rng) -> bool {
        if self.left == 0 {
            return false;
        }
        self.countdown -= 1;
        if self.countdown > 0 {
            return false;
        }
        self.left -= 1;
        self.countdown = rng.between(1, self.spread);
        true
    }

    /// Kills that have not happened yet.
    #[must_use]
    pub(crate) const fn left(&self) -> u32 {
        self.left
    }
}
