//! A real hub on loopback: enrolment, signed requests over TLS, a node's session, one whole job.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use vk_hub::config::Config;
use vk_hub::fleet::{Fleet, OpenStore};
use vk_hub::http::{Context, Listener};
use vk_hub::members::Members;
use vk_hub::store::{MemberKind, Sqlite, Store};
use vk_hub::tls::{self, Files};
use vk_hub_client::api::{ApiError, Client, OutputRead};
use vk_hub_client::session::{Opened, Opening, Received, open_node};
use vk_hub_client::{Dialer, HubUrl, Key, Signer, Trust, enroll_node, enroll_relay};
use vk_hub_core::{Approve, Settings};
use vk_hub_proto::client::*;
use vk_hub_proto::dispatch::*;
use vk_hub_proto::job::*;
use vk_hub_proto::node_session::*;
use vk_hub_proto::{Incarnation, NodeId, RequestId, Secret};

/// Whatever is waited for comes within this, or the test fails.
const SOON: Duration = Duration::from_secs(20);

struct Hub {
    dir: PathBuf,
    url: HubUrl,
    members: Members,
    tasks: Vec<JoinHandle<()>>,
}

impl Hub {
    async fn start(dir: PathBuf) -> Hub {
        let settings = Settings {
            approve: Approve::All,
            ..Settings::default()
        };
        let config = Config {
            addr: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            data_dir: dir.clone(),
            settings,
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
        let context = Context {
            fleet: handle,
            members: members.clone(),
            heartbeat: Duration::from_secs(5),
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
            tasks,
        }
    }

    fn stop(self) -> PathBuf {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.dir
    }

    fn token(&self, kind: MemberKind) -> vk_hub_client::EnrolmentToken {
        self.members
            .create_token(kind, 60)
            .unwrap()
            .expose()
            .parse()
            .unwrap()
    }

    fn dialer(&self) -> Dialer {
        let ca = std::fs::read(Files::below(&self.dir).ca).unwrap();
        Dialer::new(self.url.clone(), &Trust::Pem(ca)).unwrap()
    }

    async fn relay(&self) -> Client {
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

    async fn node(&self) -> (NodeId, Key) {
        let key = Key::generate().unwrap();
        let token = self.token(MemberKind::Node);
        let joined = enroll_node(&self.url, &token, None, &key, "node")
            .await
            .unwrap();
        (joined.id, key)
    }

    async fn session(&self, node: NodeId, key: &Key) -> Node {
        let opening = Opening {
            id: node,
            incarnation: Incarnation::from_bytes([1; 16]),
            key,
            versions: VersionRange { min: 1, max: 3 },
            program: "test",
        };
        Node(open_node(&self.dialer(), &opening).await.unwrap())
    }
}

/// A scripted node.
struct Node(Opened<NodeMessage, HubMessage>);

impl Node {
    async fn say(&mut self, message: NodeMessage) {
        self.0.messages.send(&message).await.unwrap();
    }

    async fn job(&mut self, message: NodeJobMessage) {
        self.say(NodeMessage::Job(message)).await;
    }

    /// The next job message.
    async fn hears(&mut self) -> HubJobMessage {
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
    async fn ready(&mut self, jobs: Vec<HeldJob>) {
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

fn placement() -> Placement {
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

fn spec() -> JobSpec {
    let json = r#"{"kind":"gitlab_ci","server_url":"https://gitlab.example.com",
        "job":{"id":10,"name":"test","stage":"test","pipeline_id":1,"project_id":12,
        "project_name":"web","project_path":"acme/web","namespace_id":1,"root_namespace_id":1,
        "user_id":1,"runner_id":1},"token":"s3cret-token-of-the-job","timeout_secs":600,
        "sources":{"repo_url":"","object_format":"sha1","ref":"main","ref_type":"branch","sha":"",
        "before_sha":"","depth":0,"allow_fetch":false},"image":{"name":""},"steps":[],
        "trace":{"sections":false,"limit_bytes":0}}"#;
    serde_json::from_str(json).unwrap()
}

fn request_id(number: u8) -> RequestId {
    RequestId::from_bytes([number; 16])
}

fn result() -> JobResult {
    JobResult {
        failure: None,
        exit_code: None,
        message: None,
        output_len: 12,
        artifacts: vec![],
        usage: None,
    }
}

/// API-01 to API-09, FLOW-09, FLOW-15, FLOW-19, ENR-01, ENR-20, AUTH-01, CRED-10
#[tokio::test]
async fn one_job_from_capacity_to_settling() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let client = hub.relay().await;
    let (id, key) = hub.node().await;
    let ask = CapacityRequest {
        placement: placement(),
        after: None,
        wait_secs: 0,
    };
    let before = client.capacity(&ask).await.unwrap();
    assert_eq!(before.fits, 0, "no node is there");
    let mut node = hub.session(id, &key).await;
    let waiting = CapacityRequest {
        after: Some(before.revision),
        wait_secs: 20,
        ..ask
    };
    let (capacity, ()) = tokio::join!(client.capacity(&waiting), node.ready(vec![]));
    assert_eq!(capacity.unwrap().fits, 2);

    let reserve = ReservationRequest {
        request_id: request_id(1),
        placement: placement(),
        lease_secs: 90,
        wait_secs: 20,
    };
    let answering = async {
        let HubJobMessage::Offer {
            reservation,
            lease_secs,
            ..
        } = node.hears().await
        else {
            panic!("an offer")
        };
        let reply = OfferReply::Accepted { lease_secs };
        node.job(NodeJobMessage::OfferReply { reservation, reply })
            .await;
        reservation
    };
    let (grant, reservation) = tokio::join!(client.reserve(&reserve), answering);
    let grant = grant.unwrap();
    assert_eq!(
        (grant.reservation, grant.node, grant.lease_secs),
        (reservation, id, 90)
    );

    let submission = JobSubmission {
        request_id: request_id(2),
        placement: placement(),
        reservation: Some(reservation),
        place_within_secs: 300,
        spec: spec(),
    };
    let view = client.submit(&submission).await.unwrap();
    let again = client.submit(&submission).await.unwrap();
    assert_eq!(again.id, view.id, "the same request is the same job");
    let HubJobMessage::Start {
        job,
        reservation: on,
        spec: sent,
        ..
    } = node.hears().await
    else {
        panic!("a start")
    };
    assert_eq!((job, on), (view.id, Some(reservation)));
    let JobSpec::GitlabCi(sent) = sent;
    assert_eq!(sent.token, Secret::from("s3cret-token-of-the-job"));

    node.job(NodeJobMessage::Job {
        job,
        state: RunState::Accepted,
    })
    .await;
    let data = Chunk::try_from(b"hello world\n".to_vec()).unwrap();
    node.job(NodeJobMessage::Output {
        job,
        offset: 0,
        data,
    })
    .await;
    assert_eq!(
        node.hears().await,
        HubJobMessage::OutputAck { job, offset: 12 }
    );
    let OutputRead::Bytes(read) = client.output(job, 6, 20).await.unwrap() else {
        panic!("bytes")
    };
    assert_eq!((&read.bytes[..], read.complete), (&b"world\n"[..], false));
    node.job(NodeJobMessage::Job {
        job,
        state: RunState::Finished,
    })
    .await;
    node.job(NodeJobMessage::Result {
        job,
        result: result(),
    })
    .await;
    assert_eq!(node.hears().await, HubJobMessage::Recorded { job });
    let done = client.view(job, None, 0).await.unwrap();
    assert_eq!((done.state, done.output_len), (JobState::Finished, 12));
    let OutputRead::Bytes(read) = client.output(job, 0, 0).await.unwrap() else {
        panic!("bytes")
    };
    assert_eq!(
        (&read.bytes[..], read.complete),
        (&b"hello world\n"[..], true)
    );
    assert_eq!(
        client.output(job, 99, 0).await.unwrap(),
        OutputRead::PastEnd { length: 12 }
    );
    client.settle(job).await.unwrap();
    client.settle(job).await.unwrap();
    let gone = client.output(job, 0, 0).await.unwrap_err();
    assert_eq!(gone.code(), Some(ErrorCode::NotFound));
    for file in files_below(&hub.stop()) {
        let bytes = std::fs::read(&file).unwrap();
        let secret = b"s3cret-token-of-the-job";
        let found = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!found, "the job's token is in {}", file.display());
    }
}

fn files_below(dir: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// FAIL-23, FAIL-25, DISP-66, API-73
#[tokio::test]
async fn a_running_job_goes_on_over_a_hubs_restart_and_an_unaccepted_one_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let client = hub.relay().await;
    let (id, key) = hub.node().await;
    let mut node = hub.session(id, &key).await;
    node.ready(vec![]).await;
    let submission = |number| JobSubmission {
        request_id: request_id(number),
        placement: placement(),
        reservation: None,
        place_within_secs: 300,
        spec: spec(),
    };
    let running = client.submit(&submission(1)).await.unwrap().id;
    let HubJobMessage::Start { job, .. } = node.hears().await else {
        panic!("a start")
    };
    node.job(NodeJobMessage::Job {
        job,
        state: RunState::Accepted,
    })
    .await;
    let data = Chunk::try_from(b"hello ".to_vec()).unwrap();
    node.job(NodeJobMessage::Output {
        job,
        offset: 0,
        data,
    })
    .await;
    assert_eq!(
        node.hears().await,
        HubJobMessage::OutputAck { job, offset: 6 }
    );
    drop(node);

    let signer = client.into_signer();
    let data_dir = hub.stop();
    let hub = Hub::start(data_dir).await;
    let client = Client::new(hub.dialer(), signer);
    let mut node = hub.session(id, &key).await;
    let state = RunState::Running {
        stage: "step_script".into(),
        activity: None,
        guest: None,
    };
    node.ready(vec![HeldJob {
        job,
        state,
        output_len: 12,
        finished: false,
    }])
    .await;
    assert_eq!(
        node.hears().await,
        HubJobMessage::OutputAck { job, offset: 6 }
    );
    let view = client.view(running, None, 0).await.unwrap();
    assert_eq!((view.state, view.output_len), (JobState::Running, 6));
    let again = client.submit(&submission(1)).await.unwrap();
    assert_eq!(again.id, running, "the request is remembered");
    hub.stop();
}

/// AUTH-05, AUTH-07, CRED-09, ENR-13
#[tokio::test]
async fn strangers_nodes_and_tokens_of_another_kind_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let refused = |error: ApiError| {
        let ApiError::Refused {
            status, refusal, ..
        } = error
        else {
            panic!("{error}")
        };
        (status, refusal.code)
    };
    let stranger = Signer {
        relay: vk_hub_proto::RelayId::from_bytes([9; 16]),
        key: Key::generate().unwrap(),
    };
    let stranger = Client::new(hub.dialer(), stranger);
    let ask = CapacityRequest {
        placement: placement(),
        after: None,
        wait_secs: 0,
    };
    let unauthorized = (401, ErrorCode::Unauthorized);
    assert_eq!(
        refused(stranger.capacity(&ask).await.unwrap_err()),
        unauthorized
    );

    let (id, key) = hub.node().await;
    let relay = vk_hub_proto::RelayId::from_bytes(*id.as_bytes());
    let as_relay = Client::new(hub.dialer(), Signer { relay, key });
    assert_eq!(
        refused(as_relay.capacity(&ask).await.unwrap_err()),
        unauthorized
    );

    let relay = hub.relay().await.signer().relay;
    let wrong_key = Client::new(
        hub.dialer(),
        Signer {
            relay,
            key: Key::generate().unwrap(),
        },
    );
    assert_eq!(
        refused(wrong_key.capacity(&ask).await.unwrap_err()),
        unauthorized
    );

    let token = hub.token(MemberKind::Node);
    let key = Key::generate().unwrap();
    let mixed = enroll_relay(&hub.url, &token, None, &key, "relay")
        .await
        .unwrap_err();
    assert!(mixed.to_string().contains("401"), "{mixed}");
    enroll_node(&hub.url, &token, None, &key, "node")
        .await
        .unwrap();
    let used = enroll_node(&hub.url, &token, None, &key, "node")
        .await
        .unwrap_err();
    assert!(used.to_string().contains("used already"), "{used}");
    hub.stop();
}

/// SESS-27 of nodes: the newest session wins.
#[tokio::test]
async fn a_second_session_of_a_node_supersedes_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let (id, key) = hub.node().await;
    let mut first = hub.session(id, &key).await;
    let _second = hub.session(id, &key).await;
    let refused = loop {
        match timeout(SOON, first.0.messages.receive()).await.unwrap() {
            Ok(Received::Message(HubMessage::Refused { code, .. })) => break code,
            Ok(_) => {}
            Err(error) => panic!("closed without a word: {error}"),
        }
    };
    assert_eq!(refused, RefusedCode::Superseded);
    hub.stop();
}

/// AUTH-19
#[tokio::test]
async fn a_second_request_on_a_connection_is_not_served() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(dir.path().join("data")).await;
    let mut connection = hub.dialer().dial().await.unwrap();
    let request = b"GET /v1/jobs/0 HTTP/1.1\r\nhost: x\r\n\r\n";
    connection
        .stream
        .write_all(&[request.as_slice(), request].concat())
        .await
        .unwrap();
    let mut answers = Vec::new();
    let read = timeout(SOON, connection.stream.read_to_end(&mut answers))
        .await
        .unwrap();
    // How the peer closes is TLS's affair; that it does, and after one answer, is ours.
    let _ = read;
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    hub.stop();
}
