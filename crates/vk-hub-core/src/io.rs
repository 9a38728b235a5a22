//! What happens to the fleet, what is kept of it, and what the hub does: the file to read first.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};
use vk_hub_proto::client::{CancelMode, Envelope, Placement};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::job::{JobResult, JobSpec};
use vk_hub_proto::node_session::{DesiredState, RefusedCode};
use vk_hub_proto::relay_session::ServerStatus;
use vk_hub_proto::{JobId, Name, NodeId, RelayId, RequestId, ReservationId};

use crate::{
    Answer, Decision, Digest, FromNode, FromRelay, JobSummary, OperatorRequest, Principal,
    ProjectNumber, Refusal, Request, RequestHandle, ServerNumber, SessionHandle, TokenScope,
};

/// What can happen to the fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A deadline has come; early or repeated ones are harmless.
    Timeout,
    /// A client asks, authenticated by the edge; answered by one [`Effect::Answer`], now or later.
    Request {
        /// Who waits: a number the edge never used before in this life.
        to: RequestHandle,
        /// Who asks.
        by: Principal,
        /// What for.
        request: Request,
    },
    /// A client whose request is unanswered hung up. A reservation being offered is still taken
    /// over when the node accepts it (API-61).
    HungUp {
        /// Which request.
        to: RequestHandle,
    },
    /// An operator asks, over the admin socket; answered like a client.
    Operator {
        /// Who waits.
        to: RequestHandle,
        /// What for.
        request: OperatorRequest,
    },
    /// A node's handshake is done. An older session of the same node is closed as superseded.
    SessionOpened {
        /// A number the edge never used before in this life.
        session: SessionHandle,
        /// Whose it is.
        node: NodeId,
        /// The protocol version chosen.
        version: u32,
    },
    /// A session ended, whoever ended it.
    SessionClosed {
        /// Which.
        session: SessionHandle,
    },
    /// Bytes of a session arrived that are no whole message yet: a sign of life.
    Alive {
        /// Which.
        session: SessionHandle,
    },
    /// A node's message. The bytes of an `output` stay with the edge: see [`Effect::StoreOutput`].
    Node {
        /// Whose session.
        session: SessionHandle,
        /// The message.
        message: FromNode,
    },
    /// The edge has synced output: for each job, how much of it is durable from its start.
    OutputSynced {
        /// Job and durable length.
        lengths: Vec<(JobId, u64)>,
    },
    /// A relay's handshake is done. An older session of the same relay is closed as superseded
    /// (SESS-27). Its end, and its signs of life, are those of any session.
    RelayOpened {
        /// A number the edge never used before in this life, for nodes and relays alike.
        session: SessionHandle,
        /// Whose it is.
        relay: RelayId,
    },
    /// A relay's message.
    Relay {
        /// Whose session.
        session: SessionHandle,
        /// The message.
        message: FromRelay,
    },
    /// Records or output could not be made durable. The edge drops the step it could not keep and
    /// all later ones, effects included, answers the requests these would have answered with 503,
    /// and gives this. From then on the core answers everything `unavailable`, with the reason,
    /// and closes every session; the edge goes on with a core opened anew from what is durable.
    StoreFailed {
        /// Why, for clients and the operator.
        why: String,
    },
}

/// What is kept: no secret and no spec (CRED-10, CRED-12). [`Record::row`] says which later record
/// replaces which; [`vk_step::Core::open`] takes all of them or only those not replaced.
///
/// Times are *served milliseconds*: the hub's own running time over all its lives, less the first
/// minute of each (FAIL-30). No clock of the world enters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// How long the hub has served, and below which number every revision given so far lies.
    Clock {
        /// Served milliseconds.
        served_ms: u64,
        /// Revisions were given below this number (API-65).
        revisions_below: u64,
    },
    /// The pools a node is in (PLACE-02); the first one says that the node exists.
    NodePools {
        /// Which node.
        node: NodeId,
        /// Its pools, all of them.
        pools: Vec<Name>,
    },
    /// What the operator wants of a node (PLACE-08).
    NodeDesired {
        /// Which node.
        node: NodeId,
        /// The desired state.
        desired: DesiredState,
    },
    /// A node was removed.
    NodeRemoved {
        /// Which.
        node: NodeId,
    },
    /// A node that has jobs is out of touch (FAIL-30).
    NodeSilent {
        /// Which.
        node: NodeId,
        /// Since when, served milliseconds.
        since_ms: u64,
    },
    /// A node said again what it holds.
    NodeHeard {
        /// Which.
        node: NodeId,
    },
    /// A job, and the answer its request gets within a day (API-73). It waits for a node.
    JobSubmitted {
        /// The hub's ID for it.
        job: JobId,
        /// Whose it is.
        owner: Principal,
        /// The request that made it.
        request: RequestId,
        /// Of that request's body, as parsed (API-58).
        digest: Digest,
        /// The revision in that request's answer.
        revision: u64,
        /// When, served milliseconds.
        at_ms: u64,
        /// Where it may go.
        placement: Placement,
        /// What operators see of it.
        summary: JobSummary,
    },
    /// A job is sent to a node, which may take it from now on (API-30).
    JobStarting {
        /// Which job.
        job: JobId,
        /// To which node.
        node: NodeId,
        /// When, served milliseconds.
        at_ms: u64,
    },
    /// No node can have started the job: it may be placed again (FAIL-02).
    JobQueued {
        /// Which job.
        job: JobId,
    },
    /// A node accepted the job, or it came to another stage there.
    JobRunning {
        /// Which job.
        job: JobId,
        /// On which node.
        node: NodeId,
        /// When it was accepted, served milliseconds.
        at_ms: u64,
        /// The last stage.
        stage: Option<String>,
    },
    /// A cancel is in force (API-42).
    JobCancel {
        /// Which job.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// A job ended. The result's length is the hub's own count.
    JobFinished {
        /// Which job.
        job: JobId,
        /// The node it was sent to.
        node: Option<NodeId>,
        /// The last stage.
        stage: Option<String>,
        /// How it ended.
        result: JobResult,
        /// The node said so; otherwise the hub did, and the node may still run it (FAIL-20).
        by_node: bool,
        /// When, served milliseconds.
        at_ms: u64,
    },
    /// A job's outcome was delivered; its output is dropped (API-44).
    JobSettled {
        /// Which job.
        job: JobId,
    },
    /// A job left the history (API-71); its request is remembered for the rest of its day
    /// (API-47).
    JobForgotten {
        /// Which job.
        job: JobId,
        /// Whose it was.
        owner: Principal,
        /// The request that made it.
        request: RequestId,
        /// Of that request's body.
        digest: Digest,
        /// When it was made, served milliseconds.
        at_ms: u64,
    },
    /// A submission was refused for good: the answer its request gets within a day (ERR-26).
    SubmissionRefused {
        /// Who asked.
        owner: Principal,
        /// The request.
        request: RequestId,
        /// Of its body.
        digest: Digest,
        /// What it was answered.
        refusal: Refusal,
        /// When, served milliseconds.
        at_ms: u64,
    },
    /// A GitLab server, and what operators decided of it (SESS-24).
    ServerKnown {
        /// The hub's number of it.
        server: ServerNumber,
        /// Its URL, without a slash at its end.
        url: String,
        /// SHA-256 of its certificate's public key; none for plain http.
        spki_sha256: Option<Hex<32>>,
        /// What was decided.
        decision: Decision,
        /// All of its projects are taken, but for those that were rejected.
        all_projects: bool,
    },
    /// A server of which nothing was decided gave its place to another.
    ServerDropped {
        /// Which.
        server: ServerNumber,
    },
    /// A project, and what operators decided of it.
    ProjectKnown {
        /// The hub's number of it.
        project: ProjectNumber,
        /// Its server.
        server: ServerNumber,
        /// GitLab's number of it.
        gitlab_project: u64,
        /// Its path, as it was when it was first seen.
        path: String,
        /// What was decided.
        decision: Decision,
    },
    /// A project of which nothing was decided gave its place to another.
    ProjectDropped {
        /// Which.
        project: ProjectNumber,
    },
    /// What a relay reported last, and what it may report.
    RelayServer {
        /// Which relay.
        relay: RelayId,
        /// The server it reported last.
        server: ServerNumber,
        /// The servers it may report: the first, and those approved since (SESS-24).
        bound: Vec<ServerNumber>,
        /// The system ID it reported last (SESS-27).
        system_id: String,
    },
    /// A relay was removed.
    RelayRemoved {
        /// Which.
        relay: RelayId,
    },
    /// A line of the audit log, durable together with what it tells of. Recovery has no use for it.
    Audited {
        /// What happened.
        what: String,
        /// To whom.
        detail: String,
    },
    /// A request's day is over.
    RequestForgotten {
        /// Who asked.
        owner: Principal,
        /// The request.
        request: RequestId,
    },
}

/// What the hub does. [`Effect::message`] and [`Effect::relay_message`] give the session message of
/// those that are one.
#[derive(Clone, Debug, PartialEq, IntoStaticStr, VariantNames)]
pub enum Effect {
    /// Answer a request; an unknown or closed handle is ignored.
    Answer {
        /// Which.
        to: RequestHandle,
        /// With what.
        answer: Answer,
    },
    /// Say what the operator wants of the node.
    Desired {
        /// On which session; this and all below: a closed one is ignored.
        session: SessionHandle,
        /// The desired state.
        desired: DesiredState,
    },
    /// Offer an envelope to the node.
    Offer {
        /// On which session.
        session: SessionHandle,
        /// The reservation this would become.
        reservation: ReservationId,
        /// What to set aside.
        envelope: Envelope,
        /// For how long.
        lease_secs: u32,
    },
    /// Extend a lease.
    Renew {
        /// On which session.
        session: SessionHandle,
        /// Which reservation.
        reservation: ReservationId,
        /// From now on.
        lease_secs: u32,
    },
    /// Give a reservation back.
    Release {
        /// On which session.
        session: SessionHandle,
        /// Which.
        reservation: ReservationId,
    },
    /// Start a job. The spec comes from memory and is in no record. Where the job is to have a
    /// registry token the edge makes one, anew for each start and kept nowhere, and puts it into
    /// the message; where it cannot, the job starts without (REG-16).
    Start {
        /// On which session.
        session: SessionHandle,
        /// Which job.
        job: JobId,
        /// What it was reserved under.
        reservation: Option<ReservationId>,
        /// What it was placed with.
        envelope: Envelope,
        /// The job, with its secrets.
        spec: Arc<JobSpec>,
        /// What its registry token is to grant.
        token: Option<Box<TokenScope>>,
    },
    /// Say how much output is durable.
    OutputAck {
        /// On which session.
        session: SessionHandle,
        /// Which job's.
        job: JobId,
        /// Up to here.
        offset: u64,
    },
    /// Stop a job.
    Cancel {
        /// On which session.
        session: SessionHandle,
        /// Which.
        job: JobId,
        /// How hard.
        mode: CancelMode,
    },
    /// Say that a result is kept.
    Recorded {
        /// On which session.
        session: SessionHandle,
        /// Which job's.
        job: JobId,
    },
    /// Close a node's session with a `refused`.
    Close {
        /// Which.
        session: SessionHandle,
        /// Why, for the program.
        code: RefusedCode,
        /// Why, for people.
        reason: String,
    },
    /// Say to a relay how its GitLab server stands (SESS-08).
    Server {
        /// On which session.
        session: SessionHandle,
        /// Whether its runners may ask for jobs.
        status: ServerStatus,
        /// In words, with what to do.
        message: Option<String>,
    },
    /// Close a relay's session with a `refused`.
    CloseRelay {
        /// Which.
        session: SessionHandle,
        /// Why, for the program.
        code: RefusedCode,
        /// Why, for people.
        reason: String,
    },
    /// Append bytes of the chunk that came with this step's input to the job's output. The edge
    /// may begin before earlier records are durable; once it has synced it says so by
    /// [`Input::OutputSynced`].
    StoreOutput {
        /// Which job's.
        job: JobId,
        /// Where they stand in the output: always its present end.
        offset: u64,
        /// Bytes of the chunk to leave out at its start.
        skip: u32,
        /// Bytes to append.
        len: u32,
    },
    /// Drop a job's output.
    DropOutput {
        /// Which job's.
        job: JobId,
    },
    /// The first effect after a start: outputs of jobs not named here are dropped.
    RetainOutputs {
        /// The jobs whose output is kept, in order.
        jobs: Vec<JobId>,
    },
    /// The core promises nothing any more: tell the operator, and open another.
    Stopped {
        /// Why.
        why: String,
    },
}
