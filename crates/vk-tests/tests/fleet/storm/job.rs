//! One job of the storm: what it does, and what is known of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::draw::{Draw, Way};
use crate::fleet::Fleet;

/// Begins every masked value: what is looked for where looking for each would take too long.
pub(super) const STEM: &str = "vK9+Zq7/Rw2=Tm4.Xc8@";

/// Where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stands {
    /// Its script has not begun.
    Queued,
    /// Its script waits in its middle, since the daemon had died so often.
    Held(usize),
    /// It was let go, or cancelled.
    LetGo,
    /// GitLab has its end; as the lab tells it.
    Ended(Value),
    /// It was handed out to a daemon that died before it kept it.
    Orphan,
}

/// One job.
pub(super) struct Job {
    pub(super) pipeline: u64,
    pub(super) id: u64,
    pub(super) way: Way,
    /// Deaths of the daemon that it waits for in its middle.
    pub(super) patience: usize,
    /// The value of its masked variable.
    pub(super) masked: String,
    pub(super) stands: Stands,
    /// What the daemon says before the node's output, as its state file had it.
    pub(super) preamble: Option<String>,
    /// The hub's name for it, as the daemon's state file had it.
    pub(super) hub_job: Option<String>,
    /// The daemon's state file had it, and has it no more.
    pub(super) dropped: bool,
    /// Deaths of the daemon between GitLab's having the end and the state file's dropping it.
    pub(super) late_deaths: usize,
    /// Somebody watches its log, until its end: the lab speaks with so many at a time.
    watching: Option<UnixStream>,
}

impl Job {
    /// Makes one.
    pub(super) fn trigger(fleet: &Fleet, draw: &mut Draw, way: Way, patience: u64) -> Self {
        let masked = format!("{STEM}{:08}", draw.below(100_000_000));
        let job = json!([{
            "name": "job",
            "script": script(fleet, way),
            "variables": { "DEPLOY": { "value": masked, "masked": true } },
            // The daemon has something to say before the node's output.
            "response": { "hooks": [{ "name": "other", "script": [] }] },
        }]);
        let (pipeline, jobs) = fleet.lab.trigger_in("lab/project", &job);
        let is_watched = draw.below(2) == 0 || matches!(way, Way::Canceled | Way::Dropped);
        Self {
            pipeline,
            id: jobs[0],
            way,
            patience: usize::try_from(draw.below(patience)).unwrap(),
            masked,
            stands: Stands::Queued,
            preamble: None,
            hub_job: None,
            dropped: false,
            late_deaths: 0,
            // GitLab hears more often of a job whose log somebody watches.
            watching: is_watched.then(|| fleet.lab.watch(jobs[0])),
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stands, Stands::Ended(_) | Stands::Orphan)
    }

    pub(super) fn mark(&self, fleet: &Fleet, suffix: &str) -> PathBuf {
        fleet.path(&format!("marks/{}{suffix}", self.id))
    }

    /// The job's own token, once its script has told it.
    pub(super) fn token(&self, fleet: &Fleet) -> Option<String> {
        let token = fs::read_to_string(self.mark(fleet, ".token")).ok()?;
        token.strip_suffix('\n').map(str::to_owned)
    }

    /// Another name of the node's output of it.
    pub(super) fn output(&self, fleet: &Fleet) -> Option<PathBuf> {
        let kept = output_of(fleet, self.hub_job.as_deref()?);
        kept.exists().then_some(kept)
    }

    /// How often its script began, and came to its end.
    pub(super) fn ran(&self, fleet: &Fleet) -> (usize, usize) {
        let marks = fs::read_to_string(self.mark(fleet, "")).unwrap_or_default();
        let count = |word: &str| marks.lines().filter(|line| *line == word).count();
        (count("begin"), count("end"))
    }

    /// It stands otherwise than before.
    pub(super) fn now_stands(&mut self, stands: Stands) {
        self.stands = stands;
        if self.is_over() {
            self.watching = None;
        }
    }

    /// What it waits for in its middle happens.
    pub(super) fn let_go(&mut self, fleet: &Fleet) {
        self.stands = Stands::LetGo;
        let force = self.way == Way::Dropped;
        if matches!(self.way, Way::Canceled | Way::Dropped) {
            let cancel = json!({ "cmd": "cancel", "job": self.id, "force": force });
            fleet.lab.ask(&cancel);
        } else {
            fs::write(self.mark(fleet, ".go"), "").unwrap();
        }
    }
}

/// What a job does: it leaves marks outside of itself, says its token there, and waits in its
/// middle, every line of its log another one, so that none can stand for another. The process
/// stand-in for VMs lets it see the host's files by way of its first process.
fn script(fleet: &Fleet, way: Way) -> Vec<String> {
    let marks = fleet.path("marks");
    fs::create_dir_all(&marks).unwrap();
    let at = format!("/proc/1/root{}/$CI_JOB_ID", marks.display());
    let flood = if way == Way::Floods { 16_000 } else { 0 };
    let code = if let Way::Fails(code) = way { code } else { 0 };
    vec![
        format!("echo begin >> {at}"),
        format!("echo \"$CI_JOB_TOKEN\" > {at}.token"),
        "echo \"the value $DEPLOY\"".to_owned(),
        format!("seq 1 {flood} | sed \"s/^/a line of the flood of $CI_JOB_ID: /\""),
        format!("i=0; while [ ! -e {at}.go ]; do i=$((i+1)); echo waited $i; sleep 0.1; done"),
        format!("echo end >> {at}"),
        format!("echo job $CI_JOB_ID is at its end; exit {code}"),
    ]
}

fn output_of(fleet: &Fleet, hub_job: &str) -> PathBuf {
    fleet.path(&format!("output-{hub_job}"))
}

/// Keeps the outputs of the jobs' processes: other names of the files, which outlive the jobs'
/// directories.
pub(super) fn keep_outputs(fleet: &Fleet, kept: &mut BTreeSet<String>) {
    let jobs = fleet.path("node/node/jobs");
    for entry in fs::read_dir(jobs).into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        let from = entry.path().join("output");
        if !kept.contains(&id) && fs::hard_link(from, output_of(fleet, &id)).is_ok() {
            kept.insert(id);
        }
    }
}
