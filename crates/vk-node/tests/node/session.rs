//! The daemon and its hub.

use std::time::Duration;

use vk_hub_proto::client::{CancelMode, Envelope};
use vk_hub_proto::dispatch::{
    HubJobMessage, LeaseState, NodeJobMessage, OfferReply, RegistryGrant, RunState,
};
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::node_session::{NodeMessage, RefusedCode};
use vk_hub_proto::{JobId, ReservationId};
use vk_node::admin;
use vk_node::view::JobState;

use crate::daemon::{Daemon, Node, REFUSED};
use crate::gate::Gate;
use crate::hub::{Hub, Session};
use crate::scripted::{REGISTRY_TOKEN, TOKEN, start};

pub fn id(number: u8) -> JobId {
    JobId::from_bytes([number; 16])
}

/// A node with its daemon in a session, which said that it holds nothing.
pub async fn ready() -> (Hub, Node, Daemon, Session) {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(matches!(session.next().await, NodeMessage::Report(_)));
    let NodeJobMessage::Held { reservations, jobs } = session.next_job().await else {
        panic!("held is due")
    };
    assert!(reservations.is_empty() && jobs.is_empty());
    (hub, node, daemon, session)
}

pub async fn started(session: &mut Session, number: u8, script: &[&str]) {
    let script: Vec<_> = script.iter().map(|&line| line.to_owned()).collect();
    session.job(start(number, &script)).await;
    let accepted = NodeJobMessage::Job {
        job: id(number),
        state: RunState::Accepted,
    };
    assert_eq!(session.next_job().await, accepted);
}

pub async fn ack(session: &mut Session, number: u8, offset: u64) {
    let job = id(number);
    session.job(HubJobMessage::OutputAck { job, offset }).await;
}

/// The job's next message that is no output and no running state.
pub async fn end(session: &mut Session) -> NodeJobMessage {
    loop {
        match session.next_job().await {
            NodeJobMessage::Output { .. }
            | NodeJobMessage::Job {
                state: RunState::Running { .. },
                ..
            } => {}
            other => return other,
        }
    }
}

/// DISP-15, FLOW-16, DISP-41, DISP-53, CRED-15, REG-03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_from_its_offer_to_the_end_of_its_directory() {
    let (_hub, node, daemon, mut session) = ready().await;
    let gate = Gate::new(node.path(), "1");
    let reservation = ReservationId::from_bytes([2; 16]);
    let envelope = Envelope {
        mem_mib: 4096,
        cpus: 2,
        disk_bytes: 1 << 30,
    };
    session
        .job(HubJobMessage::Offer {
            reservation,
            envelope,
            lease_secs: 60,
        })
        .await;
    let NodeJobMessage::OfferReply { reply, .. } = session.next_job().await else {
        panic!("an answer to the offer is due")
    };
    assert_eq!(reply, OfferReply::Accepted { lease_secs: 60 });

    let script = [
        "boot".to_owned(),
        "registry".to_owned(),
        gate.line(),
        "exit 3".to_owned(),
    ];
    let HubJobMessage::Start { job, spec, .. } = start(9, &script) else {
        panic!("no start")
    };
    let message = HubJobMessage::Start {
        job,
        reservation: Some(reservation),
        envelope,
        spec,
        registry: Some(Box::new(RegistryGrant {
            url: "https://registry.example.com".to_owned(),
            username: "vk-job".to_owned(),
            token: REGISTRY_TOKEN.into(),
            expires_in_secs: 7_800,
            cache_repository: Some("a/b".to_owned()),
            namespaces: Vec::new(),
        })),
    };
    session.job(message.clone()).await;
    let accepted = NodeJobMessage::Job {
        job,
        state: RunState::Accepted,
    };
    assert_eq!(session.next_job().await, accepted);
    let start_file = node.job(9).path().join("start.json");
    let kept = std::fs::read_to_string(&start_file).unwrap();
    assert!(kept.contains(TOKEN) && kept.contains(REGISTRY_TOKEN));
    let NodeJobMessage::Lease { state, .. } = session.next_job().await else {
        panic!("the lease's end is due")
    };
    assert!(matches!(state, LeaseState::Gone { .. }));

    // The whole of its life is before it.
    assert_eq!(session.output(0, 6).await, "a/b 1\n");
    let standing = gate.reached();
    // Sent again it is answered with its present state, and runs once.
    session.job(message).await;
    let again = session.next_job().await;
    assert!(matches!(
        again,
        NodeJobMessage::Job {
            state: RunState::Running { .. },
            ..
        }
    ));
    let views = admin::jobs(&node.state).await.unwrap();
    assert_eq!(views[0].state, JobState::Running);
    assert_eq!(views[0].progress.boot_ms, Some(41));
    assert!(views[0].received_ms.is_some());
    standing.open();

    let finished = NodeJobMessage::Job {
        job,
        state: RunState::Finished,
    };
    assert_eq!(end(&mut session).await, finished);
    // No result before the last byte is acked; a part is not enough.
    ack(&mut session, 9, 5).await;
    session.fence().await;
    ack(&mut session, 9, 6).await;
    let NodeJobMessage::Result { result, .. } = session.next_job().await else {
        panic!("the result is due")
    };
    assert_eq!(
        (result.failure, result.exit_code),
        (Some(FailureClass::Script), Some(3))
    );
    assert_eq!(result.output_len, 6);
    while start_file.exists() {
        session.fence().await;
    }
    session.job(HubJobMessage::Recorded { job }).await;
    while node.job(9).path().exists() {
        session.fence().await;
    }
    let views = admin::jobs(&node.state).await.unwrap();
    assert_eq!(
        (views[0].state, views[0].progress.boot_ms),
        (JobState::Finished, Some(41))
    );
    assert!(gate.is_empty());
    assert!(daemon.terminate().success());
    let journal = std::fs::read(node.state.journal()).unwrap();
    let journal = String::from_utf8_lossy(&journal);
    assert!(!journal.contains(TOKEN) && !journal.contains(REGISTRY_TOKEN));
}

/// DISP-48, DISP-49, FAIL-22, FAIL-34, DISP-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_in_mid_job_goes_on_where_the_hub_stands() {
    let (hub, node, daemon, mut session) = ready().await;
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &["say hello", &gate.line(), "say more"]).await;
    assert_eq!(session.output(0, 6).await, "hello\n");
    daemon.kill();
    // The job goes on meanwhile.
    gate.reached().open();
    let daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(matches!(session.next().await, NodeMessage::Report(_)));
    let NodeJobMessage::Held { jobs, .. } = session.next_job().await else {
        panic!("held is due")
    };
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].job, id(4));
    // Nothing is sent before the hub said how much it has.
    ack(&mut session, 4, 3).await;
    assert_eq!(session.output(3, 8).await, "lo\nmore\n");
    ack(&mut session, 4, 11).await;
    loop {
        match end(&mut session).await {
            NodeJobMessage::Job { .. } => {}
            NodeJobMessage::Result { result, .. } => {
                assert_eq!((result.failure, result.output_len), (None, 11));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(gate.is_empty());
    drop(daemon);
}

/// FAIL-34, DISP-53, FAIL-32
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_job_process_ends_its_job_interrupted() {
    let (_hub, node, _daemon, mut session) = ready().await;
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &["pid", "leave", &gate.line()]).await;
    let standing = gate.reached();
    let said = std::fs::read_to_string(node.job(4).output()).unwrap();
    let (pid, left) = said.trim().split_once('\n').unwrap();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let finished = end(&mut session).await;
    assert!(matches!(
        finished,
        NodeJobMessage::Job {
            state: RunState::Finished,
            ..
        }
    ));
    drop(standing);
    // Over, though whose child it is now may not have asked for its end.
    let command = std::fs::read(format!("/proc/{left}/cmdline")).unwrap_or_default();
    assert!(command.is_empty(), "process {left} of the job runs on");
    let output = std::fs::read_to_string(node.job(4).output()).unwrap();
    assert!(
        output.starts_with(&said)
            && output.contains("ended without a result: it was killed by signal 9 (SIGKILL)"),
        "{output}"
    );
    ack(&mut session, 4, output.len() as u64).await;
    let NodeJobMessage::Result { result, .. } = end(&mut session).await else {
        panic!("the result is due")
    };
    assert_eq!(result.failure, Some(FailureClass::Interrupted));
    assert_eq!(result.output_len, output.len() as u64);
}

/// FAIL-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_asked_to_end_leaves_its_jobs_running() {
    let (hub, node, daemon, mut session) = ready().await;
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &["say hello", &gate.line()]).await;
    let standing = gate.reached();
    assert!(daemon.terminate().success());
    let _daemon = node.start();
    let mut session = hub.welcome().await;
    assert!(matches!(session.next().await, NodeMessage::Report(_)));
    let held = session.next_job().await;
    assert!(
        matches!(held, NodeJobMessage::Held { jobs, .. } if jobs.len() == 1 && !jobs[0].finished)
    );
    ack(&mut session, 4, 0).await;
    session
        .job(HubJobMessage::Cancel {
            job: id(4),
            mode: CancelMode::Immediate,
        })
        .await;
    loop {
        match session.next_job().await {
            NodeJobMessage::Output {
                offset: 0, data, ..
            } => {
                ack(&mut session, 4, data.as_bytes().len() as u64).await;
            }
            NodeJobMessage::Result { result, .. } => {
                break assert_eq!(result.failure, Some(FailureClass::Canceled));
            }
            NodeJobMessage::Job { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    drop(standing);
}

/// FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_interrupts_all_jobs() {
    let (_hub, node, _daemon, mut session) = ready().await;
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &[&gate.line()]).await;
    let _standing = gate.reached();
    admin::interrupt_jobs(&node.state).await.unwrap();
    loop {
        match end(&mut session).await {
            NodeJobMessage::Result { result, .. } => {
                break assert_eq!(result.failure, Some(FailureClass::Interrupted));
            }
            NodeJobMessage::Job { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        admin::status(&node.state).await.unwrap().node_id,
        "05".repeat(16)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_falls_silent_is_dialled_again() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let _daemon = node.start();
    let mut session = hub.welcome_to(1).await;
    session.ends().await;
    let mut again = hub.welcome().await;
    assert!(matches!(again.next().await, NodeMessage::Report(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_for_good_ends_the_daemon_and_another_does_not() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let daemon = node.start();
    hub.refuse(RefusedCode::Internal).await;
    hub.refuse(RefusedCode::Revoked).await;
    let ended = tokio::task::spawn_blocking(move || daemon.ended());
    assert_eq!(ended.await.unwrap().code(), Some(REFUSED));
    assert!(hub.is_left_alone(Duration::from_millis(100)).await);
}
