//! SIGTERM: what is open is waited for, what runs may end.

use std::time::Duration;

use vk_gitlab::edge::Ended;

use crate::gitlab::REQUEST;
use crate::world::World;

/// STATE-16, GL-75
#[tokio::test]
async fn jobs_that_end_within_the_shutdown_timeout_are_waited_for() {
    let world = World::new().await;
    world.configure("shutdown_timeout = 60", &["ci"]);
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    daemon.stop().await;
    let asked = world.gitlab.look(|state| state.count(REQUEST));
    world.hub.change(|state| state.finish_all("done\n"));
    assert_eq!(daemon.ended().await, Ended::Drained);
    world.gitlab.look(|state| {
        assert!(state.is_over(1), "GitLab knows how it ended");
        assert_eq!(state.traces[&1], b"done\n");
        assert_eq!(state.count(REQUEST), asked, "no job is asked for any more");
    });
    assert!(!world.state("ci").contains("glcbt-1"), "its record is gone");
}

/// CFG-09, STATE-04, GL-75
#[tokio::test]
async fn jobs_that_outlast_the_shutdown_timeout_go_on_with_the_next_start() {
    let world = World::new().await;
    world.configure("shutdown_timeout = 1", &["ci"]);
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    daemon.stop().await;
    assert_eq!(daemon.ended().await, Ended::JobsLeft(1));
    assert!(world.state("ci").contains("glcbt-1"), "its record stays");
    world
        .hub
        .look(|state| assert_eq!(state.running(), 1, "nothing is cancelled"));
    let daemon = world.start();
    world.hub.change(|state| state.finish_all("done\n"));
    world.over(1).await;
    daemon.stop().await;
    assert_eq!(daemon.ended().await, Ended::Drained);
    world
        .gitlab
        .look(|state| assert_eq!(state.traces[&1], b"done\n"));
}

/// GL-75
#[tokio::test]
async fn a_second_word_ends_the_daemon_at_once_and_loses_nothing() {
    let world = World::new().await;
    world.configure("shutdown_timeout = 3600", &["ci"]);
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.kept("\"phase\": \"committed\"").await;
    daemon.stop().await;
    daemon.stop().await;
    assert_eq!(daemon.ended().await, Ended::JobsLeft(1));
    assert!(world.state("ci").contains("glcbt-1"));
}

/// ADM-13, ADM-37
#[tokio::test]
async fn an_open_job_request_is_waited_for_and_the_job_it_brings_is_run() {
    let world = World::new().await;
    let daemon = world.start();
    world
        .gitlab
        .until("a request is held", |state| state.open == 1)
        .await;
    daemon.stop().await;
    // It waits: the request is still open, and what it brings is run to its end.
    let early = tokio::time::timeout(Duration::from_millis(200), world.running(1)).await;
    assert!(early.is_err());
    world.queue(1);
    world.running(1).await;
    world.hub.change(|state| state.finish_all("late\n"));
    assert_eq!(daemon.ended().await, Ended::Drained);
    world
        .gitlab
        .look(|state| assert_eq!(state.traces[&1], b"late\n"));
}

/// CFG-09
#[tokio::test]
async fn no_more_jobs_are_taken_than_concurrent_says() {
    let world = World::new().await;
    world.configure("concurrent = 2", &["ci"]);
    (1..=3).for_each(|job| world.queue(job));
    let daemon = world.start();
    world.running(2).await;
    world
        .gitlab
        .look(|state| assert_eq!((state.queue.len(), state.open), (1, 0)));
    world.hub.change(|state| state.finish_all(""));
    world.over(1).await;
    world.running(1).await;
    world.hub.change(|state| state.finish_all(""));
    world.over(3).await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job = 1);
    assert_eq!(daemon.ended().await, Ended::Drained);
}
