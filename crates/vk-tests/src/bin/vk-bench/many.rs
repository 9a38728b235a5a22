//! What the daemon spends on a job that ends at once, alone and where a hundred come in a second: the
//! built daemon between the GitLab stand-in and a hub that ends each job at once.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::at_once;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::program::eventually;
use crate::table::{Figure, Row, samples};

/// Jobs a second, and for how many seconds.
const RATE: u32 = 100;
const SECONDS: u32 = 10;
/// In so many portions each second.
const PORTIONS: u32 = 10;
/// Jobs that the daemon has at a time.
const CONCURRENT: usize = 300;
/// Job requests it has open.
const REQUESTS: usize = 32;
/// What of the rate a machine has to get through for a row over its limit to say anything: the fewer
/// jobs share a write, the more each costs.
const AT_LEAST: f64 = 0.9;
/// Syncs a job at most.
const LIMIT: f64 = 2.0;
/// Jobs one by one, and what each costs at most.
const ALONE: usize = 20;
const REQUESTS_ALONE: f64 = 8.0;
const SYNCS_ALONE: f64 = 10.0;

pub(crate) fn measure(root: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = alone(root)?;
    rows.push(many(root)?);
    Ok(rows)
}

/// Jobs one by one.
fn alone(root: &Path) -> anyhow::Result<Vec<Row>> {
    let dir = tempfile::tempdir_in(root.join("work"))?;
    let bin = root.join("bin");
    let lab = Lab::start(&bin, dir.path())?;
    let hub = at_once::serve()?;
    let hub = (hub.as_str(), at_once::TOKEN);
    let mut daemon = Daemon::start(&bin, dir.path(), &lab, hub, (2, 1))?;
    let (mut requests, mut syncs) = (Vec::new(), Vec::new());
    let mut before = daemon.at_rest()?;
    for _ in 0..ALONE {
        let pipeline = lab.trigger(1)?;
        eventually("the job ends", || {
            let job = lab.job(pipeline)?;
            Ok((!job["finished_ms"].is_null()).then_some(()))
        })?;
        let after = daemon.at_rest()?;
        requests.push(after.requests - before.requests);
        syncs.push(after.syncs - before.syncs);
        before = after;
    }
    lab.check()?;
    let row = |name, figure, measured: &[u64], limit| Row {
        name,
        unit: "",
        figure,
        measured: samples(measured),
        floor: None,
        limit,
        on: "one by one, a hub that ends each at once".to_owned(),
    };
    Ok(vec![
        row(
            "signed requests of a job that ends at once",
            Figure::Largest,
            &requests,
            REQUESTS_ALONE,
        ),
        row(
            "syncs of a daemon's job that ends at once, alone",
            Figure::Median,
            &syncs,
            SYNCS_ALONE,
        ),
    ])
}

fn many(root: &Path) -> anyhow::Result<Row> {
    let dir = tempfile::tempdir_in(root.join("work"))?;
    let bin = root.join("bin");
    let lab = Lab::start(&bin, dir.path())?;
    let hub = at_once::serve()?;
    let mut daemon = Daemon::start(
        &bin,
        dir.path(),
        &lab,
        (&hub, at_once::TOKEN),
        (CONCURRENT, REQUESTS),
    )?;
    let before = daemon.at_rest()?;
    let from = Instant::now();
    for portion in 0..RATE * SECONDS / PORTIONS {
        let at = from + Duration::from_secs(1) * portion / PORTIONS;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        lab.trigger(usize::try_from(RATE / PORTIONS)?)?;
    }
    let jobs = u64::from(RATE * SECONDS);
    eventually("every job has succeeded", || {
        let succeeded = lab.totals()?["jobs"]["success"].as_u64();
        Ok((succeeded == Some(jobs)).then_some(()))
    })?;
    let jobs = f64::from(RATE * SECONDS);
    let rate = jobs / from.elapsed().as_secs_f64();
    let after = daemon.at_rest()?;
    lab.check()?;
    let syncs = u32::try_from(after.syncs - before.syncs)?;
    let each = f64::from(syncs) / jobs;
    eprintln!("syncs at {rate:.0} jobs a second: {syncs} of {jobs} jobs");
    if each > LIMIT && rate < f64::from(RATE) * AT_LEAST {
        bail!(
            "this machine got {rate:.0} jobs a second through, not {RATE}, with {each:.2} syncs \
             each: that says nothing of {RATE}"
        );
    }
    Ok(Row {
        name: "syncs of a daemon's job, many a second",
        unit: "",
        figure: Figure::Median,
        measured: vec![each],
        floor: None,
        limit: LIMIT,
        on: format!("{rate:.0} jobs a second, a hub that ends each at once"),
    })
}
