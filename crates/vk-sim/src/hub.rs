//! The hub's edge in the simulation: sessions, requests, records, the output log.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_core::{
    Answer, Approve, Config, Effect, Fleet, FromNode, Input, Keep, OperatorRequest, Record,
    RequestHandle, Row, SessionHandle, Settings,
};
use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::{Chunk, HubJobMessage};
use vk_hub_proto::node_session::{HubMessage, NodeMessage, RefusedCode};
use vk_step::Core as _;

use crate::breakage::Breakage;
use crate::bytes;
use crate::clock::Clock;
use crate::event::{Event, Party};
use crate::fault::{Boundary, Fault, KillPlan, Victim};
use crate::store::Store;
use crate::world::World;

/// A job's output as the hub's log has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    pub(crate) durable: usize,
}

/// An effect with the output bytes that belong to it.
#[derive(Clone, Debug)]
pub(crate) struct HubEffect {
    effect: Effect,
    bytes: Vec<u8>,
}

/// The hub's process and disk.
pub(crate) struct Hub {
    pub(crate) core: Option<Fleet>,
    pub(crate) life: u32,
    pub(crate) clock: Clock,
    pub(crate) store: Store<Record, HubEffect>,
    pub(crate) outputs: BTreeMap<JobId, Output>,
    /// Ended or dropped: what is acked of them need not be kept.
    pub(crate) not_kept: BTreeSet<JobId>,
    pub(crate) waiting: BTreeMap<RequestHandle, u64>,
    pub(crate) kills: KillPlan,
    pub(crate) submitted: BTreeSet<JobId>,
    pub(crate) settled: BTreeSet<JobId>,
    /// Ended by the hub without their node.
    pub(crate) given_up: BTreeSet<JobId>,
    pub(crate) revisions: BTreeMap<JobId, u64>,
    next_handle: u64,
    output_sync_due: bool,
    sync_due: bool,
    /// For a breakage: starts whose answer has not come.
    unanswered: BTreeMap<JobId, (u64, HubMessage)>,
    /// For a breakage: starts that went out, and to which node.
    pub(crate) sent: BTreeMap<JobId, (usize, HubMessage)>,
    /// When each job was submitted, durably; until it ends.
    pub(crate) waits_since: BTreeMap<JobId, u64>,
    /// Jobs and the nodes they were sent to.
    pub(crate) placed: BTreeSet<(JobId, usize)>,
    /// Jobs that are one node's to answer for, durably: these wait for its word, not for room.
    pub(crate) at_node: BTreeSet<JobId>,
    /// Jobs that nobody had room for.
    pub(crate) no_room: u64,
    /// Jobs that it knows to run on a node, durably.
    pub(crate) running: BTreeSet<JobId>,
}

impl Hub {
    pub(crate) fn new(kills: KillPlan) -> Hub {
        Hub {
            core: None,
            life: 0,
            clock: Clock::starting(0, 0),
            store: Store::default(),
            outputs: BTreeMap::new(),
            not_kept: BTreeSet::new(),
            waiting: BTreeMap::new(),
            kills,
            submitted: BTreeSet::new(),
            settled: BTreeSet::new(),
            given_up: BTreeSet::new(),
            revisions: BTreeMap::new(),
            next_handle: 0,
            output_sync_due: false,
            sync_due: false,
            unanswered: BTreeMap::new(),
            sent: BTreeMap::new(),
            waits_since: BTreeMap::new(),
            placed: BTreeSet::new(),
            at_node: BTreeSet::new(),
            no_room: 0,
            running: BTreeSet::new(),
        }
    }
}

impl World {
    /// Opens the hub's core from its disk.
    pub(crate) fn hub_start(&mut self) {
        self.hub.clock = Clock::starting(self.now, self.rng.between(0, 1_000_000_000));
        let config = Config {
            settings: Settings {
                approve: match self.asks() {
                    true => Approve::Ask,
                    false => Approve::All,
                },
                ..Settings::default()
            },
            // A wall clock that an hour of skew may have set back or forth.
            wall_secs: 1_790_000_000 + self.now / 1000 + self.rng.between(0, 7200),
            outputs: self
                .hub
                .outputs
                .iter()
                .map(|(job, out)| (*job, out.bytes.len() as u64))
                .collect(),
        };
        let now = self.hub.clock.read(self.now);
        let records = self.hub_records();
        match Fleet::open(config, now, records) {
            Ok((core, effects)) => {
                self.hub.core = Some(core);
                self.hub_push(Vec::new(), effects, None);
            }
            Err(error) => self.violation(format!("the hub does not open: {error}")),
        }
        self.hub_enrol();
        self.hub_wake();
    }

    /// All records ever, or, as a store of rows keeps them, only those that count.
    fn hub_records(&mut self) -> Vec<Record> {
        let all = self.hub.store.durable().to_vec();
        if self.rng.one_in(2) {
            return all;
        }
        let mut rows: Vec<(Row, Record)> = Vec::new();
        for record in all {
            match record.row() {
                Keep::Put(row) => put(&mut rows, row, record),
                Keep::Remove(gone) => rows.retain(|(row, _)| *row != gone),
                Keep::Clear(subject) => rows.retain(|(row, _)| row.subject != subject),
                Keep::ClearAndPut(subject, row) => {
                    rows.retain(|(row, _)| row.subject != subject);
                    put(&mut rows, row, record);
                }
                Keep::Audit => {}
            }
        }
        rows.into_iter().map(|(_, record)| record).collect()
    }

    /// The operator's part: nodes and their pool.
    fn hub_enrol(&mut self) {
        for index in 0..self.nodes.len() {
            let node = self.node_id(index);
            let pools = vec![self.pool()];
            let request = OperatorRequest::AddNode { node, pools };
            let to = self.hub_handle();
            self.hub_input(Input::Operator { to, request }, None);
        }
    }

    pub(crate) fn hub_handle(&mut self) -> RequestHandle {
        self.hub.next_handle += 1;
        RequestHandle(self.hub.next_handle)
    }

    /// Gives the core an input; `chunk` is what an output message carried.
    pub(crate) fn hub_input(&mut self, input: Input, chunk: Option<Chunk>) {
        let now = self.hub.clock.read(self.now);
        let Some(core) = self.hub.core.as_mut() else {
            return;
        };
        let early = (self.breakage == Some(Breakage::AckBeforeSync))
            .then(|| early_ack(&input))
            .flatten();
        let step = core.handle(now, input);
        let effects = early.into_iter().chain(step.effects).collect();
        self.hub_push(step.records, effects, chunk);
        self.hub_wake();
    }

    fn hub_push(&mut self, records: Vec<Record>, effects: Vec<Effect>, chunk: Option<Chunk>) {
        if self.hub.core.is_none() {
            return;
        }
        if (!records.is_empty() || !effects.is_empty()) && self.hub_dies(Boundary::Before) {
            return;
        }
        let bytes = chunk.map(Chunk::into_bytes).unwrap_or_default();
        let effects = effects.into_iter().map(|effect| HubEffect {
            bytes: match &effect {
                Effect::StoreOutput { skip, len, .. } => {
                    bytes::part(&bytes, (*skip).into(), (*len).into())
                }
                _ => Vec::new(),
            },
            effect,
        });
        let effects = effects.collect();
        if self.hub.store.push(records, effects) && !self.hub.sync_due {
            self.hub.sync_due = true;
            let at = self.now + self.rng.between(0, 20);
            self.queue.add(at, Event::Sync(Party::Hub, self.hub.life));
        }
        self.hub_release();
    }

    /// The hub's records are durable.
    pub(crate) fn hub_synced(&mut self) {
        self.hub.sync_due = false;
        for record in self.hub.store.sync() {
            self.hub_note(&record);
        }
        if !self.hub_dies(Boundary::Synced) {
            self.hub_release();
        }
    }

    fn hub_note(&mut self, record: &Record) {
        self.check_record("hub", record);
        self.check_finished(record);
        self.check_wait_ends(record);
        if let Record::JobFinished { job, .. } = record {
            self.hub.sent.remove(job);
        }
        match record {
            Record::JobStarting { job, .. } => {
                self.hub.at_node.insert(*job);
            }
            Record::JobQueued { job } => {
                self.hub.at_node.remove(job);
            }
            Record::JobSubmitted { job, .. } => {
                self.hub.submitted.insert(*job);
                self.hub.waits_since.insert(*job, self.now);
            }
            Record::JobFinished {
                job,
                by_node: false,
                ..
            } => {
                self.hub.given_up.insert(*job);
                self.hub.not_kept.insert(*job);
            }
            Record::JobRunning { job, .. } => {
                self.hub.running.insert(*job);
            }
            Record::JobSettled { job } => {
                self.hub.settled.insert(*job);
                self.hub.not_kept.insert(*job);
            }
            _ => {}
        }
    }

    fn hub_release(&mut self) {
        while let Some(HubEffect { effect, bytes }) = self.hub.store.next_effect() {
            self.hub_effect(effect, &bytes);
            if self.hub_dies(Boundary::After) {
                return;
            }
        }
    }

    fn hub_dies(&mut self, at: Boundary) -> bool {
        if self.hub.core.is_none() || !self.hub.kills.is_due(&mut self.rng) {
            return false;
        }
        self.faults.count(Fault::kill(Victim::Hub, at));
        self.trace(|| format!("hub killed {at:?}"));
        self.hub.core = None;
        self.hub.life += 1;
        self.hub.sync_due = false;
        self.hub.output_sync_due = false;
        self.hub.store.crash();
        self.hub.waiting.clear();
        self.hub.unanswered.clear();
        for output in self.hub.outputs.values_mut() {
            // What was not synced may or may not have reached the disk.
            let keep = self
                .rng
                .between(output.durable as u64, output.bytes.len() as u64);
            output
                .bytes
                .truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            output.durable = output.bytes.len();
        }
        self.leases.hub_lost();
        self.hub_connections_break();
        self.relay_broken();
        let at = self.now + self.rng.between(10, 30_000);
        self.queue.add(at, Event::Restart(Party::Hub));
        true
    }

    /// Every node learns at some time that its session is over.
    fn hub_connections_break(&mut self) {
        let sessions: Vec<u64> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.session_broken(session);
        }
    }

    fn hub_effect(&mut self, effect: Effect, bytes: &[u8]) {
        match effect {
            Effect::Answer { to, answer } => return self.hub_answer(to, answer),
            Effect::StoreOutput { job, offset, .. } => self.hub_store(job, offset, bytes),
            Effect::DropOutput { job } => {
                self.hub.outputs.remove(&job);
            }
            Effect::RetainOutputs { ref jobs } => {
                self.hub.outputs.retain(|job, _| jobs.contains(job))
            }
            Effect::OutputAck { job, offset, .. } => self.check_ack(job, offset),
            Effect::Close {
                session,
                code,
                ref reason,
            } => {
                if code == RefusedCode::Protocol {
                    self.violation(format!("the hub says a node broke the protocol: {reason}"));
                }
                self.send_to_node(session.0, effect_message(&effect));
                self.session_broken(session.0);
                return;
            }
            Effect::Server {
                session, status, ..
            } => self.hub_says_server(session.0, status),
            Effect::CloseRelay { session, .. } => self.relay_closed(session.0),
            Effect::Stopped { ref why } => self.violation(format!("the hub stopped: {why}")),
            _ => {}
        }
        self.hub_send(&effect);
    }

    fn hub_send(&mut self, effect: &Effect) {
        let Some((SessionHandle(session), message)) = effect.message() else {
            return;
        };
        if let HubMessage::Job(HubJobMessage::Start { job, .. }) = &message
            && let Some(open) = self.sessions.get(&session)
        {
            self.check_place(*job, open.node);
        }
        if self.breakage == Some(Breakage::DoubleStart) {
            self.remember_start(session, &message);
        }
        if self.breakage == Some(Breakage::PlacedAgain)
            && let HubMessage::Job(HubJobMessage::Start { job, .. }) = &message
            && let Some(open) = self.sessions.get(&session)
        {
            self.hub.sent.insert(*job, (open.node, message.clone()));
        }
        self.send_to_node(session, Some(message));
    }

    fn remember_start(&mut self, session: u64, message: &HubMessage) {
        if let HubMessage::Job(HubJobMessage::Start { job, .. }) = message {
            self.hub.unanswered.insert(*job, (session, message.clone()));
        }
    }

    /// The breakage "double start": a start whose answer is lost goes to another node.
    pub(crate) fn start_elsewhere(&mut self, lost: u64) {
        let lost_starts: Vec<(JobId, HubMessage)> = self
            .hub
            .unanswered
            .iter()
            .filter(|(_, (session, _))| *session == lost)
            .map(|(job, (_, message))| (*job, message.clone()))
            .collect();
        for (job, message) in lost_starts {
            let other = self
                .sessions
                .iter()
                .find(|(number, s)| **number != lost && s.is_open());
            if let Some(other) = other.map(|(number, _)| *number) {
                self.hub.unanswered.remove(&job);
                self.send_to_node(other, Some(message));
            }
        }
    }

    fn hub_answer(&mut self, to: RequestHandle, answer: Answer) {
        let Some(call) = self.hub.waiting.remove(&to) else {
            return;
        };
        let bytes = match &answer {
            Answer::Output(read) => self.hub_read(read.job, read.offset, read.len),
            Answer::Submitted(view) | Answer::View(view) | Answer::CancelTaken(view) => {
                self.check_view(view);
                Vec::new()
            }
            _ => Vec::new(),
        };
        let at = self.now + self.rng.between(1, 40);
        if self.faulty && self.rng.one_in(60) {
            self.faults.count(Fault::HubAnswerLost);
            self.queue.add(at, Event::FromHub(call, None));
        } else {
            self.queue
                .add(at, Event::FromHub(call, Some(Box::new((answer, bytes)))));
        }
    }

    fn hub_read(&mut self, job: JobId, offset: u64, len: u64) -> Vec<u8> {
        let bytes = self
            .hub
            .outputs
            .get(&job)
            .map(|output| output.bytes.as_slice())
            .unwrap_or_default();
        let read = bytes::part(bytes, offset, len);
        if read.len() as u64 != len {
            self.violation(format!(
                "output of {job}: {len} bytes promised at {offset}, {} there",
                read.len()
            ));
        }
        read
    }

    fn hub_store(&mut self, job: JobId, offset: u64, bytes: &[u8]) {
        let output = self.hub.outputs.entry(job).or_default();
        let len = output.bytes.len() as u64;
        output.bytes.extend_from_slice(bytes);
        if len != offset {
            self.violation(format!(
                "output of {job}: stored at {offset}, its end is {len}"
            ));
        }
        if !self.hub.output_sync_due {
            self.hub.output_sync_due = true;
            let at = self.now + self.rng.between(0, 50);
            self.queue.add(at, Event::OutputSync(self.hub.life));
        }
    }

    /// The output log is durable.
    pub(crate) fn hub_output_synced(&mut self) {
        self.hub.output_sync_due = false;
        let mut lengths = Vec::new();
        for (job, output) in &mut self.hub.outputs {
            if output.durable < output.bytes.len() {
                output.durable = output.bytes.len();
                lengths.push((*job, output.durable as u64));
            }
        }
        self.hub_input(Input::OutputSynced { lengths }, None);
    }

    /// A daemon's request arrives.
    pub(crate) fn at_hub(&mut self, number: u64) {
        let Some(call) = self.hub_calls.get(&number).cloned() else {
            return;
        };
        if self.hub.core.is_none() || (self.faulty && self.rng.one_in(60)) {
            if self.hub.core.is_some() {
                self.faults.count(Fault::HubRequestLost);
            }
            let at = self.now + self.rng.between(1, 10_000);
            self.queue.add(at, Event::FromHub(number, None));
            return;
        }
        let to = self.hub_handle();
        self.hub.waiting.insert(to, number);
        // A call whose hub dies gets no answer; the client notices by itself.
        let gives_up = self.now + 95_000;
        self.queue.add(gives_up, Event::FromHub(number, None));
        let by = self.relay();
        self.hub_input(
            Input::Request {
                to,
                by,
                request: call.request,
            },
            None,
        );
    }

    /// A node's message arrives.
    pub(crate) fn hub_message(&mut self, session: u64, message: NodeMessage) {
        if let NodeMessage::Job(vk_hub_proto::dispatch::NodeJobMessage::Job { job, .. }) = &message
        {
            self.hub.unanswered.remove(job);
        }
        self.place_absent(session, &message);
        let Some((message, chunk)) = FromNode::read(message) else {
            return;
        };
        self.hub_input(
            Input::Node {
                session: SessionHandle(session),
                message,
            },
            chunk,
        );
    }

    pub(crate) fn hub_wake(&mut self) {
        let Some(core) = &self.hub.core else { return };
        if let Some(deadline) = core.next_deadline() {
            let at = self.hub.clock.when(deadline).max(self.now + 1);
            self.wake(Party::Hub, at);
        }
    }
}

/// A record takes its row's place, or comes behind all others.
fn put(rows: &mut Vec<(Row, Record)>, at: Row, record: Record) {
    match rows.iter_mut().find(|(row, _)| *row == at) {
        Some((_, there)) => *there = record,
        None => rows.push((at, record)),
    }
}

/// The breakage "ack before sync": output is acked as it arrives.
fn early_ack(input: &Input) -> Option<Effect> {
    match input {
        Input::Node {
            session,
            message: FromNode::Output { job, offset, len },
        } => {
            let offset = offset + u64::from(*len);
            Some(Effect::OutputAck {
                session: *session,
                job: *job,
                offset,
            })
        }
        _ => None,
    }
}

fn effect_message(effect: &Effect) -> Option<HubMessage> {
    effect.message().map(|(_, message)| message)
}
