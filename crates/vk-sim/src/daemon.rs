//! The daemon's edge in the simulation: one runner, its jobs, the state file, requests.

use std::collections::BTreeMap;

use vk_gitlab_core::acquire::{self, Acquire, LaneId, RequestAnswer, RequestOutcome, Session};
use vk_gitlab_core::job::{self};
use vk_gitlab_core::slots::{RunnerIndex, Slots};
use vk_gitlab_core::{HubFailure, NewJob, Work};
use vk_hub_proto::RequestId;
use vk_step::Core as _;

use crate::breakage::Breakage;
use crate::clock::Clock;
use crate::event::{Event, Party};
use crate::fault::{Boundary, Fault, KillPlan, Victim};
use crate::script;
use crate::store::Store;
use crate::world::World;

/// Seconds a job may wait for room.
pub(crate) const PLACE_WITHIN_SECS: u32 = 300;

/// The only runner.
pub(crate) const RUNNER: RunnerIndex = RunnerIndex(0);
/// Jobs the daemon holds at most.
const CONCURRENT: u32 = 4;
/// What the daemon itself writes at the head of some traces.
const PREAMBLE: &str = "Job triggered by policy\n";

/// An effect of one of the daemon's cores.
#[derive(Clone, Debug)]
pub(crate) enum DaemonEffect {
    Acquire(acquire::Effect),
    Job(u64, job::Effect),
}

/// One job's core, and the output bytes its edge holds.
pub(crate) struct JobEdge {
    core: job::Job,
    pub(crate) gitlab_job: u64,
    pub(crate) fetched: (u64, Vec<u8>),
}

/// The daemon's process and disk.
pub(crate) struct Daemon {
    pub(crate) acquire: Option<Acquire>,
    pub(crate) slots: Slots,
    pub(crate) jobs: BTreeMap<u64, JobEdge>,
    pub(crate) life: u32,
    clock: Clock,
    pub(crate) store: Store<(u64, job::Record), DaemonEffect>,
    pub(crate) kills: KillPlan,
    pub(crate) next_key: u64,
    sync_due: bool,
}

impl Daemon {
    pub(crate) fn new(kills: KillPlan) -> Daemon {
        Daemon {
            acquire: None,
            slots: Slots::new(CONCURRENT, 1, 0),
            jobs: BTreeMap::new(),
            life: 0,
            clock: Clock::starting(0, 0),
            store: Store::default(),
            kills,
            next_key: 1,
            sync_due: false,
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.acquire.is_some()
    }
}

impl World {
    fn wall(&self) -> u64 {
        1_790_000_000 + self.now / 1000
    }

    /// Opens the daemon's cores from the state file.
    pub(crate) fn daemon_start(&mut self) {
        self.daemon.clock = Clock::starting(self.now, self.rng.between(0, 1_000_000_000));
        let now = self.daemon.clock.read(self.now);
        let mut recorded: BTreeMap<u64, Vec<job::Record>> = BTreeMap::new();
        for (key, record) in self.daemon.store.durable() {
            recorded.entry(*key).or_default().push(record.clone());
        }
        let jobs = u32::try_from(recorded.len()).unwrap_or(u32::MAX);
        self.daemon.slots = Slots::new(CONCURRENT, 1, jobs);
        let needed = self.asks() && self.breakage != Some(Breakage::AskUnapproved);
        let session = if needed {
            Session::Required
        } else {
            Session::NotNeeded
        };
        let config = acquire::Config {
            placement: self.placement(),
            limit: 0,
            request_concurrency: 1 + u32::from(self.seed.is_multiple_of(2)),
            lease_secs: 90,
            check_interval: std::time::Duration::from_secs(3),
            strict_check_interval: false,
            unhealthy_requests_limit: 3,
            unhealthy_interval: std::time::Duration::from_secs(3600),
            session,
            jobs,
            seed: self.rng.next(),
        };
        match Acquire::open(config, now, []) {
            Ok((core, effects)) => {
                self.daemon.acquire = Some(core);
                self.daemon_push(Vec::new(), wrap_acquire(effects));
            }
            Err(error) => self.violation(format!("the acquire core does not open: {error}")),
        }
        for (key, records) in recorded {
            self.job_open(key, records);
        }
        self.relay_start();
        self.slots_changed();
    }

    fn job_config(&mut self) -> job::Config {
        job::Config {
            hub_url: "https://hub.example.com:8443".into(),
            place_within_secs: PLACE_WITHIN_SECS,
            wall: self.wall(),
            seed: self.rng.next(),
        }
    }

    pub(crate) fn job_open(&mut self, key: u64, records: Vec<job::Record>) {
        if !self.daemon.is_up() {
            return;
        }
        let gitlab_job = records.iter().find_map(|record| match record {
            job::Record::Taken(taken) => Some(taken.gitlab_job),
            _ => None,
        });
        let now = self.daemon.clock.read(self.now);
        let config = self.job_config();
        match job::Job::open(config, now, records) {
            Ok((core, effects)) => {
                let gitlab_job = gitlab_job.unwrap_or_default();
                let edge = JobEdge {
                    core,
                    gitlab_job,
                    fetched: (0, Vec::new()),
                };
                self.daemon.jobs.insert(key, edge);
                self.daemon_push(Vec::new(), wrap_job(key, effects));
                self.daemon_wake();
            }
            Err(error) => self.violation(format!("a job core does not open: {error}")),
        }
    }

    pub(crate) fn acquire_input(&mut self, input: acquire::Input) {
        let now = self.daemon.clock.read(self.now);
        let Some(core) = self.daemon.acquire.as_mut() else {
            return;
        };
        let step = core.handle(now, input);
        let effects = match self.breakage {
            Some(Breakage::NoReservation) => step.effects.into_iter().collect(),
            _ => step.effects,
        };
        self.daemon_push(Vec::new(), wrap_acquire(effects));
        self.daemon_wake();
    }

    pub(crate) fn job_input(&mut self, key: u64, input: job::Input) {
        let now = self.daemon.clock.read(self.now);
        let Some(edge) = self.daemon.jobs.get_mut(&key) else {
            return;
        };
        let step = edge.core.handle(now, input);
        let records = step
            .records
            .into_iter()
            .map(|record| (key, record))
            .collect();
        self.daemon_push(records, wrap_job(key, step.effects));
        self.daemon_wake();
    }

    fn daemon_push(&mut self, records: Vec<(u64, job::Record)>, effects: Vec<DaemonEffect>) {
        let some = !records.is_empty() || !effects.is_empty();
        if some && self.daemon_dies(Boundary::Before) {
            return;
        }
        if !self.daemon.is_up() {
            return;
        }
        if self.daemon.store.push(records, effects) && !self.daemon.sync_due {
            self.daemon.sync_due = true;
            let at = self.now + self.rng.between(0, 20);
            self.queue
                .add(at, Event::Sync(Party::Daemon, self.daemon.life));
        }
        self.daemon_release();
    }

    /// The state file is durable.
    pub(crate) fn daemon_synced(&mut self) {
        self.daemon.sync_due = false;
        let synced = self.daemon.store.sync();
        for (key, record) in &synced {
            match record {
                job::Record::Taken(taken) => {
                    self.taken.insert(taken.gitlab_job);
                }
                job::Record::GivenUp { .. } => {
                    if let Some(edge) = self.daemon.jobs.get(key) {
                        self.given_up.insert(edge.gitlab_job);
                    }
                }
                job::Record::Suffix { text } => {
                    if let Some(edge) = self.daemon.jobs.get(key) {
                        self.suffixes
                            .insert(edge.gitlab_job, text.clone().into_bytes());
                    }
                }
                job::Record::Removed => self.removed_keys.push(*key),
                _ => {}
            }
        }
        let removed = std::mem::take(&mut self.removed_keys);
        if !removed.is_empty() {
            let kept = self
                .daemon
                .store
                .durable()
                .iter()
                .filter(|(key, _)| !removed.contains(key));
            let kept = kept.cloned().collect();
            self.daemon.store.compact(kept);
        }
        if !self.daemon_dies(Boundary::Synced) {
            self.daemon_release();
        }
    }

    fn daemon_release(&mut self) {
        while let Some(effect) = self.daemon.store.next_effect() {
            match effect {
                DaemonEffect::Acquire(effect) => self.acquire_effect(effect),
                DaemonEffect::Job(key, effect) => self.job_effect(key, effect),
            }
            if self.daemon_dies(Boundary::After) {
                return;
            }
        }
    }

    fn daemon_dies(&mut self, at: Boundary) -> bool {
        if !self.daemon.is_up() || !self.daemon.kills.is_due(&mut self.rng) {
            return false;
        }
        self.faults.count(Fault::kill(Victim::Daemon, at));
        self.trace(|| format!("daemon killed {at:?}"));
        self.daemon.acquire = None;
        self.daemon.jobs.clear();
        self.daemon.life += 1;
        self.daemon.sync_due = false;
        self.daemon.store.crash();
        self.hub_hung_up();
        self.relay_broken();
        let at = self.now + self.rng.between(10, 30_000);
        self.queue.add(at, Event::Restart(Party::Daemon));
        true
    }

    pub(crate) fn slots_changed(&mut self) {
        for (_, free) in self.daemon.slots.changes() {
            self.acquire_input(acquire::Input::SlotFree(free));
        }
    }

    /// A job request's answer reaches the acquire core.
    pub(crate) fn job_answer(&mut self, lane: LaneId, outcome: RequestOutcome) {
        let answer = RequestAnswer {
            last_update: None,
            outcome,
        };
        self.acquire_input(acquire::Input::JobAnswer { lane, answer });
    }

    /// What the daemon's edge makes of GitLab's response.
    pub(crate) fn translated(&mut self, gitlab_job: u64) -> Option<NewJob> {
        let script = self.gitlab.jobs.get(&gitlab_job)?.script;
        let spec = script.spec();
        let spec_bytes = serde_json::to_vec(&spec).map_or(0, |json| json.len());
        Some(NewJob {
            gitlab_job,
            token: script::token(gitlab_job),
            request_id: RequestId::from_bytes(self.rng.id()),
            work: Work::Run(Box::new(spec)),
            spec_bytes,
            preamble: if gitlab_job.is_multiple_of(2) {
                PREAMBLE.into()
            } else {
                String::new()
            },
            failure_reasons: vec!["runner_interrupted".into()],
            debug_trace: false,
            timestamps: true,
            taken_at: self.wall(),
            token_ends: Some(self.wall() + 3600 + 300),
        })
    }

    fn daemon_wake(&mut self) {
        let deadlines = self
            .daemon
            .jobs
            .values()
            .filter_map(|edge| edge.core.next_deadline());
        let acquire = self
            .daemon
            .acquire
            .as_ref()
            .and_then(|core| core.next_deadline());
        let Some(next) = deadlines.chain(acquire).min() else {
            return;
        };
        let at = self.daemon.clock.when(next).max(self.now + 1);
        self.wake(Party::Daemon, at);
    }

    /// Gives every core whose deadline has come its timeout.
    pub(crate) fn daemon_timeouts(&mut self) {
        let now = self.daemon.clock.read(self.now);
        let due = |deadline: Option<vk_step::Now>| deadline.is_some_and(|at| at <= now);
        if due(self
            .daemon
            .acquire
            .as_ref()
            .and_then(|core| core.next_deadline()))
        {
            self.acquire_input(acquire::Input::Timeout);
        }
        let jobs = self
            .daemon
            .jobs
            .iter()
            .filter(|(_, edge)| due(edge.core.next_deadline()));
        for key in jobs.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.job_input(key, job::Input::Timeout);
        }
        self.daemon_wake();
    }
}

/// A failure of the way to the hub.
pub(crate) fn no_answer() -> HubFailure {
    HubFailure::transport("the connection was cut")
}

fn wrap_acquire(effects: Vec<acquire::Effect>) -> Vec<DaemonEffect> {
    effects.into_iter().map(DaemonEffect::Acquire).collect()
}

fn wrap_job(key: u64, effects: Vec<job::Effect>) -> Vec<DaemonEffect> {
    effects
        .into_iter()
        .map(|effect| DaemonEffect::Job(key, effect))
        .collect()
}
