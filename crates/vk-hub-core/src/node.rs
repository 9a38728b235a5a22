//! One node: what is kept of it, its session, and what it says of itself.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::client::{Envelope, Placement};
use vk_hub_proto::node_session::{
    Acquisition, DesiredState, Heartbeat, Inventory, JOBS, NodeState, Report, StorageRole,
};
use vk_hub_proto::{JobId, Name, ReservationId};
use vk_step::Now;

use crate::SessionHandle;
use crate::book::Book;

/// A node of the fleet.
#[derive(Debug)]
pub(crate) struct Node {
    /// Kept.
    pub(crate) pools: BTreeSet<Name>,
    /// Kept.
    pub(crate) desired: DesiredState,
    /// Kept while it has jobs: out of touch since then, served milliseconds.
    pub(crate) silent_ms: Option<u64>,
    /// Whether [`Node::silent_ms`] stands in a record.
    pub(crate) silence_kept: bool,
    /// Its unfinished jobs: sent to it, answered or not.
    pub(crate) jobs: BTreeSet<JobId>,
    /// Its reservations, offers included.
    pub(crate) reservations: BTreeSet<ReservationId>,
    pub(crate) session: Option<Session>,
    /// What it holds, good within a session that said `held`.
    pub(crate) book: Book,
    pub(crate) inventory: Option<Box<Inventory>>,
    pub(crate) labels: BTreeSet<Name>,
    pub(crate) heartbeat: Option<Box<Heartbeat>>,
    pub(crate) report: Option<Box<Report>>,
}

/// A node's session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) handle: SessionHandle,
    pub(crate) version: u32,
    /// The node has said what it holds (DISP-72).
    pub(crate) held: bool,
    /// The last sign of life.
    pub(crate) heard: Now,
}

impl Session {
    /// Whether job messages may pass (DISP-06).
    pub(crate) const fn carries_jobs(&self) -> bool {
        self.version >= JOBS
    }
}

impl Node {
    /// A node that was never heard of.
    pub(crate) fn new(pools: BTreeSet<Name>) -> Node {
        Node {
            pools,
            desired: DesiredState {
                generation: 1,
                ceiling: None,
                acquisition: Acquisition::Run,
            },
            silent_ms: None,
            silence_kept: false,
            jobs: BTreeSet::new(),
            reservations: BTreeSet::new(),
            session: None,
            book: Book::default(),
            inventory: None,
            labels: BTreeSet::new(),
            heartbeat: None,
            report: None,
        }
    }

    /// The session, if something may be offered or started on it: the node has said what it holds
    /// (DISP-72), which it can only in one that carries jobs (DISP-06).
    pub(crate) fn touch(&self) -> Option<SessionHandle> {
        self.session
            .filter(|session| session.held)
            .map(|session| session.handle)
    }

    /// Whether the node may be given new work: in touch, ready, told to acquire, without a
    /// gitlab-runner of its own (PLACE-18, PLACE-43).
    pub(crate) fn takes_work(&self) -> bool {
        let Some(report) = &self.report else {
            return false;
        };
        let own_runner = report.placed.as_ref().is_some_and(|it| it.runner.is_some());
        self.touch().is_some()
            && report.state == Some(NodeState::Ready)
            && report.acquisition.is_none_or(|it| it == Acquisition::Run)
            && self.desired.acquisition == Acquisition::Run
            && !own_runner
    }

    /// The cap on its placed work: the smaller of the operator's ceiling and its own limit
    /// (ADM-05, PLACE-08).
    pub(crate) fn cap(&self) -> Option<u32> {
        let own = self
            .report
            .as_ref()
            .and_then(|report| report.placed.as_ref()?.limit);
        match (self.desired.ceiling, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Its CPUs; 1 where it does not say (PLACE-41).
    pub(crate) fn cpus(&self) -> u32 {
        self.inventory
            .as_ref()
            .map_or(1, |inventory| inventory.hardware.cpus.max(1))
    }

    /// How many more such envelopes it can take, at most `most` (API-18, PLACE-29).
    pub(crate) fn fits(&self, placement: &Placement, most: u32) -> u32 {
        let envelope = placement.envelope;
        let wanted = placement.labels.iter().all(|one| self.labels.contains(one));
        if !self.takes_work() || !wanted || envelope.cpus > self.cpus() {
            return 0;
        }
        let room = self
            .memory_room(envelope)
            .min(self.disk_room(envelope))
            .min(self.cap_room());
        u32::try_from(room).unwrap_or(u32::MAX).min(most)
    }

    fn memory_room(&self, envelope: Envelope) -> u64 {
        let Some(heartbeat) = &self.heartbeat else {
            return 0;
        };
        let budget = heartbeat
            .admission
            .and_then(|it| Some(it.budget_mib?.saturating_sub(it.committed_mib)));
        let free = budget.or(heartbeat.mem_available_mib).unwrap_or(0);
        let (unseen, _) = self.book.unseen();
        free.saturating_sub(unseen)
            .checked_div(envelope.mem_mib)
            .unwrap_or(0)
    }

    /// A node that does not report the file system of its jobs decides about disk alone.
    fn disk_room(&self, envelope: Envelope) -> u64 {
        let free = self.heartbeat.as_ref().and_then(|heartbeat| {
            let mut disks = heartbeat.storage.iter();
            disks
                .find(|disk| disk.role == StorageRole::Jobs)
                .map(|disk| disk.free_bytes)
        });
        let (_, unseen) = self.book.unseen();
        free.and_then(|free| free.saturating_sub(unseen).checked_div(envelope.disk_bytes))
            .unwrap_or(u64::MAX)
    }

    fn cap_room(&self) -> u64 {
        self.cap().map_or(u64::MAX, |cap| {
            u64::from(cap).saturating_sub(self.book.count())
        })
    }

    /// How loaded it is, in millionths: the largest of three terms (PLACE-23 to PLACE-26).
    pub(crate) fn load(&self, fits: u32) -> u64 {
        let placed = self.book.count();
        let cpus = u64::from(self.cpus());
        let by_room = millionths(placed, placed.saturating_add(u64::from(fits)));
        let by_cpus = millionths(self.book.cpus(), cpus);
        let by_load1 = self
            .heartbeat
            .as_ref()
            .and_then(|heartbeat| heartbeat.load1_hundredths)
            .map_or(0, |load1| millionths(u64::from(load1), cpus * 100));
        by_room.max(by_cpus).max(by_load1)
    }
}

fn millionths(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1_000_000)
        .checked_div(whole)
        .unwrap_or(0)
}

/// The order of candidates: least loaded, then most room, then node ID (PLACE-21). `nodes` are
/// those with room, and how much.
pub(crate) fn best<'a, Id: Ord + Copy + 'a>(
    nodes: &BTreeMap<Id, Node>,
    with_room: impl Iterator<Item = (&'a Id, &'a u32)>,
) -> Option<Id> {
    with_room
        .filter_map(|(id, fits)| {
            let node = nodes.get(id)?;
            Some((node.load(*fits), std::cmp::Reverse(*fits), *id))
        })
        .min()
        .map(|(_, _, id)| id)
}
