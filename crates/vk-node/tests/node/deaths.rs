//! What a job's log says of a job process that died while the node's daemon was not there to see it.

use rustix::process::{Pid, Signal, kill_process};
use vk_hub_proto::dispatch::{HeldJob, NodeJobMessage, RunState};
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_hub_proto::node_session::NodeMessage;

use crate::daemon::Node;
use crate::gate::Gate;
use crate::hub::{Hub, Session};
use crate::session::{ack, end, started};

/// Has a daemon start a job, ends the daemon and then the job's process, and starts another daemon:
/// what the job's log says behind what it said itself, and its result.
async fn told(before: &[(&str, &str)], after: &[(&str, &str)]) -> (String, JobResult) {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let daemon = node.start_with(before);
    let mut session = hub.welcome().await;
    held(&mut session).await;
    let gate = Gate::new(node.path(), "1");
    started(&mut session, 4, &["pid", &gate.line()]).await;
    let standing = gate.reached();
    let said = std::fs::read_to_string(node.job(4).output()).unwrap();
    daemon.kill();
    let pid = Pid::from_raw(said.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    drop(standing);

    let daemon = node.start_with(after);
    let mut session = hub.welcome().await;
    assert_eq!(held(&mut session).await.len(), 1);
    ack(&mut session, 4, said.len() as u64).await;
    loop {
        match end(&mut session).await {
            NodeJobMessage::Job {
                state: RunState::Finished,
                ..
            } => {
                let output = std::fs::read_to_string(node.job(4).output()).unwrap();
                ack(&mut session, 4, output.len() as u64).await;
            }
            NodeJobMessage::Result { result, .. } => {
                let output = std::fs::read_to_string(node.job(4).output()).unwrap();
                let line = output.strip_prefix(&said).unwrap().to_owned();
                assert!(daemon.terminate().success());
                return (line, result);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Every job that the node holds.
async fn held(session: &mut Session) -> Vec<HeldJob> {
    loop {
        if let NodeMessage::Job(NodeJobMessage::Held { jobs, .. }) = session.next().await {
            return jobs;
        }
    }
}

fn check((line, result): (String, JobResult), known: &str) {
    let said = format!("the job's process on its node ended without a result: {known}");
    assert!(line.contains(&said), "{line}");
    assert_eq!(result.failure, Some(FailureClass::Interrupted));
    let message = result.message.unwrap();
    assert!(message.starts_with(&said), "{message}");
}

/// FAIL-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_process_that_died_unseen_is_said_to_have_died_unseen() {
    let known = "nobody saw how, since the node's daemon was restarted";
    check(told(&[], &[]).await, known);
}

/// FAIL-34
#[cfg(feature = "kill-points")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_host_is_told_apart() {
    let boot = |id| [("VK_TEST_BOOT_ID", id)];
    let known = "the node's host was restarted";
    check(told(&boot("first"), &boot("second")).await, known);
}
