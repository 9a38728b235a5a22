//! A project's pipeline, run on this host: a hub, a node and a daemon as processes in a private
//! directory, and the GitLab side in this one.
//!
//! Everything that is started here is held by a process of its own, the keeper, and ends with this
//! one, whatever ends it.

mod copy;
mod descendants;
mod error;
mod facts;
mod fleet;
mod follow;
mod images;
pub(crate) mod keeper;
mod kept;
mod leave;
mod options;
mod plan;
mod programs;
mod render;
mod screen;
mod session;
mod settings;
mod source;
mod table;

use std::time::Duration;

use serde_json::json;

pub use error::RunError;
pub use options::{FleetOptions, Options};
pub(crate) use options::{disk, import, memory};

use crate::gitlab::ledger::Broken;
use follow::{Followed, Signals};
use leave::Leavings;
use screen::Screen;
use session::Session;
pub(crate) use session::{merged, pipeline_json};
use table::Row;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pipeline succeeded.
    Success,
    /// It did not.
    Failed,
    /// A promise was broken, whatever became of the pipeline.
    Broken,
    /// The user ended it.
    Interrupted,
}

/// Runs a pipeline, with its logs on the standard output.
///
/// # Errors
///
/// Why it could not be run.
pub fn run(options: &Options) -> Result<Outcome, RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(RunError::System)?;
    let outcome = runtime.block_on(Box::pin(whole(options)));
    // What still runs is held calls of programs that are gone.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

async fn whole(options: &Options) -> Result<Outcome, RunError> {
    let mut signals = Signals::new()?;
    let begun = tokio::select! {
        begun = Session::open(&options.fleet) => begun,
        () = signals.next() => return Ok(Outcome::Interrupted),
    };
    let mut session = begun?;
    let done = Box::pin(pipeline(&mut session, options, &mut signals)).await;
    let orderly = !matches!(done, Ok(Outcome::Interrupted));
    if let Some(left) = session.end(orderly).await {
        eprintln!("vk-lab: something of the run is left: {left}");
    }
    done
}

async fn pipeline(
    session: &mut Session,
    options: &Options,
    signals: &mut Signals,
) -> Result<Outcome, RunError> {
    let prepared = tokio::select! {
        prepared = session.prepare(options) => prepared,
        () = signals.next() => return Ok(Outcome::Interrupted),
    };
    let names = prepared?;
    let leavings = Leavings::open(&options.out)?;
    let screen = Screen::new(options.colour, &names);
    screen.event(&session.headline());
    let ran = Box::pin(jobs(session, options, signals, &screen)).await;
    session.fleet.leave_logs(&leavings.logs())?;
    let (id, followed, cancelled) = match ran {
        Ok(Some(ran)) => ran,
        Ok(None) => return Ok(Outcome::Interrupted),
        Err(error) => {
            eprintln!(
                "vk-lab: the programs' logs are in {}",
                leavings.logs().display()
            );
            return Err(error);
        }
    };
    if followed == Followed::Killed {
        return Ok(Outcome::Interrupted);
    }
    let rows = close(session, &leavings, &screen, id).await?;
    let broken = session.broken();
    session.fleet.leave_logs(&leavings.logs())?;
    report(session, &leavings, id, &rows, &broken)?;
    Ok(judge(session.status(id), &broken, cancelled))
}

/// Starts the fleet, makes the pipeline and shows it until it is over; nothing where the user ended
/// it before it began.
async fn jobs(
    session: &mut Session,
    options: &Options,
    signals: &mut Signals,
    screen: &Screen,
) -> Result<Option<(u64, Followed, bool)>, RunError> {
    tokio::select! {
        started = session.start(&options.fleet) => started?,
        () = signals.next() => return Ok(None),
    }
    let id = session.begin()?;
    let lab = session.lab();
    let fleet = &mut session.fleet;
    let (followed, cancelled) = follow::follow(&lab, id, screen, fleet, signals).await?;
    Ok(Some((id, followed, cancelled)))
}

/// The daemon ends, so that all is settled; then what is left and shown.
async fn close(
    session: &mut Session,
    leavings: &Leavings,
    screen: &Screen,
    id: u64,
) -> Result<Vec<Row>, RunError> {
    session.settle().await;
    let facts = facts::ask(&session.fleet).await?;
    let lab = session.lab();
    let mut rows = lab.look(|gitlab, _| table::rows(gitlab, id, &facts));
    let left = lab.look(|gitlab, _| leave::jobs(gitlab, id));
    for job in left {
        let places = leavings.job(&job)?;
        if let Some(row) = rows.iter_mut().find(|row| row.id == job.id) {
            row.artifacts = places;
        }
    }
    screen.block("");
    screen.block(&table::text(&rows));
    let places = rows.iter().flat_map(|row| &row.artifacts);
    let places: Vec<String> = places
        .map(|place| format!("  {}", leavings.path().join(place).display()))
        .collect();
    if !places.is_empty() {
        screen.block(&format!("artifacts:\n{}", places.join("\n")));
    }
    for row in rows.iter().filter(|row| row.status == "manual") {
        screen.event(&format!(
            "{}: started by hand alone: --job {:?}",
            row.name, row.name
        ));
    }
    let status = session.status(id);
    let code = if is_good(status) { "1;32" } else { "1;31" };
    screen.block(&screen.coloured(&format!("pipeline: {status}"), code));
    Ok(rows)
}

fn report(
    session: &Session,
    leavings: &Leavings,
    id: u64,
    rows: &[Row],
    broken: &[Broken],
) -> Result<(), RunError> {
    for line in broken {
        let job = line
            .job
            .map(|job| format!("job {job}: "))
            .unwrap_or_default();
        let kind = serde_json::to_value(line.kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default();
        eprintln!("vk-lab: broken: {job}{kind}: {}", line.detail);
    }
    let results = json!({"status": session.status(id), "jobs": rows, "broken": broken});
    let mut text = format!("{results:#}").into_bytes();
    text.push(b'\n');
    leavings.put(std::path::Path::new("result.json"), &text)
}

fn judge(status: &str, broken: &[Broken], cancelled: bool) -> Outcome {
    match (broken.is_empty(), cancelled) {
        (false, _) => Outcome::Broken,
        (true, true) => Outcome::Interrupted,
        (true, false) if is_good(status) => Outcome::Success,
        (true, false) => Outcome::Failed,
    }
}

/// A pipeline that only waits for somebody has nothing that failed.
fn is_good(status: &str) -> bool {
    matches!(status, "success" | "skipped" | "manual")
}
