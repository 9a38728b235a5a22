//! Which record replaces which: how a store keeps only what counts.

use vk_hub_proto::{JobId, NodeId, RelayId, RequestId};

use crate::{Principal, ProjectNumber, Record, ServerNumber};

/// The place of a record in a store that keeps one row a place.
///
/// A record goes to its row: in place of the record that is there, at that one's position, or
/// behind all others. [`vk_step::Core::open`] builds the same machine from these rows, oldest
/// position first, as from all records ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// What the row is about.
    pub subject: Subject,
    /// Which of the subject's rows.
    pub part: &'static str,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The hub itself.
    Hub,
    /// A node.
    Node(NodeId),
    /// A job.
    Job(JobId),
    /// A request that came to no job, or whose job is forgotten.
    Request(Principal, RequestId),
    /// A relay.
    Relay(RelayId),
    /// A GitLab server.
    Server(ServerNumber),
    /// A project.
    Project(ProjectNumber),
}

/// What a record does to the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It takes this row.
    Put(Row),
    /// This row goes, and the record with it.
    Remove(Row),
    /// All rows of the subject go, and the record with them.
    Clear(Subject),
    /// All rows of the subject go, and the record takes this row.
    ClearAndPut(Subject, Row),
    /// It takes no row: it is a line of the audit log, kept beside the rows.
    Audit,
}

impl Record {
    /// What the record does to a store's rows.
    #[must_use]
    pub const fn row(&self) -> Keep {
        match self {
            Record::Clock { .. } => put(Subject::Hub, "clock"),
            Record::NodePools { node, .. } => put(Subject::Node(*node), "pools"),
            Record::NodeDesired { node, .. } => put(Subject::Node(*node), "desired"),
            Record::NodeRemoved { node } => Keep::Clear(Subject::Node(*node)),
            Record::NodeSilent { node, .. } => put(Subject::Node(*node), "silent"),
            Record::NodeHeard { node } => Keep::Remove(at(Subject::Node(*node), "silent")),
            Record::JobSubmitted { job, .. } => put(Subject::Job(*job), "submitted"),
            Record::JobStarting { job, .. }
            | Record::JobQueued { job }
            | Record::JobRunning { job, .. }
            | Record::JobFinished { job, .. } => put(Subject::Job(*job), "phase"),
            Record::JobCancel { job, .. } => put(Subject::Job(*job), "cancel"),
            Record::JobSettled { job } => put(Subject::Job(*job), "settled"),
            Record::JobForgotten {
                job,
                owner,
                request,
                ..
            } => Keep::ClearAndPut(
                Subject::Job(*job),
                at(Subject::Request(*owner, *request), "answer"),
            ),
            Record::SubmissionRefused { owner, request, .. } => {
                put(Subject::Request(*owner, *request), "answer")
            }
            Record::RequestForgotten { owner, request } => {
                Keep::Clear(Subject::Request(*owner, *request))
            }
            Record::ServerKnown { server, .. } => put(Subject::Server(*server), "server"),
            Record::ServerDropped { server } => Keep::Clear(Subject::Server(*server)),
            Record::ProjectKnown { project, .. } => put(Subject::Project(*project), "project"),
            Record::ProjectDropped { project } => Keep::Clear(Subject::Project(*project)),
            Record::RelayServer { relay, .. } => put(Subject::Relay(*relay), "server"),
            Record::RelayRemoved { relay } => Keep::Clear(Subject::Relay(*relay)),
            Record::Audited { .. } => Keep::Audit,
        }
    }
}

const fn at(subject: Subject, part: &'static str) -> Row {
    Row { subject, part }
}

const fn put(subject: Subject, part: &'static str) -> Keep {
    Keep::Put(at(subject, part))
}
