//! One job, from its begin to its result: the loop around the stage core.

mod finish;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use vk_hub_proto::job::JobResult;
use vk_stage_core::{Effect, End, Input, Kill, Line, Record, Stage, StageCore, StageEnd};
use vk_step::{Core, Now, Step, Variant as _};
use vk_trace::Line as TraceLine;

use crate::context::{Control, JobContext, StateSender};
use crate::error::DriverError;
use crate::job::{Inside, Job, make_work};
use crate::marks::{Marks, read_result};
use crate::stages::{self, is_in_guest, section};

/// An attempt that was given up ends within moments.
const ABANDONED: Duration = Duration::from_secs(10);

/// Runs a job to its end.
///
/// The result is written to `result.json` after `output` was synced, both durably, and then given
/// back and told as [`crate::JobState::result`]. A job that waits for [`Control::Grant`] takes
/// neither memory nor disk. When `control` is closed the job simply goes on. A directory in which
/// an earlier life left stage marks but no result gets the result `interrupted` (FAIL-34); one with
/// a result gives that again: a job never runs twice.
///
/// Everything the job started dies with this process, however that ends.
///
/// # Errors
/// Only where no result can be recorded: see [`DriverError`].
pub async fn run(
    context: JobContext,
    control: mpsc::Receiver<Control>,
    state: StateSender,
) -> Result<JobResult, DriverError> {
    if let Some(result) = read_result(&context.dirs.job)? {
        state.send_modify(|state| {
            state.output_len = result.output_len;
            state.result = Some(result.clone());
        });
        return Ok(result);
    }
    let (marks, records) = Marks::open(&context.dirs.job)?;
    let (granted, grants) = watch::channel(None);
    let (inside, heard) = mpsc::unbounded_channel();
    let job = Arc::new(Job::new(context, state, grants, inside)?);
    let origin = Instant::now();
    let opened = StageCore::open(job.plan.clone(), Now::ZERO, records);
    let (core, effects) = opened.map_err(|error| DriverError::Marks {
        path: job.context.dirs.job.join("stages.jsonl"),
        why: error.to_string(),
    })?;
    let driver = Driver {
        job,
        core,
        marks,
        granted,
        origin,
        running: None,
        abandoned: Vec::new(),
        end: None,
        told_failed: false,
    };
    Box::pin(driver.drive(effects, control, heard)).await
}

struct Driver {
    job: Arc<Job>,
    core: StageCore,
    marks: Marks,
    granted: watch::Sender<Option<Result<(), String>>>,
    origin: Instant,
    running: Option<Running>,
    /// Attempts that were given up and may still be ending.
    abandoned: Vec<Running>,
    end: Option<End>,
    /// The output failed, and the core was told.
    told_failed: bool,
}

/// The attempt that runs.
struct Running {
    stage: Stage,
    attempt: u32,
    task: JoinHandle<()>,
    stop: watch::Sender<Option<Kill>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driver {
    async fn drive(
        mut self,
        effects: Vec<Effect>,
        mut control: mpsc::Receiver<Control>,
        mut heard: mpsc::UnboundedReceiver<Inside>,
    ) -> Result<JobResult, DriverError> {
        if effects.is_empty() {
            make_work(&self.job.work)?;
            self.header();
            // What was told before the job began counts from its begin.
            while let Ok(told) = control.try_recv() {
                self.control(told)?;
            }
            self.give(Input::Begin)?;
        } else {
            effects.into_iter().for_each(|effect| self.release(effect));
        }
        let mut open = true;
        let output = Arc::clone(&self.job);
        while self.end.is_none() {
            let deadline = self.core.next_deadline().map(|at| self.instant(at));
            let due = async {
                match deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                told = control.recv(), if open => match told {
                    Some(control) => self.control(control)?,
                    None => open = false,
                },
                () = output.output.failing() => {}
                inside = heard.recv() => match inside {
                    // What ended well without its output did not end well.
                    Some(_) if self.output_failed_untold() => {}
                    Some(Inside::Ended(stage, attempt, end)) => self.ended(stage, attempt, end)?,
                    Some(Inside::VmDied(message)) => {
                        self.abandon();
                        self.give(Input::VmDied { message })?;
                    }
                    None => {}
                },
                () = due => self.give(Input::Timeout)?,
            }
            self.look_at_output()?;
        }
        // What they started ends with them, and must be over before the job's files go.
        for mut one in self.abandoned.drain(..).chain(self.running.take()) {
            one.task.abort();
            let _ = tokio::time::timeout(ABANDONED, &mut one.task).await;
        }
        let end = self.end.take().unwrap_or_default();
        finish::finish(&self.job, &end).await
    }

    fn control(&mut self, control: Control) -> Result<(), DriverError> {
        match control {
            Control::Grant => {
                self.granted.send_if_modified(|answer| {
                    let first = answer.is_none();
                    answer.get_or_insert(Ok(()));
                    first
                });
                Ok(())
            }
            Control::Deny { short } => {
                self.granted.send_if_modified(|answer| {
                    let first = answer.is_none();
                    answer.get_or_insert(Err(short));
                    first
                });
                Ok(())
            }
            Control::Stop(how) => self.give(Input::Stop(how)),
        }
    }

    fn output_failed_untold(&self) -> bool {
        !self.told_failed && self.job.output.failed().is_some()
    }

    /// A job whose output cannot be masked or written goes no further (STAGE-34).
    fn look_at_output(&mut self) -> Result<(), DriverError> {
        match self.job.output.failed() {
            Some(message) if !self.told_failed => {
                self.told_failed = true;
                self.abandon();
                self.give(Input::VmDied { message })
            }
            _ => Ok(()),
        }
    }

    /// The running attempt ends with its VM: its section, too.
    fn abandon(&mut self) {
        if let Some(running) = self.running.take() {
            let section = section(&self.job, running.stage);
            self.job.output.close_section(&section);
            self.abandoned.push(running);
        }
    }

    fn give(&mut self, input: Input) -> Result<(), DriverError> {
        let Step { records, effects } = self.core.handle(self.now(), input);
        let kill = self.job.context.kill.clone();
        kill.before(&records, &effects);
        self.marks.keep(&records)?;
        kill.synced(&records, &effects);
        let mut first = true;
        for effect in effects {
            let released = effect.variant();
            self.release(effect);
            kill.after_effect(released);
            if std::mem::take(&mut first) {
                kill.after_records(&records);
            }
        }
        if first {
            kill.after_records::<Record>(&records);
        }
        Ok(())
    }

    fn release(&mut self, effect: Effect) {
        match effect {
            Effect::Run { stage, attempt, .. } => self.start(stage, attempt),
            Effect::Kill { stage, how } => self.kill(stage, how),
            Effect::SetJobStatus(status) => {
                self.job.shared().variables.set_job_status(status.as_str());
            }
            Effect::Print(line) => print(&self.job, &line),
            Effect::Finish(end) => self.end = Some(end),
        }
    }

    fn start(&mut self, stage: Stage, attempt: u32) {
        let job = Arc::clone(&self.job);
        let name = job.plan.name(stage).to_owned();
        job.state.send_modify(|state| {
            state.stage = Some(name);
            state.attempt = attempt;
            state.activity = None;
        });
        job.output.open_section(&section(&job, stage));
        let (stop, told) = watch::channel(None);
        let task = tokio::spawn(async move {
            if stage == Stage::CleanupFileVariables {
                finish::measure(&job).await;
            }
            let end = stages::run(Arc::clone(&job), stage, attempt, told).await;
            // The loop may be over.
            let _ = job.inside.send(Inside::Ended(stage, attempt, end));
        });
        self.running = Some(Running {
            stage,
            attempt,
            task,
            stop,
        });
    }

    /// An attempt ended: its section ends, then the core decides.
    fn ended(&mut self, stage: Stage, attempt: u32, end: StageEnd) -> Result<(), DriverError> {
        let is_running = |one: &Running| (one.stage, one.attempt) == (stage, attempt);
        if self.running.as_ref().is_some_and(is_running) {
            self.running = None;
            self.job.output.close_section(&section(&self.job, stage));
        }
        self.give(Input::Ended {
            stage,
            attempt,
            end,
        })
    }

    /// Stops the running attempt: in the guest by signals, on the host by ending its task.
    fn kill(&mut self, stage: Stage, how: Kill) {
        let Some(running) = &self.running else { return };
        // Nobody listens any more where it just ended.
        let _ = running.stop.send(Some(how));
        if how == Kill::Vm {
            let job = Arc::clone(&self.job);
            tokio::spawn(async move {
                finish::end_vm(&job).await;
                let message = "the VM was ended".to_owned();
                // The loop may be over.
                let _ = job.inside.send(Inside::VmDied(message));
            });
        }
        if how != Kill::Vm && is_in_guest(stage) {
            return;
        }
        running.task.abort();
        let end = StageEnd::Failed {
            class: vk_hub_proto::job::FailureClass::System,
            message: "it was stopped".to_owned(),
            transient: false,
        };
        if how != Kill::Vm {
            let _ = self
                .job
                .inside
                .send(Inside::Ended(stage, running.attempt, end));
        }
    }

    fn header(&self) {
        let job = &self.job;
        let node = &job.context.node;
        let line = format!("Running with vk {} ({})", node.version, node.revision);
        job.output.line(TraceLine::Plain(&line));
        let short = job
            .shared()
            .variables
            .seen("CI_RUNNER_SHORT_TOKEN")
            .unwrap_or_default();
        let line = format!("  on {} {short}", node.host);
        job.output.line(TraceLine::Plain(line.trim_end()));
        if !job.flags.is_empty() {
            let line = format!("  feature flags: {}", job.flags);
            job.output.line(TraceLine::Plain(&line));
        }
    }

    fn now(&self) -> Now {
        let since = Instant::now().duration_since(self.origin).as_millis();
        Now::from_millis(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn instant(&self, at: Now) -> Instant {
        self.origin + Duration::from_millis(at.as_millis())
    }
}

/// One of the core's lines.
fn print(job: &Job, line: &Line) {
    let text = line.to_string();
    job.output.line(shown(line, &text));
}

/// A line as the trace colours it.
fn shown<'a>(line: &Line, text: &'a str) -> TraceLine<'a> {
    match line.kind() {
        vk_stage_core::line::LineKind::Info => TraceLine::Info(text),
        vk_stage_core::line::LineKind::Warning => TraceLine::Warning(text),
        vk_stage_core::line::LineKind::Error => TraceLine::Error(text),
    }
}
