//! The machine as its edge sees it: inputs in, effects out.

mod admission;
mod cancelled;
mod killed;
mod output;
mod restart;
mod standing;
mod starts;
mod world;

use std::time::Duration;

use vk_hub_proto::Secret;
use vk_hub_proto::client::{CancelMode, Envelope};
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage, OfferReply, RefusalReason, RunState};
use vk_hub_proto::job::{
    CiJob, CiJobInfo, Image, JobResult, JobSpec, ObjectFormat, RefType, Sources, TraceOptions,
    Variable,
};
use vk_hub_proto::{JobId, ReservationId};
use vk_step::{Core, Now};

use crate::io::StartFacts;
use crate::sizing::Sizes;
use crate::{Budgets, By, Config, Death, Effect, Input, JobEvent, NodeCore, Record};

const MIB: u64 = 1 << 20;

/// A job's process that is gone; nobody saw how.
fn ended(output_len: u64) -> JobEvent {
    let death = Death::default();
    JobEvent::Ended { output_len, death }
}

fn id(n: u8) -> JobId {
    JobId::from_bytes([n; 16])
}

fn res(n: u8) -> ReservationId {
    ReservationId::from_bytes([n; 16])
}

fn envelope(mem_mib: u64) -> Envelope {
    Envelope {
        mem_mib,
        cpus: 1,
        disk_bytes: MIB,
    }
}

/// 16 GiB to grant; a job's VM has 4 GiB unless it says otherwise, at most 16.
fn config() -> Config {
    Config {
        budgets: Budgets {
            mem_mib: Some(16384),
            disk_bytes: Some(1024 * MIB),
        },
        sizes: Sizes {
            cpus: 1,
            mem_mib: 4096,
            max_cpus: 8,
            max_mem_mib: 32768,
        },
        ..Config::default()
    }
}

fn variable(key: &str, value: &str) -> Variable {
    Variable {
        key: key.to_owned(),
        value: value.into(),
        public: true,
        file: false,
        masked: false,
        raw: false,
    }
}

/// A job of project 7, its VM of so many MiB.
fn spec(n: u8, mem_mib: u64) -> CiJob {
    CiJob {
        server_url: "https://gitlab.example.com".to_owned(),
        server_ca_pem: None,
        job: CiJobInfo {
            id: n.into(),
            project_id: 7,
            project_path: "group/project".to_owned(),
            ..CiJobInfo::default()
        },
        token: Secret::from("a-job-token"),
        timeout_secs: 3600,
        sources: Sources {
            repo_url: String::new(),
            object_format: ObjectFormat::Sha1,
            ref_name: String::new(),
            ref_type: RefType::Branch,
            sha: String::new(),
            before_sha: String::new(),
            refspecs: Vec::new(),
            depth: 0,
            protected: None,
            allow_fetch: true,
        },
        image: Image::default(),
        services: Vec::new(),
        variables: vec![variable("MICROVM_MEM", &format!("{mem_mib}M"))],
        steps: Vec::new(),
        hooks: Vec::new(),
        artifacts: Vec::new(),
        caches: Vec::new(),
        dependencies: Vec::new(),
        registry_credentials: Vec::new(),
        trace: TraceOptions::default(),
    }
}

fn done(output_len: u64) -> JobResult {
    JobResult {
        failure: None,
        exit_code: None,
        message: None,
        output_len,
        artifacts: Vec::new(),
        usage: None,
    }
}

/// A core, what it kept, and a clock.
struct Node {
    core: NodeCore,
    config: Config,
    kept: Vec<Record>,
    now: Now,
    sessions: u64,
}

impl Node {
    fn new() -> Node {
        Node::with(config())
    }

    fn with(config: Config) -> Node {
        let (core, effects) = NodeCore::open(config.clone(), Now::ZERO, []).unwrap();
        assert_eq!(effects, []);
        Node {
            core,
            config,
            kept: Vec::new(),
            now: Now::ZERO,
            sessions: 0,
        }
    }

    /// One with an open session.
    fn connected() -> Node {
        let mut node = Node::new();
        node.connect();
        node
    }

    fn give(&mut self, input: Input) -> Vec<Effect> {
        let step = self.core.handle(self.now, input);
        self.kept.extend(step.records);
        step.effects
    }

    fn hub(&mut self, message: HubJobMessage) -> Vec<Effect> {
        self.give(Input::Hub {
            message: Box::new(message),
            start: StartFacts::default(),
        })
    }

    fn job(&mut self, n: u8, event: JobEvent) -> Vec<Effect> {
        self.give(Input::Job { job: id(n), event })
    }

    fn connect(&mut self) -> Vec<Effect> {
        self.sessions += 1;
        let session = self.sessions;
        self.give(Input::SessionOpened {
            session,
            version: 3,
        })
    }

    /// Lets time pass, giving each deadline its timeout.
    fn wait(&mut self, secs: u64) -> Vec<Effect> {
        let until = self.now.after(Duration::from_secs(secs));
        let mut effects = Vec::new();
        while let Some(next) = self.core.next_deadline().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            effects.extend(self.give(Input::Timeout));
        }
        self.now = until;
        effects
    }

    /// Dies with all effects released, and starts again from what was kept, as read from disk.
    fn restart(&mut self) -> Vec<Effect> {
        let text = serde_json::to_string(&self.kept).unwrap();
        let kept: Vec<Record> = serde_json::from_str(&text).unwrap();
        let (core, effects) = NodeCore::open(self.config.clone(), self.now, kept).unwrap();
        self.core = core;
        effects
    }

    fn offer(&mut self, n: u8, mem_mib: u64, lease_secs: u32) -> OfferReply {
        let effects = self.hub(HubJobMessage::Offer {
            reservation: res(n),
            envelope: envelope(mem_mib),
            lease_secs,
        });
        match sent(&effects).as_slice() {
            [NodeJobMessage::OfferReply { reservation, reply }] if *reservation == res(n) => {
                reply.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Starts job `n`, its VM of `asks` MiB, on reservation `n` where there is one, else placed
    /// with `mem_mib`.
    fn start(&mut self, n: u8, reservation: Option<u8>, mem_mib: u64, asks: u64) -> Vec<Effect> {
        self.hub(HubJobMessage::Start {
            job: id(n),
            reservation: reservation.map(res),
            envelope: envelope(mem_mib),
            spec: JobSpec::GitlabCi(Box::new(spec(n, asks))),
            registry: None,
        })
    }

    /// Starts job `n` and has its process running.
    fn run(&mut self, n: u8) {
        let effects = self.start(n, None, 1024, 1024);
        assert!(spawns(&effects, n), "{effects:?}");
        self.job(n, JobEvent::Alive { output_len: 0 });
    }

    fn ack(&mut self, n: u8, offset: u64) -> Vec<Effect> {
        self.hub(HubJobMessage::OutputAck { job: id(n), offset })
    }

    fn cancel(&mut self, n: u8, mode: CancelMode) -> Vec<Effect> {
        self.hub(HubJobMessage::Cancel { job: id(n), mode })
    }
}

/// The job messages among effects.
fn sent(effects: &[Effect]) -> Vec<NodeJobMessage> {
    let message = |effect: &Effect| match effect {
        Effect::Send { message, .. } => Some((**message).clone()),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

/// Output sent of job `n`, as (offset, length).
fn chunks(effects: &[Effect], n: u8) -> Vec<(u64, u64)> {
    let chunk = |effect: &Effect| match effect {
        Effect::SendOutput {
            job, offset, len, ..
        } if *job == id(n) => Some((*offset, *len)),
        _ => None,
    };
    effects.iter().filter_map(chunk).collect()
}

fn spawns(effects: &[Effect], n: u8) -> bool {
    let spawn = |e: &Effect| matches!(e, Effect::Spawn { job, .. } if *job == id(n));
    effects.iter().any(spawn)
}

fn state(n: u8, state: RunState) -> NodeJobMessage {
    NodeJobMessage::Job { job: id(n), state }
}

/// The reason of the one refusal among effects.
fn refused(effects: &[Effect], n: u8) -> RefusalReason {
    match sent(effects).as_slice() {
        [
            NodeJobMessage::Job {
                job,
                state: RunState::Refused { reason, .. },
            },
        ] if *job == id(n) => *reason,
        other => panic!("{other:?}"),
    }
}

fn refusal(reply: &OfferReply) -> RefusalReason {
    match reply {
        OfferReply::Refused { reason, .. } => *reason,
        other => panic!("{other:?}"),
    }
}
