//! Jobs that are cancelled, or whose time is over, in the middle of a transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use vk_driver::{ArtifactsAt, Control, Stop};
use vk_hub_proto::job::{ArtifactState, FailureClass};

use crate::support::{Node, Started, add, nothing_is_left, spec, variable};
use crate::{artifact, depending, states};

/// A GitLab that takes half of an upload, or gives half of a download, and then nothing.
struct Half {
    url: String,
    /// How often it was asked.
    asked: Arc<AtomicUsize>,
    /// Hears when half was taken or given, and when the client is gone.
    hears: mpsc::UnboundedReceiver<&'static str>,
    /// Whether it looks for the client's end now.
    looks: Arc<Notify>,
}

impl Half {
    async fn new() -> Half {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, hears) = mpsc::unbounded_channel();
        let (asked, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, look) = (Arc::clone(&asked), Arc::clone(&looks));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let (tell, look) = (tell.clone(), Arc::clone(&look));
                tokio::spawn(async move {
                    let mut stream = half(stream).await;
                    // The test may be over.
                    let _ = tell.send("half");
                    look.notified().await;
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    let _ = tell.send("gone");
                });
            }
        });
        Half {
            url,
            asked,
            hears,
            looks,
        }
    }
}

async fn half(stream: TcpStream) -> BufReader<TcpStream> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).await.unwrap() > 0);
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    if length == 0 {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nPK";
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.write_all(&[0; 50_000]).await.unwrap();
    } else {
        let mut body = vec![0; length / 2];
        stream.read_exact(&mut body).await.unwrap();
    }
    stream
}

/// More than lies on the way, so that the client is in the middle of it.
fn uploading() -> Value {
    let mut job = spec(&["echo the script", "head -c 12000000 /dev/zero > a"]);
    add(
        &mut job,
        "variables",
        variable("ARTIFACT_COMPRESSION_LEVEL", "fastest"),
    );
    let one = artifact("archive", "zip", "a", &["a"]);
    add(&mut job, "artifacts", one);
    let next = artifact("junit", "gzip", "b", &["a"]);
    add(&mut job, "artifacts", next);
    job
}

/// FAIL-36, STAGE-31: the job ends at once, with its connections, processes and files; GitLab is asked
/// once.
#[tokio::test]
async fn a_job_that_ends_in_the_middle_of_a_transfer_leaves_nothing_half_made() {
    let Some(node) = Node::new("transfers") else {
        return;
    };
    let timed = |mut job: Value| {
        job["timeout_secs"] = json!(9);
        job
    };
    let download = || depending(&["echo the script"]);
    let (graceful, immediate) = (Some(Stop::Graceful), Some(Stop::Immediate));
    let (upload_stage, download_stage) = ("upload_artifacts_on_success", "download_artifacts");
    let ended = [
        (uploading(), immediate, upload_stage),
        (timed(uploading()), None, upload_stage),
        (download(), graceful, download_stage),
        (download(), immediate, download_stage),
        (timed(download()), None, download_stage),
    ]
    .map(|(job, stop, stage)| Box::pin(ended_in(&node, job, stop, stage)));
    let [a, b, c, d, e] = ended;
    tokio::join!(a, b, c, d, e);
}

async fn ended_in(node: &Node, mut job: Value, stop: Option<Stop>, stage: &str) {
    let mut gitlab = Half::new().await;
    job["server_url"] = json!(gitlab.url);
    let mut context = node.context(node.process(), job, node.job_dir());
    context.artifacts = ArtifactsAt::GitLab;
    let dir = context.dirs.job.clone();
    let started = Started::new(context);
    if let Some(stop) = stop {
        let half = tokio::time::timeout(Duration::from_secs(120), gitlab.hears.recv()).await;
        assert_eq!(half, Ok(Some("half")), "{}", started.output());
        started.control.send(Control::Stop(stop)).await.unwrap();
    }
    let ended = tokio::time::timeout(Duration::from_secs(120), started.end()).await;
    let ran = ended.expect("it ends");
    // A job that is slow to come so far has its time's end elsewhere.
    let in_time = stop.is_some() || gitlab.hears.try_recv() == Ok("half");
    let (class, says) = match stop {
        Some(_) => (FailureClass::Canceled, "canceled"),
        None => (
            FailureClass::Timeout,
            "execution took longer than 9s seconds",
        ),
    };
    assert_eq!(ran.result.failure, Some(class), "{}", ran.output);
    assert!(ran.output.contains(says), "{says}: {}", ran.output);
    if in_time {
        assert_eq!(ran.stages().last().map(String::as_str), Some(stage));
        let uploads = stage.starts_with("upload");
        assert_eq!(ran.output.contains("the script"), uploads, "{}", ran.output);
        if uploads {
            let cut = [ArtifactState::Failed, ArtifactState::Skipped];
            assert_eq!(states(&ran), cut, "{}", ran.output);
        }
        gitlab.looks.notify_one();
        let gone = tokio::time::timeout(Duration::from_secs(120), gitlab.hears.recv()).await;
        assert_eq!(gone, Ok(Some("gone")));
        assert_eq!(gitlab.asked.load(Ordering::Relaxed), 1);
    }
    nothing_is_left(&dir).await;
}
