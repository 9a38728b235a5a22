//! A node's messages without the bytes of its jobs' output.

use vk_hub_proto::dispatch::{
    Chunk, HeldJob, HeldReservation, LeaseState, NodeJobMessage, OfferReply, RunState,
};
use vk_hub_proto::job::JobResult;
use vk_hub_proto::node_session::{Heartbeat, Inventory, NodeMessage, Report};
use vk_hub_proto::{JobId, ReservationId};

/// A message of a node's, after its handshake.
#[derive(Clone, Debug, PartialEq)]
pub enum FromNode {
    /// What the host is.
    Inventory(Box<Inventory>),
    /// What changes all the time.
    Heartbeat(Box<Heartbeat>),
    /// In which state the node is.
    Report(Box<Report>),
    /// Everything the node holds.
    Held {
        /// Its reservations.
        reservations: Vec<HeldReservation>,
        /// Its jobs without a recorded result.
        jobs: Vec<HeldJob>,
    },
    /// The answer to an offer.
    OfferReply {
        /// Which.
        reservation: ReservationId,
        /// Yes or no.
        reply: OfferReply,
    },
    /// The state of a reservation.
    Lease {
        /// Which.
        reservation: ReservationId,
        /// How it stands.
        state: LeaseState,
    },
    /// The state of a job.
    Job {
        /// Which.
        job: JobId,
        /// How it stands.
        state: RunState,
    },
    /// Output arrived; its bytes stay with the edge.
    Output {
        /// Which job's.
        job: JobId,
        /// Where the first byte stands in the whole output.
        offset: u64,
        /// How many bytes.
        len: u32,
    },
    /// How a job ended.
    Result {
        /// Which.
        job: JobId,
        /// How.
        result: Box<JobResult>,
    },
}

impl FromNode {
    /// A wire message and, of an `output`, its bytes. Nothing for messages that do not concern the
    /// core: the handshake's, acks of commands, and kinds this version does not know.
    #[must_use]
    pub fn read(message: NodeMessage) -> Option<(FromNode, Option<Chunk>)> {
        let message = match message {
            NodeMessage::Inventory(inventory) => FromNode::Inventory(inventory),
            NodeMessage::Heartbeat(heartbeat) => FromNode::Heartbeat(Box::new(heartbeat)),
            NodeMessage::Report(report) => FromNode::Report(report),
            NodeMessage::Job(message) => return FromNode::read_job(message),
            NodeMessage::Hello { .. }
            | NodeMessage::Auth { .. }
            | NodeMessage::Ack { .. }
            | NodeMessage::Other => return None,
        };
        Some((message, None))
    }

    /// [`FromNode::read`] of a job message.
    #[must_use]
    pub fn read_job(message: NodeJobMessage) -> Option<(FromNode, Option<Chunk>)> {
        let message = match message {
            NodeJobMessage::Held { reservations, jobs } => FromNode::Held { reservations, jobs },
            NodeJobMessage::OfferReply { reservation, reply } => {
                FromNode::OfferReply { reservation, reply }
            }
            NodeJobMessage::Lease { reservation, state } => FromNode::Lease { reservation, state },
            NodeJobMessage::Job { job, state } => FromNode::Job { job, state },
            NodeJobMessage::Output { job, offset, data } => {
                // A chunk is far below 4 GiB by construction.
                let len = u32::try_from(data.as_bytes().len()).unwrap_or(u32::MAX);
                return Some((FromNode::Output { job, offset, len }, Some(data)));
            }
            NodeJobMessage::Result { job, result } => FromNode::Result {
                job,
                result: Box::new(result),
            },
            NodeJobMessage::Other => return None,
        };
        Some((message, None))
    }

    /// Whether only a session that carries jobs may send it (DISP-02).
    pub(crate) const fn concerns_jobs(&self) -> bool {
        !matches!(
            self,
            FromNode::Inventory(_) | FromNode::Heartbeat(_) | FromNode::Report(_)
        )
    }
}
