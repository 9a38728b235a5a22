//! The daemon killed at every boundary of its records and effects, once each.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use strum::VariantNames as _;
use tokio::time::timeout;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage, RunState};
use vk_hub_proto::job::{FailureClass, JobResult, JobSpec, Variable};
use vk_hub_proto::node_session::{Acquisition, CommandOp, DesiredState, HubMessage, NodeMessage};
use vk_hub_proto::{CommandId, JobId};
use vk_node_core::{Effect, Record};

use crate::daemon::{Daemon, Node};
use crate::gate::{Gate, Waiting};
use crate::hub::{Hub, Session};
use crate::scripted::start;

/// What happens to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// Nothing.
    Plain,
    /// Nothing, but the daemon was killed once before.
    Found,
    /// The hub cancels it.
    Cancel,
    /// Its process is killed.
    Killed,
    /// It waits for memory that another job has, and gets it.
    Waits,
    /// It waits for memory, and does not get it.
    Denied,
    /// The hub steers the node meanwhile.
    Steered,
}

/// Where a variant is reached.
fn story(variant: &str) -> Story {
    match variant {
        "Attach" => Story::Found,
        "Cancelled" | "Stop" => Story::Cancel,
        "Closing" | "CleanUp" | "CloseOutput" => Story::Killed,
        "Granted" => Story::Waits,
        "Denied" | "Deny" => Story::Denied,
        "Desired" | "Commanded" | "SendAck" => Story::Steered,
        _ => Story::Plain,
    }
}

const JOB: u8 = 4;
const OTHER: u8 = 8;

fn id(number: u8) -> JobId {
    JobId::from_bytes([number; 16])
}

/// A job placed with 2 GiB that wants 4 of its node's 6.
fn large(number: u8, script: &[String]) -> HubJobMessage {
    let mut message = start(number, script);
    if let HubJobMessage::Start { spec, .. } = &mut message {
        let JobSpec::GitlabCi(job) = spec;
        let variable = serde_json::json!({
            "key": "MICROVM_MEM", "value": "4G", "public": true, "file": false,
            "masked": false, "raw": false
        });
        job.variables = vec![serde_json::from_value::<Variable>(variable).unwrap()];
    }
    message
}

/// A hub's knowledge, and the hand that moves the story.
struct Tale {
    story: Story,
    node: Node,
    jobs: Vec<(u8, HubJobMessage)>,
    gate: Gate,
    other: Gate,
    standing: Option<Waiting>,
    reached: bool,
    output: BTreeMap<JobId, Vec<u8>>,
    results: BTreeMap<JobId, JobResult>,
    accepted: bool,
    commanded: bool,
}

impl Tale {
    fn new(story: Story, url: &str) -> Tale {
        let node = Node::with_wait(url, if story == Story::Denied { 1 } else { 60 });
        let gate = Gate::new(node.path(), "gate");
        let other = Gate::new(node.path(), "other");
        let script = ["pid".to_owned(), gate.line(), "say end".to_owned()];
        let jobs = match story {
            Story::Waits | Story::Denied => vec![
                (OTHER, large(OTHER, &[other.line()])),
                (JOB, large(JOB, &script)),
            ],
            _ => vec![(JOB, start(JOB, &script))],
        };
        Tale {
            story,
            node,
            jobs,
            gate,
            other,
            standing: None,
            reached: false,
            output: BTreeMap::new(),
            results: BTreeMap::new(),
            accepted: false,
            commanded: false,
        }
    }

    fn is_over(&self) -> bool {
        let gone = |job: &JobId| !self.node.state.job(*job).exists();
        self.results.len() == self.jobs.len()
            && self.results.keys().all(gone)
            && (self.story != Story::Steered || self.commanded)
    }

    /// What the hub answers.
    fn answers(&mut self, message: NodeMessage) -> Vec<HubMessage> {
        match message {
            NodeMessage::Ack { .. } => {
                self.commanded = true;
                Vec::new()
            }
            NodeMessage::Job(message) => self.job_answers(message),
            NodeMessage::Heartbeat(_) => vec![HubMessage::Other],
            _ => Vec::new(),
        }
    }

    fn job_answers(&mut self, message: NodeJobMessage) -> Vec<HubMessage> {
        let answers = match message {
            NodeJobMessage::Held { jobs, .. } => {
                let held: Vec<_> = jobs.into_iter().map(|job| job.job).collect();
                self.accepted |= held.contains(&id(JOB));
                let acks = held.iter().map(|job| self.stored(*job));
                let missing = |(number, _): &&(u8, HubJobMessage)| {
                    !held.contains(&id(*number)) && !self.results.contains_key(&id(*number))
                };
                let starts = self.jobs.iter().filter(missing);
                acks.chain(starts.map(|(_, start)| start.clone())).collect()
            }
            NodeJobMessage::Output { job, offset, data } => {
                let bytes = self.output.entry(job).or_default();
                let have = (bytes.len() as u64).checked_sub(offset).expect("no gap");
                let new = data.as_bytes().iter().skip(usize::try_from(have).unwrap());
                bytes.extend(new);
                vec![self.stored(job)]
            }
            NodeJobMessage::Result { job, result } => {
                if let Some(before) = self.results.insert(job, result.clone()) {
                    assert_eq!(before, result);
                }
                vec![HubJobMessage::Recorded { job }]
            }
            NodeJobMessage::Job { job, state } => {
                assert!(!matches!(state, RunState::Refused { .. }), "{state:?}");
                self.accepted |= job == id(JOB);
                Vec::new()
            }
            _ => Vec::new(),
        };
        answers.into_iter().map(HubMessage::Job).collect()
    }

    fn stored(&self, job: JobId) -> HubJobMessage {
        let offset = self.output.get(&job).map_or(0, Vec::len) as u64;
        HubJobMessage::OutputAck { job, offset }
    }

    /// Moves the story on: what the hub says, and whether the daemon is to be killed.
    fn go_on(&mut self) -> (Vec<HubMessage>, bool) {
        let mut says = Vec::new();
        if !self.reached
            && let Some(standing) = self.gate.try_reached()
        {
            self.reached = true;
            self.standing = Some(standing);
            match self.story {
                Story::Killed => {
                    let said = std::fs::read_to_string(self.node.job(JOB).output()).unwrap();
                    let pid = said.lines().next().unwrap().parse().unwrap();
                    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
                }
                Story::Found => return (says, true),
                _ => {}
            }
        }
        let running = self.reached && !self.results.contains_key(&id(JOB));
        match self.story {
            Story::Cancel if running => {
                let mode = CancelMode::Immediate;
                let cancel = HubJobMessage::Cancel { job: id(JOB), mode };
                says.push(HubMessage::Job(cancel));
            }
            Story::Steered if running && !self.commanded => says.extend(steering()),
            Story::Plain | Story::Found | Story::Waits | Story::Steered => {
                if let Some(standing) = self.standing.take() {
                    standing.open();
                }
            }
            _ => {}
        }
        let lets_go = match self.story {
            Story::Waits => self.accepted,
            Story::Denied => self.results.contains_key(&id(JOB)),
            _ => false,
        };
        if lets_go && let Some(standing) = self.other.try_reached() {
            standing.open();
        }
        (says, false)
    }

    fn check(&self) {
        let result = &self.results[&id(JOB)];
        let failure = match self.story {
            Story::Cancel => Some(FailureClass::Canceled),
            Story::Killed => Some(FailureClass::Interrupted),
            Story::Denied => Some(FailureClass::System),
            _ => None,
        };
        assert_eq!(result.failure, failure);
        let output = self.output.get(&id(JOB)).cloned().unwrap_or_default();
        assert_eq!(result.output_len, output.len() as u64);
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.ends_with("\nend\n"), failure.is_none(), "{text:?}");
        assert!(self.gate.is_empty(), "the job ran twice");
    }
}

fn steering() -> [HubMessage; 2] {
    let desired = DesiredState {
        generation: 1,
        ceiling: Some(5),
        acquisition: Acquisition::Run,
    };
    let command = HubMessage::Command {
        id: CommandId::from_bytes([3; 16]),
        expires_at: u64::from(u32::MAX),
        op: CommandOp::Undrain,
    };
    [HubMessage::Desired(desired), command]
}

/// Tells one story with a daemon that dies at `at`; whether it died there.
async fn tell(story: Story, at: &str) -> bool {
    let hub = Hub::new().await;
    let mut tale = Tale::new(story, &hub.url);
    let first = (story != Story::Found).then_some(at);
    let mut daemon = tale.node.start_to_die_at(first);
    let mut died = false;
    while !tale.is_over() {
        if daemon.is_over() {
            died = true;
            daemon = tale.node.start();
        }
        let waiting = timeout(Duration::from_secs(1), hub.try_welcome());
        let Ok(Some(mut session)) = waiting.await else {
            continue;
        };
        if talk(&mut tale, &mut session).await {
            daemon.kill();
            daemon = tale.node.start_to_die_at(Some(at));
        }
    }
    tale.check();
    // One that was to die at the very end may be about to.
    died || daemon.dies_within(Duration::from_secs(2))
}

/// Talks until the session breaks or the story is over; true where the daemon is to be killed.
async fn talk(tale: &mut Tale, session: &mut Session) -> bool {
    while !tale.is_over() {
        let Some(message) = session.try_next().await else {
            return false;
        };
        let answers = tale.answers(message);
        let (says, kill) = tale.go_on();
        if kill {
            return true;
        }
        for message in answers.into_iter().chain(says) {
            if !session.try_say(message).await {
                return false;
            }
        }
    }
    false
}

/// FAIL-22, FAIL-34, DISP-41, DISP-48, DISP-49: whenever the daemon dies, the job runs once, and its
/// output and result arrive whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_dies_at_every_boundary_and_nothing_is_lost_or_done_twice() {
    let mut unreached = Vec::new();
    for variant in Record::VARIANTS.iter().chain(Effect::VARIANTS) {
        for boundary in ["before", "synced", "after"] {
            let at = format!("{variant}:{boundary}:1");
            let told = tell(story(variant), &at);
            let died = timeout(Duration::from_secs(90), told).await;
            match died {
                Ok(true) => println!("{at}: died, and went on"),
                Ok(false) => unreached.push(at),
                Err(_) => panic!("{at}: the story of {:?} has no end", story(variant)),
            }
        }
    }
    assert!(unreached.is_empty(), "never reached: {unreached:?}");
}

impl Daemon {
    fn dies_within(mut self, limit: Duration) -> bool {
        let until = std::time::Instant::now() + limit;
        while std::time::Instant::now() < until {
            if self.is_over() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}
