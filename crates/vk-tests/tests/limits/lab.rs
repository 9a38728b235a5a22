//! What these tests ask the GitLab stand-in beyond what the fleet's own tests do.

use std::fs;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::fleet::Fleet;
use crate::program::{eventually, run};

/// The stand-in of a fleet.
pub(crate) struct Lab {
    program: PathBuf,
    socket: PathBuf,
    dir: PathBuf,
}

/// Milliseconds since the Unix epoch, as the stand-in counts.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Someone who looks at a log.
pub(crate) struct Watcher(UnixStream);

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Lab {
    pub(crate) fn of(fleet: &Fleet, root: &std::path::Path) -> Self {
        Self {
            program: root.join("bin-process/vk-lab"),
            socket: fleet.path("lab.sock"),
            dir: fleet.path(""),
        }
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(what).arg("--admin").arg(&self.socket);
        command
    }

    /// Makes a pipeline of one job; the job's number.
    pub(crate) fn trigger(&self, job: &Value) -> u64 {
        let file = self.dir.join("limits.json");
        fs::write(&file, serde_json::json!({ "jobs": [job] }).to_string()).unwrap();
        let answer = run(self.command("trigger").arg(&file));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["jobs"][0]["id"].as_u64().unwrap()
    }

    /// A job as the stand-in tells it.
    pub(crate) fn job(&self, id: u64) -> Value {
        let status: Value = serde_json::from_str(&run(&mut self.command("status"))).unwrap();
        let pipelines = status["pipelines"].as_array().unwrap().iter();
        let jobs = pipelines.flat_map(|pipeline| pipeline["jobs"].as_array().unwrap());
        let found = jobs.into_iter().find(|job| job["id"] == id);
        found.unwrap_or_else(|| panic!("no job {id}")).clone()
    }

    /// Waits for a job's end.
    pub(crate) fn ended(&self, id: u64) -> Value {
        eventually("the job ends", || {
            let job = self.job(id);
            (!job["finished_ms"].is_null()).then_some(job)
        })
    }

    /// Waits for a job's end, and that it is this one; its trace.
    pub(crate) fn ended_as(&self, id: u64, status: &str) -> (Value, String) {
        let job = self.ended(id);
        let trace = self.trace(id);
        println!("{job}");
        assert_eq!(job["status"], status, "{trace}");
        (job, trace)
    }

    pub(crate) fn trace(&self, id: u64) -> String {
        run(self.command("trace").arg(id.to_string()))
    }

    /// Cancels a job; when, in ms.
    pub(crate) fn cancel(&self, id: u64, force: bool) -> u64 {
        let mut cancel = self.command("cancel");
        cancel.arg(id.to_string());
        if force {
            cancel.arg("--force");
        }
        let before = now_ms();
        run(&mut cancel);
        before
    }

    /// Someone looks at a job's log until this is dropped.
    pub(crate) fn watch(&self, id: u64) -> Watcher {
        let mut socket = UnixStream::connect(&self.socket).unwrap();
        let ask = serde_json::json!({ "cmd": "trace", "job": id, "follow": true });
        socket.write_all(format!("{ask}\n").as_bytes()).unwrap();
        let reads = socket.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut &reads, &mut std::io::sink()));
        Watcher(socket)
    }

    /// Hands out no jobs, or does again.
    pub(crate) fn pause(&self, paused: bool) {
        let edit = serde_json::json!({ "cmd": "runner", "paused": paused });
        run(self.command("admin").arg(edit.to_string()));
    }

    /// When the job's runner was first answered that the job has this status.
    pub(crate) fn told_ms(&self, id: u64, status: &str) -> Option<u64> {
        self.job(id)["told_ms"][status].as_u64()
    }

    /// Plans a fault.
    pub(crate) fn inject(&self, fault: &Value) {
        run(self.command("inject").arg(fault.to_string()));
    }

    /// The list of broken promises, as it is printed where it is not empty.
    pub(crate) fn broken(&self) -> String {
        let listed = self.command("invariants").output().unwrap();
        String::from_utf8(listed.stdout).unwrap()
    }

    /// The list of broken promises is empty.
    pub(crate) fn assert_honest(&self) {
        assert_eq!(run(&mut self.command("invariants")), "");
    }
}
