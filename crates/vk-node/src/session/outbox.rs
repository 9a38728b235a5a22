//! What waits to be sent: control messages first, then output, a job at a time in turn.
//!
//! Output waits as job, offset and length; its bytes are read when they are sent. Pieces of one
//! job that follow each other become one, so that a job that prints byte by byte costs no more
//! than one that prints much.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use vk_hub_proto::JobId;
use vk_hub_proto::limit::CHUNK_BYTES;
use vk_hub_proto::node_session::NodeMessage;

/// Control messages that may wait; a hub that takes none any more loses its session.
const CONTROL: usize = 4096;

/// What is to be sent next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// This message.
    Message(Box<NodeMessage>),
    /// These bytes of a job's output.
    Output {
        /// Whose.
        job: JobId,
        /// From where.
        offset: u64,
        /// How many, at most [`CHUNK_BYTES`].
        len: usize,
    },
    /// Nothing any more: the session is to end.
    Closed,
}

#[derive(Debug, Default)]
struct Waiting {
    control: VecDeque<NodeMessage>,
    outputs: BTreeMap<JobId, (u64, u64)>,
    turns: VecDeque<JobId>,
    closed: bool,
}

/// The box.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    more: Notify,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock, and if: what waits is whole at every moment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a control message. Too many that wait close the box.
    pub(crate) fn message(&self, message: NodeMessage) {
        let mut waiting = self.lock();
        if waiting.control.len() >= CONTROL {
            tracing::warn!("the hub does not take the node's messages: its session ends");
            waiting.closed = true;
        } else {
            waiting.control.push_back(message);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Adds a piece of a job's output.
    pub(crate) fn output(&self, job: JobId, offset: u64, len: u64) {
        let mut waiting = self.lock();
        match waiting.outputs.get_mut(&job) {
            Some((from, had)) if *from + *had == offset => *had += len,
            // The hub had more than waits here: what waits is not wanted.
            Some(piece) => *piece = (offset, len),
            None => {
                waiting.outputs.insert(job, (offset, len));
                waiting.turns.push_back(job);
            }
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Nothing more is to be sent.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// What is to be sent next. A call that is dropped takes nothing out. One caller at a time.
    pub(crate) async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.lock().take() {
                return next;
            }
            self.more.notified().await;
        }
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Next> {
        if self.closed {
            return Some(Next::Closed);
        }
        if let Some(message) = self.control.pop_front() {
            return Some(Next::Message(Box::new(message)));
        }
        let job = self.turns.pop_front()?;
        let (offset, waits) = self.outputs.remove(&job)?;
        let most = CHUNK_BYTES as u64;
        let now = waits.min(most);
        if waits > now {
            self.outputs.insert(job, (offset + now, waits - now));
            self.turns.push_back(job);
        }
        let len = usize::try_from(now).unwrap_or(CHUNK_BYTES);
        Some(Next::Output { job, offset, len })
    }
}

#[cfg(test)]
mod tests {
    use vk_hub_proto::node_session::Heartbeat;

    use super::*;

    fn job(number: u8) -> JobId {
        JobId::from_bytes([number; 16])
    }

    fn output(number: u8, offset: u64, len: usize) -> Next {
        Next::Output {
            job: job(number),
            offset,
            len,
        }
    }

    #[tokio::test]
    async fn control_messages_overtake_output_and_jobs_take_turns() {
        let outbox = Outbox::default();
        outbox.output(job(1), 0, 300_000);
        outbox.output(job(2), 5, 10);
        outbox.message(NodeMessage::Heartbeat(Heartbeat::default()));
        assert!(matches!(outbox.next().await, Next::Message(_)));
        assert_eq!(outbox.next().await, output(1, 0, CHUNK_BYTES));
        outbox.message(NodeMessage::Heartbeat(Heartbeat::default()));
        assert!(matches!(outbox.next().await, Next::Message(_)));
        assert_eq!(outbox.next().await, output(2, 5, 10));
        let rest = 300_000 - CHUNK_BYTES;
        assert_eq!(outbox.next().await, output(1, CHUNK_BYTES as u64, rest));
    }

    #[tokio::test]
    async fn small_pieces_become_one_and_what_the_hub_has_is_left_out() {
        let outbox = Outbox::default();
        for at in 0..100 {
            outbox.output(job(1), at, 1);
        }
        assert_eq!(outbox.next().await, output(1, 0, 100));
        outbox.output(job(1), 100, 50);
        outbox.output(job(1), 400, 50);
        assert_eq!(outbox.next().await, output(1, 400, 50));
    }

    #[tokio::test]
    async fn a_box_that_nobody_empties_closes_itself() {
        let outbox = Outbox::default();
        for _ in 0..=CONTROL {
            outbox.message(NodeMessage::Other);
        }
        assert_eq!(outbox.next().await, Next::Closed);
    }
}
