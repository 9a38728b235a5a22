//! The outputs of jobs' processes, kept beyond the jobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::fleet::Fleet;

/// How often it is looked: a job that ends without having waited in its middle is not there for long,
/// and whoever tells the story may just be waiting for an answer.
const TICK: Duration = Duration::from_millis(3);

/// Other names of the outputs' files, which outlive the jobs' directories; kept by a thread of its
/// own until this is dropped.
pub(super) struct Kept {
    files: Arc<Mutex<BTreeMap<String, PathBuf>>>,
    jobs: PathBuf,
    to: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kept {
    pub(super) fn begin(fleet: &Fleet) -> Self {
        let mut kept = Self {
            files: Arc::default(),
            jobs: fleet.path("node/node/jobs"),
            to: fleet.path("outputs"),
            is_over: Arc::default(),
            thread: None,
        };
        fs::create_dir_all(&kept.to).unwrap();
        let (files, is_over) = (Arc::clone(&kept.files), Arc::clone(&kept.is_over));
        let (jobs, to) = (kept.jobs.clone(), kept.to.clone());
        kept.thread = Some(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                look(&jobs, &to, &files);
                std::thread::sleep(TICK);
            }
        }));
        kept
    }

    /// Looks now: what is there is kept when this is back.
    pub(super) fn look(&self) {
        look(&self.jobs, &self.to, &self.files);
    }

    /// Forgets what was kept so far.
    pub(super) fn forget(&self) {
        let files = self.files.lock();
        files.unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The last lines of each.
    pub(super) fn ends(&self) -> Vec<String> {
        let end = |output: &String| {
            let lines: Vec<_> = output.lines().collect();
            lines[lines.len().saturating_sub(8)..].join("\n")
        };
        self.outputs().iter().map(end).collect()
    }

    /// What they hold.
    pub(super) fn outputs(&self) -> Vec<String> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |file: &PathBuf| fs::read_to_string(file).unwrap();
        files.values().map(read).collect()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn look(jobs: &Path, to: &Path, files: &Mutex<BTreeMap<String, PathBuf>>) {
    let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in fs::read_dir(jobs).into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        let kept = to.join(&id);
        if !files.contains_key(&id) && fs::hard_link(entry.path().join("output"), &kept).is_ok() {
            files.insert(id, kept);
        }
    }
}
