//! One job on the node, and what its process says of it.

use vk_hub_proto::JobId;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{GuestSize, NodeJobMessage, RunState};
use vk_hub_proto::job::{FailureClass, JobResult};

use crate::NodeCore;
use crate::core::{Out, display};
use crate::death::Death;
use crate::io::{ClosingLine, DeadEnd, Effect, Record, StartedJob, Stop};
use crate::ledger::Resource;
use crate::output::Output;
use crate::timers::Timer;

/// A job that was taken and whose result the hub has not recorded.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) started: Box<StartedJob>,
    /// Its place among the node's jobs, by start.
    pub(crate) order: u64,
    pub(crate) process: Process,
    /// The journal says that it has all it asked for, though it once had less.
    pub(crate) granted: bool,
    pub(crate) denied: Option<Resource>,
    pub(crate) cancel: Option<Cancel>,
    stage: Option<(String, Option<String>)>,
    guest: Option<GuestSize>,
    pub(crate) output: Output,
    /// How it ended, as journaled.
    pub(crate) result: Option<JobResult>,
    /// How it ended, for when the journal can be written again.
    pub(crate) unkept: Option<JobResult>,
}

/// A cancel in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancel {
    pub(crate) mode: CancelMode,
    /// It is in the journal.
    pub(crate) kept: bool,
}

/// Where a job's process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// Being looked for.
    Finding,
    /// Being started.
    Spawning,
    /// Running.
    Alive,
    /// Dead; what it left running is being ended.
    Cleaning(Death),
    /// Dead and cleaned up; its output gets its last line once it is known how much of it the hub
    /// has, and the journal works.
    Dead(DeadEnd),
    /// Dead; its output gets its last line.
    Closing(ClosingLine),
    /// There is a result.
    Over,
}

impl Job {
    pub(crate) fn new(started: Box<StartedJob>, order: u64, process: Process) -> Job {
        Job {
            started,
            order,
            process,
            granted: false,
            denied: None,
            cancel: None,
            stage: None,
            guest: None,
            output: Output::default(),
            result: None,
            unkept: None,
        }
    }

    /// How it stands, for the hub.
    pub(crate) fn state(&self) -> RunState {
        if self.result.is_some() {
            return RunState::Finished;
        }
        match &self.stage {
            Some((stage, activity)) => RunState::Running {
                stage: stage.clone(),
                activity: activity.clone(),
                guest: self.guest,
            },
            None => RunState::Accepted,
        }
    }

    /// How its process is to be stopped, if at all.
    fn stop(&self, interrupting: bool) -> Option<Stop> {
        if interrupting {
            return Some(Stop::Interrupt);
        }
        self.cancel.map(|cancel| cancel.mode.into())
    }
}

impl NodeCore {
    /// Nothing of the job ever ran: it is started now (DISP-41).
    pub(crate) fn not_started(&mut self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.process == Process::Finding {
            job.process = Process::Spawning;
            job.output.whole = true;
            self.finding -= 1;
            out.effect(Effect::Spawn {
                job: id,
                plan: Box::new(job.started.plan.clone()),
            });
        }
    }

    /// The process runs, perhaps since before a restart of ours: it is told again whatever it may
    /// have missed.
    pub(crate) fn alive(&mut self, id: JobId, output_len: u64, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.process {
            Process::Finding => self.finding -= 1,
            Process::Spawning | Process::Alive => {}
            _ => return,
        }
        job.process = Process::Alive;
        job.output.whole = true;
        if let Some(short) = job.denied {
            out.effect(Effect::Deny { job: id, short });
        } else if !self.ledger.waits(id) {
            out.effect(Effect::Grant { job: id });
        }
        if let Some(how) = job.stop(self.interrupting) {
            out.effect(Effect::Stop { job: id, how });
        }
        self.output_grew(id, output_len, out);
    }

    pub(crate) fn stage(
        &mut self,
        id: JobId,
        stage: &str,
        activity: Option<String>,
        out: &mut Out,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let next = Some((display(stage), activity.map(|text| display(&text))));
        if job.process == Process::Alive && job.stage != next {
            job.stage = next;
            self.say_state(id, out);
        }
    }

    /// The VM's size is told once it is known (DISP-23).
    pub(crate) fn guest(&mut self, id: JobId, guest: GuestSize, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.process == Process::Alive && job.guest != Some(guest) {
            job.guest = Some(guest);
            if job.stage.is_some() {
                self.say_state(id, out);
            }
        }
    }

    /// Tells the hub how a job stands, unless it wants to hear no more of it than its result.
    fn say_state(&self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if self.session.is_some_and(|s| s.held) && !job.output.is_disowned() {
            let state = job.state();
            self.send(NodeJobMessage::Job { job: id, state }, out);
        }
    }

    /// The process wrote its result, after its last byte of output.
    pub(crate) fn result(&mut self, id: JobId, mut result: JobResult, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.process {
            Process::Finding => self.finding -= 1,
            Process::Spawning | Process::Alive | Process::Cleaning(_) | Process::Dead(_) => {}
            Process::Closing(_) | Process::Over => return,
        }
        job.output.whole = true;
        job.output.len = job.output.len.max(result.output_len);
        result.output_len = job.output.len;
        result.message = result.message.map(|text| text.chars().take(4096).collect());
        self.finish(id, result, out);
    }

    /// The process is gone without a result: what it left is ended first (FAIL-32).
    pub(crate) fn ended(&mut self, id: JobId, output_len: u64, death: Death, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.process {
            Process::Finding => self.finding -= 1,
            Process::Spawning | Process::Alive => {}
            _ => return,
        }
        job.process = Process::Cleaning(death);
        job.output.len = job.output.len.max(output_len);
        let until = self.now.after(self.config.cleanup_timeout);
        self.timers.set(Timer::CleanUp(id), until);
        out.effect(Effect::CleanUp { job: id });
        self.pump(id, out);
    }

    /// Nothing of a dead job runs any more, or its time for that is over: what it had goes back
    /// to the ledger, and its output is closed.
    pub(crate) fn cleaned_up(&mut self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Process::Cleaning(death) = job.process else {
            return;
        };
        self.timers.clear(Timer::CleanUp(id));
        job.process = Process::Dead(DeadEnd::Died { death });
        self.leave_ledger(id, out);
        self.close_if_known(id, out);
    }

    /// Closes a dead job's output where it is known how much of it the hub has: after a host's
    /// crash that may be more than is left here.
    pub(crate) fn close_if_known(&mut self, id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (Process::Dead(end), None) = (&job.process, &self.store_failed) else {
            return;
        };
        let Some(at) = job.output.end() else {
            return;
        };
        if job.output.is_disowned() {
            let result = dead_result(end, job.output.len);
            return self.finish(id, result, out);
        }
        let line = ClosingLine {
            own_len: job.output.len,
            at,
            end: end.clone(),
        };
        job.process = Process::Closing(line.clone());
        out.record(Record::Closing {
            job: id,
            line: line.clone(),
        });
        out.effect(Effect::CloseOutput { job: id, line });
    }

    /// The process could not be started at all.
    pub(crate) fn spawn_failed(&mut self, id: JobId, why: &str, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.process != Process::Spawning {
            return;
        }
        job.process = Process::Dead(DeadEnd::NotSpawned { why: display(why) });
        self.leave_ledger(id, out);
        self.close_if_known(id, out);
    }

    /// A dead job's output is complete, last line included.
    pub(crate) fn output_closed(&mut self, id: JobId, len: u64, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Process::Closing(line) = &job.process else {
            return;
        };
        let result = dead_result(&line.end, len.max(line.at));
        job.output.whole = true;
        job.output.len = result.output_len;
        self.finish(id, result, out);
    }

    /// Stops every job because the host stops (FAIL-12).
    pub(crate) fn interrupt_jobs(&mut self, out: &mut Out) {
        self.interrupting = true;
        for (id, job) in &self.jobs {
            if job.process == Process::Alive {
                let how = Stop::Interrupt;
                out.effect(Effect::Stop { job: *id, how });
            }
        }
    }

    /// Gives back what a job had of the ledger, and lets the next ones have it.
    pub(crate) fn leave_ledger(&mut self, id: JobId, out: &mut Out) {
        self.timers.clear(Timer::Wait(id));
        self.ledger.leave(id);
        self.grant_waiting(out);
    }
}

/// The result of a job whose process left none.
pub(crate) fn dead_result(end: &DeadEnd, output_len: u64) -> JobResult {
    let failure = match end {
        DeadEnd::Died { .. } => FailureClass::Interrupted,
        DeadEnd::NotSpawned { .. } => FailureClass::System,
    };
    JobResult {
        failure: Some(failure),
        exit_code: None,
        message: Some(end.to_string()),
        output_len,
        artifacts: Vec::new(),
        usage: None,
    }
}
