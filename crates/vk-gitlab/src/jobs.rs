//! `vk-gitlab jobs`: what the state files hold, without its secrets.

use std::io::Write as _;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use vk_gitlab_core::job::JobRecord;
use vk_gitlab_core::state_file;
use vk_hub_proto::RelayId;

use crate::config::Config;
use crate::edge::phase_name;

#[derive(Serialize)]
struct Row {
    runner: String,
    gitlab_job: u64,
    hub_job: Option<String>,
    phase: &'static str,
    taken_at: u64,
    /// `success` or `failed`, once it ended.
    state: Option<&'static str>,
    failure_reason: Option<String>,
    /// Whether GitLab has that; none while it is being told, or told the daemon itself.
    delivered: Option<bool>,
}

/// What holds a job that GitLab waits for no more, and who ends that where it lasts.
const LEFT: [(&str, &str); 2] = [
    (
        "reported",
        "GitLab has the end, and the hub is to settle the job. Where that lasts, `vk-hub status` names \
         what waits for an operator there, such as a rebound relay for `vk-hub gitlab approve`",
    ),
    (
        "abandoned",
        "the job failed in GitLab, and is stopped at the hub once that says whether it has it. Where \
         that lasts, see whether the hub is up and takes this daemon (`vk-hub relays`)",
    ),
];

impl Row {
    /// How far it is, in a word or two.
    fn how(&self) -> String {
        match self.delivered {
            Some(false) => format!("{}, undelivered", self.phase),
            _ => self.phase.to_owned(),
        }
    }
}

/// Prints the recorded jobs; the daemon may run meanwhile. A file is read for the relay it names,
/// whether or not that is this daemon's: its jobs are what holds up a join.
///
/// # Errors
/// A state file cannot be read.
pub(crate) fn show(config: &Config, json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for runner in &config.runners {
        let path = config.state_file(runner);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let file = state_file::parse(&text, named(&text))
            .with_context(|| format!("{} cannot be used", path.display()))?;
        rows.extend(file.jobs.iter().map(|job| row(&runner.name, job)));
    }
    match print(&rows, json) {
        // Whoever reads has enough, as with `| head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

fn print(rows: &[Row], json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(rows)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<20} {:>12} {:<34} PHASE",
        "RUNNER", "GITLAB", "HUB JOB"
    )?;
    for row in rows {
        let hub_job = row.hub_job.as_deref().unwrap_or("–");
        writeln!(
            out,
            "{:<20} {:>12} {hub_job:<34} {}",
            row.runner,
            row.gitlab_job,
            row.how()
        )?;
    }
    for (phase, means) in LEFT {
        if rows.iter().any(|row| row.phase == phase) {
            writeln!(out, "{phase}: {means}")?;
        }
    }
    Ok(())
}

/// The relay that a state file names; one that nobody is where it names none, which its jobs say.
fn named(text: &str) -> RelayId {
    #[derive(Deserialize)]
    struct Names {
        relay: RelayId,
    }
    serde_json::from_str(text).map_or(RelayId::from_bytes([0; 16]), |names: Names| names.relay)
}

fn row(runner: &str, job: &JobRecord) -> Row {
    let ended = job.ended.as_ref();
    Row {
        runner: runner.to_owned(),
        gitlab_job: job.taken.gitlab_job,
        hub_job: job.hub_job.map(|job| job.to_string()),
        phase: phase_name(job.phase()),
        taken_at: job.taken.taken_at,
        state: ended.map(|ended| if ended.success { "success" } else { "failed" }),
        failure_reason: ended.and_then(|ended| ended.failure_reason.clone()),
        delivered: job.reported,
    }
}
