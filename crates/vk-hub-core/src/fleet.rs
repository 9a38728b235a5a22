//! The machine: its parts, and the way of an input through them.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::{JobId, NodeId, RelayId, ReservationId};
use vk_step::{Core, Now, OpenError, Step};

use crate::approvals::Approvals;
use crate::class::{ClassId, Classes};
use crate::clock::Clock;
use crate::history::History;
use crate::job::Job;
use crate::memory::{Grants, Memory};
use crate::node::Node;
use crate::relays::Relay;
use crate::request::{Asker, RequestKey};
use crate::reservation::Reservation;
use crate::seek::Seek;
use crate::timers::{Timer, Timers};
use crate::wait::Wait;
use crate::{Config, Effect, Input, Record, RequestHandle, SessionHandle, Settings};

/// What a step of this machine is.
pub(crate) type Out = Step<Record, Effect>;

/// The fleet: all nodes, reservations and jobs of one hub.
#[derive(Debug)]
pub struct Fleet {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) timers: Timers,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) sessions: BTreeMap<SessionHandle, NodeId>,
    pub(crate) classes: Classes,
    pub(crate) reservations: BTreeMap<ReservationId, Reservation>,
    /// Reservation requests still being served.
    pub(crate) seeks: BTreeMap<RequestKey, Seek>,
    pub(crate) grants: Grants,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) unfinished: usize,
    pub(crate) history: History,
    pub(crate) memory: Memory,
    pub(crate) waits: BTreeMap<RequestHandle, Wait>,
    pub(crate) relays: BTreeMap<RelayId, Relay>,
    pub(crate) relay_sessions: BTreeMap<SessionHandle, RelayId>,
    pub(crate) approvals: Approvals,
    pub(crate) next_turn: u64,
    /// Nodes whose room may have changed in this step.
    pub(crate) stirred: BTreeSet<NodeId>,
    /// Placements whose seekers may have a node now.
    pub(crate) woken: BTreeSet<ClassId>,
    /// Placements whose total may have changed in this step.
    pub(crate) moved: BTreeSet<ClassId>,
    /// Jobs whose view changed in this step.
    pub(crate) changed: BTreeSet<JobId>,
    pub(crate) stopped: Option<String>,
}

impl Core for Fleet {
    type Config = Config;
    type Input = Input;
    type Record = Record;
    type Effect = Effect;

    fn open(
        config: Config,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(Fleet, Vec<Effect>), OpenError> {
        Fleet::open_from(&config, now, records)
    }

    fn handle(&mut self, now: Now, input: Input) -> Out {
        let mut out = Step::none();
        if self.stopped.is_some() {
            self.refuse_all(&input, &mut out);
            return out;
        }
        self.run_due(now, &mut out);
        self.take(now, input, &mut out);
        self.serve(now, &mut out);
        self.announce(&mut out);
        if let Some(record) = self.clock.take_unrecorded(now) {
            // Before whatever names a revision of the block it sets aside.
            out.records.insert(0, record);
        }
        out
    }

    fn next_deadline(&self) -> Option<Now> {
        self.timers.next()
    }

    fn timeout() -> Input {
        Input::Timeout
    }
}

impl Fleet {
    fn take(&mut self, now: Now, input: Input, out: &mut Out) {
        match input {
            Input::Timeout => {}
            Input::Request { to, by, request } => {
                self.on_request(now, Asker { to, by }, request, out);
            }
            Input::HungUp { to } => self.on_hung_up(to),
            Input::Operator { to, request } => self.on_operator(now, to, request, out),
            Input::SessionOpened {
                session,
                node,
                version,
            } => self.on_session_opened(now, session, node, version, out),
            Input::SessionClosed { session } => {
                self.relay_session_gone(session);
                self.on_session_closed(now, session, out);
            }
            Input::Alive { session } => self.on_alive(now, session),
            Input::Node { session, message } => self.on_node_message(now, session, message, out),
            Input::OutputSynced { lengths } => self.on_output_synced(lengths, out),
            Input::RelayOpened { session, relay } => self.on_relay_opened(session, relay, out),
            Input::Relay { session, message } => {
                self.on_relay_message(now, session, message, out);
            }
            Input::StoreFailed { why } => self.on_store_failed(why, out),
        }
    }

    fn run_due(&mut self, now: Now, out: &mut Out) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Restart => self.on_restart(now, out),
                Timer::Clock => self.on_clock(now, out),
                Timer::Requests => self.forget_requests(now, out),
                Timer::History => self.trim_history(now, out),
                Timer::Silence(node) => self.on_silence(now, node, out),
                Timer::Lost(node) => self.on_node_lost(now, node, out),
                Timer::Offer(reservation) => self.on_offer_unanswered(now, reservation, out),
                Timer::Lease(reservation) => self.on_lease_over(now, reservation, out),
                Timer::Seek(seek) => self.on_seek_over(seek, out),
                Timer::Round(class) => self.on_round(now, class),
                Timer::Place(job) => self.on_not_placed(now, job, out),
                Timer::Overdue(job) => self.on_overdue(now, job, out),
                Timer::Unsettled(job) => self.on_unsettled(job, out),
                Timer::Wait(to) => self.on_wait_over(to, out),
            }
        }
    }

    /// Keeps a record: the state follows from records alone, live as after a restart.
    pub(crate) fn keep(&mut self, record: Record, out: &mut Out) {
        let applied = self.apply(&record);
        debug_assert_eq!(applied, Ok(()), "a record of our own fits");
        out.record(record);
    }

    /// The next place in a queue.
    pub(crate) const fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    /// A job's view changed: it gets a new revision, and who waits for it an answer at the step's
    /// end.
    pub(crate) fn bump(&mut self, job: JobId) {
        let revision = self.clock.next_revision();
        if let Some(one) = self.jobs.get_mut(&job) {
            one.moves_to(revision);
            self.changed.insert(job);
        }
    }
}
