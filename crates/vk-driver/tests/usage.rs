//! What a job is said to have used.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

mod support;

use std::time::Instant;

use support::{Node, Started, spec};

/// Files that take a while to be removed.
const MANY: &str = "mkdir many && cd many && seq 1 10000 | xargs touch";

/// DISP-56
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jobs_time_is_from_its_begin_to_its_end_and_what_is_cleaned_up_counts() {
    let Some(node) = Node::new("usage") else {
        return;
    };
    let dir = node.job_dir();
    let work = dir.join("work");
    let begun = Instant::now();
    let started = Started::new(node.context(node.process(), spec(&[MANY]), dir));
    let mut state = started.state.clone();
    state.wait_for(|state| state.stage.is_some()).await.unwrap();
    // It ran at this moment, and it still does when its files are last seen.
    let runs = Instant::now();
    let mut here = runs;
    let cleaning = "cleanup_file_variables";
    let is_cleaning = |stage: &Option<String>| stage.as_deref() == Some(cleaning);
    state
        .wait_for(|state| is_cleaning(&state.stage))
        .await
        .unwrap();
    loop {
        let before = Instant::now();
        if !work.exists() {
            break;
        }
        here = before;
        tokio::task::yield_now().await;
    }
    let ran = started.end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let wall = u128::from(ran.result.usage.unwrap().wall_ms);
    let least = (here - runs).as_millis();
    assert!(wall >= least, "{wall} ms, and {least} ms were seen of it");
    let most = begun.elapsed().as_millis();
    assert!(wall <= most, "{wall} ms of {most} ms");
}
