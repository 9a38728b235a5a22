//! A daemon and a job's process of different releases.

use std::time::Duration;

use tokio::time::timeout;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage, RunState};
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_node::admin;
use vk_node::view::JobView;

use crate::daemon::Node;
use crate::gate::{Gate, Waiting};
use crate::hub::{Hub, Session};
use crate::session::{ack, id, started};

/// How long anything may take.
const LONG: Duration = Duration::from_secs(90);

/// A job in mid script, and what the hub has of it.
struct Tale {
    _hub: Hub,
    node: Node,
    daemon: crate::daemon::Daemon,
    session: Session,
    standing: Option<Waiting>,
    output: Vec<u8>,
    /// Whether the hub was told of a stage.
    stage: bool,
}

impl Tale {
    /// A job whose process speaks these versions, started by a daemon that speaks `first`, which is
    /// upgraded to `then` in mid job.
    async fn new(job: &str, first: &str, then: Option<&str>) -> Tale {
        let hub = Hub::new().await;
        let node = Node::joined(&hub.url);
        let job = ("VK_TEST_JOB_WIRE_VERSIONS", job);
        let daemon = |versions| node.start_with(&[job, ("VK_TEST_WIRE_VERSIONS", versions)]);
        let mut runs = daemon(first);
        let mut session = hub.welcome().await;
        assert!(!held(&mut session).await);
        let gate = Gate::new(node.path(), "gate");
        started(
            &mut session,
            4,
            &["say one", "boot", &gate.line(), "say two", "exit 3"],
        )
        .await;
        let standing = gate.reached();
        let mut stage = false;
        if let Some(then) = then {
            assert!(runs.terminate().success());
            runs = daemon(then);
            session = hub.welcome().await;
            stage = held(&mut session).await;
            ack(&mut session, 4, 0).await;
        }
        Tale {
            _hub: hub,
            node,
            daemon: runs,
            session,
            standing: Some(standing),
            output: Vec::new(),
            stage,
        }
    }

    /// Takes a message of the job's; its result, once that comes.
    async fn next(&mut self) -> Option<JobResult> {
        match self.session.next_job().await {
            NodeJobMessage::Output { offset, data, .. } => {
                self.output.truncate(usize::try_from(offset).unwrap());
                self.output.extend(data.as_bytes());
                ack(&mut self.session, 4, self.output.len() as u64).await;
            }
            NodeJobMessage::Job { state, .. } => {
                self.stage |= is_running(&state);
            }
            NodeJobMessage::Result { result, .. } => return Some(result),
            _ => {}
        }
        None
    }

    /// Waits until the hub has this output of the job, which goes on.
    async fn has(&mut self, output: &str) {
        let coming = async {
            while self.output != output.as_bytes() {
                assert_eq!(self.next().await, None);
            }
        };
        timeout(LONG, coming)
            .await
            .expect("the output does not come");
    }

    async fn result(&mut self) -> JobResult {
        let coming = async {
            loop {
                if let Some(result) = self.next().await {
                    return result;
                }
            }
        };
        timeout(LONG, coming)
            .await
            .expect("the result does not come")
    }

    /// Waits until the hub was told of a stage.
    async fn has_stage(&mut self) {
        let coming = async {
            while !self.stage {
                assert_eq!(self.next().await, None);
            }
        };
        timeout(LONG, coming).await.expect("no stage is told of");
    }

    async fn view(&self) -> JobView {
        admin::jobs(&self.node.state).await.unwrap().remove(0)
    }

    /// Lets the job go on to its end, which it comes to as ever.
    async fn ends(mut self) {
        self.standing.take().unwrap().open();
        let result = self.result().await;
        let end = (result.failure, result.exit_code);
        assert_eq!(end, (Some(FailureClass::Script), Some(3)));
        assert_eq!(self.output, b"one\ntwo\n");
        assert!(self.daemon.terminate().success());
    }
}

/// Waits until the node says what it holds; whether that is a job of which it tells a stage.
async fn held(session: &mut Session) -> bool {
    loop {
        if let NodeJobMessage::Held { jobs, .. } = session.next_job().await {
            return jobs.iter().any(|job| is_running(&job.state));
        }
    }
}

const fn is_running(state: &RunState) -> bool {
    matches!(state, RunState::Running { .. })
}

/// FAIL-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_of_a_later_release_goes_on_with_the_job_of_an_earlier_one() {
    let mut tale = Tale::new("1..1", "1..1", Some("1..2")).await;
    tale.has_stage().await;
    tale.has("one\n").await;
    assert_eq!(tale.view().await.progress.activity, None);
    tale.ends().await;
}

/// A program was replaced, and the daemon not restarted yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_of_an_earlier_release_starts_the_process_of_a_later_one() {
    let mut tale = Tale::new("1..2", "1..1", None).await;
    tale.has_stage().await;
    tale.ends().await;
}

/// FAIL-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_daemon_and_process_have_no_version_in_common_log_and_result_come_all_the_same() {
    let mut tale = Tale::new("1..1", "1..1", Some("2..3")).await;
    tale.has("one\n").await;
    // What it is about is not known, and that is what an operator sees.
    assert!(!tale.stage);
    let activity = tale.view().await.progress.activity.unwrap();
    let said = "its process is of another release (versions 1 to 1, the node's 2 to 3)";
    assert!(activity.contains(said), "{activity}");
    tale.ends().await;
}

/// It cannot begin before it has its grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_of_every_version() {
    let mut tale = Tale::new("3..3", "1..2", None).await;
    tale.has("one\n").await;
    let job = id(4);
    let mode = CancelMode::Immediate;
    tale.session.job(HubJobMessage::Cancel { job, mode }).await;
    let result = tale.result().await;
    assert_eq!(result.failure, Some(FailureClass::Canceled));
}
