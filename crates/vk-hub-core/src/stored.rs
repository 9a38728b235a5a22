//! Output: what arrives, what is durable, what is acked (DISP-50 to DISP-52, DISP-79).

use vk_hub_proto::limit::CHUNK_BYTES;
use vk_hub_proto::{JobId, NodeId};
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::output::Take;
use crate::{Effect, SessionHandle};

/// Output bytes that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) job: JobId,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Fleet {
    pub(crate) fn on_output(
        &mut self,
        now: Now,
        session: SessionHandle,
        node: NodeId,
        arrived: Arrived,
        out: &mut Out,
    ) {
        let Arrived {
            job: id,
            offset,
            len,
        } = arrived;
        if usize::try_from(len).is_ok_and(|len| len > CHUNK_BYTES) {
            let why = format!("{len} output bytes of job {id} in one message");
            return self.violation(now, session, why, out);
        }
        if !self.jobs.get(&id).is_some_and(|job| job.is_on(node)) {
            // Nobody will ever read it: the node need not keep it (DISP-78).
            let offset = offset.saturating_add(u64::from(len));
            return out.effect(Effect::OutputAck {
                session,
                job: id,
                offset,
            });
        }
        self.taken(now, id, out);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.output.take(offset, u64::from(len)) {
            Take::Gap { end } => {
                let why = format!("output of job {id} goes on at {offset} while it ends at {end}");
                self.violation(now, session, why, out);
            }
            Take::Nothing => self.ack(session, id, out),
            Take::Store { offset, skip, len } => out.effect(Effect::StoreOutput {
                job: id,
                offset,
                // Both lie within a chunk.
                skip: u32::try_from(skip).unwrap_or(u32::MAX),
                len: u32::try_from(len).unwrap_or(u32::MAX),
            }),
        }
    }

    /// Says how much of a job's output is durable.
    pub(crate) fn ack(&mut self, session: SessionHandle, id: JobId, out: &mut Out) {
        if let Some(job) = self.jobs.get(&id) {
            out.effect(Effect::OutputAck {
                session,
                job: id,
                offset: job.output.acked(),
            });
        }
    }

    pub(crate) fn on_output_synced(&mut self, lengths: Vec<(JobId, u64)>, out: &mut Out) {
        for (id, length) in lengths {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if !job.output.synced(length) {
                continue;
            }
            let node = job.phase.node();
            let session = node.and_then(|node| self.nodes.get(&node)?.touch());
            if let Some(session) = session {
                self.ack(session, id, out);
            }
            self.wake_readers(id, out);
        }
    }
}
