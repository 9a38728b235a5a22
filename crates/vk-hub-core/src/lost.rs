//! Jobs whose node does not come back, and jobs that do not end (FAIL-17, FAIL-18, FAIL-25,
//! FAIL-30, FAIL-31, FAIL-37).

use vk_hub_proto::client::CancelMode;
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::{JobId, NodeId};
use vk_step::Now;

use crate::finish::RESTARTED;
use crate::fleet::{Fleet, Out};
use crate::job::Phase;

impl Fleet {
    /// The node was out of touch for too long: its jobs are lost.
    pub(crate) fn on_node_lost(&mut self, now: Now, id: NodeId, out: &mut Out) {
        self.end_jobs_of(now, id, "its node was out of touch for too long", out);
    }

    /// Ends all jobs of a node as lost.
    pub(crate) fn end_jobs_of(&mut self, now: Now, id: NodeId, why: &str, out: &mut Out) {
        let jobs: Vec<JobId> = self
            .nodes
            .get(&id)
            .map(|node| node.jobs.iter().copied().collect())
            .unwrap_or_default();
        for job in jobs {
            let why = format!("the job is lost: {why} (node {id})");
            self.end_by_hub(now, job, FailureClass::Lost, why, out);
        }
    }

    /// The job should have ended long ago, by its node's own clock. The node is told to stop it,
    /// and it counts against that node's cap until its result is there (DISP-80).
    pub(crate) fn on_overdue(&mut self, now: Now, id: JobId, out: &mut Out) {
        let node = self.jobs.get(&id).and_then(|job| job.phase.node());
        let why = "the job is well past its timeout and its node did not end it".to_owned();
        self.end_by_hub(now, id, FailureClass::Timeout, why, out);
        if let Some(node) = node {
            self.send_cancel(id, node, CancelMode::Immediate, out);
        }
    }

    /// After a start. Jobs no node had accepted lost their specs with the hub's memory; those that
    /// were sent wait for their node's `held`. The silence of nodes that have jobs is kept, so that
    /// it adds up over restarts (FAIL-30).
    pub(crate) fn on_restart(&mut self, now: Now, out: &mut Out) {
        self.end_jobs_without_spec(now, out);
        let silent: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.jobs.is_empty() && !node.silence_kept)
            .map(|(id, _)| *id)
            .collect();
        for node in silent {
            self.watch_silence(now, node, out);
        }
    }

    fn end_jobs_without_spec(&mut self, now: Now, out: &mut Out) {
        let known = |node: NodeId| self.nodes.contains_key(&node);
        let lost: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| match &job.phase {
                Phase::Queued => job.placing.is_none(),
                Phase::Starting { node, .. } | Phase::Running { node, .. } => !known(*node),
                Phase::Finished { .. } => false,
            })
            .map(|(id, _)| *id)
            .collect();
        for job in lost {
            self.end_by_hub(now, job, FailureClass::Lost, RESTARTED.to_owned(), out);
        }
    }
}
