//! The GitLab stand-in's admin socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Asks the stand-in.
#[derive(Debug)]
pub(crate) struct Lab(pub(crate) PathBuf);

impl Lab {
    /// One command and its answer.
    pub(crate) fn ask(&self, command: &Value) -> Value {
        let mut stream = UnixStream::connect(&self.0).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["ok"], true, "{command}: {answer}");
        answer
    }

    /// Makes a pipeline of jobs; its number and theirs.
    pub(crate) fn trigger(&self, jobs: &[Value]) -> (u64, Vec<u64>) {
        let pipeline = json!({ "project": "lab/project", "jobs": jobs });
        let answer = self.ask(&json!({ "cmd": "trigger", "pipeline": pipeline }));
        let jobs = answer["jobs"].as_array().unwrap();
        let jobs = jobs.iter().map(|job| job["id"].as_u64().unwrap());
        (answer["pipeline"].as_u64().unwrap(), jobs.collect())
    }

    /// The jobs of a pipeline.
    pub(crate) fn jobs(&self, pipeline: u64) -> Vec<Value> {
        let mut status = self.ask(&json!({ "cmd": "status", "pipeline": pipeline }));
        let jobs = status["pipelines"][0]["jobs"].take();
        serde_json::from_value(jobs).unwrap()
    }

    /// The promises broken so far.
    pub(crate) fn broken(&self) -> Vec<Value> {
        let answer = self.ask(&json!({ "cmd": "invariants" }));
        assert_eq!(answer["left_out"], 0, "more was broken than is listed");
        answer["broken"].as_array().unwrap().clone()
    }
}
