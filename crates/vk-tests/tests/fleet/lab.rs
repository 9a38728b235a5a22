//! The GitLab stand-in's admin socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Asks the stand-in.
pub(crate) struct Lab {
    pub(crate) socket: PathBuf,
}

impl Lab {
    /// One command, a line of JSON; the lines of its answer up to the last one.
    fn lines(&self, command: &Value) -> Vec<Value> {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let is_trace = command["cmd"] == "trace";
        let mut answers = Vec::new();
        for line in BufReader::new(stream).lines() {
            let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(answer["ok"], true, "{command}: {answer}");
            let last = !is_trace || answer["end"] == true;
            answers.push(answer);
            if last {
                return answers;
            }
        }
        panic!("{command}: no whole answer: {answers:?}")
    }

    pub(crate) fn ask(&self, command: &Value) -> Value {
        self.lines(command).remove(0)
    }

    /// Makes a pipeline; its number and its jobs' numbers.
    pub(crate) fn trigger(&self, jobs: &Value) -> (u64, Vec<u64>) {
        self.trigger_in("lab/project", jobs)
    }

    /// The same, in a project.
    pub(crate) fn trigger_in(&self, project: &str, jobs: &Value) -> (u64, Vec<u64>) {
        let pipeline = json!({ "project": project, "jobs": jobs });
        let answer = self.ask(&json!({ "cmd": "trigger", "pipeline": pipeline }));
        let jobs = answer["jobs"].as_array().unwrap();
        let ids = jobs.iter().map(|job| job["id"].as_u64().unwrap());
        (answer["pipeline"].as_u64().unwrap(), ids.collect())
    }

    /// A job's log as it is stored.
    pub(crate) fn trace(&self, job: u64) -> Vec<u8> {
        let lines = self.lines(&json!({ "cmd": "trace", "job": job }));
        let parts = lines.iter().filter_map(|line| line["data"].as_str());
        parts
            .flat_map(|data| STANDARD.decode(data).unwrap())
            .collect()
    }

    /// Watches a job's log, for as long as the answer is kept.
    pub(crate) fn watch(&self, job: u64) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let command = json!({ "cmd": "trace", "job": job, "follow": true });
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        stream
    }

    /// The jobs of a pipeline.
    pub(crate) fn jobs(&self, pipeline: u64) -> Vec<Value> {
        let status = self.ask(&json!({ "cmd": "status", "pipeline": pipeline }));
        status["pipelines"][0]["jobs"].as_array().unwrap().clone()
    }

    /// Pipelines made so far.
    pub(crate) fn pipelines(&self) -> usize {
        let status = self.ask(&json!({ "cmd": "status" }));
        status["pipelines"].as_array().unwrap().len()
    }

    /// The promises broken so far.
    pub(crate) fn broken(&self) -> Vec<Value> {
        let answer = self.ask(&json!({ "cmd": "invariants" }));
        answer["broken"].as_array().unwrap().clone()
    }
}
