//! The task that owns the node core: inputs in, steps to the disk, effects out.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::HubJobMessage;
use vk_hub_proto::job::{CiJob, JobSpec};
use vk_hub_proto::node_session::{Admission, HubMessage};
use vk_kill::KillPoints;
use vk_node_core::io::StartFacts;
use vk_node_core::sizing;
use vk_node_core::{Budgets, Config as CoreConfig, Effect, Input, NodeCore, Record};
use vk_step::{Core as _, Now, OpenError};

use super::disk::{Batch, Disk, DiskError, Done, StartFile};
use super::operate::{Answer, Reply, Waiting};
use crate::admin::Call;
use crate::job::attend::{News, Orders};
use crate::job::spawn::JobProgram;
use crate::job::start_file::{self, Moment};
use crate::metrics::{Metrics, Snapshot, Tally};
use crate::past_runs::PastRuns;
use crate::session::{Outbox, Told, chain};
use crate::state_dir::StateDir;
use crate::view::Views;

/// How long after a failed write the disk is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// A journal longer than this is written anew, once it has grown to this many times its snapshot.
const COMPACT_BYTES: u64 = 1 << 20;
const COMPACT_TIMES: u64 = 4;

/// What the daemon's other tasks tell it.
pub(crate) enum Message {
    /// What became of a job.
    Job(JobId, Box<News>),
    /// What may be granted.
    Budgets(Budgets),
    /// The host's own gitlab-runner, in words, where there is one.
    OwnRunner(Option<String>),
    /// An operator's call.
    Call(Call, Reply),
    /// How the node stands, for metrics.
    Look(oneshot::Sender<Snapshot>),
    /// End, once what was begun is durable.
    Stop,
}

/// What the actor is made of.
pub(crate) struct Parts {
    pub(crate) core: CoreConfig,
    pub(crate) state: StateDir,
    pub(crate) program: JobProgram,
    pub(crate) settings: serde_json::Value,
    /// Past runs, where they say how much memory is set aside.
    pub(crate) past_runs: Option<PastRuns>,
    pub(crate) kill: KillPoints,
    /// How long an image that was built here counts as at hand.
    pub(crate) image_cache_idle: Duration,
    pub(crate) disk: Disk,
    pub(crate) told: mpsc::Receiver<Told>,
    pub(crate) admission: watch::Sender<Admission>,
    /// Version, node and hub, for status.
    pub(crate) who: (String, String, String),
    pub(crate) metrics: Arc<Metrics>,
}

/// A step that waits for the disk.
pub(crate) struct Step {
    pub(crate) records: Vec<Record>,
    pub(crate) effects: Vec<Effect>,
    start: Option<StartFile>,
    /// What an operator is told once the step is durable.
    pub(crate) answer: Option<(Answer, Reply)>,
}

/// What the disk has.
enum Writing {
    /// Nothing.
    Idle,
    /// These steps.
    Steps(VecDeque<Step>),
    /// A journal written anew.
    Anew,
    /// It failed: nothing is given to it but questions.
    Failed,
}

/// How a job is attended.
pub(crate) struct Attended {
    pub(crate) orders: watch::Sender<Orders>,
    pub(crate) task: tokio::task::AbortHandle,
}

/// The actor.
pub(crate) struct Actor {
    pub(crate) core: NodeCore,
    pub(crate) parts: Parts,
    pub(crate) origin: Instant,
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) own: mpsc::Sender<Message>,
    pub(crate) session: Option<(u64, Arc<Outbox>)>,
    pub(crate) jobs: BTreeMap<JobId, Attended>,
    pub(crate) views: Views,
    pub(crate) tally: Tally,
    gathering: VecDeque<Step>,
    writing: Writing,
    mend_at: Option<Instant>,
    compacted: u64,
    stopping: bool,
    /// Operators that wait for a change.
    pub(crate) changes: Vec<Waiting>,
}

/// A daemon that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ActorError {
    /// The journal's records.
    #[error("the journal's records do not fit together")]
    Records(#[from] OpenError),
    /// What is durable cannot be read any more.
    #[error("the journal failed and cannot be read again")]
    Disk(#[from] DiskError),
    /// The journal's thread.
    #[error("the journal's thread is gone")]
    Gone,
}

impl Actor {
    /// Opens the core from what the journal has.
    pub(crate) fn open(
        parts: Parts,
        records: Vec<Record>,
        history: PathBuf,
        (own, inbox): (mpsc::Sender<Message>, mpsc::Receiver<Message>),
    ) -> Result<Actor, ActorError> {
        let origin = Instant::now();
        let mut views = Views::open(history);
        views.records(&records);
        let mut tally = Tally::new(Arc::clone(&parts.metrics));
        views.ids().for_each(|job| tally.earlier(job));
        let (core, effects) = NodeCore::open(parts.core.clone(), now(origin), records)?;
        let mut actor = Actor {
            core,
            parts,
            origin,
            inbox,
            own,
            session: None,
            jobs: BTreeMap::new(),
            views,
            tally,
            gathering: VecDeque::new(),
            writing: Writing::Idle,
            mend_at: None,
            compacted: 0,
            stopping: false,
            changes: Vec::new(),
        };
        actor.read_left_states();
        actor.gather(Vec::new(), effects, None);
        Ok(actor)
    }

    /// Runs until told to stop.
    pub(crate) async fn run(mut self) -> Result<(), ActorError> {
        loop {
            self.flush();
            if self.stopping && matches!(self.writing, Writing::Idle | Writing::Failed) {
                return Ok(());
            }
            self.parts.admission.send_if_modified(|shown| {
                std::mem::replace(shown, self.core.admission()) != *shown
            });
            self.tell_changes();
            let deadline = self.core.next_deadline().map(|at| self.moment(at));
            let change = self.next_change();
            tokio::select! {
                done = self.parts.disk.done() => self.disk_done(done)?,
                told = self.parts.told.recv(), if !self.stopping => match told {
                    Some(told) => self.told(told),
                    None => self.stopping = true,
                },
                message = self.inbox.recv() => {
                    if let Some(message) = message {
                        self.message(message);
                    }
                }
                () = at(deadline) => self.input(Input::Timeout),
                () = at(change) => {}
                () = at(self.mend_at) => {
                    self.mend_at = None;
                    self.parts.disk.mend();
                }
            }
        }
    }

    fn moment(&self, at: Now) -> Instant {
        self.origin + Duration::from_millis(at.as_millis())
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Job(job, news) => self.news(job, *news),
            Message::Budgets(budgets) => self.input(Input::Budgets(budgets)),
            Message::OwnRunner(found) => self.input(Input::OwnRunner(found)),
            Message::Call(call, reply) => self.call(call, reply),
            // A looker that left needs no answer.
            Message::Look(reply) => drop(reply.send(self.snapshot())),
            Message::Stop => self.stopping = true,
        }
    }

    fn news(&mut self, job: JobId, news: News) {
        if let Some(progress) = news.progress {
            self.tally.progress(job, &progress);
            self.views.progress(job, progress);
        }
        for event in news.events {
            self.input(Input::Job { job, event });
        }
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Opened {
                session,
                version,
                outbox,
            } => {
                self.session = Some((session, outbox));
                self.parts.metrics.session();
                self.input(Input::SessionOpened { session, version });
            }
            Told::Closed { session } => {
                if self
                    .session
                    .as_ref()
                    .is_some_and(|(open, _)| *open == session)
                {
                    self.session = None;
                    self.input(Input::SessionLost);
                }
            }
            Told::Hub { session, message } => {
                if self
                    .session
                    .as_ref()
                    .is_some_and(|(open, _)| *open == session)
                {
                    self.hub(*message);
                }
            }
        }
    }

    fn hub(&mut self, message: HubMessage) {
        match message {
            HubMessage::Job(message) => self.job_message(message),
            HubMessage::Desired(desired) => self.input(Input::Desired(desired)),
            HubMessage::Command { id, expires_at, op } => {
                let expired = unix_millis() / 1000 > expires_at;
                self.input(Input::Command { id, op, expired });
            }
            _ => {}
        }
    }

    fn job_message(&mut self, message: HubJobMessage) {
        let HubJobMessage::Start { job, spec, .. } = &message else {
            return self.hub_input(message, StartFacts::default(), None);
        };
        let job = *job;
        let spec_bytes = serde_json::to_vec(spec).map_or(usize::MAX, |json| json.len());
        let JobSpec::GitlabCi(ci_job) = spec;
        let facts = StartFacts {
            spec_bytes,
            history_mib: self.history_mib(ci_job),
        };
        let start = start_file::write(&message, &Moment::now());
        let start = start.map(|json| StartFile { job, json });
        let received = unix_millis();
        self.hub_input(message, facts, start);
        self.views.received(job, received);
    }

    /// Memory to set aside by past runs, where the operator wants that.
    fn history_mib(&self, job: &CiJob) -> Option<u64> {
        let runs = self.parts.past_runs.as_ref()?.of(job).read();
        let sized = sizing::size(job, self.parts.core.sizes);
        sizing::from_history(&runs, sized.mem_mib)
    }

    fn hub_input(&mut self, message: HubJobMessage, start: StartFacts, file: Option<StartFile>) {
        let message = Box::new(message);
        let step = self
            .core
            .handle(now(self.origin), Input::Hub { message, start });
        self.gather(step.records, step.effects, file);
    }

    pub(crate) fn input(&mut self, input: Input) {
        let step = self.handle(input);
        self.gather(step.records, step.effects, None);
    }

    pub(crate) fn handle(&mut self, input: Input) -> vk_step::Step<Record, Effect> {
        self.core.handle(now(self.origin), input)
    }

    pub(crate) fn gather(
        &mut self,
        records: Vec<Record>,
        effects: Vec<Effect>,
        start: Option<StartFile>,
    ) {
        if records.is_empty() && effects.is_empty() {
            return;
        }
        self.views.records(&records);
        self.tally.records(&records);
        // The message of a start that was not taken goes no further.
        let taken = |file: &StartFile| {
            let is = |record: &Record| matches!(record, Record::Started(of) if of.job == file.job);
            records.iter().any(is)
        };
        let step = Step {
            start: start.filter(taken),
            records,
            effects,
            answer: None,
        };
        self.queue(step);
    }

    /// The same, where an operator waits for it.
    pub(crate) fn gather_for(
        &mut self,
        records: Vec<Record>,
        effects: Vec<Effect>,
        answer: (Answer, Reply),
    ) {
        self.views.records(&records);
        self.tally.records(&records);
        self.queue(Step {
            records,
            effects,
            start: None,
            answer: Some(answer),
        });
    }

    fn queue(&mut self, step: Step) {
        let idle = matches!(self.writing, Writing::Idle | Writing::Failed);
        if idle && self.gathering.is_empty() && step.records.is_empty() {
            self.parts.kill.before(&step.records, &step.effects);
            self.parts.kill.synced(&step.records, &step.effects);
            self.release(step);
        } else {
            self.gathering.push_back(step);
        }
    }

    /// Gives the disk what was gathered, where it is idle.
    fn flush(&mut self) {
        if !matches!(self.writing, Writing::Idle) || self.gathering.is_empty() {
            return;
        }
        let mut steps = std::mem::take(&mut self.gathering);
        let mut batch = Batch::default();
        for step in &mut steps {
            self.parts.kill.before(&step.records, &step.effects);
            batch.records.extend(step.records.iter().cloned());
            batch.starts.extend(step.start.take());
        }
        self.writing = Writing::Steps(steps);
        self.parts.disk.keep(batch);
    }

    fn disk_done(&mut self, done: Done) -> Result<(), ActorError> {
        match done {
            Done::Kept(Ok(len)) => {
                if let Writing::Steps(steps) = std::mem::replace(&mut self.writing, Writing::Idle) {
                    for step in steps {
                        self.parts.kill.synced(&step.records, &step.effects);
                        self.release(step);
                    }
                }
                self.compact(len);
            }
            Done::Kept(Err(error)) => self.store_failed(&error),
            Done::Replaced(replaced) => {
                self.writing = Writing::Idle;
                match replaced {
                    Ok(len) => self.compacted = len,
                    Err(error) => self.store_failed(&error),
                }
            }
            Done::Durable(records) => self.reopen(records?)?,
            Done::Mended(Ok(())) => {
                tracing::info!("the journal can be written again");
                self.writing = Writing::Idle;
                self.input(Input::StoreWorks);
            }
            Done::Mended(Err(error)) => {
                tracing::error!(error = chain(&error), "the journal still cannot be written");
                self.mend_at = Some(Instant::now() + TRY_AGAIN);
            }
            Done::Gone => return Err(ActorError::Gone),
        }
        Ok(())
    }

    /// Writes the journal anew where it is mostly of the past. Only while nothing waits: the core
    /// then is what is durable.
    fn compact(&mut self, len: u64) {
        let due = len > COMPACT_BYTES.max(self.compacted.saturating_mul(COMPACT_TIMES));
        if due && self.gathering.is_empty() && matches!(self.writing, Writing::Idle) {
            self.writing = Writing::Anew;
            self.parts.disk.replace(self.core.snapshot());
        }
    }

    /// A write failed: nothing that waited for it happens, the session ends, and the core is
    /// opened anew from what is durable.
    fn store_failed(&mut self, error: &DiskError) {
        let why = chain(error);
        tracing::error!(
            error = why,
            "the journal cannot be written: what is not kept is dropped"
        );
        self.writing = Writing::Failed;
        self.gathering.clear();
        if let Some((_, outbox)) = self.session.take() {
            outbox.close();
        }
        self.input(Input::StoreFailed { why });
        self.gathering.clear();
        self.parts.disk.durable();
    }

    fn reopen(&mut self, records: Vec<Record>) -> Result<(), ActorError> {
        let why = self.core.status().store_failed.unwrap_or_default();
        for (_, job) in std::mem::take(&mut self.jobs) {
            job.task.abort();
        }
        self.gathering.clear();
        let (core, effects) = NodeCore::open(self.parts.core.clone(), now(self.origin), records)?;
        self.core = core;
        if let Some((_, outbox)) = self.session.take() {
            // One that was opened meanwhile spoke for the former core.
            outbox.close();
        }
        self.gather(Vec::new(), effects, None);
        self.input(Input::StoreFailed { why });
        self.mend_at = Some(Instant::now() + TRY_AGAIN);
        Ok(())
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn now(origin: Instant) -> Now {
    Now::from_millis(u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX))
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
