//! A node's host: the directories of its jobs and the processes in them, which outlive the daemon.

use std::collections::BTreeMap;

use vk_hub_proto::JobId;
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_node_core::io::{ClosingLine, DeadEnd};
use vk_node_core::{Death, JobEvent, Stop};

use crate::script::Script;

/// One job's directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// What the job does.
    pub(crate) script: Script,
    /// The start message is there, secrets and all.
    pub(crate) has_secrets: bool,
    /// The durable mark of having begun.
    pub(crate) begun: bool,
    /// The process holds its lock.
    pub(crate) alive: bool,
    /// It may take memory and disk.
    pub(crate) granted: bool,
    /// Every byte that left the trace's writer.
    pub(crate) output: Vec<u8>,
    /// Written last.
    pub(crate) result: Option<JobResult>,
    /// How it was told to stop.
    pub(crate) stop: Option<Stop>,
    /// Which life of the daemon is subscribed to it.
    pub(crate) subscriber: Option<u32>,
    next_piece: u32,
}

/// The directories of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// By the hub's number.
    pub(crate) jobs: BTreeMap<JobId, Directory>,
}

/// What a job's process did in a moment of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Progress {
    /// It printed; the next moment comes after so many milliseconds.
    Printed {
        /// Until the next.
        next_ms: u64,
    },
    /// It wrote its result.
    Finished,
    /// There is nothing it can do now.
    Idle,
}

impl Host {
    /// Makes a job's directory with its start message.
    pub(crate) fn create(&mut self, job: JobId, script: Script) {
        self.jobs.entry(job).or_insert(Directory {
            script,
            has_secrets: true,
            begun: false,
            alive: false,
            granted: false,
            output: Vec::new(),
            result: None,
            stop: None,
            subscriber: None,
            next_piece: 0,
        });
    }

    /// Starts a job's process unless it began before. Says what to answer, and whether it began
    /// now.
    pub(crate) fn spawn(&mut self, job: JobId, life: u32) -> (JobEvent, bool) {
        let Some(directory) = self.jobs.get_mut(&job) else {
            return (
                JobEvent::SpawnFailed {
                    why: "no directory".into(),
                },
                false,
            );
        };
        if directory.begun {
            return (directory.attach(life), false);
        }
        directory.begun = true;
        directory.alive = true;
        (directory.attach(life), true)
    }

    /// Finds a job's process.
    pub(crate) fn attach(&mut self, job: JobId, life: u32) -> JobEvent {
        match self.jobs.get_mut(&job) {
            Some(directory) => directory.attach(life),
            None => JobEvent::NotStarted,
        }
    }

    /// Lets a job's process do what it does next.
    pub(crate) fn step(&mut self, job: JobId) -> Progress {
        match self.jobs.get_mut(&job) {
            Some(directory) if directory.alive => directory.step(),
            _ => Progress::Idle,
        }
    }

    /// Kills a job's process, if there is one to kill.
    pub(crate) fn kill(&mut self, job: JobId) -> bool {
        let Some(directory) = self.jobs.get_mut(&job) else {
            return false;
        };
        std::mem::replace(&mut directory.alive, false)
    }

    /// Ends a dead job's output with its closing line.
    pub(crate) fn close(&mut self, job: JobId, line: &ClosingLine) -> u64 {
        let Some(directory) = self.jobs.get_mut(&job) else {
            return 0;
        };
        let text = match &line.end {
            DeadEnd::Died { .. } => "ERROR: the job's process died\n".to_owned(),
            DeadEnd::NotSpawned { why } => format!("ERROR: no process: {why}\n"),
        };
        directory
            .output
            .resize(usize::try_from(line.at).unwrap_or(usize::MAX), b'?');
        directory.output.extend_from_slice(text.as_bytes());
        directory.output.len() as u64
    }
}

impl Directory {
    fn attach(&mut self, life: u32) -> JobEvent {
        self.subscriber = Some(life);
        let output_len = self.output.len() as u64;
        match &self.result {
            Some(result) => JobEvent::Result(result.clone()),
            None if self.alive => JobEvent::Alive { output_len },
            None if self.begun => JobEvent::Ended {
                output_len,
                death: Death::default(),
            },
            None => JobEvent::NotStarted,
        }
    }

    fn step(&mut self) -> Progress {
        if let Some(stop) = self.stop {
            self.output.extend_from_slice(b"stopped\n");
            let class = match stop {
                Stop::Graceful | Stop::Immediate => FailureClass::Canceled,
                Stop::Interrupt => FailureClass::Interrupted,
            };
            return self.finish(Some(class), None);
        }
        if !self.granted {
            return Progress::Idle;
        }
        if self.next_piece < self.script.pieces {
            self.output
                .extend_from_slice(&self.script.piece(self.next_piece));
            self.next_piece += 1;
            return Progress::Printed {
                next_ms: self.script.every_ms,
            };
        }
        let code = (self.script.exit_code != 0).then_some(self.script.exit_code);
        self.finish(self.script.failure(), code)
    }

    fn finish(&mut self, failure: Option<FailureClass>, exit_code: Option<i32>) -> Progress {
        self.alive = false;
        self.result = Some(JobResult {
            failure,
            exit_code,
            message: None,
            output_len: self.output.len() as u64,
            artifacts: vec![],
            usage: None,
        });
        Progress::Finished
    }
}
