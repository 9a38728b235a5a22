//! Random schedules: nodes that answer late, refuse, lose sessions; a hub that dies at any moment
//! with any part of a step's effects released. What must hold is asked after every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use vk_hub_core::{Effect, Keep, Record, Row, SessionHandle};
use vk_hub_proto::client::{CancelMode, JobState, JobView};
use vk_hub_proto::dispatch::{HeldJob, LeaseState, RefusalReason, RunState};
use vk_hub_proto::{JobId, ReservationId};

use crate::bench::{Bench, held_reservation, job, refused, relay, request_id, result};

const NODES: u8 = 3;

#[derive(Clone, Debug)]
enum Op {
    Reserve(u8),
    Submit(u8, Option<u8>),
    Cancel(u8, bool),
    Settle(u8),
    /// The node takes the next message of its session; whether it says yes, and whether its
    /// answer arrives or is lost with the session.
    Takes(u8, bool, bool),
    Writes(u8, u16),
    Sync(u8),
    Ends(u8),
    Drop(u8),
    Connect(u8),
    Pass(u16),
    /// The hub dies in what comes next: with so many of its effects released, or with its records
    /// lost, too.
    Die(Option<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0..NODES;
    let j = 1_u8..12;
    prop_oneof![
        2 => (100_u8..112).prop_map(Op::Reserve),
        3 => (j.clone(), prop::option::of(100_u8..112)).prop_map(|(j, r)| Op::Submit(j, r)),
        1 => (j.clone(), any::<bool>()).prop_map(|(j, hard)| Op::Cancel(j, hard)),
        1 => j.clone().prop_map(Op::Settle),
        9 => (n.clone(), prop::bool::weighted(0.75), prop::bool::weighted(0.9))
            .prop_map(|(n, yes, arrives)| Op::Takes(n, yes, arrives)),
        3 => (j.clone(), 1_u16..900).prop_map(|(j, len)| Op::Writes(j, len)),
        2 => j.clone().prop_map(Op::Sync),
        2 => j.prop_map(Op::Ends),
        1 => n.clone().prop_map(Op::Drop),
        3 => n.prop_map(Op::Connect),
        2 => (1_u16..9_000).prop_map(Op::Pass),
        1 => prop::option::weighted(0.8, 0_u8..6).prop_map(Op::Die),
    ]
}

/// A node: what it journaled, what it holds, and the messages on their way to it.
#[derive(Default)]
struct Node {
    session: Option<SessionHandle>,
    inbox: VecDeque<Effect>,
    /// Accepted jobs without a recorded result: output length, and whether they ended.
    jobs: BTreeMap<JobId, (u64, bool)>,
    reservations: BTreeSet<ReservationId>,
}

struct World {
    bench: Bench,
    nodes: Vec<Node>,
    /// Where each job was accepted: at most one place, at most once.
    ran: BTreeMap<JobId, u8>,
    granted: BTreeMap<u8, ReservationId>,
    stored: BTreeMap<JobId, u64>,
    acked: BTreeMap<JobId, u64>,
    ended: BTreeMap<JobId, JobView>,
    /// How the hub dies in the next operation.
    doom: Option<Option<u8>>,
}

impl World {
    fn new() -> World {
        let mut bench = Bench::with(|settings| settings.job_history = 4);
        for n in 0..NODES {
            bench.add_node(n);
        }
        World {
            bench,
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            ran: BTreeMap::new(),
            granted: BTreeMap::new(),
            stored: BTreeMap::new(),
            acked: BTreeMap::new(),
            ended: BTreeMap::new(),
            doom: None,
        }
    }

    fn release(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match &effect {
                Effect::StoreOutput {
                    job, offset, len, ..
                } => {
                    let end = self.stored.entry(*job).or_insert(0);
                    assert_eq!(*offset, *end, "output is appended");
                    *end += u64::from(*len);
                }
                Effect::Close { session, .. } => {
                    for node in &mut self.nodes {
                        if node.session == Some(*session) {
                            node.session = None;
                            node.inbox.clear();
                        }
                    }
                }
                Effect::OutputAck { job, offset, .. } => {
                    if let Some(status) = self.bench.fleet.job(*job)
                        && status.view.state == JobState::Running
                    {
                        let durable = self.bench.outputs.get(job).copied().unwrap_or(0);
                        assert!(*offset <= durable, "acked {offset} of {durable}");
                        self.acked.insert(*job, *offset);
                    }
                }
                _ => {}
            }
            if let Some((session, _)) = effect.message() {
                let node = self
                    .nodes
                    .iter_mut()
                    .find(|node| node.session == Some(session));
                if let Some(node) = node {
                    node.inbox.push_back(effect);
                }
            }
        }
    }

    fn run(&mut self, op: &Op) {
        if let Op::Die(how) = op {
            self.doom = Some(*how);
            return;
        }
        let durable = self.bench.records.len();
        let effects = self.effects_of(op);
        match self.doom.take() {
            None => self.release(effects),
            Some(Some(kept)) => {
                let kept = effects.into_iter().take(usize::from(kept)).collect();
                self.release(kept);
                self.die();
            }
            Some(None) => {
                self.bench.records.truncate(durable);
                self.die();
            }
        }
    }

    fn effects_of(&mut self, op: &Op) -> Vec<Effect> {
        match *op {
            Op::Die(_) => Vec::new(),
            Op::Drop(n) => self.lose(n),
            Op::Connect(n) => self.connect(n),
            Op::Takes(n, yes, true) => self.takes(n, yes),
            Op::Takes(n, yes, false) => {
                // The node acts on it; what it says never arrives.
                let node = &mut self.nodes[usize::from(n)];
                let next = node.inbox.pop_front();
                let session = node.session;
                let mut effects = self.lose(n);
                // The hub ignores what comes on a session that is over.
                self.nodes[usize::from(n)].session = session;
                self.nodes[usize::from(n)].inbox.extend(next);
                effects.extend(self.takes(n, yes));
                self.nodes[usize::from(n)].session = None;
                effects
            }
            Op::Pass(ms) => self
                .bench
                .pass(std::time::Duration::from_millis(u64::from(ms) * 7)),
            Op::Reserve(n) => {
                self.granted.insert(n, crate::bench::reservation(n));
                self.bench.reserve(n, 60).1
            }
            Op::Submit(n, on) => {
                let on = on.and_then(|on| self.granted.get(&on).copied());
                let mut body = crate::bench::submission(n, on);
                body.request_id = request_id(n);
                self.bench.send(relay(1), Bench::submit_request(n, body)).1
            }
            Op::Cancel(n, hard) => {
                let mode = if hard {
                    CancelMode::Immediate
                } else {
                    CancelMode::Graceful
                };
                let job = job(n);
                let request = vk_hub_core::Request::Cancel { job, mode };
                self.bench.send(relay(1), request).1
            }
            Op::Settle(n) => {
                let request = vk_hub_core::Request::Settle { job: job(n) };
                self.bench.send(relay(1), request).1
            }
            Op::Writes(n, len) => self.writes(n, len),
            Op::Sync(n) => {
                let stored = self.stored.get(&job(n)).copied().unwrap_or(0);
                self.bench.synced(n, stored)
            }
            Op::Ends(n) => self.ends(n),
        }
    }

    /// The job's node, if its session is up.
    fn place_of(&self, n: u8) -> Option<(usize, SessionHandle)> {
        let place = usize::from(*self.ran.get(&job(n))?);
        Some((place, self.nodes[place].session?))
    }

    fn writes(&mut self, n: u8, len: u16) -> Vec<Effect> {
        let Some((place, session)) = self.place_of(n) else {
            return Vec::new();
        };
        let Some((at, false)) = self.nodes[place].jobs.get(&job(n)).copied() else {
            return Vec::new();
        };
        let end = at + u64::from(len);
        self.nodes[place].jobs.insert(job(n), (end, false));
        self.bench.writes(session, n, at, u32::from(len))
    }

    fn ends(&mut self, n: u8) -> Vec<Effect> {
        let Some((place, session)) = self.place_of(n) else {
            return Vec::new();
        };
        let Some((len, _)) = self.nodes[place].jobs.get(&job(n)).copied() else {
            return Vec::new();
        };
        self.nodes[place].jobs.insert(job(n), (len, true));
        self.bench.ends(session, n, result())
    }

    fn lose(&mut self, n: u8) -> Vec<Effect> {
        let node = &mut self.nodes[usize::from(n)];
        node.inbox.clear();
        match node.session.take() {
            Some(session) => self.bench.close(session),
            None => Vec::new(),
        }
    }

    fn connect(&mut self, n: u8) -> Vec<Effect> {
        let lost = self.lose(n);
        self.release(lost);
        let session = self.bench.greet(n, 3);
        let acked = &self.acked;
        let node = &mut self.nodes[usize::from(n)];
        node.session = Some(session);
        // What was not acked is sent again, from the ack that comes with `held`.
        for (id, (len, _)) in &mut node.jobs {
            *len = acked.get(id).copied().unwrap_or(0);
        }
        let jobs = node.jobs.iter().map(|(id, (len, ended))| HeldJob {
            job: *id,
            state: RunState::Accepted,
            output_len: *len,
            finished: *ended,
        });
        let jobs = jobs.collect();
        let reservations = node
            .reservations
            .iter()
            .map(|id| held_reservation(*id, 40))
            .collect();
        self.bench.held(session, reservations, jobs)
    }

    fn takes(&mut self, n: u8, yes: bool) -> Vec<Effect> {
        let node = &mut self.nodes[usize::from(n)];
        let (Some(session), Some(message)) = (node.session, node.inbox.pop_front()) else {
            return Vec::new();
        };
        match message {
            Effect::Offer { reservation, .. } if yes => {
                node.reservations.insert(reservation);
                self.bench.accepts(session, reservation)
            }
            Effect::Offer { reservation, .. } => {
                self.bench
                    .refuses(session, reservation, RefusalReason::Memory)
            }
            Effect::Renew { reservation, .. } => {
                let state = LeaseState::Held { remaining_secs: 50 };
                self.bench.lease_is(session, reservation, state)
            }
            Effect::Release { reservation, .. } => {
                node.reservations.remove(&reservation);
                Vec::new()
            }
            Effect::Start {
                job, reservation, ..
            } => {
                let reserved = reservation.is_some_and(|id| node.reservations.remove(&id));
                let n_of = job.as_bytes()[0];
                if !yes && !reserved {
                    return self
                        .bench
                        .job_is(session, n_of, refused(RefusalReason::Concurrency));
                }
                let before = self.ran.insert(job, n);
                assert_eq!(before, None, "job {job} was started a second time");
                node.jobs.insert(job, (0, false));
                self.bench.job_is(session, n_of, RunState::Accepted)
            }
            Effect::OutputAck { job, offset, .. } => {
                if let Some((len, _)) = node.jobs.get_mut(&job) {
                    *len = (*len).max(offset);
                }
                Vec::new()
            }
            Effect::Recorded { job, .. } => {
                node.jobs.remove(&job);
                Vec::new()
            }
            Effect::Cancel { job, .. } => {
                let n_of = job.as_bytes()[0];
                if !node.jobs.contains_key(&job) {
                    let state = refused(RefusalReason::Invalid);
                    return self.bench.job_is(session, n_of, state);
                }
                self.ends(n_of)
            }
            _ => Vec::new(),
        }
    }

    /// The hub dies: its sessions and memory are gone, records and synced output stay.
    fn die(&mut self) {
        for node in &mut self.nodes {
            node.session = None;
            node.inbox.clear();
        }
        self.stored = self.bench.outputs.clone();
        self.granted.clear();
        let all = self.bench.records.clone();
        self.bench.restart_from(rows(&all));
        let from_rows = self.what_is_kept();
        self.bench.restart_from(all);
        assert_eq!(from_rows, self.what_is_kept(), "rows tell the same");
    }

    fn what_is_kept(&self) -> Vec<String> {
        let fleet = &self.bench.fleet;
        let jobs = fleet.jobs().map(|job| {
            let mut view = job.view;
            view.revision = 0;
            format!("{view:?} {} {:?}", job.settled, job.summary)
        });
        let nodes = fleet
            .nodes()
            .map(|node| format!("{:?} {:?} {:?}", node.node, node.pools, node.desired));
        jobs.chain(nodes).collect()
    }

    /// A job that ended stays as it is.
    fn check_ends(&mut self) {
        for status in self.bench.fleet.jobs() {
            let mut view = status.view;
            if view.state != JobState::Finished {
                continue;
            }
            view.revision = 0;
            let before = self.ended.entry(view.id).or_insert_with(|| view.clone());
            assert_eq!(*before, view, "a job that ended changed");
        }
    }
}

/// What a store of rows would hold.
pub(crate) fn rows(records: &[Record]) -> Vec<Record> {
    let mut rows: Vec<(Row, Record)> = Vec::new();
    for record in records {
        let put = match record.row() {
            Keep::Put(row) => Some(row),
            Keep::Remove(row) => {
                rows.retain(|(at, _)| *at != row);
                None
            }
            Keep::Clear(subject) => {
                rows.retain(|(at, _)| at.subject != subject);
                None
            }
            Keep::ClearAndPut(subject, row) => {
                rows.retain(|(at, _)| at.subject != subject);
                Some(row)
            }
            Keep::Audit => None,
        };
        let Some(row) = put else { continue };
        match rows.iter_mut().find(|(at, _)| *at == row) {
            Some((_, kept)) => *kept = record.clone(),
            None => rows.push((row, record.clone())),
        }
    }
    rows.into_iter().map(|(_, record)| record).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// API-30, FAIL-01, FAIL-02, FAIL-04, DISP-72, FAIL-23, FAIL-31
    #[test]
    fn no_job_starts_twice_and_no_acked_byte_is_lost(ops in prop::collection::vec(op(), 1..160)) {
        let mut world = World::new();
        for n in 0..NODES {
            world.run(&Op::Connect(n));
        }
        for op in &ops {
            world.run(op);
            world.check_ends();
        }
        // Everything comes to an end once the nodes are gone for good.
        for n in 0..NODES {
            let lost = world.lose(n);
            world.release(lost);
        }
        world.bench.pass_secs(60 + 315 + 60 + 300);
        prop_assert_eq!(world.bench.fleet.unfinished(), 0);
        prop_assert_eq!(world.bench.fleet.reservations().count(), 0);
        prop_assert_eq!(world.bench.fleet.waiting(), 0);
    }
}
