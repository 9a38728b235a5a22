//! A runner's state file: `{"relay", "jobs": [record]}`, pretty-printed JSON (STATE-18).
//!
//! Rendering and reading only; the edge replaces the file atomically (STATE-19) and bounds what it
//! reads. Fields this version does not know are kept as they are, in the file and in each record,
//! so that an older version may run on a newer one's file without losing anything.

mod entry;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vk_hub_proto::RelayId;

use crate::job::JobRecord;
use entry::Entry;

/// What a state file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateFile {
    /// The jobs, in the file's order.
    pub jobs: Vec<JobRecord>,
    /// Fields of the file this version does not know.
    pub unknown: BTreeMap<String, Value>,
}

/// Why a state file cannot be used; the daemon refuses to start on it.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// Not a state file, or damaged.
    #[error("the state file cannot be read as JSON of the expected shape: {source}")]
    Json {
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// The jobs belong to another relay: the hub would not know them (STATE-14).
    #[error(
        "the state file holds {jobs} job(s) of relay {theirs}, and this daemon is relay {ours}: \
         let them end under the old enrolment, or remove the file, which gives them up to GitLab's timeout"
    )]
    OtherRelay {
        /// How many jobs.
        jobs: usize,
        /// Whose they are.
        theirs: RelayId,
        /// Who asks.
        ours: RelayId,
    },
    /// The file is from before relays (STATE-15).
    #[error(
        "the state file holds {jobs} job(s) and names no relay: it is of a vk-gitlab from before relays; \
         let them end under that version, or remove the file, which gives them up to GitLab's timeout"
    )]
    NoRelay {
        /// How many jobs.
        jobs: usize,
    },
    /// Two records are of one job.
    #[error(
        "the state file holds GitLab job {gitlab_job} twice: it is damaged; remove one of the two records"
    )]
    Twice {
        /// GitLab's number of the job.
        gitlab_job: u64,
    },
    /// A record contradicts itself.
    #[error("the state file's record of GitLab job {gitlab_job} does not fit together: {why}")]
    Record {
        /// GitLab's number of the job.
        gitlab_job: u64,
        /// What does not fit.
        why: String,
    },
}

#[derive(Deserialize)]
struct Read {
    relay: Option<RelayId>,
    #[serde(default)]
    jobs: Vec<Entry>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

/// Renders the file of a runner of this relay.
///
/// # Errors
/// A value that JSON cannot hold; none of this version's can fail.
pub fn render<'a>(
    relay: RelayId,
    jobs: impl IntoIterator<Item = &'a JobRecord>,
    unknown: &BTreeMap<String, Value>,
) -> Result<String, StateFileError> {
    let jobs: Vec<String> = jobs.into_iter().map(render_job).collect::<Result<_, _>>()?;
    assemble(relay, jobs.iter().map(String::as_str), unknown)
}

/// Renders one job's record as it stands in the file, so that a job that has not changed need not be
/// rendered again: its spec may be half a megabyte.
///
/// # Errors
/// As [`render`].
pub fn render_job(job: &JobRecord) -> Result<String, StateFileError> {
    Ok(indented(&pretty(&Entry::of(job))?, 4))
}

/// Puts a file together from rendered jobs.
///
/// # Errors
/// As [`render`].
pub fn assemble<'a>(
    relay: RelayId,
    jobs: impl IntoIterator<Item = &'a str>,
    unknown: &BTreeMap<String, Value>,
) -> Result<String, StateFileError> {
    let mut text = format!("{{\n  \"relay\": {},\n  \"jobs\": [", pretty(&relay)?);
    let mut jobs = jobs.into_iter().peekable();
    let any = jobs.peek().is_some();
    while let Some(job) = jobs.next() {
        text.push_str("\n    ");
        text.push_str(job);
        text.push_str(if jobs.peek().is_some() { "," } else { "" });
    }
    text.push_str(if any { "\n  ]" } else { "]" });
    for (key, value) in unknown {
        let value = indented(&pretty(value)?, 2);
        text.push_str(&format!(",\n  {}: {value}", pretty(key)?));
    }
    text.push_str("\n}\n");
    Ok(text)
}

fn pretty(value: &impl Serialize) -> Result<String, StateFileError> {
    serde_json::to_string_pretty(value).map_err(|source| StateFileError::Json { source })
}

/// A JSON text so many columns further in: its strings hold no line breaks.
fn indented(text: &str, by: usize) -> String {
    text.replace('\n', &format!("\n{:by$}", ""))
}

/// Reads a file on behalf of this relay.
///
/// # Errors
/// A file that is damaged, or whose jobs are not this relay's (STATE-14, STATE-15).
pub fn parse(text: &str, relay: RelayId) -> Result<StateFile, StateFileError> {
    let read: Read =
        serde_json::from_str(text).map_err(|source| StateFileError::Json { source })?;
    let jobs = read.jobs.len();
    match read.relay {
        Some(theirs) if theirs != relay && jobs > 0 => {
            return Err(StateFileError::OtherRelay {
                jobs,
                theirs,
                ours: relay,
            });
        }
        None if jobs > 0 => return Err(StateFileError::NoRelay { jobs }),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    let mut records = Vec::with_capacity(jobs);
    for entry in read.jobs {
        let record = entry.record()?;
        let gitlab_job = record.taken.gitlab_job;
        if !seen.insert(gitlab_job) {
            return Err(StateFileError::Twice { gitlab_job });
        }
        records.push(record);
    }
    Ok(StateFile {
        jobs: records,
        unknown: read.unknown,
    })
}
