//! A node's edge in the simulation: session, journal, host.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::{Chunk, HubJobMessage, LeaseState, NodeJobMessage, OfferReply};
use vk_hub_proto::job::JobSpec;
use vk_hub_proto::node_session::{
    Hardware, Heartbeat, HubMessage, Inventory, NodeMessage, Placed, Report, StorageFree,
    StorageRole, Versions,
};
use vk_node_core::io::{StartFacts, Status};
use vk_node_core::sizing::Sizes;
use vk_node_core::{Budgets, Config, Death, Effect, Input, JobEvent, NodeCore, Record};
use vk_step::Core as _;

use crate::breakage::Breakage;
use crate::bytes;
use crate::clock::Clock;
use crate::event::{Event, Party};
use crate::fault::{Boundary, Fault, KillPlan, Victim};
use crate::host::{Host, Progress};
use crate::script::Script;
use crate::store::Store;
use crate::world::World;

/// Memory of a host, in MiB.
const MEMORY: u64 = 8192;
/// Disk of a host, in bytes.
const DISK: u64 = 64 << 30;
/// CPUs of a host.
const CPUS: u32 = 8;

/// A node's process, disk and host.
pub(crate) struct Node {
    pub(crate) core: Option<NodeCore>,
    pub(crate) life: u32,
    pub(crate) clock: Clock,
    pub(crate) store: Store<Record, Effect>,
    pub(crate) host: Host,
    pub(crate) session: Option<u64>,
    pub(crate) kills: KillPlan,
    /// It cannot reach the hub before this moment.
    pub(crate) away_until: u64,
    /// Start messages whose record is not durable yet.
    pub(crate) starting: BTreeMap<JobId, Script>,
    /// Jobs whose start was ever durable on the disk that it has.
    pub(crate) taken: BTreeSet<JobId>,
    pub(crate) sync_due: bool,
}

impl Node {
    pub(crate) fn new(kills: KillPlan) -> Node {
        Node {
            core: None,
            life: 0,
            clock: Clock::starting(0, 0),
            store: Store::default(),
            host: Host::default(),
            session: None,
            kills,
            away_until: 0,
            starting: BTreeMap::new(),
            taken: BTreeSet::new(),
            sync_due: false,
        }
    }
}

impl World {
    /// Opens a node's core from its journal.
    pub(crate) fn node_start(&mut self, index: usize) {
        let origin = self.rng.between(0, 1_000_000_000);
        let now_ms = self.now;
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        node.clock = Clock::starting(now_ms, origin);
        let config = Config {
            budgets: Budgets {
                mem_mib: Some(MEMORY),
                disk_bytes: Some(DISK),
            },
            sizes: Sizes {
                cpus: 2,
                mem_mib: 2048,
                max_cpus: 4,
                max_mem_mib: 4096,
            },
            max_concurrency: Some(3),
            ..Config::default()
        };
        let mut records = node.store.durable().to_vec();
        if self.breakage == Some(Breakage::ForgottenJob) {
            forget_dropped(&mut records);
        }
        let opened = NodeCore::open(config, node.clock.read(now_ms), records);
        match opened {
            Ok((core, effects)) => {
                node.core = Some(core);
                let life = node.life;
                self.node_push(index, Vec::new(), effects);
                let at = self.now + self.rng.between(1, 2000);
                self.queue.add(at, Event::Dial(index, life));
                self.node_wake(index);
            }
            Err(error) => self.violation(format!("node {index} does not open: {error}")),
        }
    }

    pub(crate) fn node_input(&mut self, index: usize, input: Input) {
        let now_ms = self.now;
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let now = node.clock.read(now_ms);
        let Some(core) = node.core.as_mut() else {
            return;
        };
        let step = core.handle(now, input);
        self.node_push(index, step.records, step.effects);
        self.node_wake(index);
    }

    fn node_push(&mut self, index: usize, records: Vec<Record>, effects: Vec<Effect>) {
        let some = !records.is_empty() || !effects.is_empty();
        if some && self.node_dies(index, Boundary::Before) {
            return;
        }
        let delay = self.rng.between(0, 20);
        let at = self.now + delay;
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        if node.core.is_none() {
            return;
        }
        if node.store.push(records, effects) && !node.sync_due {
            node.sync_due = true;
            self.queue
                .add(at, Event::Sync(Party::Node(index), node.life));
        }
        self.node_release(index);
    }

    /// A node's journal is durable, and with a start its message.
    pub(crate) fn node_synced(&mut self, index: usize) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        node.sync_due = false;
        let synced = node.store.sync();
        for record in &synced {
            if let Record::Started(started) = record {
                node.taken.insert(started.job);
                if let Some(script) = node.starting.remove(&started.job) {
                    node.host.create(started.job, script);
                }
            }
        }
        for record in &synced {
            self.check_record("node", record);
        }
        if !self.node_dies(index, Boundary::Synced) {
            self.node_release(index);
        }
    }

    fn node_release(&mut self, index: usize) {
        loop {
            let Some(effect) = self
                .nodes
                .get_mut(index)
                .and_then(|node| node.store.next_effect())
            else {
                return;
            };
            self.node_effect(index, effect);
            if self.node_dies(index, Boundary::After) {
                return;
            }
        }
    }

    fn node_dies(&mut self, index: usize, at: Boundary) -> bool {
        let Some(node) = self.nodes.get_mut(index) else {
            return false;
        };
        if node.core.is_none() || !node.kills.is_due(&mut self.rng) {
            return false;
        }
        node.core = None;
        node.life += 1;
        node.sync_due = false;
        node.store.crash();
        node.starting.clear();
        let session = node.session.take();
        self.faults.count(Fault::kill(Victim::Node, at));
        self.trace(|| format!("node {index} killed {at:?}"));
        self.leases.node_killed(index);
        if let Some(session) = session {
            self.session_broken(session);
        }
        let again = self.now + self.rng.between(10, 30_000);
        self.queue.add(again, Event::Restart(Party::Node(index)));
        true
    }

    fn node_effect(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::SendReport { session, status } => {
                let report = NodeMessage::Report(Box::new(report(&status)));
                self.send_to_hub(index, session, report);
            }
            Effect::Send { session, message } => {
                self.watch_lease(index, &message);
                self.send_to_hub(index, session, NodeMessage::Job(*message));
            }
            Effect::SendOutput {
                session,
                job,
                offset,
                len,
            } => {
                self.send_output(index, session, job, offset, len);
            }
            Effect::SendAck {
                session,
                id,
                outcome,
            } => {
                self.send_to_hub(index, session, NodeMessage::Ack { id, outcome });
            }
            Effect::Spawn { job, .. } => self.spawn(index, job),
            Effect::Attach { job } => {
                let event = self
                    .with_host(index, |host, life| Some(host.attach(job, life)))
                    .unwrap_or(JobEvent::NotStarted);
                self.host_says(index, job, event);
            }
            Effect::Grant { job } => {
                self.with_host(index, |host, _| {
                    if let Some(directory) = host.jobs.get_mut(&job) {
                        directory.granted = true;
                    }
                });
                self.step_soon(index, job);
            }
            Effect::Deny { job, .. } => self.stop(index, job, vk_node_core::Stop::Interrupt),
            Effect::Stop { .. } if self.breakage == Some(Breakage::ForgottenCancel) => {}
            Effect::Stop { job, how } => self.stop(index, job, how),
            Effect::CleanUp { job } => self.host_says(index, job, JobEvent::CleanedUp),
            Effect::CloseOutput { job, line } => {
                let len = self.with_host(index, |host, _| host.close(job, &line));
                self.host_says(index, job, JobEvent::OutputClosed { len });
            }
            Effect::DropSecrets { job } => self.with_host(index, |host, _| {
                if let Some(directory) = host.jobs.get_mut(&job) {
                    directory.has_secrets = false;
                }
            }),
            Effect::Remove { job } => {
                let directory = self.with_host(index, |host, _| host.jobs.remove(&job));
                if let Some(directory) = directory {
                    self.keep_output(job, &directory);
                }
                self.host_says(index, job, JobEvent::Removed);
            }
        }
    }

    fn with_host<T: Default>(&mut self, index: usize, act: impl FnOnce(&mut Host, u32) -> T) -> T {
        match self.nodes.get_mut(index) {
            Some(node) => act(&mut node.host, node.life),
            None => T::default(),
        }
    }

    fn spawn(&mut self, index: usize, job: JobId) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let (event, began) = node.host.spawn(job, node.life);
        if began {
            let script = node.host.jobs.get(&job).map(|directory| directory.script);
            self.check_begin(index, job, script);
        }
        self.host_says(index, job, event);
        self.step_soon(index, job);
    }

    fn stop(&mut self, index: usize, job: JobId, how: vk_node_core::Stop) {
        self.with_host(index, |host, _| {
            if let Some(directory) = host.jobs.get_mut(&job) {
                directory.stop = directory.stop.max(Some(how));
            }
        });
        self.step_soon(index, job);
    }

    fn step_soon(&mut self, index: usize, job: JobId) {
        let at = self.now + self.rng.between(1, 500);
        self.queue.add(at, Event::JobStep(index, job));
    }

    fn host_says(&mut self, index: usize, job: JobId, event: JobEvent) {
        let Some(life) = self.nodes.get(index).map(|node| node.life) else {
            return;
        };
        let at = self.now + self.rng.between(1, 30);
        self.queue.add(at, Event::FromHost(index, life, job, event));
    }

    /// A job's process does what it does next, and tells whoever listens.
    pub(crate) fn job_step(&mut self, index: usize, job: JobId) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let progress = node.host.step(job);
        let Some(directory) = node.host.jobs.get(&job) else {
            return;
        };
        let listened = node.core.is_some() && directory.subscriber == Some(node.life);
        let event = match (&progress, &directory.result) {
            (Progress::Finished, Some(result)) => Some(JobEvent::Result(result.clone())),
            (Progress::Printed { .. }, _) => Some(JobEvent::Output {
                len: directory.output.len() as u64,
            }),
            _ => None,
        };
        if progress == Progress::Finished {
            let directory = directory.clone();
            self.keep_output(job, &directory);
        }
        if let (true, Some(event)) = (listened, event) {
            self.host_says(index, job, event);
        }
        if let Progress::Printed { next_ms } = progress {
            self.queue
                .add(self.now + next_ms, Event::JobStep(index, job));
        }
    }

    /// A job's process is killed, if one runs on this node.
    pub(crate) fn kill_job(&mut self, index: usize) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let alive = node.host.jobs.iter().find(|(_, directory)| directory.alive);
        let Some(job) = alive.map(|(job, _)| *job) else {
            // None runs here now; one may soon.
            if self.pushed < self.plan.most_jobs && self.now < 4 * self.plan.busy_ms {
                self.queue.add(self.now + 700, Event::KillJob(index));
            }
            return;
        };
        node.host.kill(job);
        self.faults.count(Fault::JobKilled);
        let Some(directory) = self
            .nodes
            .get(index)
            .and_then(|node| node.host.jobs.get(&job))
        else {
            return;
        };
        self.killed_jobs.insert(directory.script.gitlab_job);
        let output_len = directory.output.len() as u64;
        let listens = |node: &Node| node.core.is_some() && directory.subscriber == Some(node.life);
        if self.nodes.get(index).is_some_and(listens) {
            let death = Death::default();
            self.host_says(index, job, JobEvent::Ended { output_len, death });
        }
    }

    fn send_output(&mut self, index: usize, session: u64, job: JobId, offset: u64, len: u64) {
        let bytes = self.with_host(index, |host, _| {
            let directory = host.jobs.get(&job);
            let output = directory.map(|directory| directory.output.as_slice());
            bytes::part(output.unwrap_or_default(), offset, len)
        });
        if bytes.len() as u64 != len {
            self.violation(format!(
                "node {index}: output {offset}+{len} of {job} is not there"
            ));
            return;
        }
        match Chunk::try_from(bytes) {
            Ok(data) => {
                let message = NodeMessage::Job(NodeJobMessage::Output { job, offset, data });
                self.send_to_hub(index, session, message);
            }
            Err(error) => self.violation(format!("node {index}: {error}")),
        }
    }

    fn watch_lease(&mut self, index: usize, message: &NodeJobMessage) {
        match message {
            NodeJobMessage::OfferReply {
                reservation,
                reply: OfferReply::Accepted { lease_secs },
            } => {
                let until = self.now + u64::from(*lease_secs) * 1000;
                self.leases.granted(*reservation, index, until);
            }
            NodeJobMessage::Lease {
                reservation,
                state: LeaseState::Held { remaining_secs },
            } => {
                let until = self.now + u64::from(*remaining_secs) * 1000 + 999;
                self.leases.granted(*reservation, index, until);
            }
            NodeJobMessage::Lease {
                reservation,
                state: LeaseState::Gone { .. },
            } => {
                self.leases.over(*reservation);
            }
            _ => {}
        }
    }

    /// The hub's message arrives at a node.
    pub(crate) fn node_message(&mut self, index: usize, message: HubMessage) {
        match message {
            HubMessage::Job(message) => {
                let start = self.start_facts(index, &message);
                self.node_input(
                    index,
                    Input::Hub {
                        message: Box::new(message),
                        start,
                    },
                );
            }
            HubMessage::Desired(desired) => self.node_input(index, Input::Desired(desired)),
            _ => {}
        }
    }

    fn start_facts(&mut self, index: usize, message: &HubJobMessage) -> StartFacts {
        let HubJobMessage::Start { job, spec, .. } = message else {
            return StartFacts::default();
        };
        let JobSpec::GitlabCi(ci) = spec;
        let script = self.gitlab.jobs.get(&ci.job.id).map(|job| job.script);
        if let (Some(node), Some(script)) = (self.nodes.get_mut(index), script) {
            node.starting.insert(*job, script);
        }
        StartFacts {
            spec_bytes: 4096,
            history_mib: None,
        }
    }

    /// A node gives a sign of life, and does so again.
    pub(crate) fn node_beat(&mut self, index: usize) {
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        let (Some(core), Some(session)) = (&node.core, node.session) else {
            return;
        };
        let admission = core.admission();
        let beat = NodeMessage::Heartbeat(Heartbeat {
            admission: Some(admission),
            mem_available_mib: Some(MEMORY - admission.committed_mib.min(MEMORY)),
            storage: vec![StorageFree {
                role: StorageRole::Jobs,
                free_bytes: DISK,
                free_inodes: 1_000_000,
                inodes: 1_000_000,
            }],
            load1_hundredths: Some(admission.running * 100),
            ..Heartbeat::default()
        });
        let life = node.life;
        self.send_to_hub(index, session, beat);
        self.queue.add(self.now + 5000, Event::Beat(index, life));
    }

    /// What a node says first in a session.
    pub(crate) fn inventory(index: usize) -> NodeMessage {
        NodeMessage::Inventory(Box::new(Inventory {
            hostname: format!("node-{index}"),
            hardware: Hardware {
                cpus: CPUS,
                cpu_model: None,
                mem_total_mib: Some(MEMORY),
                memory_nodes: vec![],
                checks: vec![],
            },
            storage: vec![],
            versions: Versions {
                vk: "0.1.0".into(),
                guest_kernel: None,
                config_hash: String::new(),
                vk_sha256: None,
            },
            runner: None,
            labels: vec![],
            registry_url: None,
        }))
    }

    pub(crate) fn node_wake(&mut self, index: usize) {
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        let Some(deadline) = node.core.as_ref().and_then(|core| core.next_deadline()) else {
            return;
        };
        let at = node.clock.when(deadline).max(self.now + 1);
        self.wake(Party::Node(index), at);
    }
}

fn report(status: &Status) -> Report {
    Report {
        workloads: Some(vec![]),
        applied: status.applied,
        state: Some(status.state),
        acquisition: Some(status.acquisition),
        drain: status.drain,
        placed: Some(Placed {
            runner: status.own_runner.clone(),
            limit: Some(3),
            image_cache_idle_secs: Some(1800),
        }),
        ..Report::default()
    }
}

/// The breakage "forgotten job": a journal without the jobs that were dropped.
fn forget_dropped(records: &mut Vec<Record>) {
    let dropped = |record: &Record| match record {
        Record::Dropped { job } => Some(*job),
        _ => None,
    };
    let forgotten: BTreeSet<JobId> = records.iter().filter_map(dropped).collect();
    records.retain(|record| !job_of(record).is_some_and(|job| forgotten.contains(&job)));
}

fn job_of(record: &Record) -> Option<JobId> {
    match record {
        Record::Started(started) => Some(started.job),
        Record::Granted { job }
        | Record::Denied { job, .. }
        | Record::Cancelled { job, .. }
        | Record::Closing { job, .. }
        | Record::Finished { job, .. }
        | Record::Recorded { job }
        | Record::Dropped { job } => Some(*job),
        Record::Desired(_) | Record::Commanded { .. } => None,
    }
}
