//! What is looked at all the time: the daemon's state file, and what its directory holds of a job
//! that is over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::job::{Job, Stands};
use crate::fleet::Fleet;
use crate::secrets::{Wanted, search};

/// The daemon's state file, as it was when it was looked at last.
#[derive(Default)]
pub(super) struct Watch {
    text: String,
    /// The jobs that it holds.
    pub(super) held: BTreeSet<u64>,
}

impl Watch {
    /// Reads the file, and notes what it says of each job where it says something else than before.
    pub(super) fn look(&mut self, fleet: &Fleet, jobs: &mut BTreeMap<u64, Job>) {
        let Ok(text) = fs::read_to_string(fleet.path("daemon/one.json")) else {
            return;
        };
        if text == self.text {
            return;
        }
        let state: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("the state file is not whole: {error}: {text}"));
        let mut held = BTreeSet::new();
        for record in state["jobs"].as_array().unwrap() {
            let id = record["gitlab_job"].as_u64().unwrap();
            assert!(held.insert(id), "job {id} is there twice: {text}");
            note(jobs.get_mut(&id).unwrap(), record, &text);
        }
        for id in self.held.difference(&held) {
            let job = jobs.get_mut(id).unwrap();
            assert!(
                !job.dropped,
                "job {id} was dropped, came back and is dropped"
            );
            job.dropped = true;
            is_dropped_in_time(fleet, job);
            assert_eq!(of_the_job(fleet, job), Vec::<String>::new(), "job {id}");
        }
        self.held = held;
        self.text = text;
    }
}

/// What a record says: what was said before does not change, and a spec that the hub has is no
/// longer there.
fn note(job: &mut Job, record: &Value, text: &str) {
    assert!(!job.dropped, "job {} was dropped and is back", job.id);
    let preamble = record["preamble"].as_str().unwrap_or_default();
    let known = job.preamble.get_or_insert_with(|| preamble.to_owned());
    assert_eq!(known, preamble, "job {}: its first lines", job.id);
    if let Some(hub_job) = record["hub_job"].as_str() {
        let known = job.hub_job.get_or_insert_with(|| hub_job.to_owned());
        assert_eq!(known, hub_job, "job {}: the hub's name", job.id);
        let masked = Wanted::new("a masked variable", &job.masked);
        let found = masked.in_bytes(text.as_bytes());
        assert_eq!(found, None, "job {}: the hub has its spec", job.id);
    }
}

/// A job that the daemon has forgotten has its end in GitLab.
fn is_dropped_in_time(fleet: &Fleet, job: &Job) {
    let now = fleet.lab.jobs(job.pipeline).remove(0);
    assert!(!now["finished_ms"].is_null(), "forgotten too early: {now}");
}

/// What the daemon's directory holds of a job's secrets.
pub(super) fn of_the_job(fleet: &Fleet, job: &Job) -> Vec<String> {
    let mut wanted = vec![Wanted::new("its masked variable", &job.masked)];
    let token = job.token(fleet);
    let begun = job.ran(fleet).0 > 0;
    assert!(
        token.is_some() || !begun || job.stands == Stands::Orphan,
        "job {}: its token is not known",
        job.id
    );
    wanted.extend(token.map(|token| Wanted::new("its token", &token)));
    let mut found = Vec::new();
    search(&fleet.path("daemon"), &wanted, &mut found);
    found
}

/// What all places hold of any job's secrets.
pub(super) fn of_all_jobs(fleet: &Fleet, stem: &str) -> Vec<String> {
    let wanted = [
        Wanted::new("a masked variable", stem),
        Wanted::new("a job's token", "glcbt-"),
    ];
    let mut found = Vec::new();
    for place in ["daemon", "hub", "node/node"] {
        let bytes = search(&fleet.path(place), &wanted, &mut found);
        assert!(bytes > 0, "nothing was in {place}");
    }
    for log in ["daemon.log", "hub.log", "node.log"] {
        search(&fleet.path(log), &wanted, &mut found);
    }
    found
}

/// Whether the daemon's log says that it keeps the job.
pub(super) fn is_told_of(log: &Path, job: u64) -> bool {
    let log = fs::read_to_string(log).unwrap();
    of(&log, job).any(|line| line.contains("note="))
}

/// Whether the daemon's log has the job at all.
pub(super) fn is_named(log: &Path, job: u64) -> bool {
    let log = fs::read_to_string(log).unwrap();
    of(&log, job).next().is_some()
}

fn of(log: &str, job: u64) -> impl Iterator<Item = &str> {
    let name = format!("gitlab_job={job} ");
    log.lines().filter(move |line| line.contains(&name))
}
