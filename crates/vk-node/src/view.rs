//! How the node's jobs stand, for operators: those it has, and the last ones it had.

use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vk_hub_proto::JobId;
use vk_node_core::Record;
use vk_node_core::io::StartedJob;

use crate::durable::{read_bounded, write_private};
use crate::job::wire::Progress;

/// Past jobs that are shown.
const PAST: usize = 1024;
/// Lines of the file before it is written anew.
const LINES: usize = 4 * PAST;
/// The file at most.
const FILE_BYTES: u64 = 64 << 20;

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// The hub's ID.
    pub job: JobId,
    /// GitLab's number.
    pub gitlab_id: u64,
    /// Its project's number.
    pub project_id: u64,
    /// Where it is.
    pub state: JobState,
    /// Unix milliseconds of the receipt of its start; none after a restart of the daemon.
    #[serde(default)]
    pub received_ms: Option<u64>,
    /// Its VM's CPUs and memory as planned.
    pub cpus: u32,
    /// In MiB.
    pub mem_mib: u64,
    /// What its process told last.
    #[serde(flatten)]
    pub progress: Progress,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It was taken, and its process told nothing yet.
    Accepted,
    /// Its process runs it.
    Running,
    /// It is over.
    Finished,
}

/// How the node stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// The program's version.
    pub version: String,
    /// The node's ID at its hub.
    pub node_id: String,
    /// The hub.
    pub hub: String,
    /// Whether there is a session with it.
    pub connected: bool,
    /// `ready`, `draining` and so on.
    pub state: vk_hub_proto::node_session::NodeState,
    /// The ledger.
    pub admission: vk_hub_proto::node_session::Admission,
    /// Why the journal cannot be written, where it cannot.
    pub store_failed: Option<String>,
    /// Jobs without a recorded result.
    pub jobs: usize,
}

/// All jobs there are to see.
#[derive(Debug, Default)]
pub(crate) struct Views {
    present: BTreeMap<JobId, JobView>,
    past: VecDeque<JobView>,
    file: PathBuf,
    lines: usize,
}

impl Views {
    /// Past jobs as the file has them; a file that cannot be read shows none.
    pub(crate) fn open(file: PathBuf) -> Views {
        let past = read_past(&file);
        Views {
            present: BTreeMap::new(),
            lines: past.len(),
            past,
            file,
        }
    }

    pub(crate) fn records<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            match record {
                Record::Started(started) => {
                    self.present.insert(started.job, view(started));
                }
                Record::Finished { job, result } => {
                    if let Some(view) = self.present.get_mut(job) {
                        view.state = JobState::Finished;
                        view.progress.output_len = result.output_len;
                        view.progress.result = Some(result.clone());
                    }
                }
                Record::Recorded { job } => self.over(*job),
                _ => {}
            }
        }
    }

    pub(crate) fn received(&mut self, job: JobId, at_ms: u64) {
        if let Some(view) = self.present.get_mut(&job) {
            view.received_ms.get_or_insert(at_ms);
        }
    }

    pub(crate) fn progress(&mut self, job: JobId, progress: Progress) {
        if let Some(view) = self.present.get_mut(&job) {
            // A result counts once it is journaled.
            let result = view.progress.result.take();
            let running = progress.stage.is_some() || progress.vmm.is_some();
            if running && view.state == JobState::Accepted {
                view.state = JobState::Running;
            }
            view.progress = Progress { result, ..progress };
        }
    }

    /// The hub has the job's result: the job is one of the past.
    fn over(&mut self, job: JobId) {
        let Some(mut view) = self.present.remove(&job) else {
            return;
        };
        // Records that are read again at a start are of jobs that the file has.
        if self.past.iter().any(|past| past.job == job) {
            return;
        }
        view.state = JobState::Finished;
        if let Err(error) = self.append(&view) {
            tracing::warn!(%job, %error, "a past job is not kept for display");
        }
        self.past.push_back(view);
        if self.past.len() > PAST {
            self.past.pop_front();
        }
    }

    fn append(&mut self, view: &JobView) -> std::io::Result<()> {
        self.lines += 1;
        if self.lines > LINES {
            return self.rewrite(view);
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.file)?;
        file.write_all(&line(view))
    }

    fn rewrite(&mut self, last: &JobView) -> std::io::Result<()> {
        let bytes: Vec<u8> = self.past.iter().chain([last]).flat_map(line).collect();
        self.lines = self.past.len() + 1;
        write_private(&self.file, &bytes).map_err(|error| error.source)
    }

    /// Past jobs, oldest first, then those there are.
    pub(crate) fn all(&self) -> Vec<JobView> {
        let all = self.past.iter().chain(self.present.values());
        all.cloned().collect()
    }

    /// How many jobs are accepted, running and finished.
    pub(crate) fn by_state(&self) -> [u64; 3] {
        let of = |state| {
            let is = |view: &&JobView| view.state == state;
            u64::try_from(self.present.values().filter(is).count()).unwrap_or(u64::MAX)
        };
        [JobState::Accepted, JobState::Running, JobState::Finished].map(of)
    }

    /// The jobs there are, not those of the past.
    pub(crate) fn ids(&self) -> impl Iterator<Item = JobId> {
        self.present.keys().copied()
    }

    /// How many jobs there are.
    pub(crate) fn present(&self) -> usize {
        self.present.len()
    }
}

fn view(started: &StartedJob) -> JobView {
    JobView {
        job: started.job,
        gitlab_id: started.gitlab_id,
        project_id: started.project.id,
        state: JobState::Accepted,
        received_ms: None,
        cpus: started.plan.cpus,
        mem_mib: started.plan.mem_mib,
        progress: Progress::default(),
    }
}

fn line(view: &JobView) -> Vec<u8> {
    let mut line = serde_json::to_vec(view).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The last past jobs of a file; a line that a crash tore is left out.
#[must_use]
pub fn read_past(file: &Path) -> VecDeque<JobView> {
    let bytes = match read_bounded(file, FILE_BYTES) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(%error, "past jobs are not shown");
            Vec::new()
        }
    };
    let mut past = VecDeque::new();
    for view in bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
    {
        past.push_back(view);
        if past.len() > PAST {
            past.pop_front();
        }
    }
    past
}

#[cfg(test)]
mod tests {
    use vk_hub_proto::job::JobResult;
    use vk_node_core::io::{Project, RunPlan};
    use vk_node_core::ledger::Amount;

    use super::*;

    fn started(number: u8) -> Record {
        let amount = Amount {
            mem_mib: 1,
            disk_bytes: 1,
        };
        Record::Started(Box::new(StartedJob {
            job: JobId::from_bytes([number; 16]),
            gitlab_id: number.into(),
            project: Project {
                server: "http://gitlab".to_owned(),
                id: 5,
            },
            plan: RunPlan {
                slot: 0,
                project_slot: 0,
                cpus: 2,
                mem_mib: 512,
                disk_bytes: 1,
                warnings: Vec::new(),
            },
            granted: amount,
            asked: amount,
        }))
    }

    #[test]
    fn a_past_job_keeps_its_figures_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.jsonl");
        let mut views = Views::open(file.clone());
        let job = JobId::from_bytes([3; 16]);
        views.records(&[started(3)]);
        views.received(job, 77);
        views.progress(
            job,
            Progress {
                stage: Some("step_script".to_owned()),
                boot_ms: Some(412),
                ..Progress::default()
            },
        );
        assert_eq!(views.all()[0].state, JobState::Running);
        let result = JobResult {
            failure: None,
            exit_code: Some(0),
            message: None,
            output_len: 9,
            artifacts: Vec::new(),
            usage: None,
        };
        views.records(&[Record::Finished { job, result }, Record::Recorded { job }]);
        assert_eq!(views.present(), 0);
        std::fs::OpenOptions::new()
            .append(true)
            .open(&file)
            .unwrap()
            .write_all(b"{\"torn")
            .unwrap();
        let mut again = Views::open(file);
        again.records(&[started(3), Record::Recorded { job }]);
        let again = again.all();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].progress.boot_ms, Some(412));
        assert_eq!((again[0].received_ms, again[0].gitlab_id), (Some(77), 3));
        assert_eq!(
            again[0].progress.result.as_ref().unwrap().exit_code,
            Some(0)
        );
    }

    #[test]
    fn the_file_of_past_jobs_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.jsonl");
        let mut views = Views::open(file.clone());
        for number in 0..=LINES {
            let Record::Started(mut one) = started(1) else {
                panic!("a start")
            };
            one.job = JobId::from_bytes((number as u128).to_be_bytes());
            let job = one.job;
            views.records(&[Record::Started(one), Record::Recorded { job }]);
        }
        assert_eq!(views.all().len(), PAST);
        let lines = std::fs::read_to_string(file).unwrap().lines().count();
        assert!(lines <= PAST + 1, "{lines}");
    }
}
