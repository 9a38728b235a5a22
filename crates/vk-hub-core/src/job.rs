//! One job: what is kept of it, and what only memory holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vk_hub_proto::client::{CancelMode, JobState, JobView, Placement};
use vk_hub_proto::job::{JobResult, JobSpec};
use vk_hub_proto::{JobId, NodeId, ReservationId};
use vk_step::Now;

use crate::class::ClassId;
use crate::output::Output;
use crate::request::RequestKey;
use crate::wait::Wait;
use crate::{Digest, JobSummary, RequestHandle};

/// A job, queued to settled.
#[derive(Debug)]
pub(crate) struct Job {
    /// Kept.
    pub(crate) made_by: RequestKey,
    /// Kept.
    pub(crate) digest: Digest,
    /// Kept: the revision in the answer to its submission.
    pub(crate) first_revision: u64,
    /// Kept: when it was submitted, served milliseconds.
    pub(crate) at_ms: u64,
    /// Kept.
    pub(crate) placement: Placement,
    /// Kept.
    pub(crate) summary: JobSummary,
    /// Kept.
    pub(crate) phase: Phase,
    /// Kept.
    pub(crate) cancel: Option<CancelMode>,
    /// Kept.
    pub(crate) settled: bool,
    pub(crate) revision: u64,
    /// Its last turn, and the revision of that.
    pub(crate) turned: (Turn, u64),
    pub(crate) output: Output,
    /// Held job-view requests.
    pub(crate) viewers: BTreeSet<RequestHandle>,
    /// Held output requests.
    pub(crate) readers: BTreeSet<RequestHandle>,
    /// What only a job that no node has accepted has.
    pub(crate) placing: Option<Placing>,
}

/// A job on its way to a node: its spec, which leaves memory with this (CRED-11), and where it was
/// tried.
#[derive(Debug)]
pub(crate) struct Placing {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) class: ClassId,
    /// Its turn among those that wait.
    pub(crate) turn: u64,
    /// The end of its placing time.
    pub(crate) until: Now,
    /// The reservation it was sent on.
    pub(crate) reservation: Option<ReservationId>,
    /// Nodes that refused this very job, and when.
    pub(crate) refused: BTreeMap<NodeId, Now>,
    /// The last refusal, in words.
    pub(crate) last_refusal: Option<String>,
}

/// What decides how a job is carried on: whether a node accepted it, whether it ended, and its cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    running: bool,
    finished: bool,
    cancel: Option<CancelMode>,
}

/// How far a job is; with the record that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Queued,
    Starting {
        node: NodeId,
        at_ms: u64,
    },
    Running {
        node: NodeId,
        at_ms: u64,
        stage: Option<String>,
    },
    Finished {
        node: Option<NodeId>,
        stage: Option<String>,
        result: JobResult,
        by_node: bool,
        at_ms: u64,
    },
}

impl Phase {
    /// The node it was sent to.
    pub(crate) const fn node(&self) -> Option<NodeId> {
        match self {
            Phase::Queued => None,
            Phase::Starting { node, .. } | Phase::Running { node, .. } => Some(*node),
            Phase::Finished { node, .. } => *node,
        }
    }

    /// The last stage.
    pub(crate) fn stage(&self) -> Option<&String> {
        match self {
            Phase::Queued | Phase::Starting { .. } => None,
            Phase::Running { stage, .. } | Phase::Finished { stage, .. } => stage.as_ref(),
        }
    }

    pub(crate) const fn is_finished(&self) -> bool {
        matches!(self, Phase::Finished { .. })
    }

    const fn state(&self) -> JobState {
        match self {
            Phase::Queued => JobState::Queued,
            Phase::Starting { .. } => JobState::Starting,
            Phase::Running { .. } => JobState::Running,
            Phase::Finished { .. } => JobState::Finished,
        }
    }
}

impl Job {
    /// The unfinished job's node, if this is it.
    pub(crate) fn is_on(&self, node: NodeId) -> bool {
        !self.phase.is_finished() && self.phase.node() == Some(node)
    }

    /// Under a new revision from now on, which may be a turn.
    pub(crate) fn moves_to(&mut self, revision: u64) {
        self.revision = revision;
        let turn = Turn {
            running: matches!(self.phase, Phase::Running { .. }),
            finished: self.phase.is_finished(),
            cancel: self.cancel,
        };
        if turn != self.turned.0 {
            self.turned = (turn, revision);
        }
    }

    /// Whether who waits so has news past this revision.
    pub(crate) const fn has_news(&self, wait: Wait, after: u64) -> bool {
        match wait {
            Wait::Turn(..) => self.turned.1 > after,
            _ => self.revision > after,
        }
    }

    /// Sent to a node that has not answered.
    pub(crate) const fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }

    /// The job as clients see it (API-32).
    pub(crate) fn view(&self, id: JobId) -> JobView {
        let result = match &self.phase {
            Phase::Finished { result, .. } => Some(result.clone()),
            _ => None,
        };
        JobView {
            id,
            revision: self.revision,
            state: self.phase.state(),
            node: self.phase.node(),
            stage: self.phase.stage().cloned(),
            output_len: self.output.durable(),
            cancel: self.cancel,
            result,
        }
    }

    /// The answer to its submission, now and for a day (API-46): the job as it was made.
    pub(crate) fn first_view(&self, id: JobId) -> JobView {
        JobView {
            id,
            revision: self.first_revision,
            state: JobState::Queued,
            node: None,
            stage: None,
            output_len: 0,
            cancel: None,
            result: None,
        }
    }
}
