//! The hub's word on the GitLab server: without it no job is asked for.

use vk_gitlab::edge::Ended;
use vk_gitlab::session::Told;
use vk_hub_proto::relay_session::{RelayRunnerState, ServerStatus};

use crate::gitlab::{REQUEST, VERIFY};
use crate::world::{Running, World, approved, server};

fn refused() -> Told {
    Told::RefusedForGood {
        why: "an operator removed this relay".to_owned(),
        removed: true,
    }
}

/// A daemon whose token GitLab took, so that nothing but the hub's word keeps it from asking.
async fn ready(world: &World) -> Running {
    let daemon = world.start_unapproved();
    loop {
        world
            .gitlab
            .until("the token is taken", |state| state.count(VERIFY) > 0)
            .await;
        let report = daemon.says().await.report.unwrap();
        if report.runners[0].token_accepted == Some(true) {
            return daemon;
        }
        tokio::task::yield_now().await;
    }
}

async fn is_quiet(world: &World, daemon: &Running) {
    let said = daemon.says().await;
    assert_eq!(said.runners[0].state, RelayRunnerState::ServerPending);
    assert_eq!(said.runners[0].requests, 0);
    world
        .gitlab
        .look(|state| assert_eq!(state.count(REQUEST), 0));
    world
        .hub
        .look(|state| assert!(state.seen.is_empty(), "{:?}", state.seen));
}

/// SESS-09, SESS-10, SESS-11, SESS-12, SESS-13
#[tokio::test]
async fn no_job_is_asked_for_before_the_server_is_approved() {
    let world = World::new().await;
    world.queue(1);
    let daemon = ready(&world).await;
    is_quiet(&world, &daemon).await;
    for status in [
        ServerStatus::Pending,
        ServerStatus::Rejected,
        ServerStatus::Rebound,
    ] {
        daemon.hears(server(status)).await;
        is_quiet(&world, &daemon).await;
    }
    daemon.hears(approved()).await;
    world.running(1).await;
    world.hub.change(|state| state.finish_all("done\n"));
    world.over(1).await;
}

/// SESS-14
#[tokio::test]
async fn no_job_is_asked_for_once_the_hub_refused_for_good() {
    let world = World::new().await;
    world.queue(1);
    let daemon = ready(&world).await;
    daemon.hears(refused()).await;
    daemon.hears(approved()).await;
    is_quiet(&world, &daemon).await;
}

/// SESS-15
#[tokio::test]
async fn jobs_that_are_held_run_to_their_end_whatever_becomes_of_the_server() {
    for word in [
        server(ServerStatus::Pending),
        server(ServerStatus::Rejected),
        server(ServerStatus::Rebound),
        refused(),
    ] {
        let world = World::new().await;
        world.queue(1);
        let daemon = world.start();
        world.running(1).await;
        daemon.hears(word).await;
        let said = daemon.says().await;
        assert_eq!(said.runners[0].jobs, 1);
        world.queue(2);
        world.hub.change(|state| state.finish_all("done\n"));
        world.over(1).await;
        let said = daemon.says().await;
        assert_eq!(said.runners[0].state, RelayRunnerState::ServerPending);
        daemon.stop().await;
        assert_eq!(daemon.ended().await, Ended::Drained);
        world.gitlab.look(|state| {
            assert_eq!(state.traces[&1], b"done\n");
            assert_eq!(state.count(REQUEST), 1, "no other job is asked for");
        });
    }
}

/// SESS-03, SESS-05
#[tokio::test]
async fn the_report_says_what_each_runner_is_and_what_gitlab_says_of_it() {
    let world = World::new().await;
    world.configure("concurrent = 9", &[]);
    world.add_to_configuration(
        "[[runners]]\nname = 'ci'\ntoken_file = 'ci.token'\nlimit = 4\npool = 'gpu'\n\
         labels = ['large']\nenvelope = { mem = '8G', cpus = 3, disk = '1G' }\n",
    );
    let daemon = ready(&world).await;
    let report = daemon.says().await.report.unwrap();
    assert_eq!(
        (report.concurrent, report.system_id.as_str()),
        (9, "r_abcdefghijkl")
    );
    let [runner] = &report.runners[..] else {
        panic!("{report:?}")
    };
    assert_eq!((runner.name.as_str(), runner.runner_id), ("ci", Some(7)));
    assert_eq!((runner.limit, runner.token_accepted), (4, Some(true)));
    let placement = serde_json::json!({ "pool": "gpu", "labels": ["large"],
        "envelope": { "mem_mib": 8192, "cpus": 3, "disk_bytes": 1 << 30 } });
    assert_eq!(serde_json::to_value(&runner.placement).unwrap(), placement);
    daemon.stop().await;
    daemon.ended().await;
}

/// SESS-23, SESS-06
#[tokio::test]
async fn an_open_request_is_not_aborted_and_what_it_brings_is_submitted() {
    let world = World::new().await;
    let daemon = world.start();
    world.gitlab.until("it asks", |state| state.open == 1).await;
    daemon.hears(server(ServerStatus::Rejected)).await;
    let said = daemon.says().await;
    assert_eq!((said.runners[0].requests, said.runners[0].jobs), (1, 0));
    world.gitlab.look(|state| assert_eq!(state.open, 1));
    world.queue(1);
    world.running(1).await;
    let said = daemon.says().await;
    assert_eq!((said.runners[0].requests, said.runners[0].jobs), (0, 1));
    assert_eq!(
        said.runners[0].last_answer.map(|answer| answer.status),
        Some(201)
    );
    world.hub.change(|state| state.finish_all("done\n"));
    world.over(1).await;
    world
        .gitlab
        .look(|state| assert_eq!(state.count(REQUEST), 1));
}

/// SESS-22
#[tokio::test]
async fn a_session_that_is_lost_leaves_the_last_word_in_force() {
    let world = World::new().await;
    let Running {
        session,
        operator: _operator,
        words: _words,
        ..
    } = world.start();
    drop(session);
    world.gitlab.until("it asks", |state| state.open == 1).await;
    world.queue(1);
    world.running(1).await;
}

/// A runner that begins anew asks by the word its forerunner heard.
#[tokio::test]
async fn the_word_outlives_a_change_of_settings() {
    let world = World::new().await;
    world.configure("concurrent = 2", &["ci"]);
    let mut daemon = world.start();
    world.gitlab.until("it asks", |state| state.open == 1).await;
    world.token("more", "glrt-t1_mnopqrstuvwx");
    world.configure("concurrent = 2", &["ci", "more"]);
    let word = daemon.operator.reload();
    daemon.say(word).await;
    world
        .gitlab
        .until("both ask", |state| state.open == 2)
        .await;
    let said = daemon.says().await;
    assert_eq!(said.report.unwrap().runners.len(), 2);
}

/// AUTH-05, AUTH-20, SESS-14
#[tokio::test]
async fn a_job_ends_in_gitlab_once_the_hub_knows_its_relay_no_more_and_not_for_a_clock_that_is_off()
{
    let world = World::new().await;
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    let print = |state: &mut crate::hub::State, line: &[u8]| {
        let jobs = state.jobs.values_mut();
        jobs.for_each(|job| job.output.extend_from_slice(line));
    };
    world.hub.change(|state| print(state, b"one\n"));
    let has_it = |state: &crate::gitlab::State| state.traces.get(&1).is_some_and(|t| t == b"one\n");
    world.gitlab.until("it has the output", has_it).await;
    world.hub.change(|state| {
        state.unauthorized = true;
        // A read that is held ends, and the next is refused.
        print(state, b"two\n");
    });
    world
        .hub
        .until("a request is refused", |state| state.refused > 0)
        .await;
    let said = daemon.says().await;
    assert_eq!(said.runners[0].jobs, 1);
    world
        .gitlab
        .look(|state| assert!(!state.is_over(1), "a 401 alone ends nothing"));
    daemon.hears(refused()).await;
    world.over(1).await;
    world.gitlab.look(|state| {
        let end = state.states[&1].last().unwrap();
        assert_eq!(end["state"], "failed");
        assert_eq!(end["failure_reason"], "runner_system_failure");
        let trace = String::from_utf8_lossy(&state.traces[&1]).into_owned();
        assert!(trace.starts_with("one\n"), "{trace}");
        assert!(
            trace.contains("does not know this runner's daemon any more"),
            "{trace}"
        );
    });
    // The hub is still to be told to stop it, should it know the relay again.
    world.kept("\"phase\": \"reported\"").await;
    daemon.stop().await;
    daemon.stop().await;
    assert_eq!(daemon.ended().await, Ended::JobsLeft(1));
}
