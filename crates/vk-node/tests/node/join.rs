//! Joining a hub.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use vk_hub_client::EnrolmentToken;
use vk_hub_proto::{JobId, NodeId};
use vk_node::join::{Join, JoinError, join};
use vk_node::journal::Journal;
use vk_node::state_dir::StateDir;
use vk_node_core::Record;

fn token() -> EnrolmentToken {
    format!("s3cret.{}", "A".repeat(43)).parse().unwrap()
}

async fn try_join(state: &StateDir, hub: &str, replace: bool) -> Result<NodeId, JoinError> {
    let how = Join {
        hub: hub.parse().unwrap(),
        token: &token(),
        ca: None,
        replace,
    };
    join(state, how).await
}

/// Answers one enrolment, and gives what was asked.
async fn hub(node: NodeId) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = String::new();
        while !asked.ends_with('}') {
            let mut part = [0; 4096];
            let len = stream.read(&mut part).await.unwrap();
            assert!(len > 0, "{asked}");
            asked.push_str(std::str::from_utf8(&part[..len]).unwrap());
        }
        let body = format!("{{\"node_id\":\"{node}\"}}");
        let len = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        asked
    });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_pins_a_key_and_keeps_who_the_node_is() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let (url, asked) = hub(NodeId::from_bytes([1; 16])).await;
    let node = try_join(&state, &url, false).await.unwrap();
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with("POST /v1/enroll ") && asked.contains("\"hostname\""),
        "{asked}"
    );
    let first = state.enrolment().load::<NodeId>().unwrap().unwrap();
    assert_eq!(first.id, node);
    // Again only with --replace, and then with a key of its own.
    let again = try_join(&state, &url, false).await.unwrap_err();
    assert!(matches!(again, JoinError::Enrolled), "{again}");
    let (url, asked) = hub(NodeId::from_bytes([2; 16])).await;
    try_join(&state, &url, true).await.unwrap();
    asked.await.unwrap();
    let second = state.enrolment().load::<NodeId>().unwrap().unwrap();
    assert_eq!(second.id, NodeId::from_bytes([2; 16]));
    assert_ne!(second.key.public(), first.key.public());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_daemon_or_with_jobs_does_not_join() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let lock = state.lock().unwrap();
    let error = try_join(&state, "http://127.0.0.1:1", true)
        .await
        .unwrap_err();
    assert!(matches!(error, JoinError::StateDir(_)), "{error}");
    drop(lock);
    let (mut journal, _) = Journal::open(&state.journal()).unwrap();
    let job = JobId::from_bytes([3; 16]);
    journal.append(&[Record::Recorded { job }]).unwrap();
    let error = try_join(&state, "http://127.0.0.1:1", true)
        .await
        .unwrap_err();
    assert!(matches!(error, JoinError::HasJobs(1)), "{error}");
    journal.append(&[Record::Dropped { job }]).unwrap();
    let error = try_join(&state, "http://127.0.0.1:1", true)
        .await
        .unwrap_err();
    assert!(matches!(error, JoinError::Enroll(_)), "{error}");
}
