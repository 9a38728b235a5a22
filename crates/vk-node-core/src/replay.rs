//! The machine from what was kept, and what was kept from the machine.

use vk_hub_proto::JobId;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::job::JobResult;
use vk_step::{Now, OpenError, Variant};

use crate::io::{ClosingLine, Effect, Record, StartedJob};
use crate::jobs::{Cancel, Job, Process};
use crate::ledger::Resource;
use crate::timers::Timer;
use crate::{Config, NodeCore};

/// Rebuilds the machine; the effects are those that may have been lost.
pub(crate) fn open(
    config: Config,
    now: Now,
    records: impl IntoIterator<Item = Record>,
) -> Result<(NodeCore, Vec<Effect>), OpenError> {
    let mut core = NodeCore::empty(config, now);
    for (at, record) in records.into_iter().enumerate() {
        let variant = record.variant();
        core.replay(record)
            .map_err(|why| OpenError { at, variant, why })?;
    }
    let effects = core.resume();
    Ok((core, effects))
}

impl NodeCore {
    fn replay(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Started(started) => self.replay_started(started),
            Record::Granted { job } => self.replay_granted(job),
            Record::Denied { job, short } => self.replay_denied(job, short),
            Record::Cancelled { job, mode } => self.replay_cancelled(job, mode),
            Record::Closing { job, line } => self.replay_closing(job, line),
            Record::Finished { job, result } => self.replay_finished(job, result),
            Record::Recorded { job } => self.replay_recorded(job),
            Record::Dropped { job } => self.replay_dropped(job),
            Record::Desired(desired) => {
                self.desired = Some(desired);
                Ok(())
            }
            Record::Commanded {
                id,
                outcome,
                standing,
            } => {
                self.commands.add(id, outcome);
                self.standing = standing;
                Ok(())
            }
        }
    }

    fn replay_started(&mut self, started: Box<StartedJob>) -> Result<(), String> {
        let id = started.job;
        if self.jobs.contains_key(&id) || self.removing.contains(&id) {
            return Err(format!("job {id} was started before"));
        }
        let job = Job::new(started, self.next_order, Process::Finding);
        self.next_order += 1;
        self.jobs.insert(id, job);
        Ok(())
    }

    /// A job that was started and has no result.
    fn running(&mut self, id: JobId) -> Result<&mut Job, String> {
        match self.jobs.get_mut(&id) {
            Some(job) if job.result.is_none() => Ok(job),
            Some(_) => Err(format!("job {id} is over")),
            None => Err(format!("job {id} was not started")),
        }
    }

    fn replay_granted(&mut self, id: JobId) -> Result<(), String> {
        self.running(id)?.granted = true;
        Ok(())
    }

    fn replay_denied(&mut self, id: JobId, short: Resource) -> Result<(), String> {
        self.running(id)?.denied = Some(short);
        Ok(())
    }

    fn replay_cancelled(&mut self, id: JobId, mode: CancelMode) -> Result<(), String> {
        self.running(id)?.cancel = Some(Cancel { mode, kept: true });
        Ok(())
    }

    fn replay_closing(&mut self, id: JobId, line: ClosingLine) -> Result<(), String> {
        let job = self.running(id)?;
        job.output.len = line.at;
        job.output.whole = true;
        job.process = Process::Closing(line);
        Ok(())
    }

    fn replay_finished(&mut self, id: JobId, result: JobResult) -> Result<(), String> {
        let job = self.running(id)?;
        job.output.len = result.output_len;
        job.output.whole = true;
        job.process = Process::Over;
        job.result = Some(result);
        Ok(())
    }

    /// A snapshot keeps nothing else of such a job, so one that is not known is no error.
    fn replay_recorded(&mut self, id: JobId) -> Result<(), String> {
        match self.jobs.get(&id) {
            Some(job) if job.result.is_none() => return Err(format!("job {id} is not over")),
            _ => self.jobs.remove(&id),
        };
        self.removing.insert(id);
        Ok(())
    }

    fn replay_dropped(&mut self, id: JobId) -> Result<(), String> {
        if self.jobs.contains_key(&id) {
            return Err(format!("job {id} is not recorded"));
        }
        self.removing.remove(&id);
        self.dropped.add(id, ());
        Ok(())
    }

    /// Takes up what the journal says is not done, in the order of the jobs' starts.
    fn resume(&mut self) -> Vec<Effect> {
        let mut effects: Vec<_> = self
            .removing
            .iter()
            .map(|job| Effect::Remove { job: *job })
            .collect();
        for id in self.by_start() {
            self.resume_job(id, &mut effects);
        }
        if self.ledger.next_to_grant().is_some() {
            self.timers.set(Timer::Grant, self.now);
        }
        effects
    }

    fn resume_job(&mut self, id: JobId, effects: &mut Vec<Effect>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.result.is_some() {
            effects.push(Effect::DropSecrets { job: id });
            return;
        }
        self.unfinished += 1;
        let started = &job.started;
        let plan = &started.plan;
        self.slots
            .mark(&started.project, plan.slot, plan.project_slot);
        if let Process::Closing(line) = &job.process {
            let line = line.clone();
            effects.push(Effect::CloseOutput { job: id, line });
            return;
        }
        self.finding += 1;
        effects.push(Effect::Attach { job: id });
        if job.denied.is_some() {
            return;
        }
        let has = if job.granted {
            started.asked
        } else {
            started.granted
        };
        self.ledger.enter(id, has, started.asked);
        if self.ledger.waits(id) {
            let until = match self.ledger.never_fits(started.asked) {
                Some(_) => self.now,
                None => self.now.after(self.config.wait_timeout),
            };
            self.timers.set(Timer::Wait(id), until);
        }
    }

    fn by_start(&self) -> Vec<JobId> {
        let mut jobs: Vec<_> = self.jobs.iter().map(|(id, job)| (job.order, *id)).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, id)| id).collect()
    }

    /// The fewest records from which [`vk_step::Core::open`] makes this machine again: what an
    /// edge may put in the place of all records so far, once those are durable.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records: Vec<_> = self.desired.map(Record::Desired).into_iter().collect();
        let commanded =
            |(id, outcome): (&_, &vk_hub_proto::node_session::CommandOutcome)| Record::Commanded {
                id: *id,
                outcome: outcome.clone(),
                standing: self.standing,
            };
        records.extend(self.commands.iter().map(commanded));
        let dropped = self.dropped.iter();
        records.extend(dropped.map(|(job, ())| Record::Dropped { job: *job }));
        let removing = self.removing.iter();
        records.extend(removing.map(|job| Record::Recorded { job: *job }));
        for id in self.by_start() {
            if let Some(job) = self.jobs.get(&id) {
                snapshot_job(id, job, &mut records);
            }
        }
        records
    }
}

fn snapshot_job(id: JobId, job: &Job, records: &mut Vec<Record>) {
    records.push(Record::Started(job.started.clone()));
    if let Some(result) = &job.result {
        let result = result.clone();
        records.push(Record::Finished { job: id, result });
        return;
    }
    if job.granted {
        records.push(Record::Granted { job: id });
    }
    if let Some(short) = job.denied {
        records.push(Record::Denied { job: id, short });
    }
    if let Some(Cancel { mode, kept: true }) = job.cancel {
        records.push(Record::Cancelled { job: id, mode });
    }
    if let Process::Closing(line) = &job.process {
        let line = line.clone();
        records.push(Record::Closing { job: id, line });
    }
}
