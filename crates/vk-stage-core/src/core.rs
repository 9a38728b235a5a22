//! The machine itself: where the job is, and which part takes which input.

use vk_hub_proto::job::FailureClass;
use vk_step::{Now, OpenError, Step, Variant};

use crate::io::{Effect, End, Input, Kill, Record, Stage, StageEnd};
use crate::plan::Plan;

/// A step of this machine.
pub(crate) type Out = Step<Record, Effect>;

/// A job's stages.
#[derive(Debug)]
pub struct StageCore {
    pub(crate) plan: Plan,
    pub(crate) now: Now,
    /// When the job's time is over; none before it began.
    pub(crate) job_deadline: Option<Now>,
    /// When the steps' time is over.
    pub(crate) script_deadline: Option<Now>,
    pub(crate) at: At,
    /// The steps were reached: `after_script` is due however they end.
    pub(crate) entered_steps: bool,
    /// Why the steps were stopped, with the rest of the job going on.
    pub(crate) stopped: Option<Cause>,
    /// Why the job is ended at once.
    pub(crate) fatal: Option<Cause>,
    pub(crate) failure: Option<Failure>,
    pub(crate) archive_failure: Option<Failure>,
    pub(crate) upload_failure: Option<Failure>,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// It has not begun.
    Idle,
    /// An attempt of a stage runs.
    Running(Running),
    /// A stage will be tried again.
    Waiting {
        stage: Stage,
        attempt: u32,
        until: Now,
    },
    /// It ended.
    Over,
}

/// An attempt of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) stage: Stage,
    pub(crate) attempt: u32,
    /// When its own time is over.
    pub(crate) until: Option<Now>,
    /// Its own time was over.
    pub(crate) timed_out: bool,
    /// How it was last asked to stop, and when it is asked harder.
    pub(crate) kill: Option<(Kill, Now)>,
}

/// Why something was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The hub said so.
    Canceled,
    /// The node stops.
    Interrupted,
    /// The job took too long.
    JobTimeout,
    /// The steps did, or one of them.
    ScriptTimeout,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: FailureClass,
    pub(crate) exit_code: Option<i32>,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(class: FailureClass, message: impl Into<String>) -> Failure {
        Failure {
            class,
            exit_code: None,
            message: message.into(),
        }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End {
            failure: Some(failure.class),
            exit_code: failure.exit_code,
            message: Some(failure.message),
        }
    }
}

impl vk_step::Core for StageCore {
    type Config = Plan;
    type Input = Input;
    type Record = Record;
    type Effect = Effect;

    /// A machine without records waits for [`Input::Begin`]. With records, an earlier life of the
    /// job's process was here: its end is given again, or the job ends `interrupted`.
    fn open(
        plan: Plan,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(StageCore, Vec<Effect>), OpenError> {
        let mut core = StageCore {
            plan,
            now,
            job_deadline: None,
            script_deadline: None,
            at: At::Idle,
            entered_steps: false,
            stopped: None,
            fatal: None,
            failure: None,
            archive_failure: None,
            upload_failure: None,
        };
        let mut end = None;
        for (at, record) in records.into_iter().enumerate() {
            if core.at == At::Over {
                return Err(OpenError {
                    at,
                    variant: record.variant(),
                    why: "the job was over before".to_owned(),
                });
            }
            end = Some(match record {
                Record::Finished { end } => {
                    core.at = At::Over;
                    end
                }
                Record::StageStarted { .. } | Record::StageEnded { .. } => {
                    core.cause_failure(Cause::Interrupted).into()
                }
            });
        }
        let Some(end) = end else {
            return Ok((core, Vec::new()));
        };
        core.at = At::Over;
        Ok((core, vec![Effect::Finish(end)]))
    }

    fn handle(&mut self, now: Now, input: Input) -> Out {
        self.now = self.now.max(now);
        let mut out = Out::none();
        if self.at == At::Over {
            return out;
        }
        match input {
            Input::Begin => self.begin(&mut out),
            Input::Timeout => self.tick(&mut out),
            Input::Ended {
                stage,
                attempt,
                end,
            } => self.ended(stage, attempt, &end, &mut out),
            Input::Stop(how) => {
                self.tick(&mut out);
                self.stop(how, &mut out);
            }
            Input::VmDied { message } => self.vm_died(message, &mut out),
        }
        out
    }

    fn next_deadline(&self) -> Option<Now> {
        let job = self.job_deadline.filter(|_| self.fatal.is_none());
        match self.at {
            At::Idle | At::Over => None,
            At::Waiting { until, .. } => Some(job.map_or(until, |job| job.min(until))),
            At::Running(running) => {
                let kill = running.kill.map(|(_, next)| next);
                [job, self.own_deadline(running), kill]
                    .into_iter()
                    .flatten()
                    .min()
            }
        }
    }

    fn timeout() -> Input {
        Input::Timeout
    }
}

impl StageCore {
    fn begin(&mut self, out: &mut Out) {
        if self.at != At::Idle {
            return;
        }
        self.job_deadline = Some(self.now.after(self.plan.timeout));
        if !self.plan.warnings.is_empty() {
            let warnings = std::mem::take(&mut self.plan.warnings);
            out.effect(Effect::Print(crate::Line::Settings(warnings)));
        }
        self.run(Stage::PrepareExecutor, 1, out);
    }

    /// Takes the end of the running attempt. Where its time or the job's was over by then, that is
    /// why it ended, whatever its exit code says.
    fn ended(&mut self, stage: Stage, attempt: u32, end: &StageEnd, out: &mut Out) {
        let At::Running(running) = self.at else {
            return;
        };
        if (running.stage, running.attempt) != (stage, attempt) {
            return;
        }
        self.mark_deadlines();
        let ok = matches!(end, StageEnd::Done | StageEnd::Exit(0));
        self.record_end(running, ok, out);
        if self.fatal.is_some() || matches!(running.kill, Some((Kill::Vm, _))) {
            let message = format!("{} ended only with its VM", self.plan.name(stage));
            return self.lose_vm(stage, message, out);
        }
        let timed_out = match self.at {
            At::Running(running) => running.timed_out,
            _ => false,
        };
        self.stage_over(running, timed_out, end, out);
    }

    pub(crate) fn record_end(&self, running: Running, ok: bool, out: &mut Out) {
        out.record(Record::StageEnded {
            stage: self.plan.name(running.stage).to_owned(),
            attempt: running.attempt,
            ok,
        });
    }

    /// Starts an attempt of a stage.
    pub(crate) fn run(&mut self, stage: Stage, attempt: u32, out: &mut Out) {
        let own = match stage {
            Stage::AfterScript => Some(self.plan.after_script_timeout),
            _ => None,
        };
        let running = Running {
            stage,
            attempt,
            until: own.map(|timeout| self.now.after(timeout)),
            timed_out: false,
            kill: None,
        };
        self.at = At::Running(running);
        out.record(Record::StageStarted {
            stage: self.plan.name(stage).to_owned(),
            attempt,
        });
        let own = self.own_deadline(running);
        let deadline = own.into_iter().chain(self.job_deadline).min();
        out.effect(Effect::Run {
            stage,
            attempt,
            deadline,
        });
    }

    pub(crate) fn finish(&mut self, end: End, out: &mut Out) {
        self.at = At::Over;
        out.record(Record::Finished { end: end.clone() });
        out.effect(Effect::Finish(end));
    }
}
