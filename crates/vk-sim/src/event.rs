//! What is going to happen, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vk_gitlab_core::job::GitLabAnswer;
use vk_hub_core::Answer;
use vk_hub_proto::JobId;
use vk_hub_proto::node_session::{HubMessage, NodeMessage};
use vk_hub_proto::relay_session::ServerStatus;
use vk_node_core::JobEvent;

use crate::call::HubAnswerBytes;

/// A process that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    /// The daemon.
    Daemon,
    /// The hub.
    Hub,
    /// A node, by its place in the fleet.
    Node(usize),
}

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A core's deadline may have come.
    Wake(Party),
    /// A process's disk finishes a sync.
    Sync(Party, u32),
    /// The hub's output log finishes a sync.
    OutputSync(u32),
    /// A killed process starts again.
    Restart(Party),
    /// A node dials the hub.
    Dial(usize, u32),
    /// A node's message arrives.
    ToHub(u64, Box<NodeMessage>),
    /// The hub's message arrives.
    ToNode(u64, Box<HubMessage>),
    /// The hub learns that a session is over.
    EndAtHub(u64),
    /// The node learns that a session is over.
    EndAtNode(u64),
    /// A node gives a sign of life.
    Beat(usize, u32),
    /// A daemon's request arrives at the hub.
    AtHub(u64),
    /// The hub's answer arrives at the daemon; none where it never does.
    FromHub(u64, Option<Box<(Answer, HubAnswerBytes)>>),
    /// A daemon's request arrives at GitLab.
    AtGitLab(u64),
    /// GitLab's answer to a job's request arrives at the daemon; none where it never does.
    FromGitLab(u64, Option<GitLabAnswer>),
    /// GitLab's answer to a job request arrives at the daemon.
    JobFromGitLab(u64, JobAnswer),
    /// A job request was held as long as GitLab holds one.
    HoldOver(u64),
    /// An answer of the node's own host.
    FromHost(usize, u32, JobId, JobEvent),
    /// A job's process has its next moment.
    JobStep(usize, JobId),
    /// Somebody pushes: a job turns pending.
    Push,
    /// Somebody cancels a job, by force or not.
    Cancel(u64, bool),
    /// The daemon dials for its session.
    RelayDial(u32),
    /// The hub's word on the GitLab server arrives at the daemon.
    ServerAtDaemon(u64, ServerStatus),
    /// The daemon's session is cut.
    RelayCut,
    /// The hub learns that the daemon's session is over.
    RelayGone(u64),
    /// The operator decides of GitLab's servers.
    Decide,
    /// A node's session is cut; for how long it stays away.
    Cut(usize, u64),
    /// A job's process is killed, if any runs there.
    KillJob(usize),
    /// A start message comes to a node once more.
    StartAgain(usize, Box<HubMessage>),
    /// A node's state is gone: its journal, its jobs' directories, and what ran in them.
    LoseDisk(usize),
}

/// GitLab's answer to a job request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobAnswer {
    /// 201 with this job.
    Job(u64),
    /// Another status.
    Status(u16),
    /// None at all; whether the request reached GitLab.
    Lost(bool),
}

/// Events in the order of their moments, first come first served within one.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::BTreeMap<u64, Event>,
    next: u64,
}

impl Queue {
    /// Adds an event.
    pub(crate) fn add(&mut self, at_ms: u64, event: Event) {
        self.heap.push(Reverse((at_ms, self.next)));
        self.events.insert(self.next, event);
        self.next += 1;
    }

    /// The next event and its moment.
    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, number)) = self.heap.pop()?;
        self.events.remove(&number).map(|event| (at, event))
    }
}
