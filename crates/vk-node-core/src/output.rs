//! What of a job's output the hub has, and what it may be sent.
//!
//! Offsets count bytes of the job's `output` file. At most a window of them is under way past the
//! hub's last ack; after a reconnect the hub says first how much it has, and sending goes on there.

use vk_hub_proto::JobId;

use crate::NodeCore;
use crate::core::Out;
use crate::io::Effect;
use crate::jobs::Process;

/// The output of one job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Bytes on disk.
    pub(crate) len: u64,
    /// Bytes the hub has, by its last word in this life of the node.
    acked: Option<u64>,
    /// Bytes sent in this session, or known to be with the hub.
    sent: u64,
    pub(crate) link: Link,
    /// The process ran in this life of the node, so that the host lost nothing of it since.
    pub(crate) whole: bool,
}

/// What the session's hub makes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Link {
    /// It was not told of the job.
    #[default]
    Unlinked,
    /// It was told, and has yet to say how much it has, or that it gave the job up.
    Awaiting,
    /// It follows the job.
    Following,
    /// It gave the job up: it is sent the result alone (DISP-76).
    Disowned,
}

impl Output {
    /// The output of a job that starts in this session.
    pub(crate) fn followed(&mut self) {
        self.acked = Some(0);
        self.link = Link::Following;
        self.whole = true;
    }

    pub(crate) fn is_disowned(self) -> bool {
        self.link == Link::Disowned
    }

    /// Bytes the hub is known to have.
    pub(crate) fn acked(self) -> u64 {
        self.acked.unwrap_or(0)
    }

    /// Where the output of a dead job ends: the larger of its own length and the hub's count,
    /// which after a host's crash is not known before the hub's word.
    pub(crate) fn end(self) -> Option<u64> {
        match self.acked {
            Some(acked) => Some(self.len.max(acked)),
            None => (self.whole || self.is_disowned()).then_some(self.len),
        }
    }

    /// Whether the result may be sent: the hub has every byte (DISP-53), or wants none.
    pub(crate) fn is_delivered(self) -> bool {
        match self.link {
            Link::Following => self.acked() >= self.len,
            Link::Disowned => true,
            Link::Unlinked | Link::Awaiting => false,
        }
    }

    /// Takes the hub's word.
    fn take_ack(&mut self, offset: u64) {
        // Bytes we never had can be with the hub only where the host lost them.
        let offset = if self.whole {
            offset.min(self.len)
        } else {
            offset
        };
        match self.link {
            Link::Unlinked | Link::Disowned => {}
            Link::Awaiting => {
                self.acked = Some(offset);
                self.sent = offset;
                self.link = Link::Following;
            }
            Link::Following => {
                let acked = self.acked().max(offset);
                self.acked = Some(acked);
                self.sent = self.sent.max(acked);
            }
        }
    }

    /// The next bytes to send, if any may be.
    fn next_chunk(&mut self, window: u64, chunk: u64) -> Option<(u64, u64)> {
        if self.link != Link::Following {
            return None;
        }
        let end = self.len.min(self.acked().saturating_add(window));
        let len = end.checked_sub(self.sent)?.min(chunk);
        if len == 0 {
            return None;
        }
        let offset = self.sent;
        self.sent = offset.saturating_add(len);
        Some((offset, len))
    }
}

impl NodeCore {
    /// A job's output grew.
    pub(crate) fn output_grew(&mut self, id: JobId, len: u64, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.process == Process::Alive && len > job.output.len {
            job.output.len = len;
        }
        self.pump(id, out);
    }

    /// The hub has a job's output up to here.
    pub(crate) fn acked(&mut self, id: JobId, offset: u64, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.output.take_ack(offset);
        self.close_if_known(id, out);
        self.pump(id, out);
        self.send_result(id, out);
    }

    /// Sends what the window allows (DISP-47).
    pub(crate) fn pump(&mut self, id: JobId, out: &mut Out) {
        let Some(session) = self.session.filter(|s| s.has_jobs()) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (window, chunk) = (self.config.window_bytes, self.config.chunk_bytes.max(1));
        while let Some((offset, len)) = job.output.next_chunk(window, chunk) {
            out.effect(Effect::SendOutput {
                session: session.number,
                job: id,
                offset,
                len,
            });
        }
    }
}
