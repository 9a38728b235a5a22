//! SIGHUP: runners come, go and change, and no job notices.

use vk_gitlab::edge::Ended;

use crate::gitlab::{REQUEST, VERIFY};
use crate::server::Seen;
use crate::world::{Running, World};

fn token(seen: &Seen) -> String {
    seen.json()["token"].as_str().unwrap_or_default().to_owned()
}

async fn drained(world: &World, daemon: Running, open: usize) {
    world
        .gitlab
        .until("requests are held", |state| state.open == open)
        .await;
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += open);
    assert_eq!(daemon.ended().await, Ended::Drained);
}

/// ADM-13
#[tokio::test]
async fn an_added_runner_asks_for_jobs_and_open_requests_stay_open() {
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
    world.gitlab.look(|state| {
        let requests = state.seen.iter().filter(|seen| seen.what() == REQUEST);
        let tokens: Vec<String> = requests.map(token).collect();
        assert_eq!(tokens, ["glrt-t1_abcdefghijkl", "glrt-t1_mnopqrstuvwx"]);
    });
    drained(&world, daemon, 2).await;
}

/// CFG-09
#[tokio::test]
async fn a_raised_concurrent_takes_effect_with_the_reload() {
    let world = World::new().await;
    (1..=2).for_each(|job| world.queue(job));
    let mut daemon = world.start();
    world.running(1).await;
    world.configure("concurrent = 2", &["ci"]);
    let word = daemon.operator.reload();
    daemon.say(word).await;
    world.running(2).await;
    world.hub.change(|state| state.finish_all(""));
    world.over(1).await;
    world.over(2).await;
    drained(&world, daemon, 1).await;
}

/// ADM-13
#[tokio::test]
async fn a_removed_runner_asks_no_more_and_its_job_runs_to_its_end() {
    let world = World::new().await;
    world.token("more", "glrt-t1_mnopqrstuvwx");
    world.configure("concurrent = 9", &["ci"]);
    world.queue(1);
    let mut daemon = world.start();
    world.running(1).await;
    world
        .gitlab
        .until("it asks for a second", |state| state.open == 1)
        .await;
    world.configure("concurrent = 9", &["more"]);
    let word = daemon.operator.reload();
    daemon.say(word).await;
    world
        .gitlab
        .until("the other asks", |state| state.open == 2)
        .await;
    world.queue(2);
    world.running(2).await;
    world.gitlab.change(|state| state.no_job = 1);
    world.hub.change(|state| state.finish_all("mine\n"));
    world.over(1).await;
    world.over(2).await;
    world.gitlab.look(|state| {
        assert_eq!(state.traces[&1], b"mine\n");
        let requests = state.seen.iter().filter(|seen| seen.what() == REQUEST);
        let last = requests.map(token).next_back();
        assert_eq!(last.as_deref(), Some("glrt-t1_mnopqrstuvwx"));
    });
    drained(&world, daemon, 1).await;
}

/// GL-42
#[tokio::test]
async fn a_changed_token_file_takes_effect_without_touching_the_job_that_runs() {
    let world = World::new().await;
    world.configure("concurrent = 2", &["ci"]);
    world.queue(1);
    let mut daemon = world.start();
    world.running(1).await;
    world
        .gitlab
        .until("it asks for a second", |state| state.open == 1)
        .await;
    world.token("ci", "glrt-t1_mnopqrstuvwx");
    let word = daemon.operator.look_at_tokens();
    daemon.say(word).await;
    // The request that is open stays open: it may bring a job of the old token.
    world.queue(2);
    world.running(2).await;
    world
        .gitlab
        .until("the new token is verified and used", |state| {
            let with_it = |what: &str| {
                let mut seen = state.seen.iter().filter(|seen| seen.what() == what);
                seen.any(|seen| token(seen) == "glrt-t1_mnopqrstuvwx")
            };
            with_it(VERIFY)
        })
        .await;
    world.hub.change(|state| state.finish_all("mine\n"));
    world.over(1).await;
    world.over(2).await;
    world.queue(3);
    world.running(1).await;
    world.gitlab.look(|state| {
        assert_eq!(state.traces[&1], b"mine\n");
        let requests = state.seen.iter().filter(|seen| seen.what() == REQUEST);
        let last = requests.map(token).next_back();
        assert_eq!(last.as_deref(), Some("glrt-t1_mnopqrstuvwx"));
    });
    assert!(
        world.state("ci").contains("glcbt-3"),
        "the state file is the same"
    );
    world.hub.change(|state| state.finish_all(""));
    world.over(3).await;
    drained(&world, daemon, 1).await;
}

#[tokio::test]
async fn a_refused_token_is_tried_again_once_its_file_changes() {
    let world = World::new().await;
    world.gitlab.change(|state| {
        state.verify.push_back(crate::server::Reply::status(403));
        state.verify.push_back(crate::gitlab::taken(7));
    });
    let mut daemon = world.start();
    world
        .gitlab
        .until("it is verified", |state| state.verifies() == 1)
        .await;
    world.token("ci", "glrt-t1_mnopqrstuvwx");
    let word = daemon.operator.look_at_tokens();
    daemon.say(word).await;
    drained(&world, daemon, 1).await;
}

/// CFG-09, PLACE-01
#[tokio::test]
async fn a_changed_limit_and_a_changed_pool_take_effect_with_the_reload() {
    let world = World::new().await;
    let configure = |more: &str| {
        world.configure("concurrent = 3", &[]);
        let runner = "[[runners]]\nname = 'ci'\ntoken_file = 'ci.token'\n";
        world.add_to_configuration(&format!("{runner}{more}\n"));
    };
    configure("limit = 1");
    (1..=2).for_each(|job| world.queue(job));
    let mut daemon = world.start();
    world.running(1).await;
    configure("limit = 2");
    let word = daemon.operator.reload();
    daemon.say(word).await;
    world.running(2).await;
    // At its limit it asks for no job: it is another at once.
    configure("limit = 2\npool = 'gpu'");
    let word = daemon.operator.reload();
    daemon.say(word).await;
    world.hub.change(|state| state.finish_all(""));
    world.over(1).await;
    world.over(2).await;
    world.queue(3);
    world.running(1).await;
    world.hub.look(|state| {
        let pool = |number: u64| {
            let mut jobs = state.jobs.values().map(|job| &job.submission);
            let job = jobs.find(|job| job["spec"]["job"]["id"] == number);
            job.unwrap()["placement"]["pool"].clone()
        };
        assert_eq!([1, 2, 3].map(pool), ["default", "default", "gpu"]);
    });
    world.hub.change(|state| state.finish_all(""));
    world.over(3).await;
    drained(&world, daemon, 1).await;
}
