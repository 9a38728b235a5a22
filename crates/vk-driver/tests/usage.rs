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

use support::{Node, Started, add, spec, step, variable};

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

/// Runs until the shell itself has had so many hundredths of a second of a processor.
const BURN: &str = "had=0; while [ $had -lt 60 ]; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); \
    done; read -r had < /proc/self/stat; set -- ${had#*) }; had=${12}; done; echo burnt";

/// DISP-58
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_used_is_read_after_its_last_stage_and_said_as_its_result_has_it() {
    let Some(node) = Node::new("usage") else {
        return;
    };
    let mut job = spec(&["true"]);
    let quiet = node.run(node.process(), job.clone()).await;
    assert!(!quiet.output.contains("usage"), "{}", quiet.output);
    add(&mut job, "steps", step("after_script", &[BURN]));
    add(
        &mut job,
        "variables",
        variable("MICROVM_USAGE_REPORT", "true"),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let usage = ran.result.usage.unwrap();
    let cpu_ms = usage.cpu_ms.unwrap();
    assert!(cpu_ms >= 600, "the last script's are among them: {cpu_ms}");
    let mib = usage.peak_mem_bytes.unwrap().div_ceil(1 << 20);
    let line = format!(
        "Job resource usage: {}.{:03} s of CPU time, at most {mib} MiB of memory (guest: {} CPUs, {} \
         MiB)",
        cpu_ms / 1000,
        cpu_ms % 1000,
        usage.cpus.unwrap(),
        usage.mem_mib.unwrap()
    );
    let said = ran
        .output
        .find(&line)
        .unwrap_or_else(|| panic!("no {line}{}", ran.output));
    assert!(ran.output.find("burnt\n").unwrap() < said, "{}", ran.output);
    assert!(said < ran.output.find("Job succeeded").unwrap());
}
