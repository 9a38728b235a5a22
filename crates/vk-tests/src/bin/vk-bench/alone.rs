//! Jobs one by one through a whole fleet, none of which has anything to do: how long from pending in GitLab to the
//! node's receipt of its start, and what the daemon spends on it.
//!
//! When a job became pending is the GitLab stand-in's word, and when its start was received is the
//! node's (`vk node jobs --json`), both in milliseconds of this machine's clock. The floor is how long
//! the stand-in itself takes, from pending to the answer in a bare client's hand that had a job request
//! open.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::fleet::{Fleet, Guests};
use crate::http::Message;
use crate::lab::Lab;
use crate::table::{Figure, Row, samples};

/// Jobs through the fleet.
const JOBS: usize = 100;
/// Jobs handed to a bare client.
const BARE: usize = 20;
/// The times to the start over the stand-in's own time at most, by halves and by 99 of 100.
const LIMIT_MEDIAN: f64 = 30.0;
const LIMIT_P99: f64 = 60.0;
/// Signed requests and syncs of a job at most. One through all its stages costs no more than one that ends
/// at once but for the pieces that its output comes in: two or three, by how they meet the trace's
/// interval.
const REQUESTS: f64 = 12.0;
const SYNCS: f64 = 10.0;
pub(crate) fn measure(root: &Path) -> anyhow::Result<Vec<Row>> {
    let dir = tempfile::tempdir_in(root.join("work"))?;
    let lab = Lab::start(&root.join("bin"), dir.path())?;
    let floor = bare(&lab)?;
    eprintln!("pending to a bare client's hand: {floor:?} ms");
    let fleet = Fleet::start(root, dir.path(), Guests::Processes)?;
    let token = fleet.token(&["--kind", "gitlab"])?;
    let hub = (fleet.url.as_str(), token.as_str());
    let mut daemon = Daemon::start(&root.join("bin"), dir.path(), &lab, hub, (2, 1))?;
    let mut pending = BTreeMap::new();
    let (mut requests, mut syncs) = (Vec::new(), Vec::new());
    let mut before = daemon.at_rest()?;
    for number in 1..=JOBS {
        let pipeline = lab.trigger(1)?;
        let job = lab.ended(pipeline)?;
        let (id, queued) = (job["id"].as_u64(), job["queued_ms"].as_u64());
        pending.insert(id.context("its number")?, queued.context("since when")?);
        let after = daemon.at_rest()?;
        requests.push(after.requests - before.requests);
        syncs.push(after.syncs - before.syncs);
        before = after;
        if number % 20 == 0 {
            eprintln!("job {number} of {JOBS}");
        }
    }
    let to_start = to_start(&fleet, &pending)?;
    lab.check()?;
    Ok(rows(&to_start, &floor, &requests, &syncs))
}

fn rows(to_start: &[u64], floor: &[u64], requests: &[u64], syncs: &[u64]) -> Vec<Row> {
    let floor = samples(floor);
    let on = || "hub, node and daemon on this machine, jobs as processes".to_owned();
    let pick_up = |name, figure, limit| Row {
        name,
        unit: "ms",
        figure,
        measured: samples(to_start),
        floor: Some(floor.clone()),
        limit,
        on: on(),
    };
    let cost = |name, figure, measured: &[u64], limit| Row {
        name,
        unit: "",
        figure,
        measured: samples(measured),
        floor: None,
        limit,
        on: on(),
    };
    vec![
        pick_up(
            "pending to the node's start ÷ the stand-in's hand-out",
            Figure::Median,
            LIMIT_MEDIAN,
        ),
        pick_up("the same, of 99 of 100", Figure::P99, LIMIT_P99),
        cost(
            "signed requests of a job through all its stages",
            Figure::Largest,
            requests,
            REQUESTS,
        ),
        cost(
            "syncs of a daemon's job, alone",
            Figure::Median,
            syncs,
            SYNCS,
        ),
    ]
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// A client of GitLab that does nothing but to ask for jobs.
struct Bare<'a> {
    lab: &'a Lab,
    token: String,
}

impl Bare<'_> {
    fn ask(&self, last_update: &Value) -> anyhow::Result<Message> {
        let body = json!({ "token": self.token, "system_id": "s_bench0000001",
            "last_update": last_update, "info": { "name": "vk-bench", "features": {} } });
        self.lab.call(("POST", "/api/v4/jobs/request"), &body)
    }

    /// What the queue is called while nothing is in it.
    fn last_update(&self) -> anyhow::Result<Value> {
        let answer = self.ask(&Value::Null)?;
        let value = answer.headers.get("x-gitlab-last-update");
        let value = value.context("GitLab's answer has no X-GitLab-Last-Update")?;
        Ok(value.clone().into())
    }

    /// Asks until there is a job, as a runner does whose held request was woken; and when it had it.
    fn job(&self, last_update: &Value) -> anyhow::Result<(Value, u64)> {
        loop {
            let answer = self.ask(last_update)?;
            match answer.word(1) {
                "201" => return Ok((answer.json(), unix_millis())),
                "204" => {}
                other => bail!("GitLab answered a job request with {other}"),
            }
        }
    }
}

/// Has jobs handed to a client that does nothing else; how long each took.
fn bare(lab: &Lab) -> anyhow::Result<Vec<u64>> {
    let token = lab.token()?;
    let client = Bare { lab, token };
    let mut took = Vec::new();
    for _ in 0..BARE {
        let last_update = client.last_update()?;
        let (handed, pipeline) = std::thread::scope(|scope| {
            let asks = scope.spawn(|| client.job(&last_update));
            // Its request is held before the job comes.
            std::thread::sleep(Duration::from_millis(100));
            let pipeline = lab.trigger(1);
            (asks.join(), pipeline)
        });
        let Ok(handed) = handed else {
            bail!("the bare client's thread ended")
        };
        let (handed, at) = handed?;
        let job = lab.job(pipeline?)?;
        let queued = job["queued_ms"]
            .as_u64()
            .context("since when it was pending")?;
        took.push(at.saturating_sub(queued));
        let path = format!("/api/v4/jobs/{}", handed["id"]);
        let end = json!({ "token": handed["token"], "state": "success" });
        lab.call(("PUT", &path), &end)?;
    }
    Ok(took)
}

/// From pending to the node's receipt of the start, of each job.
fn to_start(fleet: &Fleet, pending: &BTreeMap<u64, u64>) -> anyhow::Result<Vec<u64>> {
    let received = fleet.received()?;
    let each = pending.iter().map(|(job, pending)| {
        let received = received.get(job);
        let received = received.with_context(|| format!("the node does not show job {job}"))?;
        Ok(received.saturating_sub(*pending))
    });
    each.collect()
}
