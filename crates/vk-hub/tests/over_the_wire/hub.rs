//! A hub on loopback, and a scripted node.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use vk_hub::config::Config;
use vk_hub::fleet::{Fleet, FleetHandle, OpenStore};
use vk_hub::http::{Caps, Context, Listener, Seats, TurnedAway};
use vk_hub::members::Members;
use vk_hub::store::{MemberKind, Sqlite, Store};
use vk_hub::tls::{self, Files};
use vk_hub_client::api::Client;
use vk_hub_client::session::{Opened, Opening, Received, SessionError, open_node, open_relay};
use vk_hub_client::{Dialer, HubUrl, Key, Signer, Trust, enroll_node, enroll_relay};
use vk_hub_core::{Answer, Approve, OperatorRequest, Settings};
use vk_hub_proto::client::*;
use vk_hub_proto::dispatch::*;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::job::*;
use vk_hub_proto::node_session::*;
use vk_hub_proto::relay_session::*;
use vk_hub_proto::{Incarnation, NodeId, RelayId, RequestId};

/// Whatever is waited for comes within this, or the test fails.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Hub {
    pub(crate) dir: PathBuf,
    pub(crate) url: HubUrl,
    pub(crate) members: Members,
    pub(crate) fleet: FleetHandle,
    seats: Seats,
    tasks: Vec<JoinHandle<()>>,
}

impl Hub {
    pub(crate) async fn start(dir: PathBuf) -> Hub {
        Hub::start_with(dir, Caps::default()).await
    }

    pub(crate) async fn start_with(dir: PathBuf, caps: Caps) -> Hub {
        Hub::start_as(dir, caps, Approve::All, Duration::from_secs(5)).await
    }

    /// A hub that is impatient.
    pub(crate) async fn start_beating(dir: PathBuf, heartbeat: Duration) -> Hub {
        Hub::start_as(dir, Caps::default(), Approve::All, heartbeat).await
    }

    pub(crate) fn turned_away(&self) -> TurnedAway {
        self.seats.turned_away()
    }

    /// A hub whose operator approves each server and project.
    pub(crate) async fn start_asking(dir: PathBuf) -> Hub {
        let heartbeat = Duration::from_secs(5);
        Hub::start_as(dir, Caps::default(), Approve::Ask, heartbeat).await
    }

    async fn start_as(dir: PathBuf, caps: Caps, approve: Approve, heartbeat: Duration) -> Hub {
        let settings = Settings {
            approve,
            ..Settings::default()
        };
        let config = Config {
            addr: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            data_dir: dir.clone(),
            settings,
            caps,
            registries: Vec::new(),
        };
        let files = Files::below(&dir);
        if !files.ca.exists() {
            files.make(vec!["127.0.0.1".into()]).unwrap();
        }
        let database = dir.join("hub.db");
        let ca_key = tls::ca_key_sha256(&files.cert).unwrap();
        let members = Members::open(Box::new(Sqlite::open(&database).unwrap()), ca_key).unwrap();
        let open: OpenStore =
            Box::new(move || Ok(Box::new(Sqlite::open(&database)?) as Box<dyn Store>));
        let opened = Fleet::open(config.settings, open, dir.join("jobs"), Default::default());
        let (fleet, handle) = opened.unwrap();
        let seats = Seats::new(config.caps);
        let context = Context {
            fleet: handle.clone(),
            members: members.clone(),
            heartbeat,
            seats: seats.clone(),
        };
        let server = Some(tls::server(&files.cert, &files.key).unwrap());
        let listener = Listener::bind(config.addr, server, context).await.unwrap();
        let url = format!("https://{}", listener.addr().unwrap())
            .parse()
            .unwrap();
        let tasks = vec![
            tokio::spawn(async move { fleet.run().await.unwrap() }),
            tokio::spawn(listener.run()),
        ];
        Hub {
            dir,
            url,
            members,
            fleet: handle,
            seats,
            tasks,
        }
    }

    pub(crate) fn stop(self) -> PathBuf {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.dir
    }

    pub(crate) fn token(&self, kind: MemberKind) -> vk_hub_client::EnrolmentToken {
        self.members
            .create_token(kind, 60)
            .unwrap()
            .expose()
            .parse()
            .unwrap()
    }

    pub(crate) fn dialer(&self) -> Dialer {
        self.dialer_at(&self.url)
    }

    /// A dialer that goes another way.
    pub(crate) fn dialer_at(&self, url: &HubUrl) -> Dialer {
        let ca = std::fs::read(Files::below(&self.dir).ca).unwrap();
        Dialer::new(url.clone(), &Trust::Pem(ca)).unwrap()
    }

    pub(crate) async fn relay(&self) -> Client {
        let key = Key::generate().unwrap();
        let token = self.token(MemberKind::GitLab);
        let joined = enroll_relay(&self.url, &token, None, &key, "relay")
            .await
            .unwrap();
        assert!(joined.ca_pem.is_some(), "the CA came with the token");
        Client::new(
            self.dialer(),
            Signer {
                relay: joined.id,
                key,
            },
        )
    }

    /// A relay that holds a session.
    pub(crate) async fn enrolled(&self) -> (RelayId, Key) {
        let signer = self.relay().await.into_signer();
        (signer.relay, signer.key)
    }

    pub(crate) async fn relay_session(
        &self,
        relay: RelayId,
        key: &Key,
    ) -> Result<Relay, SessionError> {
        let versions = VersionRange { min: 1, max: 1 };
        self.relay_session_of(relay, key, versions).await
    }

    pub(crate) async fn relay_session_of(
        &self,
        relay: RelayId,
        key: &Key,
        versions: VersionRange,
    ) -> Result<Relay, SessionError> {
        let opening = Opening {
            id: relay,
            incarnation: Incarnation::from_bytes([1; 16]),
            key,
            versions,
            program: "test",
        };
        open_relay(&self.dialer(), &opening).await.map(Relay)
    }

    pub(crate) async fn operator(&self, request: OperatorRequest) {
        let reply = self.fleet.operator(request).await.unwrap();
        assert_eq!(reply.answer, Answer::Done);
    }

    pub(crate) async fn node(&self) -> (NodeId, Key) {
        let key = Key::generate().unwrap();
        let token = self.token(MemberKind::Node);
        let joined = enroll_node(&self.url, &token, None, &key, "node")
            .await
            .unwrap();
        (joined.id, key)
    }

    pub(crate) async fn session(&self, node: NodeId, key: &Key) -> Node {
        self.try_session(node, key).await.unwrap()
    }

    pub(crate) async fn try_session(&self, node: NodeId, key: &Key) -> Result<Node, SessionError> {
        Hub::session_by(&self.dialer(), node, key).await
    }

    pub(crate) async fn session_by(
        dialer: &Dialer,
        node: NodeId,
        key: &Key,
    ) -> Result<Node, SessionError> {
        let opening = Opening {
            id: node,
            incarnation: Incarnation::from_bytes([1; 16]),
            key,
            versions: VersionRange { min: 1, max: 3 },
            program: "test",
        };
        open_node(dialer, &opening).await.map(Node)
    }
}

/// A scripted relay.
pub(crate) struct Relay(pub(crate) Opened<RelayMessage, HubRelayMessage>);

impl Relay {
    pub(crate) async fn say(&mut self, message: RelayMessage) {
        self.0.messages.send(&message).await.unwrap();
    }

    pub(crate) async fn reports(&mut self, url: &str, key: u8) {
        let report = RelayReport {
            version: "test".into(),
            host: "relay-host".into(),
            system_id: "s_0123456789ab".into(),
            concurrent: 4,
            server: RelayServer {
                url: url.into(),
                spki_sha256: Some(Hex([key; 32])),
            },
            runners: vec![],
        };
        self.say(RelayMessage::Report(Box::new(report))).await;
    }

    /// The next message, or how the session ended.
    pub(crate) async fn hears(&mut self) -> Result<HubRelayMessage, SessionError> {
        loop {
            let received = timeout(SOON, self.0.messages.receive()).await.unwrap()?;
            if let Received::Message(message) = received {
                return Ok(message);
            }
        }
    }

    /// How the server stands, which must be the next message.
    pub(crate) async fn status(&mut self) -> ServerStatus {
        match self.hears().await.unwrap() {
            HubRelayMessage::Server { status, .. } => status,
            other => panic!("a status, not {other:?}"),
        }
    }

    /// With which code the session is refused, which must be the next message.
    pub(crate) async fn refused(&mut self) -> RefusedCode {
        match self.hears().await.unwrap() {
            HubRelayMessage::Refused { code, .. } => code,
            other => panic!("a refusal, not {other:?}"),
        }
    }
}

/// A scripted node.
pub(crate) struct Node(pub(crate) Opened<NodeMessage, HubMessage>);

impl Node {
    pub(crate) async fn say(&mut self, message: NodeMessage) {
        self.0.messages.send(&message).await.unwrap();
    }

    pub(crate) async fn job(&mut self, message: NodeJobMessage) {
        self.say(NodeMessage::Job(message)).await;
    }

    /// The next job message.
    pub(crate) async fn hears(&mut self) -> HubJobMessage {
        loop {
            let received = timeout(SOON, self.0.messages.receive())
                .await
                .unwrap()
                .unwrap();
            if let Received::Message(HubMessage::Job(message)) = received {
                return message;
            }
        }
    }

    /// Tells of a host with room for two.
    pub(crate) async fn ready(&mut self, jobs: Vec<HeldJob>) {
        let inventory = Inventory {
            hostname: "node-1".into(),
            hardware: Hardware {
                cpus: 8,
                cpu_model: None,
                mem_total_mib: Some(8192),
                memory_nodes: vec![],
                checks: vec![],
            },
            storage: vec![],
            versions: Versions {
                vk: "test".into(),
                guest_kernel: None,
                config_hash: String::new(),
                vk_sha256: None,
            },
            runner: None,
            labels: vec![],
            registry_url: None,
        };
        self.say(NodeMessage::Inventory(Box::new(inventory))).await;
        let heartbeat = Heartbeat {
            admission: Some(Admission {
                committed_mib: 0,
                budget_mib: Some(4096),
                running: 0,
                waiting: 0,
            }),
            mem_available_mib: Some(8000),
            storage: vec![StorageFree {
                role: StorageRole::Jobs,
                free_bytes: 1 << 40,
                free_inodes: 1000,
                inodes: 1000,
            }],
            ..Heartbeat::default()
        };
        self.say(NodeMessage::Heartbeat(heartbeat)).await;
        let report = Report {
            state: Some(NodeState::Ready),
            acquisition: Some(Acquisition::Run),
            placed: Some(Placed::default()),
            ..Report::default()
        };
        self.say(NodeMessage::Report(Box::new(report))).await;
        self.job(NodeJobMessage::Held {
            reservations: vec![],
            jobs,
        })
        .await;
    }
}

pub(crate) fn placement() -> Placement {
    let envelope = Envelope {
        mem_mib: 2048,
        cpus: 2,
        disk_bytes: 1 << 30,
    };
    Placement {
        pool: vk_hub_proto::Name::default(),
        labels: vec![],
        envelope,
    }
}

pub(crate) fn spec() -> JobSpec {
    let json = r#"{"kind":"gitlab_ci","server_url":"https://gitlab.example.com",
        "job":{"id":10,"name":"test","stage":"test","pipeline_id":1,"project_id":12,
        "project_name":"web","project_path":"acme/web","namespace_id":1,"root_namespace_id":1,
        "user_id":1,"runner_id":1},"token":"s3cret-token-of-the-job","timeout_secs":600,
        "sources":{"repo_url":"","object_format":"sha1","ref":"main","ref_type":"branch","sha":"",
        "before_sha":"","depth":0,"allow_fetch":false},"image":{"name":""},"steps":[],
        "trace":{"sections":false,"limit_bytes":0}}"#;
    serde_json::from_str(json).unwrap()
}

pub(crate) fn request_id(number: u8) -> RequestId {
    RequestId::from_bytes([number; 16])
}

pub(crate) fn result() -> JobResult {
    JobResult {
        failure: None,
        exit_code: None,
        message: None,
        output_len: 12,
        artifacts: vec![],
        usage: None,
    }
}
