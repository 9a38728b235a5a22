//! The daemon: how it is set up and joined, and what it counts.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::http;
use crate::lab::Lab;
use crate::program::{Program, eventually};

/// A daemon that runs.
pub(crate) struct Daemon {
    program: Program,
    metrics: PathBuf,
}

/// What it has counted so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) syncs: u64,
    writes: u64,
    jobs: u64,
    open_requests: u64,
}

impl Counts {
    /// Whether it has no job, no file half replaced, and asks for the next job.
    fn is_at_rest(self) -> bool {
        self.jobs == 0 && self.syncs == 2 * self.writes && self.open_requests > 0
    }
}

impl Daemon {
    /// Joins the hub with the token, and runs.
    pub(crate) fn start(
        bin: &Path,
        dir: &Path,
        lab: &Lab,
        (hub, token): (&str, &str),
        (concurrent, requests): (usize, usize),
    ) -> anyhow::Result<Daemon> {
        let metrics = dir.join("metrics");
        let config = dir.join("gitlab.toml");
        let text = format!(
            "concurrent = {concurrent}\nstate_dir = 'daemon'\nsystem_id_file = 'daemon/system_id'\n\
             [gitlab]\nurl = 'http://{}'\n[metrics]\nlisten = 'unix:{}'\n[[runners]]\n\
             name = 'one'\ntoken_file = '{}'\ncheck_interval = 1\n\
             request_concurrency = {requests}\n\
             envelope = {{ mem = '512M', cpus = 1, disk = '1G' }}\n",
            lab.address,
            metrics.display(),
            lab.token_file.display(),
        );
        fs::write(&config, text)?;
        let command = || {
            let mut command = Command::new(bin.join("vk-gitlab"));
            command.arg("--config").arg(&config);
            command
        };
        let mut join = command();
        join.args(["join", hub, "--token", "-"]);
        let mut join = join.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut input = join.stdin.take().context("the join's input")?;
        input.write_all(token.as_bytes())?;
        drop(input);
        let joined = join.wait()?;
        if !joined.success() {
            bail!("vk-gitlab join {hub}: {joined}");
        }
        let program = Program::start(command().arg("run"), &dir.join("daemon.log"))?;
        let mut daemon = Daemon { program, metrics };
        eventually("the daemon asks for jobs", || {
            daemon.program.log()?;
            Ok(daemon.counts().ok().filter(|counts| counts.is_at_rest()))
        })?;
        Ok(daemon)
    }

    fn counts(&self) -> anyhow::Result<Counts> {
        let stream = UnixStream::connect(&self.metrics)?;
        let answer = http::ask(stream, ("GET", "/metrics"), &Value::Null)?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if !text.contains("# EOF") {
            bail!("the daemon's metrics are not whole");
        }
        let sum = |name: &str| sum(&text, name);
        Ok(Counts {
            requests: sum("vk_gitlab_hub_requests_total"),
            syncs: sum("vk_gitlab_state_syncs_total"),
            writes: sum("vk_gitlab_state_writes_total"),
            jobs: sum("vk_gitlab_jobs"),
            open_requests: sum("vk_gitlab_open_job_requests"),
        })
    }

    /// What it has counted once all is done that there was to do.
    pub(crate) fn at_rest(&mut self) -> anyhow::Result<Counts> {
        eventually("the daemon has nothing more to do", || {
            self.program.log()?;
            Ok(Some(self.counts()?).filter(|counts| counts.is_at_rest()))
        })
    }
}

/// A metric, all its labels summed up.
fn sum(text: &str, name: &str) -> u64 {
    let of_it = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (_, number) = rest.rsplit_once(' ')?;
        let is_it = rest.starts_with(['{', ' ']);
        number.parse::<u64>().ok().filter(|_| is_it)
    };
    text.lines().filter_map(of_it).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_of_its_lines_and_no_other_metrics() {
        let text = "# TYPE a counter\na_total{x=\"1\"} 2\na_total{x=\"2\"} 3\na_total_of 7\na 9\n";
        assert_eq!(sum(text, "a_total"), 5);
        assert_eq!(sum(text, "a"), 9);
        assert_eq!(sum(text, "b"), 0);
    }
}
