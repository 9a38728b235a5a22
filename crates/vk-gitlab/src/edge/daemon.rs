//! The loop itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use vk_gitlab_core::acquire;
use vk_gitlab_core::job::{self, Job, JobRecord};
use vk_gitlab_core::slots::{RunnerIndex, Slots};
use vk_gitlab_core::state_file::StateFile;
use vk_hub_client::api::Client as HubClient;
use vk_hub_proto::RelayId;
use vk_kill::KillPoints;
use vk_step::{Core as _, Now, OpenError};

use super::calls::Event;
use super::fetched::Fetched;
use super::pace::Pace;
use super::reload::{Settings, Word};
use super::runner::{JobEdge, Prepared, RunnerEdge, Seat, runner_index};
use super::standing::Standing;
use super::step::{Owner, Step};
use crate::clock::unix_now;
use crate::session::{Line, Told};

/// How long the last writes of a daemon that is to end at once may take.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// Events taken in a row before state is written.
pub(super) const EVENTS: usize = 256;

/// An effect of one of the cores.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Acquire(usize, acquire::Effect),
    Job(u64, job::Effect),
}

/// How the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No job was left.
    Drained,
    /// Jobs are recorded and go on with the next start.
    JobsLeft(usize),
}

/// The daemon's loop.
pub struct Daemon {
    pub(super) relay: RelayId,
    pub(super) hub: Arc<HubClient>,
    pub(super) hub_url: String,
    pub(super) place_within_secs: u32,
    pub(super) runners: Vec<RunnerEdge>,
    pub(super) jobs: BTreeMap<u64, JobEdge>,
    pub(super) slots: Slots,
    pub(super) next_key: u64,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) shutdown_timeout: Duration,
    /// Until when running jobs are waited for, once the daemon was told to stop.
    give_up: Option<Instant>,
    /// Only what has happened is kept any more: nothing is begun.
    pub(super) ending: bool,
    pub(super) standing: Standing,
    told: mpsc::Receiver<Told>,
    inbox: mpsc::UnboundedReceiver<Event>,
    pub(super) kill: KillPoints,
    origin: Instant,
    pub(super) gathering: VecDeque<Step>,
    pub(super) writing: Option<VecDeque<Step>>,
    pub(super) pace: Pace,
    /// Until when what can wait for a write waits.
    pub(super) patient_until: Option<Instant>,
    /// Runners whose state files are tried again in a moment.
    pub(super) writing_again: BTreeSet<usize>,
}

impl Daemon {
    /// A daemon with these settings, whose runners' state files hold jobs.
    ///
    /// # Errors
    /// A record does not fit those before it.
    pub fn open(
        relay: RelayId,
        hub: Arc<HubClient>,
        hub_url: String,
        settings: Settings,
        session: Line,
        kill: KillPoints,
    ) -> Result<Daemon, OpenError> {
        let (events, inbox) = mpsc::unbounded_channel();
        let place_within = Duration::from_secs(settings.place_within_secs.into());
        let place_within = vk_kill::seconds("PLACE_WITHIN", place_within);
        let mut daemon = Daemon {
            relay,
            hub,
            hub_url,
            place_within_secs: u32::try_from(place_within.as_secs()).unwrap_or(u32::MAX),
            runners: Vec::new(),
            jobs: BTreeMap::new(),
            slots: Slots::new(settings.concurrent, 0, 0),
            next_key: 1,
            events,
            shutdown_timeout: settings.shutdown_timeout,
            give_up: None,
            ending: false,
            standing: Standing::new(session.about, session.changed),
            told: session.told,
            inbox,
            kill,
            origin: Instant::now(),
            gathering: VecDeque::new(),
            writing: None,
            pace: Pace::new(Instant::now()),
            patient_until: None,
            writing_again: BTreeSet::new(),
        };
        for mut prepared in settings.runners {
            let file = prepared.file.take().unwrap_or_default();
            daemon.open_runner(prepared, file)?;
        }
        Ok(daemon)
    }

    /// A runner with the jobs of its state file, which hold their slots.
    pub(super) fn open_runner(
        &mut self,
        prepared: Prepared,
        file: StateFile,
    ) -> Result<usize, OpenError> {
        let index = self.runners.len();
        let held = file.jobs.iter().filter(|job| !job.is_over()).count();
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let runner = RunnerEdge::open(prepared, file.unknown, (self.now(), held))?;
        self.runners.push(runner);
        self.slots.begin(runner_index(index));
        self.slots.hold(held);
        for job in file.jobs {
            self.open_job(index, job.records())?;
        }
        Ok(index)
    }

    /// Runs until it is told to stop and the runners are drained: jobs that are left then are
    /// waited for no longer than `shutdown_timeout` (GL-75). A second word to stop ends it as soon as
    /// what has happened is kept.
    pub async fn run(mut self, mut words: mpsc::Receiver<Word>) -> Ended {
        for index in 0..self.runners.len() {
            self.begin(index);
        }
        self.slots_changed();
        loop {
            self.flush();
            if self.is_done() {
                return self.ended();
            }
            // Once it is past, what is left comes as events.
            let give_up = self.give_up.filter(|at| *at > Instant::now());
            let deadlines = [self.deadline(), give_up, self.write_due()];
            let deadline = deadlines.into_iter().flatten().min();
            let sleep = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.inbox.recv() => self.take_all(event),
                Some(told) = self.told.recv() => self.told(told),
                () = sleep => self.timeouts(),
                word = words.recv() => match word {
                    Some(Word::Settings(settings)) => self.settings(*settings),
                    // Who asked may have gone.
                    Some(Word::Tell(asks)) => drop(asks.send(self.snapshot())),
                    Some(Word::Stop) if !self.is_stopping() => self.stop(),
                    Some(Word::Stop) | None => {
                        self.keep_what_waits().await;
                        return self.ended();
                    }
                },
            }
        }
    }

    /// Whether the daemon was told to stop.
    pub(super) const fn is_stopping(&self) -> bool {
        self.give_up.is_some()
    }

    fn stop(&mut self) {
        tracing::info!("draining: no job is asked for any more");
        self.give_up = Some(Instant::now() + self.shutdown_timeout);
        for index in 0..self.runners.len() {
            self.acquire_input(index, acquire::Input::Drain);
        }
    }

    /// What a runner's core asked for as it was opened.
    pub(super) fn begin(&mut self, index: usize) {
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        let opening = std::mem::take(&mut runner.opening);
        let effects = opening
            .into_iter()
            .map(|effect| Effect::Acquire(index, effect))
            .collect();
        self.gather(Step {
            owner: Owner::Runner(index),
            kept: None,
            records: Vec::new(),
            effects,
        });
        for word in self.standing.last_words() {
            self.acquire_input(index, word);
        }
        self.acquire_input(index, acquire::Input::Timeout);
        self.standing.changed();
    }

    /// Told to stop, and with every runner drained: no job is left, or the time for them is over.
    fn is_done(&self) -> bool {
        let Some(give_up) = self.give_up else {
            return false;
        };
        let drained = self.runners.iter().all(|runner| runner.drained);
        let late = give_up <= Instant::now();
        drained
            && self.writing.is_none()
            && self.gathering.is_empty()
            && (self.jobs.is_empty() || late)
    }

    /// Keeps what waits to be, without waiting for its pace: a job that GitLab handed over would have
    /// nobody. Nothing more is begun meanwhile.
    pub(super) async fn keep_what_waits(&mut self) {
        let until = Instant::now() + LAST_WRITES;
        self.ending = true;
        self.take_waiting();
        loop {
            if self.writing.is_none() && !self.write_gathered() && self.inbox.is_empty() {
                return;
            }
            match tokio::time::timeout_at(until, self.inbox.recv()).await {
                Ok(Some(event)) => self.take(event),
                Ok(None) | Err(_) => {
                    tracing::error!(
                        secs = LAST_WRITES.as_secs(),
                        "state that waited to be written could not be: it is lost"
                    );
                    return;
                }
            }
        }
    }

    fn ended(&self) -> Ended {
        match self.jobs.len() {
            0 => Ended::Drained,
            jobs => Ended::JobsLeft(jobs),
        }
    }

    pub(super) fn runner_drained(&mut self, index: usize) {
        if let Some(runner) = self.runners.get_mut(index) {
            runner.drained = true;
        }
        self.begin_anew(index);
    }

    /// Jobs of a runner that hold a slot.
    pub(super) fn jobs_of(&self, index: usize) -> u32 {
        let jobs = self.jobs.values().filter(|job| job.runner == index);
        let held = jobs.filter(|job| job.core.record().is_none_or(|record| !record.is_over()));
        u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    /// Which life of a runner this is.
    pub(super) fn seat(&self, index: usize) -> Seat {
        let life = self.runners.get(index).map_or(0, |runner| runner.life);
        Seat { index, life }
    }

    pub(super) fn now(&self) -> Now {
        let since = self.origin.elapsed().as_millis();
        Now::from_millis(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn deadline(&self) -> Option<Instant> {
        let jobs = self
            .jobs
            .values()
            .filter_map(|job| job.core.next_deadline());
        let runners = self.runners.iter();
        let runners = runners.filter_map(RunnerEdge::next_deadline);
        let next = jobs.chain(runners).min();
        let next = next.map(|next| self.origin + Duration::from_millis(next.as_millis()));
        let looks = self.runners.iter().filter_map(|runner| runner.expiry.look);
        looks.chain(next).min()
    }

    fn timeouts(&mut self) {
        let now = self.now();
        let due = |at: Option<Now>| at.is_some_and(|at| at <= now);
        let runners = self.runners.iter().enumerate();
        let runners: Vec<usize> = runners
            .filter(|(_, runner)| due(runner.next_deadline()))
            .map(|(index, _)| index)
            .collect();
        for index in runners {
            self.acquire_input(index, acquire::Input::Timeout);
        }
        let looks = self.runners.iter().enumerate();
        let looks = looks.filter(|(_, one)| one.expiry.look.is_some_and(|at| at <= Instant::now()));
        for index in looks.map(|(index, _)| index).collect::<Vec<_>>() {
            self.look_at_expiry(index);
        }
        let jobs = self
            .jobs
            .iter()
            .filter(|(_, job)| due(job.core.next_deadline()));
        for key in jobs.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.job_input(key, job::Input::Timeout);
        }
    }

    /// What comes next.
    #[cfg(test)]
    pub(super) async fn event(&mut self) -> Option<Event> {
        self.inbox.recv().await
    }

    fn take_all(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        self.take(event);
        self.take_waiting();
    }

    /// Takes what has come.
    fn take_waiting(&mut self) {
        for _ in 0..EVENTS {
            match self.inbox.try_recv() {
                Ok(event) => self.take(event),
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Acquire(seat, input) if seat == self.seat(seat.index) => {
                self.acquire_input(seat.index, input);
            }
            Event::Job(key, input) => {
                self.output_grew(key, &input);
                self.job_input(key, input);
            }
            Event::Fetched { key, call, answer } => {
                let answer = answer.map(|(read, bytes)| {
                    if let Some(job) = self.jobs.get_mut(&key) {
                        job.fetched.brought(call, bytes);
                        job.output_len = job.output_len.max(read.total);
                    }
                    read
                });
                self.job_input(key, job::Input::FetchAnswer(call, answer));
            }
            Event::Verified(seat, verified) if seat == self.seat(seat.index) => {
                self.verified(seat, &verified);
            }
            Event::Acquire(..) | Event::Verified(..) => {}
            Event::Written(written) => self.written(&written),
            Event::WriteAgain(index) => self.write_again(index),
        }
    }

    /// The hub said how much output a job has.
    fn output_grew(&mut self, key: u64, input: &job::Input) {
        if let (job::Input::ViewAnswer(_, Ok(view)), Some(job)) = (input, self.jobs.get_mut(&key)) {
            job.output_len = job.output_len.max(view.output_len);
        }
    }

    pub(super) fn open_job(
        &mut self,
        runner: usize,
        records: Vec<job::Record>,
    ) -> Result<u64, OpenError> {
        let key = self.next_key;
        let config = job::Config {
            hub_url: self.hub_url.clone(),
            place_within_secs: self.place_within_secs,
            wall: unix_now(),
            seed: drawn(),
        };
        let kept = !records.is_empty();
        let (core, effects) = Job::open(config, self.now(), records)?;
        self.next_key += 1;
        self.jobs.insert(
            key,
            JobEdge {
                runner,
                over: core.record().is_some_and(JobRecord::is_over),
                core,
                fetched: Fetched::default(),
                output_len: 0,
                rendered: None,
                kept,
                names: None,
            },
        );
        if let Some(job) = self.jobs.get_mut(&key) {
            job.note_names();
        }
        let effects = effects
            .into_iter()
            .map(|effect| Effect::Job(key, effect))
            .collect();
        self.gather(Step {
            owner: Owner::Job(key),
            kept: None,
            records: Vec::new(),
            effects,
        });
        Ok(key)
    }

    pub(super) fn acquire_input(&mut self, index: usize, input: acquire::Input) {
        let now = self.now();
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        let step = runner.acquire.handle(now, input);
        let effects = step
            .effects
            .into_iter()
            .map(|effect| Effect::Acquire(index, effect));
        self.gather(Step {
            owner: Owner::Runner(index),
            kept: None,
            records: Vec::new(),
            effects: effects.collect(),
        });
    }

    pub(super) fn job_input(&mut self, key: u64, input: job::Input) {
        let now = self.now();
        let Some(edge) = self.jobs.get_mut(&key) else {
            return;
        };
        let runner = edge.runner;
        let step = edge.core.handle(now, input);
        if !step.records.is_empty() {
            edge.rendered = None;
        }
        edge.note_names();
        let kept = (!step.records.is_empty()).then_some((runner, key));
        let effects = step
            .effects
            .into_iter()
            .map(|effect| Effect::Job(key, effect))
            .collect();
        self.gather(Step {
            owner: Owner::Job(key),
            kept,
            records: step.records,
            effects,
        });
    }

    pub(super) fn slots_changed(&mut self) {
        for (RunnerIndex(index), free) in self.slots.changes() {
            self.acquire_input(index as usize, acquire::Input::SlotFree(free));
        }
    }
}

/// A number for spreading waits: no secret.
pub(super) fn drawn() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the waits are not spread; that is all.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
