//! The pipeline as it runs: each job's log as GitLab has it, and how jobs stand.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout};

use super::error::RunError;
use super::fleet::Fleet;
use super::render::{Reader, shown};
use super::screen::Screen;
use crate::gitlab::{Gitlab, Status};
use crate::serve::Lab;

/// Most bytes of a log that are read in one look.
const PART: usize = 1 << 20;
/// A look at least so often, which also tells GitLab that someone watches.
const LOOK: Duration = Duration::from_secs(1);
/// Nothing running for so long although jobs wait is worth a word.
const STALLED: Duration = Duration::from_secs(30);

/// How following a pipeline ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// It is over.
    Over,
    /// The user wanted no more of it.
    Killed,
}

/// Signals that end a run.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, RunError> {
        let of = |kind| signal(kind).map_err(RunError::System);
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hangup: of(SignalKind::hangup())?,
        })
    }

    /// The next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// What is known of a job so far.
#[derive(Debug, Default)]
struct Seen {
    at: usize,
    reader: Reader,
    status: Option<Status>,
}

/// One look at a job.
struct Look {
    id: u64,
    name: String,
    stage: String,
    status: Status,
    part: Vec<u8>,
    more: bool,
    end: String,
}

/// Shows a pipeline until it is over.
pub(super) async fn follow(
    lab: &Lab,
    pipeline: u64,
    screen: &Screen,
    fleet: &mut Fleet,
    signals: &mut Signals,
) -> Result<(Followed, bool), RunError> {
    let mut changed = lab.on_change();
    let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
    let mut cancelled = false;
    let mut idle = Idle::default();
    loop {
        changed.mark_unchanged();
        let (over, looks) = lab.look(|gitlab, _| look(gitlab, pipeline, &seen));
        let more = looks.iter().any(|look| look.more);
        let running = looks.iter().filter(|look| look.status.on_runner());
        let running: Vec<u64> = running.map(|look| look.id).collect();
        for (index, look) in looks.iter().enumerate() {
            show(screen, index, look, &mut seen);
        }
        if more {
            continue;
        }
        if over {
            return Ok((Followed::Over, cancelled));
        }
        if idle.is_worth_a_word(running.is_empty()) {
            screen
                .event("jobs wait and none runs: is there room? --memory and --disk ask for less");
        }
        for id in running {
            lab.watch(id);
        }
        tokio::select! {
            _ = timeout(LOOK, changed.changed()) => {}
            failed = fleet.failure() => return Err(failed),
            () = signals.next() => {
                if cancelled {
                    return Ok((Followed::Killed, true));
                }
                cancelled = true;
                screen.event("cancelling; once more ends everything at once");
                cancel(lab, pipeline);
            }
        }
    }
}

/// How long no job has run.
#[derive(Debug, Default)]
struct Idle {
    since: Option<Instant>,
    said: bool,
}

impl Idle {
    /// Whether it is time to say so, once.
    fn is_worth_a_word(&mut self, idle: bool) -> bool {
        if !idle {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let long = since.elapsed() >= STALLED;
        long && !std::mem::replace(&mut self.said, long)
    }
}

/// Cancels what has not ended; later jobs first, so that none becomes pending by that.
fn cancel(lab: &Lab, pipeline: u64) {
    lab.with(|gitlab, now| {
        let open = gitlab
            .jobs()
            .filter(|job| job.pipeline == pipeline && !job.status.is_final())
            .filter(|job| job.status != Status::Manual);
        let ids: Vec<u64> = open.map(|job| job.id).collect();
        for id in ids.into_iter().rev() {
            // It is there: it was just found.
            let _ = gitlab.cancel(id, false, now);
        }
    });
}

fn look(gitlab: &Gitlab, pipeline: u64, seen: &BTreeMap<u64, Seen>) -> (bool, Vec<Look>) {
    let status = gitlab.pipeline_status(pipeline).unwrap_or("failed");
    let over = matches!(
        status,
        "success" | "failed" | "canceled" | "skipped" | "manual"
    );
    let jobs = gitlab.jobs().filter(|job| job.pipeline == pipeline);
    let looks = jobs.map(|job| {
        let at = seen.get(&job.id).map_or(0, |seen| seen.at);
        let rest = job.trace.get(at..).unwrap_or_default();
        let part = rest.get(..rest.len().min(PART)).unwrap_or_default();
        Look {
            id: job.id,
            name: job.spec.name.clone(),
            stage: job.spec.stage.clone(),
            status: job.status,
            part: part.to_vec(),
            more: rest.len() > part.len(),
            end: super::table::ending(job),
        }
    });
    (over, looks.collect())
}

fn show(screen: &Screen, index: usize, look: &Look, seen: &mut BTreeMap<u64, Seen>) {
    let known = seen.entry(look.id).or_default();
    let before = known.status.replace(look.status);
    if before != Some(look.status) && look.status == Status::Running {
        screen.event(&format!("{}: begins, in stage {}", look.name, look.stage));
    }
    known.at += look.part.len();
    let mut lines = known.reader.push(&look.part);
    let ended = look.status.is_final() && !look.more;
    if ended {
        lines.extend(known.reader.finish());
    }
    for line in lines {
        if let Some(text) = shown(&line, screen.colour) {
            screen.line(index, &look.name, &text);
        }
    }
    if ended && before != Some(look.status) {
        screen.event(&format!("{}: {}", look.name, look.end));
    }
}
