//! The machine itself: its parts, and which part takes which input.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage};
use vk_hub_proto::node_session::{Admission, DesiredState};
use vk_hub_proto::{CommandId, JobId, ReservationId};
use vk_step::{Now, OpenError, Step};

use crate::Config;
use crate::io::{Effect, Input, JobEvent, Record, Standing, Status};
use crate::jobs::Job;
use crate::leases::Lease;
use crate::ledger::{Ledger, Room};
use crate::remembered::Remembered;
use crate::session::Session;
use crate::slots::Slots;
use crate::timers::{Timer, Timers};

/// A step of this machine.
pub(crate) type Out = Step<Record, Effect>;

/// The node's state machine.
#[derive(Debug)]
pub struct NodeCore {
    /// The latest moment seen.
    pub(crate) now: Now,
    pub(crate) config: Config,
    pub(crate) ledger: Ledger,
    pub(crate) timers: Timers,
    pub(crate) slots: Slots,
    pub(crate) leases: BTreeMap<ReservationId, Lease>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// Orders jobs by their start.
    pub(crate) next_order: u64,
    /// Jobs without a result.
    pub(crate) unfinished: usize,
    /// Jobs whose process is being looked for.
    pub(crate) finding: usize,
    /// Recorded by the hub, directory not known to be gone.
    pub(crate) removing: BTreeSet<JobId>,
    pub(crate) dropped: Remembered<JobId, ()>,
    pub(crate) commands: Remembered<CommandId, vk_hub_proto::node_session::CommandOutcome>,
    pub(crate) standing: Standing,
    pub(crate) desired: Option<DesiredState>,
    pub(crate) own_runner: Option<String>,
    pub(crate) interrupting: bool,
    pub(crate) store_failed: Option<String>,
    pub(crate) session: Option<Session>,
    pub(crate) reported: Option<Status>,
}

impl vk_step::Core for NodeCore {
    type Config = Config;
    type Input = Input;
    type Record = Record;
    type Effect = Effect;

    fn open(
        config: Config,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(NodeCore, Vec<Effect>), OpenError> {
        crate::replay::open(config, now, records)
    }

    fn handle(&mut self, now: Now, input: Input) -> Out {
        let mut out = Out::none();
        self.now = self.now.max(now);
        self.run_timers(&mut out);
        self.take(input, &mut out);
        self.report_changes(&mut out);
        out
    }

    fn next_deadline(&self) -> Option<Now> {
        self.timers.next()
    }

    fn timeout() -> Input {
        Input::Timeout
    }
}

impl NodeCore {
    /// A node that never had a job.
    pub(crate) fn empty(config: Config, now: Now) -> NodeCore {
        NodeCore {
            now,
            ledger: Ledger::new(config.budgets),
            timers: Timers::default(),
            slots: Slots::default(),
            leases: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_order: 0,
            unfinished: 0,
            finding: 0,
            removing: BTreeSet::new(),
            dropped: Remembered::new(config.remembered_jobs),
            commands: Remembered::new(config.remembered_commands),
            standing: Standing::default(),
            desired: None,
            own_runner: config.own_runner.clone(),
            interrupting: false,
            store_failed: None,
            session: None,
            reported: None,
            config,
        }
    }

    /// The ledger in figures, for a heartbeat.
    #[must_use]
    pub fn admission(&self) -> Admission {
        let (running, waiting) = self.ledger.counts();
        Admission {
            committed_mib: self.ledger.granted().mem_mib,
            budget_mib: self.ledger.budgets().mem_mib,
            running: u32::try_from(running).unwrap_or(u32::MAX),
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
        }
    }

    /// The ledger in full, for operators.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            budgets: self.ledger.budgets(),
            granted: self.ledger.granted(),
            asked: self.ledger.asked(),
            reservations: self.ledger.reservations(),
            waiting: self.ledger.counts().1,
        }
    }

    fn take(&mut self, input: Input, out: &mut Out) {
        match input {
            Input::Timeout => {}
            Input::SessionOpened { session, version } => self.session_opened(session, version, out),
            Input::SessionLost => self.session_lost(),
            Input::Hub { message, start } => match *message {
                HubJobMessage::Offer {
                    reservation,
                    envelope,
                    lease_secs,
                } => self.offer(reservation, envelope, lease_secs, out),
                HubJobMessage::Renew {
                    reservation,
                    lease_secs,
                } => self.renew(reservation, lease_secs, out),
                HubJobMessage::Release { reservation } => self.release(reservation, out),
                HubJobMessage::Start {
                    job,
                    reservation,
                    envelope,
                    spec,
                    // For the job's process alone.
                    registry: _,
                } => self.start((job, reservation, envelope), &spec, start, out),
                HubJobMessage::OutputAck { job, offset } => self.acked(job, offset, out),
                HubJobMessage::Cancel { job, mode } => self.cancel(job, mode, out),
                HubJobMessage::Recorded { job } => self.recorded(job, out),
                HubJobMessage::Other => {}
            },
            Input::Desired(desired) => self.desired(desired, out),
            Input::Command { id, op, expired } => self.command(id, &op, expired, out),
            Input::Operator { id, op } => self.operator(id, op, out),
            Input::Job { job, event } => self.job_event(job, event, out),
            Input::Budgets(budgets) => {
                self.ledger.set_budgets(budgets);
                self.grant_waiting(out);
            }
            Input::OwnRunner(found) => self.own_runner = found.map(|what| display(&what)),
            Input::InterruptJobs => self.interrupt_jobs(out),
            Input::StoreFailed { why } => self.store_failed = Some(display(&why)),
            Input::StoreWorks => self.store_works(out),
        }
    }

    fn job_event(&mut self, job: JobId, event: JobEvent, out: &mut Out) {
        match event {
            JobEvent::NotStarted => self.not_started(job, out),
            JobEvent::Alive { output_len } => self.alive(job, output_len, out),
            JobEvent::Stage { stage, activity } => self.stage(job, &stage, activity, out),
            JobEvent::Guest(guest) => self.guest(job, guest, out),
            JobEvent::Output { len } => self.output_grew(job, len, out),
            JobEvent::Result(result) => self.result(job, result, out),
            JobEvent::Ended { output_len, death } => self.ended(job, output_len, death, out),
            JobEvent::SpawnFailed { why } => self.spawn_failed(job, &why, out),
            JobEvent::CleanedUp => self.cleaned_up(job, out),
            JobEvent::OutputClosed { len } => self.output_closed(job, len, out),
            JobEvent::Removed => self.removed(job, out),
        }
        self.hold_if_found(out);
    }

    fn run_timers(&mut self, out: &mut Out) {
        while let Some(timer) = self.timers.take_due(self.now) {
            match timer {
                Timer::Lease(reservation) => self.lease_expired(reservation, out),
                Timer::Wait(job) => self.waited_too_long(job, out),
                Timer::CleanUp(job) => self.cleaned_up(job, out),
                Timer::Repeat(job) => self.send_result(job, out),
                Timer::Grant => self.grant_waiting(out),
            }
        }
    }

    /// Sends a job message, where there is a session that knows of them.
    pub(crate) fn send(&self, message: NodeJobMessage, out: &mut Out) {
        if let Some(session) = self.session.as_ref().filter(|s| s.has_jobs()) {
            out.effect(Effect::Send {
                session: session.number,
                message: Box::new(message),
            });
        }
    }
}

/// Text for display: no control characters, not longer than the wire allows (DISP-85).
pub(crate) fn display(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(vk_hub_proto::limit::DISPLAY_CHARS)
        .collect()
}
