//! Timeouts, cancels, and a VM that dies: what is killed, how hard, and how the job ends then.

use vk_hub_proto::job::FailureClass;
use vk_step::Now;

use crate::core::{At, Cause, Failure, Out, Running, StageCore};
use crate::duration::format_secs;
use crate::io::{Effect, End, Kill, Stage, Stop};
use crate::line::Line;

impl StageCore {
    /// When the running attempt's own time is over: the steps' together, or its own. None where
    /// it was stopped already.
    pub(crate) fn own_deadline(&self, running: Running) -> Option<Now> {
        if running.kill.is_some() || self.fatal.is_some() {
            return None;
        }
        let script = match running.stage {
            Stage::Step(_) => self.script_deadline,
            _ => None,
        };
        running.until.into_iter().chain(script).min()
    }

    /// Notes which deadlines have passed; the kill that follows is the answer.
    pub(crate) fn mark_deadlines(&mut self) -> Option<Kill> {
        let passed = |deadline: Option<Now>| deadline.is_some_and(|at| at <= self.now);
        if self.fatal.is_none() && passed(self.job_deadline) {
            self.fatal = Some(Cause::JobTimeout);
            return Some(Kill::Vm);
        }
        let At::Running(mut running) = self.at else {
            return None;
        };
        if !passed(self.own_deadline(running)) {
            return None;
        }
        running.timed_out = true;
        self.at = At::Running(running);
        if matches!(running.stage, Stage::Step(_)) {
            self.stopped.get_or_insert(Cause::ScriptTimeout);
        }
        Some(Kill::Term)
    }

    /// Does what has come due.
    pub(crate) fn tick(&mut self, out: &mut Out) {
        if let Some(how) = self.mark_deadlines() {
            return self.kill(how, out);
        }
        match self.at {
            At::Waiting {
                stage,
                attempt,
                until,
            } if until <= self.now => self.try_again(stage, attempt, out),
            At::Running(Running {
                kill: Some((how, next)),
                ..
            }) if next <= self.now => self.kill_harder(how, out),
            _ => {}
        }
    }

    /// Stops the job as asked (STAGE-31).
    pub(crate) fn stop(&mut self, how: Stop, out: &mut Out) {
        let cause = match how {
            Stop::Graceful | Stop::Immediate => Cause::Canceled,
            Stop::Interrupt => Cause::Interrupted,
        };
        let stage = match self.at {
            At::Running(running) => Some(running.stage),
            At::Waiting { stage, .. } => Some(stage),
            At::Idle => None,
            At::Over => return,
        };
        if self.fatal.is_some() {
            return;
        }
        match (how, stage) {
            (Stop::Graceful, Some(Stage::Step(_))) => {
                if self.stopped.is_none() {
                    self.stopped = Some(cause);
                    self.kill(Kill::Term, out);
                }
            }
            // The script is over: what follows it runs to its end.
            (Stop::Graceful, Some(stage)) if stage > Stage::DownloadArtifacts => {}
            _ => {
                self.fatal = Some(cause);
                self.kill(Kill::Vm, out);
            }
        }
    }

    /// Asks the running attempt to end; what waits or has not begun ends at once.
    fn kill(&mut self, how: Kill, out: &mut Out) {
        match self.at {
            At::Running(mut running) => {
                let next = self.now.after(self.plan.kill_grace);
                running.kill = Some((how, next));
                self.at = At::Running(running);
                let stage = running.stage;
                out.effect(Effect::Kill { stage, how });
            }
            At::Waiting { stage, .. } => self.end_at_once(stage, out),
            At::Idle => self.end_at_once(Stage::PrepareExecutor, out),
            At::Over => {}
        }
    }

    /// The running attempt did not end in time.
    fn kill_harder(&mut self, how: Kill, out: &mut Out) {
        match how {
            Kill::Term => self.kill(Kill::Kill, out),
            Kill::Kill => self.kill(Kill::Vm, out),
            Kill::Vm => self.vm_died("the VM did not end when it was killed".to_owned(), out),
        }
    }

    /// The VM is gone: nothing more can run in it.
    pub(crate) fn vm_died(&mut self, message: String, out: &mut Out) {
        self.mark_deadlines();
        let stage = match self.at {
            At::Running(running) => {
                self.record_end(running, false, out);
                running.stage
            }
            At::Waiting { stage, .. } => stage,
            At::Idle => Stage::PrepareExecutor,
            At::Over => return,
        };
        self.lose_vm(stage, message, out);
    }

    /// Ends the job for want of a VM: that is its failure, unless it was stopped, has one already,
    /// or was only cleaning up.
    pub(crate) fn lose_vm(&mut self, stage: Stage, message: String, out: &mut Out) {
        let cleaning = stage == Stage::CleanupFileVariables;
        if self.fatal.is_none() && self.stopped.is_none() && !cleaning {
            let died = Failure::new(FailureClass::System, message);
            self.failure.get_or_insert(died);
        }
        self.end_at_once(stage, out);
    }

    /// Ends the job with no further stage.
    pub(crate) fn end_at_once(&mut self, stage: Stage, out: &mut Out) {
        let step = matches!(stage, Stage::Step(_));
        let stage = self.plan.name(stage).to_owned();
        let end = match (self.fatal, self.stopped) {
            (Some(cause), _) => {
                if cause == Cause::JobTimeout {
                    out.effect(Effect::Print(Line::StageTimeout { stage }));
                    if step {
                        out.effect(Effect::Print(Line::ScriptTimeoutHint));
                    }
                }
                End::from(self.cause_failure(cause))
            }
            (None, Some(cause)) => {
                if step {
                    out.effect(Effect::Print(match cause {
                        Cause::Canceled => Line::ScriptCanceled,
                        _ => Line::StageTimeout { stage },
                    }));
                }
                self.cause_failure(cause).into()
            }
            (None, None) => self.end(),
        };
        self.finish(end, out);
    }

    /// What a cause makes of the job.
    pub(crate) fn cause_failure(&self, cause: Cause) -> Failure {
        match cause {
            Cause::Canceled => Failure::new(FailureClass::Canceled, "canceled"),
            Cause::Interrupted => Failure::new(FailureClass::Interrupted, "aborted: terminated"),
            Cause::JobTimeout => {
                let took = format_secs(self.plan.timeout.as_secs());
                let message = format!("execution took longer than {took} seconds");
                Failure::new(FailureClass::Timeout, message)
            }
            Cause::ScriptTimeout => Failure::new(
                FailureClass::Timeout,
                "script timeout: context deadline exceeded",
            ),
        }
    }
}
