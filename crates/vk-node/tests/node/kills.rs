//! The daemon killed where no hub takes it yet: at the boundaries of an operator's commands from
//! there. All its other boundaries are in the table of kills of the whole fleet
//! (`crates/vk-tests/tests/fleet/table`).

use std::time::Duration;

use strum::VariantNames as _;
use tokio::time::timeout;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage, RunState};
use vk_hub_proto::job::JobResult;
use vk_hub_proto::node_session::{Acquisition, CommandOp, DesiredState, HubMessage, NodeMessage};
use vk_hub_proto::{CommandId, JobId};
use vk_node_core::{Effect, Record};

use crate::daemon::Node;
use crate::gate::{Gate, Waiting};
use crate::hub::{Hub, Session};
use crate::scripted::start;

/// What only a hub that sends commands leads to.
const COMMANDS: [&str; 2] = ["Commanded", "SendAck"];

const JOB: u8 = 4;

fn id(number: u8) -> JobId {
    JobId::from_bytes([number; 16])
}

/// A hub's knowledge, and the hand that moves the story.
struct Tale {
    node: Node,
    start: HubJobMessage,
    gate: Gate,
    standing: Option<Waiting>,
    output: Vec<u8>,
    result: Option<JobResult>,
    commanded: bool,
}

impl Tale {
    fn new(url: &str) -> Tale {
        let node = Node::joined(url);
        let gate = Gate::new(node.path(), "gate");
        let script = ["pid".to_owned(), gate.line(), "say end".to_owned()];
        Tale {
            node,
            start: start(JOB, &script),
            gate,
            standing: None,
            output: Vec::new(),
            result: None,
            commanded: false,
        }
    }

    fn is_over(&self) -> bool {
        self.result.is_some() && self.commanded && !self.node.state.job(id(JOB)).exists()
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
            NodeJobMessage::Held { jobs, .. } => match jobs.first() {
                Some(_) => vec![self.stored()],
                None if self.result.is_none() => vec![self.start.clone()],
                None => Vec::new(),
            },
            NodeJobMessage::Output { offset, data, .. } => {
                let have = (self.output.len() as u64)
                    .checked_sub(offset)
                    .expect("no gap");
                let new = data.as_bytes().iter().skip(usize::try_from(have).unwrap());
                self.output.extend(new);
                vec![self.stored()]
            }
            NodeJobMessage::Result { job, result } => {
                if let Some(before) = self.result.replace(result.clone()) {
                    assert_eq!(before, result);
                }
                vec![HubJobMessage::Recorded { job }]
            }
            NodeJobMessage::Job { state, .. } => {
                assert!(!matches!(state, RunState::Refused { .. }), "{state:?}");
                Vec::new()
            }
            _ => Vec::new(),
        };
        answers.into_iter().map(HubMessage::Job).collect()
    }

    fn stored(&self) -> HubJobMessage {
        let offset = self.output.len() as u64;
        HubJobMessage::OutputAck {
            job: id(JOB),
            offset,
        }
    }

    /// Moves the story on: what the hub says of itself. The job waits until the command is done.
    fn go_on(&mut self) -> Vec<HubMessage> {
        if let Some(standing) = self.gate.try_reached() {
            assert!(self.standing.is_none(), "the job runs twice");
            self.standing = Some(standing);
        }
        if self.commanded
            && let Some(standing) = self.standing.take()
        {
            standing.open();
        }
        match &self.standing {
            Some(_) => steering().to_vec(),
            None => Vec::new(),
        }
    }

    fn check(&self) {
        let result = self.result.as_ref().unwrap();
        assert_eq!(result.failure, None);
        assert_eq!(result.output_len, self.output.len() as u64);
        let text = String::from_utf8(self.output.clone()).unwrap();
        assert!(text.ends_with("\nend\n"), "{text:?}");
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

/// Tells the story with a daemon that dies at `at`; whether it died there.
async fn tell(at: &str) -> bool {
    let hub = Hub::new().await;
    let mut tale = Tale::new(&hub.url);
    let mut daemon = tale.node.start_to_die_at(Some(at));
    let mut died = false;
    while !tale.is_over() {
        if daemon.is_over() {
            died = true;
            daemon = tale.node.start();
        }
        let waiting = timeout(Duration::from_secs(1), hub.try_welcome());
        if let Ok(Some(mut session)) = waiting.await {
            talk(&mut tale, &mut session).await;
        }
    }
    tale.check();
    died
}

/// Talks until the session breaks or the story is over.
async fn talk(tale: &mut Tale, session: &mut Session) {
    while !tale.is_over() {
        let Some(message) = session.try_next().await else {
            return;
        };
        let answers = tale.answers(message);
        for message in answers.into_iter().chain(tale.go_on()) {
            if !session.try_say(message).await {
                return;
            }
        }
    }
}

/// FAIL-22, FAIL-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_dies_at_every_boundary_of_a_command_and_the_command_and_the_job_are_done_once()
{
    let mut unreached = Vec::new();
    let known = Record::VARIANTS.iter().chain(Effect::VARIANTS);
    assert_eq!(known.filter(|name| COMMANDS.contains(name)).count(), 2);
    for variant in COMMANDS {
        for boundary in ["before", "synced", "after"] {
            let at = format!("{variant}:{boundary}:1");
            let died = timeout(Duration::from_secs(90), tell(&at)).await;
            match died {
                Ok(true) => println!("{at}: died, and went on"),
                Ok(false) => unreached.push(at),
                Err(_) => panic!("{at}: the story has no end"),
            }
        }
    }
    assert!(unreached.is_empty(), "never reached: {unreached:?}");
}
