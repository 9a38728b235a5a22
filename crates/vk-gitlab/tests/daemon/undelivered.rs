//! What goes wrong with a job is said, with the job's one ID, and nothing that is secret with it.

use serde_json::json;
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

async fn settled(world: &World) {
    let all = |state: &crate::hub::State| state.jobs.values().all(|job| job.settled);
    world.hub.until("the jobs are settled", all).await;
}

/// GL-59, GL-70, FLOW-23
#[tokio::test]
async fn an_end_that_gitlab_does_not_take_is_said_counted_and_settled() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    world.gitlab.change(|state| state.no_ends = true);
    world.queue(1);
    let daemon = world.start();
    let metrics = daemon.operator.metrics();
    world.running(1).await;
    world.hub.change(|state| state.finish_all("done\n"));
    settled(&world).await;
    drained(&world, daemon).await;
    let told = log.lines(&["WARN", "gitlab_job=1", "note=\"Undelivered\""]);
    assert_eq!(told.len(), 1, "{told:?}");
    for word in [
        "request_id=",
        "hub_job=",
        "(success)",
        "GitLab answered 403",
    ] {
        assert!(told[0].contains(word), "{word} in {told:?}");
    }
    let text = metrics.text(&Default::default()).unwrap();
    let counted = "vk_gitlab_outcomes_undelivered_total{runner=\"ci\"} 1";
    assert!(text.lines().any(|line| line == counted), "{text}");
}

/// FLOW-23, GL-52
#[tokio::test]
async fn every_line_about_a_job_that_goes_wrong_bears_its_id() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    world.gitlab.change(|state| state.too_large = true);
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.finish_all("too much\n"));
    settled(&world).await;
    let mut refused = job(2);
    refused["run"] = json!([{ "name": "a", "script": "true" }]);
    let mut malformed = job(3);
    malformed["steps"] = "none".into();
    world.gitlab.change(|state| {
        state.too_large = false;
        state.queue.extend([refused, malformed]);
    });
    for job in [2, 3] {
        world.over(job).await;
    }
    drained(&world, daemon).await;
    for number in 1..=3 {
        let about = log.lines(&[&format!("gitlab_job={number}")]);
        assert!(about.len() > 2, "{number}: {about:#?}");
        let nameless: Vec<_> = about
            .iter()
            .filter(|line| !line.contains("request_id="))
            .collect();
        assert!(nameless.is_empty(), "{nameless:#?}");
    }
}

/// CRED-14
#[tokio::test]
async fn no_secret_is_logged_however_much_is_logged() {
    let (log, _guard) = Log::of_everything();
    let world = World::new().await;
    let mut job = job(1);
    job["variables"] = json!([
        { "key": "PASSWORD", "value": "hunter2-of-the-job", "public": false, "masked": true },
        { "key": "FILE", "value": "contents-of-a-file", "public": false, "file": true },
    ]);
    job["credentials"] = json!([{ "type": "registry", "url": "registry.example.com",
        "username": "ci", "password": "registry-password-1" }]);
    job["dependencies"] = json!([{ "id": 7, "name": "build", "token": "glcbt-of-another-job" }]);
    world.gitlab.change(|state| state.queue.push_back(job));
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.finish_all("done\n"));
    world.over(1).await;
    settled(&world).await;
    drained(&world, daemon).await;
    assert!(!log.lines(&["TRACE"]).is_empty(), "as much as there is");
    for secret in [
        "glrt-t1_abcdefghijkl",
        "glcbt-1",
        "glcbt-of-another-job",
        "hunter2-of-the-job",
        "contents-of-a-file",
        "registry-password-1",
    ] {
        assert_eq!(log.lines(&[secret]), [""; 0], "{secret}");
    }
}

/// GL-16, GL-73, STATE-23
#[tokio::test]
async fn a_job_that_is_debugged_says_so_with_each_patch_over_a_restart_too() {
    let world = World::new().await;
    let mut debugged = job(1);
    let flag = |value: &str| json!({ "key": "CI_DEBUG_TRACE", "value": value, "public": true });
    debugged["variables"] = json!([flag("false"), flag("TRUE")]);
    world.gitlab.change(|state| state.queue.push_back(debugged));
    let daemon = world.start();
    world.running(1).await;
    let print = |line: &'static [u8]| {
        world.hub.change(|state| {
            let jobs = state.jobs.values_mut();
            jobs.for_each(|job| job.output.extend_from_slice(line));
        });
    };
    print(b"one\n");
    let has = |trace: &'static [u8]| {
        move |state: &crate::gitlab::State| state.traces.get(&1).is_some_and(|one| one == trace)
    };
    world.gitlab.until("it has a line", has(b"one\n")).await;
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
    let before = world.gitlab.look(|state| state.seen.len());
    let daemon = world.start();
    print(b"two\n");
    world.gitlab.until("it has both", has(b"one\ntwo\n")).await;
    world.hub.change(|state| state.finish_all("one\ntwo\n"));
    world.over(1).await;
    world.queue(2);
    world.running(1).await;
    world.hub.change(|state| state.finish_all("plain\n"));
    world.over(2).await;
    drained(&world, daemon).await;
    world.gitlab.look(|state| {
        let patches = |job: u64| {
            let path = format!("/api/v4/jobs/{job}/trace");
            let of_job = move |one: &&crate::server::Seen| one.what() == format!("PATCH {path}");
            state.seen.iter().filter(of_job)
        };
        let says = |one: &crate::server::Seen| one.path.rsplit_once('?').unwrap().1.to_owned();
        assert!(patches(1).all(|one| says(one) == "debug_trace=true"));
        assert!(patches(2).all(|one| says(one) == "debug_trace=false"));
        assert!(patches(2).count() > 0);
        let after = state.seen[before..].iter();
        assert!(after.filter(|one| one.method == "PATCH").count() > 1);
    });
}

/// API-48, ERR-13, ERR-30, STATE-21
#[tokio::test]
async fn a_job_that_the_hub_holds_with_another_body_is_stopped_there_and_fails_in_gitlab() {
    let world = World::new().await;
    world.hub.change(|state| state.conflicts = true);
    world.queue(1);
    let daemon = world.start();
    world.over(1).await;
    world
        .hub
        .until("it is settled", |state| {
            state.jobs.values().all(|job| job.settled)
        })
        .await;
    world.hub.look(|state| {
        let id = state.jobs.keys().next().unwrap();
        let asked = |what: &str| {
            let path = format!("POST /v1/jobs{what}");
            state.seen.iter().filter(|seen| seen.what() == path).count()
        };
        assert_eq!(asked(""), 2);
        assert_eq!(asked(&format!("/{id}/cancel")), 1);
        assert_eq!(state.jobs.len(), 1);
    });
    world.gitlab.look(|state| {
        let end = state.states[&1].last().unwrap();
        assert_eq!(end["state"], "failed");
        assert_eq!(end["failure_reason"], "runner_system_failure");
        let trace = String::from_utf8_lossy(&state.traces[&1]);
        assert_eq!(trace.matches("with another body").count(), 1, "{trace}");
    });
    world.kept("\"jobs\": []").await;
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
}
