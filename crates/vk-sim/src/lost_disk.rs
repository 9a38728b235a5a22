//! What a network or a disk does that no party may be harmed by more than it must: a start that
//! comes again, and a node that has lost all it had.

use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::{HubJobMessage, NodeJobMessage};
use vk_hub_proto::node_session::{HubMessage, NodeMessage};

use crate::breakage::Breakage;
use crate::event::{Event, Party};
use crate::fault::Fault;
use crate::store::Store;
use crate::world::World;

/// How much later a start may come again, in milliseconds.
const LATE: u64 = 400_000;

impl World {
    /// A start that went out may come to its node once more.
    pub(crate) fn may_come_again(&mut self, index: usize, message: &HubMessage) {
        if self.faulty
            && matches!(message, HubMessage::Job(HubJobMessage::Start { .. }))
            && self.rng.one_in(3)
        {
            let at = self.now + self.rng.between(1, LATE);
            let again = Event::StartAgain(index, Box::new(message.clone()));
            self.queue.add(at, again);
        }
    }

    /// It does: a node that took the job answers from its journal (DISP-41). One that refused it
    /// has nothing to know it by, and a session never carries a message twice.
    pub(crate) fn start_again(&mut self, index: usize, message: HubMessage) {
        let HubMessage::Job(HubJobMessage::Start { job, .. }) = &message else {
            return;
        };
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        if node.core.is_some() && node.session.is_some() && node.taken.contains(job) {
            self.faults.count(Fault::StartRepeated);
            self.node_message(index, message);
        }
    }

    /// A node loses its journal, its jobs' directories and their processes. Not while it has begun a
    /// job that the hub does not know to run: nobody could tell that from one that never started.
    pub(crate) fn lose_disk(&mut self, index: usize) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let begun = node.host.jobs.iter().filter(|(_, one)| one.begun);
        let begun: Vec<JobId> = begun.map(|(job, _)| *job).collect();
        let runs = node.host.jobs.values().any(|one| one.alive);
        let known = begun.iter().all(|job| self.hub.running.contains(job));
        if node.core.is_none() || !runs || !known {
            if self.pushed < self.plan.most_jobs && self.now < 4 * self.plan.busy_ms {
                self.queue.add(self.now + 300, Event::LoseDisk(index));
            }
            return;
        }
        let lost = std::mem::take(&mut node.host.jobs);
        node.core = None;
        node.life += 1;
        node.sync_due = false;
        node.store = Store::default();
        node.starting.clear();
        node.taken.clear();
        let session = node.session.take();
        for (job, directory) in &lost {
            self.keep_output(*job, directory);
        }
        self.faults.count(Fault::DiskLost);
        self.trace(|| format!("node {index} lost its disk"));
        self.leases.node_killed(index);
        if let Some(session) = session {
            self.session_broken(session);
        }
        let again = self.now + self.rng.between(10, 30_000);
        self.queue.add(again, Event::Restart(Party::Node(index)));
    }

    /// The breakage "placed again": a running job that its node does not name goes to another.
    pub(crate) fn place_absent(&mut self, session: u64, message: &NodeMessage) {
        let NodeMessage::Job(NodeJobMessage::Held { jobs, .. }) = message else {
            return;
        };
        if self.breakage != Some(Breakage::PlacedAgain) {
            return;
        }
        let index = self.sessions.get(&session).map(|open| open.node);
        let is_absent = |(job, (node, _)): &(&JobId, &(usize, HubMessage))| {
            Some(*node) == index
                && self.hub.running.contains(job)
                && jobs.iter().all(|held| held.job != **job)
        };
        let absent = self.hub.sent.iter().filter(is_absent);
        let absent: Vec<_> = absent
            .map(|(job, (_, start))| (*job, start.clone()))
            .collect();
        let other = |(number, open): &(&u64, &crate::net::Session)| {
            **number != session && open.is_open() && Some(open.node) != index
        };
        let Some(other) = self.sessions.iter().find(other).map(|(number, _)| *number) else {
            return;
        };
        for (job, start) in absent {
            self.hub.sent.remove(&job);
            self.send_to_node(other, Some(start));
        }
    }
}
