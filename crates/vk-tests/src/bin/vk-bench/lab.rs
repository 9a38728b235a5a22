//! The GitLab stand-in.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::http::{self, Message};
use crate::program::{Program, eventually, run};

/// A stand-in that runs, without limits and holding job requests until there is a job.
pub(crate) struct Lab {
    _program: Program,
    bin: PathBuf,
    socket: PathBuf,
    /// Where it serves: `127.0.0.1:<port>`.
    pub(crate) address: String,
    /// The file of its runner's token.
    pub(crate) token_file: PathBuf,
}

impl Lab {
    /// With a project of one small file.
    pub(crate) fn start(bin: &Path, dir: &Path) -> anyhow::Result<Lab> {
        let project = dir.join("project");
        fs::create_dir(&project)?;
        fs::write(project.join("file"), "what the project holds\n")?;
        git(&project, &["init", "--quiet", "--initial-branch=main"])?;
        commit(&project)?;
        Lab::serve(bin, dir, &project)
    }

    /// With a project's repository.
    pub(crate) fn serve(bin: &Path, dir: &Path, project: &Path) -> anyhow::Result<Lab> {
        let token_file = dir.join("runner-token");
        let mut serve = Command::new(bin.join("vk-lab"));
        serve.args(["serve", "--addr", "127.0.0.1:0", "--project"]);
        serve.arg(format!("lab/project={}", project.display()));
        serve.arg("--token-file").arg(&token_file);
        serve.arg("--admin").arg(dir.join("lab.sock"));
        serve.arg("--state").arg(dir.join("lab"));
        let mut program = Program::start(&mut serve, &dir.join("lab.log"))?;
        let url = eventually("the GitLab stand-in serves", || {
            let log = program.log()?;
            let first: Option<Value> = log.lines().next().and_then(|line| {
                // The line may not be whole yet.
                serde_json::from_str(line).ok()
            });
            Ok(first.and_then(|line| Some(line["url"].as_str()?.to_owned())))
        })?;
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let lab = Lab {
            _program: program,
            bin: bin.to_owned(),
            socket: dir.join("lab.sock"),
            address: address.to_owned(),
            token_file,
        };
        lab.ask(&json!({
            "cmd": "set", "long_poll_ns": 50_000_000_000_u64,
            "rate_limits": { "request": 0, "trace": 0, "job": 0 },
        }))?;
        Ok(lab)
    }

    /// One command and its answer.
    pub(crate) fn ask(&self, command: &Value) -> anyhow::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        if answer["ok"] != true {
            bail!("vk-lab: {command}: {answer}");
        }
        Ok(answer)
    }

    /// A pipeline of so many jobs that do nothing; its number.
    pub(crate) fn trigger(&self, jobs: usize) -> anyhow::Result<u64> {
        let job = |number: usize| {
            json!({ "name": format!("job {number}"), "script": ["true"],
                    "variables": { "GIT_STRATEGY": "none" } })
        };
        let jobs: Vec<Value> = (1..=jobs).map(job).collect();
        self.trigger_jobs(&jobs)
    }

    /// A pipeline of these jobs; its number.
    pub(crate) fn trigger_jobs(&self, jobs: &[Value]) -> anyhow::Result<u64> {
        let pipeline = json!({ "project": "lab/project", "jobs": jobs });
        let answer = self.ask(&json!({ "cmd": "trigger", "pipeline": pipeline }))?;
        answer["pipeline"].as_u64().context("a pipeline's number")
    }

    /// The first job of a pipeline.
    pub(crate) fn job(&self, pipeline: u64) -> anyhow::Result<Value> {
        let status = self.ask(&json!({ "cmd": "status", "pipeline": pipeline }))?;
        Ok(status["pipelines"][0]["jobs"][0].clone())
    }

    /// The first job of a pipeline, once it ended well.
    pub(crate) fn ended(&self, pipeline: u64) -> anyhow::Result<Value> {
        let job = eventually("the job ends", || {
            Ok(Some(self.job(pipeline)?).filter(|job| !job["finished_ms"].is_null()))
        })?;
        if job["status"] != "success" {
            let id = job["id"].as_u64().unwrap_or_default();
            bail!("a job of the bench failed: {job}\n{}", self.trace(id)?);
        }
        Ok(job)
    }

    /// A job's log, as GitLab has it.
    pub(crate) fn trace(&self, job: u64) -> anyhow::Result<String> {
        let mut trace = Command::new(self.bin.join("vk-lab"));
        trace.args(["trace", "--admin"]).arg(&self.socket);
        run(trace.arg(job.to_string()))
    }

    /// All jobs, summed up.
    pub(crate) fn totals(&self) -> anyhow::Result<Value> {
        Ok(self.ask(&json!({ "cmd": "totals" }))?["totals"].clone())
    }

    /// What was broken so far is no figure, but the end of the bench.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let broken = self.ask(&json!({ "cmd": "invariants" }))?["broken"].clone();
        if broken != json!([]) {
            bail!("the GitLab stand-in saw promises broken: {broken}");
        }
        Ok(())
    }

    /// A call of the runner's API.
    pub(crate) fn call(&self, what: (&str, &str), body: &Value) -> anyhow::Result<Message> {
        http::ask(TcpStream::connect(&self.address)?, what, body)
    }

    pub(crate) fn token(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.token_file)?.trim().to_owned())
    }
}

/// Commits everything that lies in a repository.
pub(crate) fn commit(repository: &Path) -> anyhow::Result<()> {
    git(repository, &["add", "."])?;
    git(repository, &["commit", "--quiet", "--message=one"])?;
    Ok(())
}

/// Runs git in a directory; what it printed.
pub(crate) fn git(dir: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com", "-C"]);
    run(git.arg(dir).args(arguments))
}
