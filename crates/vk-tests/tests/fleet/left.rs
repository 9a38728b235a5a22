//! What a fleet's jobs leave on the host: it must be nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fleet::Fleet;
use crate::program::eventually;

/// How long jobs may take to go, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

impl Fleet {
    /// No invariant is broken, no job has anything left, and every outcome was delivered.
    pub(crate) fn assert_nothing_is_left(&self) {
        let broken = self.lab.broken();
        // A daemon that is killed with a job request open closes it.
        let other = broken
            .iter()
            .filter(|one| one["kind"] != "aborted_job_request");
        assert_eq!(other.collect::<Vec<_>>(), Vec::<&serde_json::Value>::new());
        self.wait_until_nothing_is_left();
        eventually("the hub has settled all", || {
            let jobs = self.hub_jobs()?;
            assert!(!jobs.is_empty(), "the hub knows no job");
            jobs.iter().all(|job| job["settled"] == true).then_some(())
        });
    }

    /// Waits until nothing of any job is on the host.
    pub(crate) fn wait_until_nothing_is_left(&self) {
        let begun = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            let patient = begun.elapsed() < PATIENCE;
            assert!(patient, "left on the host: {left:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The processes that have to do with a job.
    pub(crate) fn processes_of_jobs(&self) -> Vec<String> {
        processes_that_know(self.path("node/node/jobs").to_str().unwrap())
    }

    /// What is on the host of jobs.
    pub(crate) fn left(&self) -> Vec<String> {
        left_of(&self.path("node/node/jobs"))
    }
}

/// Directories, disks and sockets below a directory of jobs, processes that know one of them (by
/// their arguments, their mounts, their working directory or an open file), and with these the
/// namespaces they are in: a namespace lives by its processes, its mounts or a descriptor.
fn left_of(jobs: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(jobs).into_iter().flatten().flatten() {
        left.push(format!("the directory {}", entry.path().display()));
    }
    if !left.is_empty() {
        return left;
    }
    let name = jobs.to_str().unwrap();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let bound = sockets.lines().filter(|line| line.contains(name));
    left.extend(bound.map(|line| format!("the socket {line}")));
    left.extend(processes_that_know(name));
    left
}

fn processes_that_know(directory: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let is_process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        if is_process && let Some(how) = knows(&entry.path(), directory) {
            found.push(format!("the process {}: {how}", entry.path().display()));
        }
    }
    found
}

/// How a process has to do with a directory.
fn knows(process: &Path, directory: &str) -> Option<String> {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    if line.contains(directory) {
        return Some(format!("its arguments {line}"));
    }
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    if let Some(mount) = mounts.lines().find(|mount| mount.contains(directory)) {
        return Some(format!("its mount {mount} ({line})"));
    }
    let is_there = |path: &PathBuf| path.to_string_lossy().contains(directory);
    let opened = fs::read_dir(process.join("fd")).into_iter().flatten();
    let links = opened.flatten().map(|entry| entry.path());
    let links = links.chain([process.join("cwd"), process.join("root")]);
    let target = links.filter_map(|link| fs::read_link(link).ok());
    // The node's daemon looks at a job's directory while it removes it: asked again it does not.
    let found = { target }.find(is_there)?;
    Some(format!("its open {} ({line})", found.display()))
}
