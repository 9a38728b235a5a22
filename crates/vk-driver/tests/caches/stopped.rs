//! Jobs that are cancelled, or whose time is over, in the middle of a cache.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use vk_driver::{Control, Stop};
use vk_hub_proto::job::FailureClass;

use crate::registry::Rule;
use crate::support::{Started, nothing_is_left};
use crate::{Bench, cache, cached};

/// Half of a layer that compresses badly is still a lot.
const OLD: &str = "mkdir -p deps && echo old > deps/a && head -c 3000000 /dev/urandom > deps/noise";
const NEW: &str = "mkdir -p deps && echo new > deps/a && head -c 3000000 /dev/urandom > deps/noise";

/// Which request is held up half-way, and what ends the job then.
struct Row {
    policy: &'static str,
    held: fn(&str) -> bool,
    /// None: its own time.
    stop: Option<Stop>,
    /// The stage it is in.
    stage: &'static str,
}

fn layer_comes(line: &str) -> bool {
    line.starts_with("GET ") && line.contains("/blobs/")
}

fn layer_goes(line: &str) -> bool {
    line.starts_with("PUT ") && line.contains("/blobs/uploads/")
}

fn manifest_goes(line: &str) -> bool {
    line.starts_with("PUT ") && line.contains("/manifests/")
}

/// STAGE-31: a job that ends in the middle of a cache ends at once, with its connections,
/// processes and files; and what was saved before stays what is saved.
#[tokio::test]
async fn a_job_that_ends_in_the_middle_of_a_cache_leaves_nothing_half_made() {
    let row = |policy, held: fn(&str) -> bool, stop, stage| Row {
        policy,
        held,
        stop,
        stage,
    };
    let (graceful, immediate) = (Some(Stop::Graceful), Some(Stop::Immediate));
    let rows = [
        row("pull", layer_comes, graceful, "restore_cache"),
        row("pull", layer_comes, immediate, "restore_cache"),
        row("pull", layer_comes, None, "restore_cache"),
        row("push", layer_goes, immediate, "archive_cache"),
        row("push", manifest_goes, immediate, "archive_cache"),
        row("push", layer_goes, None, "archive_cache"),
    ];
    let [a, b, c, d, e, f] = rows.map(|row| Box::pin(ended_in(row)));
    tokio::join!(a, b, c, d, e, f);
}

async fn ended_in(row: Row) {
    let Some(bench) = Bench::new() else { return };
    bench.good(cached(&[OLD], cache("k"))).await;
    let (told, mut hears) = unbounded_channel();
    bench.registry.rule(move |line| match (row.held)(line) {
        true => Rule::Half(told.clone()),
        false => Rule::Pass,
    });
    let mut job: Value = cached(&["echo the script", NEW], cache("k"));
    job["caches"][0]["policy"] = json!(row.policy);
    if row.stop.is_none() {
        job["timeout_secs"] = json!(9);
    }
    let context = bench.context(job);
    let dir = context.dirs.job.clone();
    let started = Started::new(context);
    if let Some(stop) = row.stop {
        let half = tokio::time::timeout(Duration::from_secs(120), hears.recv()).await;
        assert_eq!(half, Ok(Some("half")), "{}", started.output());
        started.control.send(Control::Stop(stop)).await.unwrap();
    }
    let ended = tokio::time::timeout(Duration::from_secs(120), started.end()).await;
    let ran = ended.expect("it ends");
    // A job that is slow to come so far has its time's end elsewhere.
    let in_time = row.stop.is_some() || hears.try_recv() == Ok("half");
    let (class, says) = match row.stop {
        Some(_) => (FailureClass::Canceled, "canceled".to_owned()),
        None => (
            FailureClass::Timeout,
            "execution took longer than 9s seconds".to_owned(),
        ),
    };
    assert_eq!(ran.result.failure, Some(class), "{}", ran.output);
    assert!(ran.output.contains(&says), "{says}: {}", ran.output);
    if in_time {
        let stages = ran.stages();
        assert_eq!(stages.last().map(String::as_str), Some(row.stage));
        let reached = ran.output.contains("the script");
        assert_eq!(reached, row.stage == "archive_cache", "{}", ran.output);
        let gone = tokio::time::timeout(Duration::from_secs(120), hears.recv()).await;
        assert_eq!(gone, Ok(Some("gone")));
    }
    nothing_is_left(&dir).await;

    // What was saved is as it was.
    bench.registry.rule(|_| Rule::Pass);
    let mut job = cached(&["[ \"$(cat deps/a)\" = old ]"], cache("k"));
    job["caches"][0]["policy"] = json!("pull");
    bench.good(job).await;
}
