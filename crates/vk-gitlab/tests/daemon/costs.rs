//! What a job costs: the hub its signed requests, the disk its syncs.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use vk_gitlab::metrics::Metrics;

use crate::hub::Hub;
use crate::world::{Running, World};

/// Has every job that the hub takes end at once.
fn ends_at_once(hub: &Hub) -> JoinHandle<()> {
    let hub = Arc::clone(hub);
    tokio::spawn(async move {
        loop {
            hub.found(|state| (state.running() > 0).then_some(())).await;
            hub.change(|state| state.finish_all("Job succeeded\n"));
        }
    })
}

/// A counter, all its labels summed up.
fn counted(metrics: &Metrics, name: &str) -> u64 {
    let text = metrics.text(&Default::default()).unwrap();
    let of_it = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (_, number) = rest.rsplit_once(' ')?;
        rest.starts_with(['{', ' '])
            .then(|| number.parse::<u64>().unwrap())
    };
    text.lines().filter_map(of_it).sum()
}

const REQUESTS: &str = "vk_gitlab_hub_requests_total";
const SYNCS: &str = "vk_gitlab_state_syncs_total";
const WRITES: &str = "vk_gitlab_state_writes_total";

/// What the daemon counted.
#[derive(Clone, Copy, Debug)]
struct Counts {
    requests: u64,
    syncs: u64,
}

impl Counts {
    fn of(metrics: &Metrics) -> Counts {
        Counts {
            requests: counted(metrics, REQUESTS),
            syncs: counted(metrics, SYNCS),
        }
    }
}

/// Waits until no job is left anywhere, no file half replaced, and the next job is asked for.
async fn over(world: &World, metrics: &Metrics) {
    world
        .hub
        .until("the jobs are settled", |state| {
            state.jobs.values().all(|job| job.settled)
        })
        .await;
    world.kept("\"jobs\": []").await;
    for _ in 0..3000 {
        if counted(metrics, SYNCS) == 2 * counted(metrics, WRITES) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world
        .gitlab
        .until("it asks again", |state| state.open == 1)
        .await;
}

async fn stopped(world: &World, daemon: Running) {
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job += 1);
    daemon.ended().await;
}

#[tokio::test]
async fn a_job_that_ends_at_once_costs_eight_signed_requests_and_ten_syncs_at_most() {
    let world = World::new().await;
    let ending = ends_at_once(&world.hub);
    let daemon = world.start();
    let metrics = daemon.operator.metrics();
    world.gitlab.until("it asks", |state| state.open == 1).await;
    let mut fewest = u64::MAX;
    for job in 1..=5 {
        let before = Counts::of(&metrics);
        world.queue(job);
        world.over(job).await;
        over(&world, &metrics).await;
        let after = Counts::of(&metrics);
        let requests = after.requests - before.requests;
        assert!(requests <= 8, "{requests} requests");
        fewest = fewest.min(after.syncs - before.syncs);
    }
    // A job that a busy machine makes slow may have one more written down on its way.
    assert!(fewest <= 10, "{fewest} syncs");
    let seen = world.hub.look(|state| state.seen.len());
    assert_eq!(u64::try_from(seen).unwrap(), counted(&metrics, REQUESTS));
    stopped(&world, daemon).await;
    ending.abort();
}

#[tokio::test]
async fn jobs_that_come_together_share_their_syncs() {
    const JOBS: u64 = 100;
    let world = World::new().await;
    world.configure("concurrent = 100", &[]);
    world.add_to_configuration(
        "[[runners]]\nname = 'ci'\ntoken_file = 'ci.token'\nrequest_concurrency = 20\n",
    );
    world.hub.change(|state| state.fits = 100);
    let ending = ends_at_once(&world.hub);
    (1..=JOBS).for_each(|job| world.queue(job));
    let daemon = world.start();
    let metrics = daemon.operator.metrics();
    for job in 1..=JOBS {
        world.over(job).await;
    }
    world.kept("\"jobs\": []").await;
    let syncs = counted(&metrics, SYNCS);
    assert!(syncs <= 4 * JOBS, "{syncs} syncs");
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
    ending.abort();
}

/// STATE-05
#[tokio::test]
async fn a_daemon_that_died_before_it_kept_what_it_can_learn_again_learns_it_again() {
    let world = World::new().await;
    let daemon = world.start();
    let mut job = 0;
    // Beyond a second after it, the file may say more than that the job was taken.
    let (job, taken) = loop {
        job += 1;
        assert!(job < 20, "the file was never seen as it first was");
        world.queue(job);
        world.running(1).await;
        let taken = world.state("ci");
        if taken.contains("\"phase\": \"taken\"") {
            break (job, taken);
        }
        world.hub.change(|state| state.finish_all(""));
        world.over(job).await;
    };
    let add = |output: &str| {
        world.hub.change(|state| {
            let running = state.jobs.values_mut().find(|job| job.state == "running");
            running.unwrap().output.extend_from_slice(output.as_bytes());
        });
    };
    add("first\n");
    world
        .gitlab
        .until("it has the first line", |state| {
            state
                .traces
                .get(&job)
                .is_some_and(|trace| trace == b"first\n")
        })
        .await;
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
    fs::write(world.path("state/ci.json"), taken).unwrap();
    let daemon = world.start();
    add("second\n");
    world
        .gitlab
        .until("it has the second line", |state| {
            state.traces[&job] == b"first\nsecond\n"
        })
        .await;
    world
        .hub
        .change(|state| state.finish_all("first\nsecond\n"));
    world.over(job).await;
    over(&world, &daemon.operator.metrics()).await;
    let jobs = world.hub.look(|state| state.jobs.len());
    assert_eq!(u64::try_from(jobs).unwrap(), job, "it was submitted once");
    world.gitlab.look(|state| {
        let told: Vec<_> = state.states[&job].iter().map(|one| &one["state"]).collect();
        assert_eq!(told, ["running", "running", "success"]);
        assert_eq!(state.traces[&job], b"first\nsecond\n");
    });
    stopped(&world, daemon).await;
}
