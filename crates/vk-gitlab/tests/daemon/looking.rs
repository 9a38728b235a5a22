//! What operators see: metrics and health.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use vk_gitlab::metrics::{Listen, serve};

use crate::gitlab::job;
use crate::server::Reply;
use crate::world::{Running, World};

/// Serves a daemon's metrics; where.
pub(crate) async fn served(world: &World, daemon: &Running) -> String {
    let path = world.token_file("metrics").display().to_string();
    let listen: Listen = format!("unix:{path}").parse().unwrap();
    serve(&listen, daemon.operator.metrics(), daemon.words.clone())
        .await
        .unwrap();
    path
}

pub(crate) async fn get(socket: &str, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
}

#[tokio::test]
async fn metrics_tell_of_runners_jobs_and_gitlabs_answers() {
    let world = World::new().await;
    let waits = Reply::status(429).with("Retry-After", 1);
    world.gitlab.change(|state| state.requests.push_back(waits));
    world.queue(1);
    let daemon = world.start();
    let socket = served(&world, &daemon).await;
    world.running(1).await;
    world
        .gitlab
        .until("the job is committed", |state| {
            state.states.contains_key(&1)
        })
        .await;
    let text = get(&socket, "/metrics").await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    has(
        &text,
        "vk_gitlab_jobs_taken_total{runner=\"ci\",project=\"\"} 1",
    );
    has(&text, "vk_gitlab_job_queue_seconds_sum{runner=\"ci\"} 2.5");
    has(
        &text,
        "vk_gitlab_rate_limited_total{endpoint=\"job_request\"} 1",
    );
    has(
        &text,
        "vk_gitlab_requests_total{endpoint=\"job_request\",status=\"201\"} 1",
    );
    has(
        &text,
        "vk_gitlab_requests_total{endpoint=\"verify\",status=\"200\"} 1",
    );
    has(&text, "vk_gitlab_open_job_requests{runner=\"ci\"} 0");
    assert!(text.contains("vk_gitlab_since_last_poll_seconds{runner=\"ci\"}"));
    assert!(!text.contains("acme/web"), "no project without being asked");
    assert!(
        get(&socket, "/health")
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
    assert!(get(&socket, "/").await.starts_with("HTTP/1.1 404 "));
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
    let ill = get(&socket, "/health").await;
    assert!(
        ill.starts_with("HTTP/1.1 503 "),
        "a loop that is gone is not well: {ill}"
    );
}

#[tokio::test]
async fn a_trace_that_gitlab_does_not_take_lags_and_an_end_it_does_not_hear_of_is_pending() {
    let world = World::new().await;
    world.gitlab.change(|state| {
        state.queue.push_back(job(1));
        state.no_traces = true;
    });
    let daemon = world.start();
    let socket = served(&world, &daemon).await;
    world.running(1).await;
    world.hub.change(|state| state.finish_all("0123456789"));
    world
        .gitlab
        .until("patches are refused", |state| state.patches > 1)
        .await;
    let text = get(&socket, "/metrics").await;
    has(&text, "vk_gitlab_trace_lag_bytes{runner=\"ci\"} 10");
    has(&text, "vk_gitlab_jobs{runner=\"ci\",state=\"committed\"} 1");
    has(&text, "vk_gitlab_outcomes_pending{runner=\"ci\"} 1");
    world.gitlab.change(|state| state.no_traces = false);
    world.over(1).await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += 1);
    daemon.ended().await;
    assert_eq!(
        world.gitlab.look(|state| state.traces[&1].clone()),
        b"0123456789"
    );
}
