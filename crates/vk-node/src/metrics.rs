//! Numbers for operators, in the OpenMetrics text form.
//!
//! What happens is counted where it happens ([`Metrics`]); what stands is asked of the actor when
//! somebody looks ([`Snapshot`]). Every label is one of this program's own words or the wire's: no
//! project, no job and no text of theirs is ever one.

mod serve;
mod tally;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use vk_hub_proto::dispatch::{NodeJobMessage, OfferReply, RunState};
use vk_hub_proto::node_session::NodeState;
use vk_node_core::ledger::Room;

pub(crate) use serve::serve;
pub(crate) use tally::Tally;

/// Seconds from a VMM's start to its agent's hello.
const BOOT_SECONDS: [f64; 12] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
];
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    of: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: String,
}

/// A family of one, or of none where there is no number to show.
type NoLabels = Vec<(String, String)>;

/// How the node stands at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The ledger.
    pub(crate) room: Room,
    /// Jobs by how far they are: accepted, running, finished.
    pub(crate) jobs: [u64; 3],
    /// The node's state, once it is known.
    pub(crate) state: Option<NodeState>,
    /// Whether there is a session with the hub.
    pub(crate) connected: bool,
    /// Why the journal cannot be written, where it cannot.
    pub(crate) store_failed: Option<String>,
}

/// Room of the disk that holds the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskFree {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    /// What stands is set anew for one looker at a time.
    one: Mutex<()>,
    sessions: Counter,
    refusals: Family<OfRefusal, Counter>,
    results: Family<OfResult, Counter>,
    boots: Histogram,
    output: Counter,
    sent: Counter,
    cache: Family<OfResult, Counter>,
    pulls: Family<OfResult, Counter>,
    states: Family<OfState, Gauge>,
    jobs: Family<OfState, Gauge>,
    stands: Vec<(Family<NoLabels, Gauge>, Reading)>,
}

/// A number that stands; none where nothing bounds it.
type Reading = fn(&Snapshot, Option<DiskFree>) -> Option<u64>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Name, help and reading of what stands and has a unit of bytes.
const BYTES: [(&str, &str, Reading); 9] = [
    (
        "memory_budget",
        "Memory that may be granted in all",
        |now, _| now.room.budgets.mem_mib.map(mib),
    ),
    (
        "memory_granted",
        "Memory that reservations and jobs have",
        |now, _| Some(mib(now.room.granted.mem_mib)),
    ),
    (
        "memory_asked",
        "Memory that they asked for, what they wait for included",
        |now, _| Some(mib(now.room.asked.mem_mib)),
    ),
    (
        "memory_free",
        "Memory that may still be granted",
        |now, _| {
            let budget = now.room.budgets.mem_mib?;
            Some(mib(budget.saturating_sub(now.room.granted.mem_mib)))
        },
    ),
    (
        "disk_budget",
        "Disk that may be granted in all",
        |now, _| now.room.budgets.disk_bytes,
    ),
    (
        "disk_granted",
        "Disk that reservations and jobs have",
        |now, _| Some(now.room.granted.disk_bytes),
    ),
    (
        "disk_asked",
        "Disk that they asked for, what they wait for included",
        |now, _| Some(now.room.asked.disk_bytes),
    ),
    (
        "disk_grantable",
        "Disk that may still be granted",
        |now, _| {
            let budget = now.room.budgets.disk_bytes?;
            Some(budget.saturating_sub(now.room.granted.disk_bytes))
        },
    ),
    (
        "disk_free",
        "What is free where the jobs' directories lie",
        |_, disk| Some(disk?.bytes),
    ),
];

/// The same, without a unit.
const NUMBERS: [(&str, &str, Reading); 4] = [
    (
        "disk_free_inodes",
        "Inodes that are free where the jobs' directories lie",
        |_, disk| Some(disk?.inodes),
    ),
    (
        "reservations",
        "Reservations that are no jobs yet",
        |now, _| u64::try_from(now.room.reservations).ok(),
    ),
    (
        "jobs_waiting",
        "Jobs that wait for more than was reserved for them",
        |now, _| u64::try_from(now.room.waiting).ok(),
    ),
    (
        "hub_connected",
        "1 while there is a session with the hub",
        |now, _| Some(now.connected.into()),
    ),
];

const fn mib(mib: u64) -> u64 {
    mib.saturating_mul(MIB)
}

impl Metrics {
    /// Nothing counted yet.
    pub(crate) fn new(version: &str) -> Arc<Metrics> {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("vk_node"),
            one: Mutex::new(()),
            sessions: Counter::default(),
            refusals: Family::default(),
            results: Family::default(),
            boots: Histogram::new(BOOT_SECONDS),
            output: Counter::default(),
            sent: Counter::default(),
            cache: Family::default(),
            pulls: Family::default(),
            states: Family::default(),
            jobs: Family::default(),
            stands: Vec::new(),
        };
        metrics.register(version);
        metrics.register_what_stands();
        Arc::new(metrics)
    }

    fn register(&mut self, version: &str) {
        let all = &mut self.registry;
        let build = vec![("version".to_owned(), version.to_owned())];
        all.register("build", "What this program is", Info::new(build));
        all.register(
            "hub_sessions",
            "Sessions with the hub",
            self.sessions.clone(),
        );
        let help = "Offers and starts that were refused, by reason";
        all.register("refusals", help, self.refusals.clone());
        let help = "Jobs that ended, by success or class of failure";
        all.register("jobs_ended", help, self.results.clone());
        let help = "From the start of a VM's program to its agent's hello";
        let seconds = Unit::Seconds;
        all.register_with_unit("boot", help, seconds, self.boots.clone());
        let help = "Output of jobs, as their traces have it";
        all.register_with_unit("output", help, Unit::Bytes, self.output.clone());
        let help = "Output that was sent to the hub, repeats included";
        all.register_with_unit("output_sent", help, Unit::Bytes, self.sent.clone());
        let help = "Caches that jobs looked for: hit, miss or error";
        all.register("cache_restores", help, self.cache.clone());
        let help = "Images that jobs had pulled: ok or failed";
        all.register("image_pulls", help, self.pulls.clone());
        let help = "1 for the state that the node is in";
        all.register("state", help, self.states.clone());
        let help = "Jobs that are here, by how far they are";
        all.register("jobs", help, self.jobs.clone());
    }

    fn register_what_stands(&mut self) {
        for (name, help, reading) in BYTES {
            let gauge = Family::default();
            let unit = Unit::Bytes;
            self.registry
                .register_with_unit(name, help, unit, gauge.clone());
            self.stands.push((gauge, reading));
        }
        for (name, help, reading) in NUMBERS {
            let gauge = Family::default();
            self.registry.register(name, help, gauge.clone());
            self.stands.push((gauge, reading));
        }
    }

    /// A session with the hub is open.
    pub(crate) fn session(&self) {
        self.sessions.inc();
    }

    /// A job message goes to the hub.
    pub(crate) fn says(&self, message: &NodeJobMessage) {
        let (of, reason) = match message {
            NodeJobMessage::OfferReply {
                reply: OfferReply::Refused { reason, .. },
                ..
            } => ("offer", reason),
            NodeJobMessage::Job {
                state: RunState::Refused { reason, .. },
                ..
            } => ("start", reason),
            _ => return,
        };
        let reason = word(reason);
        self.refusals.get_or_create(&OfRefusal { of, reason }).inc();
    }

    /// Output goes to the hub.
    pub(crate) fn sends(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }

    /// The text, with how things stand now.
    ///
    /// # Errors
    /// None that is known of: the text goes to memory.
    pub(crate) fn text(
        &self,
        now: &Snapshot,
        disk: Option<DiskFree>,
    ) -> Result<String, fmt::Error> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        self.states.clear();
        if let Some(state) = &now.state {
            let state = word(state);
            self.states.get_or_create(&OfState { state }).set(1);
        }
        for (state, jobs) in ["accepted", "running", "finished"]
            .into_iter()
            .zip(now.jobs)
        {
            let state = state.to_owned();
            self.jobs
                .get_or_create(&OfState { state })
                .set(signed(jobs));
        }
        for (gauge, reading) in &self.stands {
            gauge.clear();
            if let Some(number) = reading(now, disk) {
                gauge.get_or_create(&NoLabels::new()).set(signed(number));
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// A word of the wire.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    let value = value.as_ref().and_then(serde_json::Value::as_str);
    value.unwrap_or("other").to_owned()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
