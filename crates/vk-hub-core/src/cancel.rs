//! Cancels: kept, sent, sent again (API-42, API-43, API-66, DISP-80).

use vk_hub_proto::client::CancelMode;
use vk_hub_proto::{JobId, NodeId};
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::job::Phase;
use crate::{Answer, Effect, Record};

impl Fleet {
    /// Cancels a job that is there: the answer.
    pub(crate) fn cancel(
        &mut self,
        now: Now,
        id: JobId,
        mode: CancelMode,
        out: &mut Out,
    ) -> Answer {
        if let Some(job) = self.jobs.get(&id) {
            // Immediate is the harder one; what is there is never weakened.
            let harder = job.cancel.is_none_or(|before| mode > before);
            if harder && !job.phase.is_finished() {
                self.cancel_anew(now, id, mode, out);
            }
        }
        match self.view_answer(id) {
            Answer::View(view) => Answer::CancelTaken(view),
            other => other,
        }
    }

    fn cancel_anew(&mut self, now: Now, id: JobId, mode: CancelMode, out: &mut Out) {
        self.keep(Record::JobCancel { job: id, mode }, out);
        self.bump(id);
        match self.jobs.get(&id).map(|job| &job.phase) {
            Some(Phase::Queued) => self.end_canceled(now, id, out),
            Some(Phase::Running { node, .. }) => {
                let node = *node;
                self.send_cancel(id, node, mode, out);
            }
            // Sent once the node has accepted it.
            _ => {}
        }
    }

    /// Tells the node, if it is in touch; otherwise its next `held` brings it up again.
    pub(crate) fn send_cancel(
        &mut self,
        job: JobId,
        node: NodeId,
        mode: CancelMode,
        out: &mut Out,
    ) {
        if let Some(session) = self.nodes.get(&node).and_then(|node| node.touch()) {
            out.effect(Effect::Cancel { session, job, mode });
        }
    }
}
