//! What operators ask of the fleet.

use std::collections::BTreeSet;

use vk_hub_proto::node_session::{DesiredState, RefusedCode, STEERING};
use vk_hub_proto::{Name, NodeId};
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::timers::Timer;
use crate::wait::no_such_job;
use crate::{Answer, Decision, Effect, OperatorRequest, Record, Refusal, RequestHandle};

impl Fleet {
    pub(crate) fn on_operator(
        &mut self,
        now: Now,
        to: RequestHandle,
        request: OperatorRequest,
        out: &mut Out,
    ) {
        let done = match request {
            OperatorRequest::AddNode { node, pools } => {
                self.add_node(node, pools, out);
                Ok(Answer::Done)
            }
            OperatorRequest::RemoveNode { node } => {
                self.remove_node(now, node, out);
                Ok(Answer::Done)
            }
            OperatorRequest::SetPools { node, pools } => self.set_pools(node, pools, out),
            OperatorRequest::SetCeiling { node, ceiling } => {
                if ceiling == Some(0) {
                    let why = "a ceiling of 0 is no ceiling: stop the node's acquisition instead";
                    Err(Refusal::invalid(why))
                } else {
                    self.set_desired(node, |desired| desired.ceiling = ceiling, out)
                }
            }
            OperatorRequest::SetAcquisition { node, acquisition } => {
                self.set_desired(node, |desired| desired.acquisition = acquisition, out)
            }
            OperatorRequest::CancelJob { job, mode } => {
                if self.jobs.contains_key(&job) {
                    Ok(self.cancel(now, job, mode, out))
                } else {
                    Err(no_such_job(job))
                }
            }
            OperatorRequest::SettleJob { job } => self.settle(job, out),
            OperatorRequest::RemoveRelay { relay } => {
                self.remove_relay(relay, out);
                Ok(Answer::Done)
            }
            OperatorRequest::DecideServer {
                server,
                approved,
                all_projects,
            } => self.decide_server(server, Decision::of(approved), all_projects, out),
            OperatorRequest::DecideProject { project, approved } => {
                self.decide_project(project, Decision::of(approved), out)
            }
        };
        match done {
            Ok(answer) => self.answer(to, answer, out),
            Err(refusal) => self.refuse(to, refusal, out),
        }
    }

    fn add_node(&mut self, node: NodeId, pools: Vec<Name>, out: &mut Out) {
        if !self.nodes.contains_key(&node) {
            let pools = sorted(pools);
            self.keep(Record::NodePools { node, pools }, out);
        }
    }

    /// PLACE-02
    fn set_pools(
        &mut self,
        id: NodeId,
        pools: Vec<Name>,
        out: &mut Out,
    ) -> Result<Answer, Refusal> {
        let node = self.nodes.get(&id).ok_or_else(|| no_such_node(id))?;
        let before = node.pools.clone();
        let pools = sorted(pools);
        if !before.iter().eq(&pools) {
            self.keep(Record::NodePools { node: id, pools }, out);
            self.leave_pools(id, &before);
            self.stirred.insert(id);
        }
        Ok(Answer::Done)
    }

    fn set_desired(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut DesiredState),
        out: &mut Out,
    ) -> Result<Answer, Refusal> {
        let node = self.nodes.get(&id).ok_or_else(|| no_such_node(id))?;
        let mut desired = node.desired;
        let session = node.session;
        change(&mut desired);
        if desired != node.desired {
            desired.generation = desired.generation.saturating_add(1);
            self.keep(Record::NodeDesired { node: id, desired }, out);
            if let Some(session) = session.filter(|session| session.version >= STEERING) {
                out.effect(Effect::Desired {
                    session: session.handle,
                    desired,
                });
            }
            self.stirred.insert(id);
        }
        Ok(Answer::Done)
    }

    /// The node can never come back, so nothing on it ends by itself.
    fn remove_node(&mut self, now: Now, id: NodeId, out: &mut Out) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let pools = node.pools.clone();
        let reservations: Vec<_> = node.reservations.iter().copied().collect();
        if let Some(session) = node.session {
            let reason = "an operator removed this node".to_owned();
            self.send_close(session.handle, RefusedCode::Revoked, reason, out);
            self.session_gone(now, session.handle, out);
        }
        self.end_jobs_of(now, id, "an operator removed its node", out);
        for reservation in reservations {
            self.reservation_gone(reservation, out);
        }
        self.leave_pools(id, &pools);
        self.timers.clear(Timer::Lost(id));
        self.keep(Record::NodeRemoved { node: id }, out);
    }

    /// The node has no room any more in placements of these pools.
    fn leave_pools(&mut self, id: NodeId, pools: &BTreeSet<Name>) {
        for pool in pools {
            let classes: Vec<_> = self.classes.of_pool(pool).collect();
            for class in classes {
                self.set_fits(class, id, 0);
            }
        }
    }
}

fn sorted(pools: Vec<Name>) -> Vec<Name> {
    let pools: BTreeSet<Name> = pools.into_iter().collect();
    pools.into_iter().collect()
}

fn no_such_node(id: NodeId) -> Refusal {
    Refusal::not_found(format!("there is no node {id}"))
}
