//! A hub, disks and job processes around a core, simple enough to be killed at every record.

use std::collections::{BTreeMap, VecDeque};

use vk_hub_proto::dispatch::NodeJobMessage;
use vk_hub_proto::job::FailureClass;

use super::*;
use crate::Stop;

/// What one job is to live through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// What it is placed with, and what its VM takes.
    pub(super) mem: (u64, u64),
    /// The hub cancels it once its process ran for one turn.
    pub(super) cancel: Option<CancelMode>,
    /// Its process dies after one turn.
    pub(super) dies: bool,
}

/// What happens at the chosen record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The node's daemon is killed; processes run on.
    Kill,
    /// The host loses power; output that was not synced is lost.
    HostCrash,
    /// The daemon is killed; its journal had just been compacted.
    KillCompacted,
    /// The connection is cut, with all that was under way on it.
    Cut,
}

/// A fault after so many records and so many effects of the step that wrote the last of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) fault: Fault,
    pub(super) records: usize,
    pub(super) effects: usize,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    start_file: bool,
    began: bool,
    alive: bool,
    output: u64,
    synced: u64,
    turns: u32,
    runs: u32,
    granted: bool,
    denied: bool,
    stop: Option<Stop>,
    result: Option<JobResult>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct HubJob {
    accepted: bool,
    stored: u64,
    cancel: Option<CancelMode>,
    pub(super) result: Option<JobResult>,
}

pub(super) struct World {
    pub(super) node: Node,
    plans: Vec<Plan>,
    disks: BTreeMap<JobId, Disk>,
    pub(super) hub: BTreeMap<JobId, HubJob>,
    queue: VecDeque<Input>,
    /// Refused, to be started again when nothing else happens.
    refused: Vec<JobId>,
    at: Option<At>,
    /// Further faults, each after so many steps from the one before.
    faults: VecDeque<(usize, Fault)>,
    connected: bool,
}

impl World {
    pub(super) fn with_faults(plans: &[Plan], faults: Vec<(usize, Fault)>) -> World {
        World {
            faults: faults.into(),
            ..World::new(plans, None)
        }
    }

    pub(super) fn new(plans: &[Plan], at: Option<At>) -> World {
        World {
            node: Node::new(),
            plans: plans.to_vec(),
            disks: BTreeMap::new(),
            hub: (1..)
                .zip(plans)
                .map(|(n, _)| (id(n), HubJob::default()))
                .collect(),
            queue: VecDeque::new(),
            refused: Vec::new(),
            at,
            faults: VecDeque::new(),
            connected: false,
        }
    }

    /// Lets everything happen, and checks what must hold in the end.
    pub(super) fn run(&mut self) {
        for _ in 0..10_000 {
            if !self.connected {
                self.connect();
            } else if let Some(input) = self.queue.pop_front() {
                self.give(input);
            } else if self.is_done() {
                return self.check();
            } else if !self.take_turn() {
                let next = self.node.core.next_deadline();
                let later = self.node.now.after(Duration::from_secs(1));
                self.node.now = next.unwrap_or(later).clamp(self.node.now, later);
                self.give(Input::Timeout);
                for job in std::mem::take(&mut self.refused) {
                    self.say_start(job);
                }
            }
        }
        panic!("it does not end: {:?}\n{:?}", self.hub, self.disks);
    }

    fn is_done(&self) -> bool {
        self.hub.values().all(|job| job.result.is_some()) && self.disks.is_empty()
    }

    fn check(&self) {
        for (id, job) in &self.hub {
            let result = job.result.as_ref().unwrap();
            assert_eq!(result.output_len, job.stored, "{id}");
        }
        let admission = self.node.core.admission();
        assert_eq!((admission.committed_mib, admission.running), (0, 0));
        let left = self.node.core.snapshot();
        let dropped = |record: &Record| matches!(record, Record::Dropped { .. });
        assert!(left.iter().all(dropped), "{left:?}");
        assert_eq!(left.len(), self.plans.len());
    }

    fn connect(&mut self) {
        self.connected = true;
        self.node.sessions += 1;
        let session = self.node.sessions;
        self.give(Input::SessionOpened {
            session,
            version: 3,
        });
    }

    fn give(&mut self, input: Input) {
        let now = self.node.now;
        let step = self.node.core.handle(now, input);
        let before = self.node.kept.len();
        let due = |at: &At| (before..=before + step.records.len()).contains(&at.records);
        let fault = self.at.take_if(|at| due(at));
        let Some(at) = fault else {
            for record in step.records {
                self.keep(record);
            }
            self.release(step.effects);
            return self.suffer();
        };
        if at.fault == Fault::Cut {
            for record in step.records {
                self.keep(record);
            }
            let local = |effect: &Effect| {
                !matches!(effect, Effect::Send { .. } | Effect::SendOutput { .. })
            };
            let mut effects = step.effects;
            effects.retain(local);
            self.release(effects);
            return self.cut();
        }
        let whole = before + step.records.len() == at.records;
        for record in step.records.into_iter().take(at.records - before) {
            self.keep(record);
        }
        if whole {
            self.release(step.effects.into_iter().take(at.effects).collect());
        }
        self.die(at.fault);
    }

    /// Lets the next fault happen, if it is due.
    fn suffer(&mut self) {
        let Some((steps, fault)) = self.faults.front_mut() else {
            return;
        };
        if *steps > 0 {
            *steps -= 1;
            return;
        }
        let fault = *fault;
        self.faults.pop_front();
        match fault {
            Fault::Cut => self.cut(),
            dies => self.die(dies),
        }
    }

    fn cut(&mut self) {
        self.connected = false;
        self.queue
            .retain(|input| matches!(input, Input::Job { .. }));
        self.refused.clear();
        self.give(Input::SessionLost);
    }

    fn keep(&mut self, record: Record) {
        if let Record::Started(started) = &record {
            let disk = Disk {
                start_file: true,
                ..Disk::default()
            };
            self.disks.insert(started.job, disk);
        }
        self.node.kept.push(record);
    }

    fn die(&mut self, fault: Fault) {
        self.connected = false;
        self.queue.clear();
        self.refused.clear();
        if fault == Fault::HostCrash {
            for disk in self.disks.values_mut() {
                disk.alive = false;
                if disk.result.is_none() {
                    disk.output = disk.synced.max(disk.output / 2);
                }
            }
        }
        let mut effects = self.node.restart();
        if fault == Fault::KillCompacted {
            self.node.kept = self.node.core.snapshot();
            let again = self.node.restart();
            assert_eq!(again, effects);
            assert_eq!(self.node.core.snapshot(), self.node.kept);
            effects = again;
        }
        self.release(effects);
    }

    fn release(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::SendReport { .. } | Effect::SendAck { .. } => {}
                Effect::Send { session, message } => {
                    assert_eq!(session, self.node.sessions);
                    self.hear(*message);
                }
                Effect::SendOutput {
                    job, offset, len, ..
                } => self.store(job, offset, len),
                Effect::Spawn { job, .. } => {
                    let disk = self.disks.get_mut(&job).unwrap();
                    assert!(disk.start_file && !disk.began);
                    (disk.began, disk.alive) = (true, true);
                    disk.runs += 1;
                    assert_eq!(disk.runs, 1, "{job} runs twice");
                    self.tell(job, JobEvent::Alive { output_len: 0 });
                }
                Effect::Attach { job } => {
                    let event = self.find(job);
                    self.tell(job, event);
                }
                Effect::Grant { job } => self.disk(job, |disk| disk.granted = true),
                Effect::Deny { job, .. } => self.disk(job, |disk| disk.denied = true),
                Effect::Stop { job, how } => self.disk(job, |disk| disk.stop = Some(how)),
                Effect::CleanUp { job } => self.tell(job, JobEvent::CleanedUp),
                Effect::CloseOutput { job, line } => {
                    let len = line.at + 10;
                    self.disk(job, |disk| (disk.output, disk.synced) = (len, len));
                    self.tell(job, JobEvent::OutputClosed { len });
                }
                Effect::DropSecrets { job } => self.disk(job, |disk| disk.start_file = false),
                Effect::Remove { job } => {
                    if let Some(disk) = self.disks.remove(&job) {
                        assert!(!disk.alive && self.hub[&job].result.is_some());
                    }
                    self.tell(job, JobEvent::Removed);
                }
            }
        }
    }

    fn disk(&mut self, job: JobId, change: impl FnOnce(&mut Disk)) {
        if let Some(disk) = self.disks.get_mut(&job) {
            change(disk);
        }
    }

    fn find(&self, job: JobId) -> JobEvent {
        let disk = &self.disks[&job];
        let output_len = disk.output;
        match &disk.result {
            Some(result) => JobEvent::Result(result.clone()),
            None if disk.alive => JobEvent::Alive { output_len },
            None if disk.began => ended(output_len),
            None => JobEvent::NotStarted,
        }
    }

    fn tell(&mut self, job: JobId, event: JobEvent) {
        self.queue.push_back(Input::Job { job, event });
    }

    fn say(&mut self, message: HubJobMessage) {
        self.queue.push_back(Input::Hub {
            message: Box::new(message),
            start: StartFacts::default(),
        });
    }

    fn say_start(&mut self, job: JobId) {
        let n = job.as_bytes()[0];
        let (mem, asks) = self.plans[usize::from(n) - 1].mem;
        self.say(HubJobMessage::Start {
            job,
            reservation: None,
            envelope: envelope(mem),
            spec: JobSpec::GitlabCi(Box::new(spec(n, asks))),
            registry: None,
        });
    }

    /// The hub hears a message.
    fn hear(&mut self, message: NodeJobMessage) {
        match message {
            NodeJobMessage::Held { jobs, .. } => {
                for (id, job) in self.hub.clone() {
                    let named = jobs.iter().find(|held| held.job == id);
                    match (named, &job.result) {
                        (Some(_), None) => {
                            self.hub.entry(id).or_default().accepted = true;
                            let offset = job.stored;
                            self.say(HubJobMessage::OutputAck { job: id, offset });
                            if let Some(mode) = job.cancel {
                                self.say(HubJobMessage::Cancel { job: id, mode });
                            }
                        }
                        (Some(_), Some(_)) => {
                            let mode = CancelMode::Immediate;
                            self.say(HubJobMessage::Cancel { job: id, mode });
                        }
                        (None, None) => {
                            assert!(!job.accepted, "{id} was accepted and is lost");
                            self.say_start(id);
                        }
                        (None, Some(_)) => {}
                    }
                }
            }
            NodeJobMessage::Job { job, state } => match state {
                RunState::Refused { reason, .. } => {
                    assert_ne!(reason, RefusalReason::Invalid);
                    self.refused.push(job);
                }
                _ => self.hub.entry(job).or_default().accepted = true,
            },
            NodeJobMessage::Result { job, result } => {
                let known = self.hub.entry(job).or_default();
                known.result.get_or_insert(result);
                self.say(HubJobMessage::Recorded { job });
            }
            NodeJobMessage::Lease { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// The hub stores output.
    fn store(&mut self, id: JobId, offset: u64, len: u64) {
        let job = self.hub.entry(id).or_default();
        assert!(offset <= job.stored, "a gap at {offset} of {id}");
        assert!(offset + len <= self.disks[&id].output);
        job.stored = job.stored.max(offset + len);
        let offset = job.stored;
        self.say(HubJobMessage::OutputAck { job: id, offset });
    }

    /// Lets each process that can do something do it, and the hub cancel.
    fn take_turn(&mut self) -> bool {
        let mut events = Vec::new();
        for (id, disk) in &mut self.disks {
            let plan = self.plans[usize::from(id.as_bytes()[0]) - 1];
            if !disk.alive {
                continue;
            }
            let failure = match disk {
                Disk { stop: Some(_), .. } => Some(Some(FailureClass::Canceled)),
                Disk { denied: true, .. } => Some(Some(FailureClass::System)),
                Disk { granted: false, .. } => continue,
                Disk { turns: 3, .. } => Some(None),
                _ => None,
            };
            disk.turns += 1;
            if plan.dies && disk.turns == 2 {
                disk.alive = false;
                let output_len = disk.output;
                events.push((*id, ended(output_len)));
                continue;
            }
            disk.output += 300_000;
            if disk.turns == 1
                && let Some(mode) = plan.cancel
            {
                self.hub.entry(*id).or_default().cancel = Some(mode);
            }
            let event = match failure {
                None => JobEvent::Output { len: disk.output },
                Some(failure) => {
                    let result = JobResult {
                        failure,
                        ..done(disk.output)
                    };
                    disk.alive = false;
                    disk.result = Some(result.clone());
                    JobEvent::Result(result)
                }
            };
            events.push((*id, event));
        }
        let any = !events.is_empty();
        for (id, event) in events {
            self.tell(id, event);
        }
        self.say_cancels();
        any
    }

    fn say_cancels(&mut self) {
        let unheard = |(id, job): (&JobId, &HubJob)| {
            let disk = self.disks.get(id)?;
            (disk.alive && disk.stop.is_none()).then_some((*id, job.cancel?))
        };
        let cancels: Vec<_> = self.hub.iter().filter_map(unheard).collect();
        for (job, mode) in cancels {
            self.say(HubJobMessage::Cancel { job, mode });
        }
    }
}
