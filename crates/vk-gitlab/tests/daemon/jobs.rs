//! What becomes of a job between GitLab and the hub.

use serde_json::{Value, json};
use vk_gitlab::edge::Ended;

use crate::gitlab::job;
use crate::log::Log;
use crate::world::{Running, World};

async fn drained(world: &World, daemon: Running) {
    world
        .gitlab
        .until("it asks again", |state| state.open == 1)
        .await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += 1);
    assert_eq!(daemon.ended().await, Ended::Drained);
}

fn submissions(world: &World) -> Vec<Value> {
    let jobs = |state: &crate::hub::State| {
        let jobs = state.jobs.values();
        jobs.map(|job| job.submission.clone()).collect()
    };
    world.hub.look(jobs)
}

/// What GitLab was told at the end of a job.
fn end(world: &World, job: u64) -> Value {
    world
        .gitlab
        .look(|state| state.states[&job].last().unwrap().clone())
}

/// PLACE-01
#[tokio::test]
async fn a_job_goes_where_its_runner_is_configured_to_send_it() {
    let world = World::new().await;
    world.token("big", "glrt-t1_mnopqrstuvwx");
    world.configure("concurrent = 2", &["ci"]);
    let big = "[[runners]]\nname = 'big'\ntoken_file = 'big.token'\npool = 'gpu'\n\
               labels = ['large-memory']\nenvelope = { mem = '64G', cpus = 16, disk = '1T' }\n";
    world.add_to_configuration(big);
    let daemon = world.start();
    world
        .gitlab
        .until("both ask", |state| state.open == 2)
        .await;
    (1..=2).for_each(|job| world.queue(job));
    world.running(2).await;
    let mut placements: Vec<Value> = submissions(&world)
        .iter()
        .map(|submission| submission["placement"].clone())
        .collect();
    placements.sort_by_key(|placement| placement["pool"].to_string());
    let usual = json!({ "mem_mib": 4096, "cpus": 2, "disk_bytes": 16_u64 << 30 });
    let large = json!({ "mem_mib": 65536, "cpus": 16, "disk_bytes": 1_u64 << 40 });
    let expected = [
        json!({ "pool": "default", "envelope": usual }),
        json!({ "pool": "gpu", "labels": ["large-memory"], "envelope": large }),
    ];
    assert_eq!(placements, expected);
    for placement in &expected {
        world.hub.look(|state| {
            let asks = |what: &str| {
                let mut seen = state.seen.iter().filter(|seen| seen.what() == what);
                seen.any(|seen| seen.json()["placement"] == *placement)
            };
            assert!(asks("POST /v1/reservations") && asks("POST /v1/capacity"));
        });
    }
    world.hub.change(|state| state.finish_all(""));
    world.over(1).await;
    world.over(2).await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += 2);
    daemon.ended().await;
}

/// OPEN-06
#[tokio::test]
async fn a_job_is_committed_once_a_node_took_it_and_the_time_for_that_is_a_setting() {
    for (top, secs) in [("", 300), ("place_within_secs = 45", 45)] {
        let world = World::new().await;
        world.configure(top, &["ci"]);
        world.hub.change(|state| state.queues = true);
        world.queue(1);
        let daemon = world.start();
        world
            .hub
            .until("it is queued", |state| !state.jobs.is_empty())
            .await;
        world
            .hub
            .until("it is followed", |state| state.follows())
            .await;
        assert_eq!(submissions(&world)[0]["place_within_secs"], secs);
        world
            .gitlab
            .look(|state| assert!(state.states.is_empty(), "no early commit"));
        world.hub.change(crate::hub::State::accept_all);
        world
            .gitlab
            .until("it is committed", |state| !state.states.is_empty())
            .await;
        world
            .gitlab
            .look(|state| assert_eq!(state.states[&1][0]["state"], "running"));
        world.hub.change(|state| state.finish_all(""));
        world.over(1).await;
        drained(&world, daemon).await;
    }
}

/// FAIL-35
#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_what_this_gitlab_can_call_it() {
    let known = json!([
        "script_failure",
        "runner_system_failure",
        "image_pull_failure"
    ]);
    let unknown = json!(["script_failure", "runner_system_failure"]);
    for (reasons, told) in [
        (known, "image_pull_failure"),
        (unknown, "runner_system_failure"),
        (json!([]), "runner_system_failure"),
    ] {
        let world = World::new().await;
        let mut job = job(1);
        job["features"]["failure_reasons"] = reasons;
        world.gitlab.change(|state| state.queue.push_back(job));
        let daemon = world.start();
        world.running(1).await;
        world.hub.change(|state| state.fail_all("image_pull"));
        world.over(1).await;
        let end = end(&world, 1);
        assert_eq!(end["state"], "failed");
        assert_eq!(end["failure_reason"], told);
        drained(&world, daemon).await;
    }
}

/// FAIL-39
#[tokio::test]
async fn a_failed_job_is_left_to_gitlab_and_a_retry_is_a_new_job_throughout() {
    let world = World::new().await;
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.fail_all("system"));
    world.over(1).await;
    world
        .gitlab
        .until("it asks again", |state| state.open == 1)
        .await;
    assert_eq!(
        submissions(&world).len(),
        1,
        "nothing is tried again from here"
    );
    world.queue(2);
    world.running(1).await;
    let both = submissions(&world);
    assert_ne!(both[0]["request_id"], both[1]["request_id"]);
    assert_ne!(both[0]["reservation"], both[1]["reservation"]);
    world.hub.change(|state| state.finish_all("again\n"));
    world.over(2).await;
    assert_eq!(end(&world, 1)["state"], "failed");
    assert_eq!(end(&world, 2)["state"], "success");
    drained(&world, daemon).await;
    world.gitlab.look(|state| {
        assert_eq!(state.traces[&2], b"again\n");
        let ends = state.states[&1]
            .iter()
            .filter(|one| one["state"] == "failed");
        assert_eq!(ends.count(), 1);
    });
}

/// GL-52
#[tokio::test]
async fn a_trace_gitlab_takes_no_more_of_stops_the_job_and_the_log_says_what_it_may_be() {
    let world = World::new().await;
    let (log, _guard) = Log::start();
    world.gitlab.change(|state| state.too_large = true);
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.finish_all("too much\n"));
    world
        .hub
        .until("it is settled", |state| {
            state.jobs.values().all(|job| job.settled)
        })
        .await;
    drained(&world, daemon).await;
    let told = log.lines(&["WARN", "larger than it takes", "gitlab_job=1"]);
    assert_eq!(told.len(), 1, "{told:?}");
    world
        .gitlab
        .look(|state| assert_eq!((state.patches, state.is_over(1)), (1, false)));
}

/// GL-76
#[tokio::test]
async fn the_trace_of_an_ordinary_job_is_the_nodes_output_and_nothing_else() {
    let world = World::new().await;
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    let output = "Running with vk 0.1.0\non node one\n\u{1b}[0Kdone\n";
    world.hub.change(|state| state.finish_all(output));
    world.over(1).await;
    drained(&world, daemon).await;
    world
        .gitlab
        .look(|state| assert_eq!(state.traces[&1], output.as_bytes()));
}

/// SPEC-72
#[tokio::test]
async fn the_policy_lines_are_stamped_once_and_stay_so_over_a_restart() {
    let world = World::new().await;
    let mut job = job(1);
    job["policy_options"] = json!({ "execution_policy_job": true, "policy_name": "scan" });
    world.gitlab.change(|state| {
        state.queue.push_back(job);
        state.no_traces = true;
    });
    let daemon = world.start();
    world.running(1).await;
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
    let state: Value = serde_json::from_str(&world.state("ci")).unwrap();
    let kept = state["jobs"][0]["preamble"].as_str().unwrap().to_owned();
    assert!(
        kept.contains(" 00O ") && kept.contains("Job triggered by policy \"scan\"."),
        "{kept}"
    );
    world.gitlab.change(|state| state.no_traces = false);
    let daemon = world.start();
    world.hub.change(|state| state.finish_all("done\n"));
    world.over(1).await;
    drained(&world, daemon).await;
    let trace = world
        .gitlab
        .look(|state| String::from_utf8(state.traces[&1].clone()).unwrap());
    assert_eq!(trace, format!("{kept}done\n"));
}

/// FLOW-23, SPEC-32
#[tokio::test]
async fn all_lines_about_a_job_bear_one_id_and_gitlabs_name_of_the_runner_goes_no_further() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    let mut job = job(1);
    job["runner_info"]["uuid"] = "6f1c1b9e".into();
    job["hooks"] = json!([{ "name": "unheard_of", "script": [] }]);
    world.gitlab.change(|state| state.queue.push_back(job));
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.finish_all(""));
    world.over(1).await;
    drained(&world, daemon).await;
    let submission = &submissions(&world)[0];
    let id = format!("request_id={}", submission["request_id"].as_str().unwrap());
    let about = log.lines(&["gitlab_job=1"]);
    assert!(about.iter().all(|line| line.contains(&id)), "{about:#?}");
    for event in [
        "Received",
        "Submitted",
        "Accepted",
        "Ended",
        "Reported",
        "Settled",
        "unheard_of",
    ] {
        assert_eq!(log.lines(&[&id, event]).len(), 1, "{event} in {about:#?}");
    }
    assert_eq!(log.lines(&[&id, "6f1c1b9e"]).len(), 1);
    assert!(!submission.to_string().contains("6f1c1b9e"));
}
