//! Runner tokens: verified, watched, never changed.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::gitlab::{REQUEST, VERIFY, taken};
use crate::log::Log;
use crate::server::Reply;
use crate::world::World;

/// What GitLab says of a token that expires in so many days.
fn expiring(days: f64) -> Reply {
    let left = SignedDuration::from_secs_f64(days * 86400.0);
    let at = (Timestamp::now() + left).to_string();
    Reply::json(
        200,
        &json!({ "id": 7, "token": "t", "token_expires_at": at }),
    )
}

/// GL-41
#[tokio::test]
async fn a_token_that_expires_is_warned_of_and_one_that_has_is_an_error() {
    for (days, warnings, errors) in [(7.5, 0, 0), (6.5, 1, 0), (-0.5, 0, 1)] {
        let (log, _guard) = Log::start();
        let world = World::new().await;
        world
            .gitlab
            .change(|state| state.verify.push_back(expiring(days)));
        let daemon = world.start();
        world.gitlab.until("it asks", |state| state.open == 1).await;
        assert_eq!(
            log.lines(&["WARN", "expires soon", "ci"]).len(),
            warnings,
            "{days}"
        );
        assert_eq!(
            log.lines(&["ERROR", "has expired", "ci"]).len(),
            errors,
            "{days}"
        );
        daemon.stop().await;
        world.gitlab.change(|state| state.no_job = 1);
        daemon.ended().await;
    }
}

/// GL-42
#[tokio::test]
async fn a_token_about_to_expire_is_not_exchanged_for_another() {
    let world = World::new().await;
    world
        .gitlab
        .change(|state| state.verify.push_back(expiring(0.1)));
    let before = std::fs::read_to_string(world.token_file("ci")).unwrap();
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.hub.change(|state| state.finish_all(""));
    world.over(1).await;
    world
        .gitlab
        .until("it asks again", |state| state.open == 1)
        .await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job = 1);
    daemon.ended().await;
    world.gitlab.look(|state| {
        for seen in &state.seen {
            let what = seen.what();
            let of_job = what.starts_with("PUT /api/v4/jobs/1")
                || what.starts_with("PATCH /api/v4/jobs/1/trace");
            assert!(of_job || what == VERIFY || what == REQUEST, "{what}");
        }
    });
    assert_eq!(
        std::fs::read_to_string(world.token_file("ci")).unwrap(),
        before
    );
}

/// Runs job 1; the runner's number as the hub was told it.
async fn runner_id(world: &World) -> Value {
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    let id = world.hub.look(|state| {
        let job = state.jobs.values().next().unwrap();
        job.submission["spec"]["job"]["runner_id"].clone()
    });
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
    id
}

/// SPEC-65
#[tokio::test]
async fn a_job_is_told_the_number_that_the_verify_brought() {
    let world = World::new().await;
    world
        .gitlab
        .change(|state| state.verify.push_back(taken(4711)));
    assert_eq!(runner_id(&world).await, 4711);
}

/// SPEC-80
#[tokio::test]
async fn a_verify_that_failed_at_start_is_tried_again_with_the_first_job() {
    let world = World::new().await;
    world.gitlab.change(|state| {
        state.verify.push_back(Reply::status(404));
        state.verify.push_back(taken(4711));
    });
    assert_eq!(runner_id(&world).await, 4711);
}

/// SPEC-80
#[tokio::test]
async fn a_number_that_nobody_says_is_0_with_a_warning() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    world
        .gitlab
        .change(|state| state.verify.push_back(Reply::status(404)));
    assert_eq!(runner_id(&world).await, 0);
    assert_eq!(
        log.lines(&["WARN", "number of this runner is not known", "ci"])
            .len(),
        1
    );
}

/// GL-06, GL-62
#[tokio::test]
async fn a_refused_token_stops_its_runner_alone() {
    let (log, _guard) = Log::start();
    let world = World::new().await;
    world.token("bad", "glrt-t1_mnopqrstuvwx");
    world.configure("concurrent = 3", &["bad", "ci"]);
    let refused = "glrt-t1_mnopqrstuvwx".to_owned();
    world
        .gitlab
        .change(|state| state.refused.push(refused.clone()));
    let daemon = world.start();
    for job in 1..=3 {
        world.queue(job);
        world.running(1).await;
        world.hub.change(|state| state.finish_all(""));
        world.over(job).await;
    }
    world.gitlab.look(|state| {
        let requests = state.seen.iter().filter(|seen| seen.what() == REQUEST);
        let of_it = requests.filter(|seen| seen.json()["token"] == refused);
        assert_eq!(of_it.count(), 1, "it was told once and asks no more");
    });
    assert_eq!(log.lines(&["WARN", "runner=\"bad\""]).len(), 1);
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += 1);
    daemon.ended().await;
}
