//! The fleet and its time.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_core::Principal;
use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::job::JobResult;
use vk_hub_proto::{JobId, Name, NodeId, RelayId};

use crate::approval::Relay;
use crate::breakage::Breakage;
use crate::call::{GitLabCall, HubCall};
use crate::daemon::Daemon;
use crate::event::{Event, Party, Queue};
use crate::fault::{Fault, Faults, KillPlan};
use crate::gitlab::GitLab;
use crate::hub::Hub;
use crate::lease::Leases;
use crate::net::Session;
use crate::node::Node;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::script::Script;

/// What every job is placed with.
pub(crate) const ENVELOPE: Envelope = Envelope {
    mem_mib: 2048,
    cpus: 2,
    disk_bytes: 8 << 30,
};

/// Everything there is.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) breakage: Option<Breakage>,
    /// Small faults still happen; big ones have plans of their own.
    pub(crate) faulty: bool,
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    wakes: BTreeMap<Party, u64>,
    pub(crate) daemon: Daemon,
    pub(crate) hub: Hub,
    pub(crate) nodes: Vec<Node>,
    pub(crate) gitlab: GitLab,
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) broken: BTreeSet<u64>,
    pub(crate) next_session: u64,
    pub(crate) relay: Relay,
    pub(crate) hub_calls: BTreeMap<u64, HubCall>,
    pub(crate) gitlab_calls: BTreeMap<u64, GitLabCall>,
    pub(crate) next_call: u64,
    pub(crate) held_requests: Vec<u64>,
    pub(crate) pushed: u64,
    pub(crate) leases: Leases,
    pub(crate) faults: Faults,
    pub(crate) violations: Vec<String>,
    pub(crate) log: Vec<String>,
    /// Where each GitLab job's process began.
    pub(crate) begun: BTreeMap<u64, Vec<(usize, JobId)>>,
    pub(crate) killed_jobs: BTreeSet<u64>,
    pub(crate) outputs: BTreeMap<u64, Vec<u8>>,
    pub(crate) results: BTreeMap<u64, JobResult>,
    pub(crate) hub_jobs: BTreeMap<u64, JobId>,
    pub(crate) preambles: BTreeMap<u64, Vec<u8>>,
    pub(crate) suffixes: BTreeMap<u64, Vec<u8>>,
    /// Jobs whose hand-over is durable with the daemon.
    pub(crate) taken: BTreeSet<u64>,
    pub(crate) given_up: BTreeSet<u64>,
    /// Jobs GitLab said are over, and the daemon's life that heard it.
    pub(crate) told_over: BTreeMap<u64, u32>,
    pub(crate) removed_keys: Vec<u64>,
    pub(crate) handed_to: BTreeMap<u64, u32>,
    pub(crate) answer_lost: BTreeSet<u64>,
    pub(crate) with_reservation: u64,
    pub(crate) recorded_losses: u64,
    pub(crate) orphans: u64,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, breakage: Option<Breakage>) -> World {
        let mut rng = Rng::new(seed);
        let (daemon, hub) = (kills(&mut rng, &plan), kills(&mut rng, &plan));
        let nodes = (0..plan.nodes)
            .map(|_| Node::new(kills(&mut rng, &plan)))
            .collect();
        World {
            seed,
            breakage,
            faulty: plan.small_faults,
            now: 0,
            queue: Queue::default(),
            wakes: BTreeMap::new(),
            daemon: Daemon::new(daemon),
            hub: Hub::new(hub),
            nodes,
            gitlab: GitLab::default(),
            sessions: BTreeMap::new(),
            broken: BTreeSet::new(),
            next_session: 0,
            relay: Relay::default(),
            hub_calls: BTreeMap::new(),
            gitlab_calls: BTreeMap::new(),
            next_call: 0,
            held_requests: Vec::new(),
            pushed: 0,
            leases: Leases::default(),
            faults: Faults::default(),
            violations: Vec::new(),
            log: Vec::new(),
            begun: BTreeMap::new(),
            killed_jobs: BTreeSet::new(),
            outputs: BTreeMap::new(),
            results: BTreeMap::new(),
            hub_jobs: BTreeMap::new(),
            preambles: BTreeMap::new(),
            suffixes: BTreeMap::new(),
            taken: BTreeSet::new(),
            given_up: BTreeSet::new(),
            told_over: BTreeMap::new(),
            removed_keys: Vec::new(),
            handed_to: BTreeMap::new(),
            answer_lost: BTreeSet::new(),
            with_reservation: 0,
            recorded_losses: 0,
            orphans: 0,
            plan,
            rng,
        }
    }

    pub(crate) fn node_id(&self, index: usize) -> NodeId {
        let mut bytes = [0; 16];
        if let Some(last) = bytes.last_mut() {
            *last = u8::try_from(index + 1).unwrap_or(u8::MAX);
        }
        NodeId::from_bytes(bytes)
    }

    pub(crate) fn relay(&self) -> Principal {
        Principal::Relay(RelayId::from_bytes([0x12; 16]))
    }

    pub(crate) fn pool(&self) -> Name {
        Name::default()
    }

    pub(crate) fn placement(&self) -> Placement {
        Placement {
            pool: self.pool(),
            labels: vec![],
            envelope: ENVELOPE,
        }
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.plan.log {
            let line = format!("{:>9} {}", self.now, line());
            self.log.push(line);
        }
    }

    /// Wakes a party at a moment, unless it will be woken before.
    pub(crate) fn wake(&mut self, party: Party, at: u64) {
        let sooner = self
            .wakes
            .get(&party)
            .is_some_and(|set| *set <= at && *set > self.now);
        if !sooner {
            self.wakes.insert(party, at);
            self.queue.add(at, Event::Wake(party));
        }
    }

    /// Runs until everything is at rest, or time is over.
    pub(crate) fn run(&mut self) {
        self.hub_start();
        for index in 0..self.nodes.len() {
            self.node_start(index);
        }
        self.daemon_start();
        self.schedule();
        while let Some((at, event)) = self.queue.next() {
            self.now = at;
            if at > self.plan.until_ms {
                let unfinished = self.unfinished();
                self.violation(format!("the run did not come to rest: {unfinished}"));
                break;
            }
            self.happen(event);
            if !self.violations.is_empty() || self.is_over() {
                break;
            }
        }
        self.settle();
        if self.violations.is_empty() {
            self.check_end();
        }
    }

    /// Drains the daemon and lets leases run out once the work is done.
    fn settle(&mut self) {
        let until = self.now + 700_000;
        self.faulty = false;
        self.acquire_input(vk_gitlab_core::acquire::Input::Drain);
        while self.violations.is_empty() {
            let Some((at, event)) = self.queue.next() else {
                return;
            };
            if at > until {
                return;
            }
            self.now = at;
            self.happen(event);
        }
    }

    /// What comes from outside: pushes, cancels, cuts.
    fn schedule(&mut self) {
        self.queue.add(self.rng.between(1, 5000), Event::Push);
        for _ in 0..self.plan.cuts {
            let node = self.rng.below(self.plan.nodes);
            let away = if self.rng.one_in(12) || self.plan.long_cuts {
                self.rng.between(330_000, 900_000)
            } else {
                self.rng.between(0, 60_000)
            };
            let at = self.rng.between(2000, self.plan.busy_ms);
            self.queue.add(at, Event::Cut(node, away));
        }
        self.schedule_approvals();
        for _ in 0..self.plan.job_kills {
            let node = self.rng.below(self.plan.nodes);
            let at = self.rng.between(2000, self.plan.busy_ms);
            self.queue.add(at, Event::KillJob(node));
        }
        for _ in 0..self.plan.disk_losses {
            let node = self.rng.below(self.plan.nodes);
            let at = self.rng.between(2000, self.plan.busy_ms);
            self.queue.add(at, Event::LoseDisk(node));
        }
    }

    fn push(&mut self) {
        let kills = self.daemon.kills.left()
            + self.hub.kills.left()
            + self.nodes.iter().map(|node| node.kills.left()).sum::<u32>();
        // Work goes on until every planned kill has had its chance.
        if self.pushed < self.plan.jobs || (kills > 0 && self.pushed < self.plan.most_jobs) {
            self.pushed += 1;
            let cancelled = self.rng.one_in(6);
            let mut script = self.script(self.pushed);
            if cancelled && self.rng.one_in(2) {
                // It ends by its cancel alone: one that is forgotten shows by the hub's timeout.
                (script.pieces, script.piece_bytes, script.every_ms) = (100_000, 40, 3000);
            }
            let pending = u32::from(self.rng.one_in(3)) * 2;
            self.gitlab.add(script, pending);
            if let Some(held) = self.held_requests.first().copied() {
                self.hold_over(held);
            }
            if cancelled {
                let force = self.rng.one_in(2);
                let at = self.now + self.rng.between(100, 120_000);
                self.queue.add(at, Event::Cancel(script.gitlab_job, force));
            }
            let at = self.now + self.rng.between(10, 30_000);
            self.queue.add(at, Event::Push);
        }
    }

    fn script(&mut self, gitlab_job: u64) -> Script {
        let piece_bytes = if self.rng.one_in(6) { 300_000 } else { 40 };
        Script {
            gitlab_job,
            // Below the trace limit: what is past it the node would have cut.
            pieces: u32::try_from(self.rng.between(0, 13)).unwrap_or(1),
            piece_bytes,
            every_ms: self.rng.between(1, 4000),
            exit_code: if self.rng.one_in(4) { 42 } else { 0 },
        }
    }

    fn cancel(&mut self, number: u64, force: bool) {
        let state = self.gitlab.jobs.get(&number).map(|job| job.state);
        if state.is_some_and(|state| !state.is_final()) {
            self.faults.count(if force {
                Fault::CancelForced
            } else {
                Fault::CancelGraceful
            });
            self.gitlab.cancel(number, force);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(party) => self.woken(party),
            Event::Sync(Party::Daemon, life) if life == self.daemon.life => self.daemon_synced(),
            Event::Sync(Party::Hub, life) if life == self.hub.life => self.hub_synced(),
            Event::Sync(Party::Node(index), life) if self.is_life(index, life) => {
                self.node_synced(index);
            }
            Event::Sync(..) => {}
            Event::OutputSync(life) if life == self.hub.life => self.hub_output_synced(),
            Event::OutputSync(_) => {}
            Event::Restart(Party::Daemon) => self.daemon_start(),
            Event::Restart(Party::Hub) => self.hub_start(),
            Event::Restart(Party::Node(index)) => self.node_start(index),
            Event::Dial(index, life) => self.dial(index, life),
            Event::ToHub(session, message) => self.arrives_at_hub(session, *message),
            Event::ToNode(session, message) => self.arrives_at_node(session, *message),
            Event::EndAtHub(session) => self.end_at_hub(session),
            Event::EndAtNode(session) => self.end_at_node(session),
            Event::Beat(index, life) if self.is_life(index, life) => self.node_beat(index),
            Event::Beat(..) => {}
            Event::AtHub(call) => self.at_hub(call),
            Event::FromHub(call, answer) => self.hub_answers(call, answer.map(|answer| *answer)),
            Event::AtGitLab(call) => self.at_gitlab(call),
            Event::FromGitLab(call, answer) => self.gitlab_answers(call, answer),
            Event::JobFromGitLab(call, answer) => self.job_from_gitlab(call, answer),
            Event::HoldOver(call) => self.hold_over(call),
            Event::FromHost(index, life, job, event) if self.is_life(index, life) => {
                self.node_input(index, vk_node_core::Input::Job { job, event });
            }
            Event::FromHost(..) => {}
            Event::JobStep(index, job) => self.job_step(index, job),
            Event::RelayDial(life) => self.relay_dial(life),
            Event::ServerAtDaemon(session, status) => self.server_at_daemon(session, status),
            Event::RelayCut => self.relay_cut(),
            Event::RelayGone(session) => self.relay_gone(session),
            Event::Decide => self.decide(),
            Event::Push => self.push(),
            Event::Cancel(number, force) => self.cancel(number, force),
            Event::Cut(index, away) => self.cut(index, away),
            Event::KillJob(index) => self.kill_job(index),
            Event::StartAgain(index, message) => self.start_again(index, *message),
            Event::LoseDisk(index) => self.lose_disk(index),
        }
    }

    fn is_life(&self, index: usize, life: u32) -> bool {
        self.nodes.get(index).is_some_and(|node| node.life == life)
    }

    fn woken(&mut self, party: Party) {
        match party {
            Party::Daemon => self.daemon_timeouts(),
            Party::Hub => self.hub_input(vk_hub_core::Input::Timeout, None),
            Party::Node(index) => self.node_input(index, vk_node_core::Input::Timeout),
        }
    }
}

fn kills(rng: &mut Rng, plan: &Plan) -> KillPlan {
    KillPlan::new(rng, plan.kills, plan.kill_spread)
}
