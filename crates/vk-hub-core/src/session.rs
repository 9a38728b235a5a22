//! Nodes' sessions: opened, heard, silent, lost.

use std::time::Duration;

use vk_hub_proto::NodeId;
use vk_hub_proto::limit::INVENTORY_LIST;
use vk_hub_proto::node_session::{
    Heartbeat, Inventory, JOBS, RefusedCode, Report, STEERING, VersionRange,
};
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::node::Session;
use crate::stored::Arrived;
use crate::timers::Timer;
use crate::{Effect, FromNode, Record, SessionHandle};

/// The versions of the node's session a hub with this core speaks (DISP-05).
pub const VERSIONS: VersionRange = VersionRange { min: 1, max: JOBS };

/// Heartbeats that may be missed.
const MISSED: u32 = 3;

impl Fleet {
    pub(crate) fn on_session_opened(
        &mut self,
        now: Now,
        session: SessionHandle,
        id: NodeId,
        version: u32,
        out: &mut Out,
    ) {
        let Some(node) = self.nodes.get(&id) else {
            let reason = format!("node {id} is not enrolled");
            return self.send_close(session, RefusedCode::NotEnrolled, reason, out);
        };
        if let Some(older) = node.session {
            let reason = "a newer session of this node took over".to_owned();
            self.send_close(older.handle, RefusedCode::Superseded, reason, out);
            self.session_gone(now, older.handle, out);
        }
        let silence = self.silence_limit();
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.session = Some(Session {
            handle: session,
            version,
            held: false,
            heard: now,
        });
        node.heartbeat = None;
        node.report = None;
        node.book.clear();
        if version >= STEERING {
            let desired = node.desired;
            out.effect(Effect::Desired { session, desired });
        }
        self.sessions.insert(session, id);
        self.timers.set(Timer::Silence(id), now.after(silence));
    }

    pub(crate) fn on_session_closed(&mut self, now: Now, session: SessionHandle, out: &mut Out) {
        self.session_gone(now, session, out);
    }

    pub(crate) fn on_alive(&mut self, now: Now, session: SessionHandle) {
        let node = self.sessions.get(&session);
        if let Some(session) = node.and_then(|id| self.nodes.get_mut(id)?.session.as_mut()) {
            session.heard = now;
        }
    }

    /// A message of a live session; those of closed ones are ignored.
    pub(crate) fn on_node_message(
        &mut self,
        now: Now,
        session: SessionHandle,
        message: FromNode,
        out: &mut Out,
    ) {
        self.on_alive(now, session);
        let Some(id) = self.sessions.get(&session).copied() else {
            return;
        };
        let carries = self
            .nodes
            .get(&id)
            .and_then(|node| node.session)
            .is_some_and(|session| session.carries_jobs());
        if message.concerns_jobs() && !carries {
            let why = format!("a job message in a session below version {JOBS}");
            return self.violation(now, session, why, out);
        }
        match message {
            FromNode::Inventory(inventory) => self.on_inventory(id, *inventory),
            FromNode::Heartbeat(heartbeat) => self.on_heartbeat(now, id, *heartbeat),
            FromNode::Report(report) => self.on_report(id, *report),
            FromNode::Held { reservations, jobs } => {
                self.on_held(now, session, id, &reservations, &jobs, out);
            }
            FromNode::OfferReply { reservation, reply } => {
                self.on_offer_reply(now, session, id, reservation, reply, out);
            }
            FromNode::Lease { reservation, state } => {
                self.on_lease(now, id, reservation, &state, out);
            }
            FromNode::Job { job, state } => self.on_job_state(now, id, job, state, out),
            FromNode::Output { job, offset, len } => {
                let arrived = Arrived { job, offset, len };
                self.on_output(now, session, id, arrived, out);
            }
            FromNode::Result { job, result } => {
                self.on_result(now, session, id, job, *result, out);
            }
        }
    }

    /// Ends a session whose node does not keep to the protocol.
    pub(crate) fn violation(
        &mut self,
        now: Now,
        session: SessionHandle,
        why: String,
        out: &mut Out,
    ) {
        self.send_close(session, RefusedCode::Protocol, why, out);
        self.session_gone(now, session, out);
    }

    pub(crate) fn send_close(
        &mut self,
        session: SessionHandle,
        code: RefusedCode,
        reason: String,
        out: &mut Out,
    ) {
        out.effect(Effect::Close {
            session,
            code,
            reason,
        });
    }

    /// A session is over: its offers go on elsewhere, its reservations wait for the next `held`
    /// (DISP-84), and from its last sign of life on the node is out of touch (FAIL-17).
    pub(crate) fn session_gone(&mut self, now: Now, handle: SessionHandle, out: &mut Out) {
        let Some(id) = self.sessions.remove(&handle) else {
            return;
        };
        self.timers.clear(Timer::Silence(id));
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let heard = node.session.take().map_or(now, |session| session.heard);
        let since_ms = self.clock.served_ms(heard);
        node.silent_ms.get_or_insert(since_ms);
        self.stirred.insert(id);
        self.withdraw_offers(now, id, out);
        self.pause_renewals(id);
        self.watch_silence(now, id, out);
    }

    /// A node out of touch that has jobs: the silence is kept, and its end set.
    pub(crate) fn watch_silence(&mut self, now: Now, id: NodeId, out: &mut Out) {
        let limit = self.silence_limit();
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(since_ms) = node.silent_ms.filter(|_| !node.jobs.is_empty()) else {
            return;
        };
        let kept = node.silence_kept;
        let patience = limit.saturating_add(self.settings.job_lost_after);
        let lost_ms = since_ms.saturating_add(millis(patience));
        // A deadline in the past would end the jobs of a node whose window has not passed.
        let at = self.clock.moment(lost_ms).max(now);
        self.timers.set(Timer::Lost(id), at);
        if !kept {
            self.keep(Record::NodeSilent { node: id, since_ms }, out);
        }
    }

    /// The node has said what it holds: it is in touch.
    pub(crate) fn end_silence(&mut self, id: NodeId, out: &mut Out) {
        self.timers.clear(Timer::Lost(id));
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.silent_ms = None;
        if node.silence_kept {
            self.keep(Record::NodeHeard { node: id }, out);
        }
    }

    /// Nothing was heard for as long as three heartbeats take, or something was: then the
    /// deadline moves on.
    pub(crate) fn on_silence(&mut self, now: Now, id: NodeId, out: &mut Out) {
        let limit = self.silence_limit();
        let Some(session) = self.nodes.get(&id).and_then(|node| node.session) else {
            return;
        };
        let end = session.heard.after(limit);
        if end > now {
            return self.timers.set(Timer::Silence(id), end);
        }
        let reason = format!("nothing was heard for {} s", limit.as_secs());
        self.send_close(session.handle, RefusedCode::Internal, reason, out);
        self.session_gone(now, session.handle, out);
    }

    pub(crate) fn silence_limit(&self) -> Duration {
        self.settings.heartbeat.saturating_mul(MISSED)
    }

    fn on_inventory(&mut self, id: NodeId, inventory: Inventory) {
        let inventory = inventory.bounded();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.labels = inventory.labels.iter().cloned().collect();
            node.inventory = Some(Box::new(inventory));
            self.stirred.insert(id);
        }
    }

    fn on_heartbeat(&mut self, now: Now, id: NodeId, mut heartbeat: Heartbeat) {
        heartbeat.storage.truncate(INVENTORY_LIST);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.book.heartbeat(now);
            node.heartbeat = Some(Box::new(heartbeat));
            self.stirred.insert(id);
        }
    }

    fn on_report(&mut self, id: NodeId, report: Report) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.report = Some(Box::new(report.bounded()));
            self.stirred.insert(id);
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
