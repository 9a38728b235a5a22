//! The disk's thread: batches of records and output, and reads of output.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;

use tokio::sync::{mpsc, oneshot};
use vk_hub_core::Record;
use vk_hub_proto::JobId;

use crate::output::{OutputError, OutputLog};
use crate::store::{Store, StoreError};

/// A disk that failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output log.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The disk's thread is gone.
    #[error("the disk's thread ended")]
    Gone,
}

/// What becomes durable together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) records: Vec<Record>,
    pub(crate) output: Vec<Piece>,
}

/// What happens to output.
#[derive(Debug)]
pub(crate) enum Piece {
    Append {
        job: JobId,
        offset: u64,
        bytes: Vec<u8>,
    },
    Drop(JobId),
    Retain(Vec<JobId>),
}

/// What a batch's sync made durable: for each job written to, how much of its output.
pub(crate) type Synced = Result<Vec<(JobId, u64)>, DiskError>;

enum Work {
    Batch(Batch),
    Read {
        job: JobId,
        offset: u64,
        len: u64,
        reply: oneshot::Sender<Result<Vec<u8>, DiskError>>,
    },
}

/// The way to the disk's thread, and what was found on it.
pub struct Opened {
    /// Records, oldest position first.
    pub records: Vec<Record>,
    /// Lengths of the outputs.
    pub outputs: BTreeMap<JobId, u64>,
    pub(crate) disk: Disk,
}

/// The way to the disk's thread.
pub(crate) struct Disk {
    work: std_mpsc::Sender<Work>,
    pub(crate) done: mpsc::UnboundedReceiver<Synced>,
}

impl Opened {
    /// Opens the output log beside the store and starts their thread.
    ///
    /// # Errors
    /// Something on the disk cannot be read.
    pub fn open(mut store: Box<dyn Store>, outputs: PathBuf) -> Result<Opened, DiskError> {
        let log = OutputLog::open(outputs)?;
        let records = store.records()?;
        let (work, queue) = std_mpsc::channel();
        let (tell, done) = mpsc::unbounded_channel();
        let lengths = log.lengths();
        let mut thread = Thread { store, log };
        std::thread::spawn(move || thread.run(&queue, &tell));
        Ok(Opened {
            records,
            outputs: lengths,
            disk: Disk { work, done },
        })
    }
}

impl Disk {
    /// Hands a batch over; [`Disk::done`] says when it is durable.
    pub(crate) fn write(&self, batch: Batch) -> Result<(), DiskError> {
        self.work
            .send(Work::Batch(batch))
            .map_err(|_| DiskError::Gone)
    }

    /// Reads output; the bytes come by the channel returned.
    pub(crate) fn read(
        &self,
        job: JobId,
        offset: u64,
        len: u64,
    ) -> oneshot::Receiver<Result<Vec<u8>, DiskError>> {
        let (reply, bytes) = oneshot::channel();
        // A thread that is gone drops the reply, and so tells the reader.
        let _ = self.work.send(Work::Read {
            job,
            offset,
            len,
            reply,
        });
        bytes
    }
}

struct Thread {
    store: Box<dyn Store>,
    log: OutputLog,
}

impl Thread {
    fn run(&mut self, queue: &std_mpsc::Receiver<Work>, tell: &mpsc::UnboundedSender<Synced>) {
        while let Ok(work) = queue.recv() {
            match work {
                Work::Batch(batch) => {
                    if tell.send(self.write(batch)).is_err() {
                        return;
                    }
                }
                Work::Read {
                    job,
                    offset,
                    len,
                    reply,
                } => {
                    let bytes = self.log.read(job, offset, len).map_err(DiskError::from);
                    // The reader hung up meanwhile.
                    let _ = reply.send(bytes);
                }
            }
        }
    }

    fn write(&mut self, batch: Batch) -> Synced {
        let mut written = BTreeMap::new();
        let mut dropped = Vec::new();
        for piece in batch.output {
            match piece {
                Piece::Append { job, offset, bytes } => {
                    self.log.append(job, offset, &bytes)?;
                    written.insert(job, offset + bytes.len() as u64);
                }
                Piece::Drop(job) => {
                    written.remove(&job);
                    dropped.push(job);
                }
                Piece::Retain(jobs) => self.log.retain(&jobs)?,
            }
        }
        if !written.is_empty() {
            self.log.sync()?;
        }
        if !batch.records.is_empty() {
            self.store.append(&batch.records)?;
        }
        // Output goes only once it is durable that it may.
        for job in dropped {
            self.log.drop_output(job)?;
        }
        Ok(written.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
