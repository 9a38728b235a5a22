//! What operators, metrics and the simulator see. Reading changes nothing; an answer made from it
//! waits, like every answer, until the last step's records are durable.

use std::collections::BTreeSet;

use vk_hub_proto::client::{Envelope, JobView};
use vk_hub_proto::node_session::{DesiredState, Heartbeat, Inventory, Report};
use vk_hub_proto::{JobId, Name, NodeId, ReservationId};

use crate::fleet::Fleet;
use crate::node::Node;
use crate::reservation::ReservationPhase;
use crate::{JobSummary, Principal, SessionHandle};

/// A node as the hub sees it.
#[derive(Clone, Debug)]
pub struct NodeStatus<'a> {
    /// Its ID.
    pub node: NodeId,
    /// Its pools.
    pub pools: &'a BTreeSet<Name>,
    /// What the operator wants of it.
    pub desired: DesiredState,
    /// Its session, and the version spoken there.
    pub session: Option<(SessionHandle, u32)>,
    /// It has said in this session what it holds.
    pub held: bool,
    /// It may be given new work.
    pub takes_work: bool,
    /// The cap on its placed work.
    pub cap: Option<u32>,
    /// Reservations and unfinished jobs on it, those given up included; within a session only.
    pub placed: u64,
    /// What its host is, as last told.
    pub inventory: Option<&'a Inventory>,
    /// Its last heartbeat in this session.
    pub heartbeat: Option<&'a Heartbeat>,
    /// Its last report in this session.
    pub report: Option<&'a Report>,
}

/// A job as operators see it.
#[derive(Clone, Debug)]
pub struct JobStatus<'a> {
    /// What its owner sees.
    pub view: JobView,
    /// Whose it is.
    pub owner: Principal,
    /// What it is.
    pub summary: &'a JobSummary,
    /// Its outcome was delivered.
    pub settled: bool,
    /// Its spec is still in memory.
    pub has_spec: bool,
}

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub struct ReservationStatus {
    /// Its ID.
    pub reservation: ReservationId,
    /// Whose it is.
    pub owner: Principal,
    /// Where.
    pub node: NodeId,
    /// What.
    pub envelope: Envelope,
    /// The node holds it; otherwise it is offered, or a job is starting on it.
    pub held: bool,
}

impl Fleet {
    /// All nodes, by ID.
    pub fn nodes(&self) -> impl Iterator<Item = NodeStatus<'_>> {
        self.nodes.iter().map(|(id, node)| node_status(*id, node))
    }

    /// All jobs, by ID.
    pub fn jobs(&self) -> impl Iterator<Item = JobStatus<'_>> {
        self.jobs.keys().filter_map(|id| self.job(*id))
    }

    /// One job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<JobStatus<'_>> {
        let job = self.jobs.get(&id)?;
        Some(JobStatus {
            view: job.view(id),
            owner: job.made_by.owner,
            summary: &job.summary,
            settled: job.settled,
            has_spec: job.placing.is_some(),
        })
    }

    /// All reservations, by ID.
    pub fn reservations(&self) -> impl Iterator<Item = ReservationStatus> + '_ {
        self.reservations.iter().map(|(id, one)| ReservationStatus {
            reservation: *id,
            owner: one.owner,
            node: one.node,
            envelope: one.envelope,
            held: one.phase == ReservationPhase::Held,
        })
    }

    /// Jobs that have not ended.
    #[must_use]
    pub const fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Requests that are held.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }

    /// Why the core promises nothing any more, once it does not.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }
}

fn node_status(id: NodeId, node: &Node) -> NodeStatus<'_> {
    NodeStatus {
        node: id,
        pools: &node.pools,
        desired: node.desired,
        session: node.session.map(|open| (open.handle, open.version)),
        held: node.session.is_some_and(|open| open.held),
        takes_work: node.takes_work(),
        cap: node.cap(),
        placed: node.book.count(),
        inventory: node.inventory.as_deref(),
        heartbeat: node.heartbeat.as_deref(),
        report: node.report.as_deref(),
    }
}
