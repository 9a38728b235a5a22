//! The journal's thread: batches in, one word for each out.

use std::sync::mpsc as std_mpsc;
use std::thread;

use tokio::sync::mpsc;
use vk_hub_proto::JobId;
use vk_node_core::Record;

use crate::durable::{FileError, sync_dir};
use crate::job::directory::JobDir;
use crate::journal::{Journal, JournalError};
use crate::state_dir::StateDir;

/// A start message on its way to its job's directory. Holds secrets: it cannot be printed.
pub(crate) struct StartFile {
    pub(crate) job: JobId,
    pub(crate) json: Vec<u8>,
}

/// What becomes durable together: with a job's record its directory and start message (DISP-41).
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) starts: Vec<StartFile>,
    pub(crate) records: Vec<Record>,
}

enum Work {
    Batch(Batch),
    Replace(Vec<Record>),
    Durable,
    Mend,
}

/// What came of it.
pub(crate) enum Done {
    /// A batch is durable; the journal's length.
    Kept(Result<u64, DiskError>),
    /// The journal was written anew, or is as it was; its length.
    Replaced(Result<u64, DiskError>),
    /// What is durable.
    Durable(Result<Vec<Record>, DiskError>),
    /// Whether the disk takes writes again.
    Mended(Result<(), DiskError>),
    /// The thread is gone.
    Gone,
}

/// A disk that failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A job's directory.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The thread.
pub(crate) struct Disk {
    work: std_mpsc::Sender<Work>,
    done: mpsc::UnboundedReceiver<Done>,
}

impl Disk {
    pub(crate) fn start(journal: Journal, state: StateDir) -> std::io::Result<Disk> {
        let (work, take) = std_mpsc::channel();
        let (tell, done) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || serve(journal, &state, &take, &tell))?;
        Ok(Disk { work, done })
    }

    pub(crate) fn keep(&self, batch: Batch) {
        self.give(Work::Batch(batch));
    }

    pub(crate) fn replace(&self, records: Vec<Record>) {
        self.give(Work::Replace(records));
    }

    pub(crate) fn durable(&self) {
        self.give(Work::Durable);
    }

    pub(crate) fn mend(&self) {
        self.give(Work::Mend);
    }

    fn give(&self, work: Work) {
        // A thread that is gone says so by its closed channel.
        let _ = self.work.send(work);
    }

    pub(crate) async fn done(&mut self) -> Done {
        self.done.recv().await.unwrap_or(Done::Gone)
    }
}

fn serve(
    mut journal: Journal,
    state: &StateDir,
    take: &std_mpsc::Receiver<Work>,
    tell: &mpsc::UnboundedSender<Done>,
) {
    while let Ok(work) = take.recv() {
        let done = match work {
            Work::Batch(batch) => Done::Kept(keep(&mut journal, state, &batch)),
            Work::Replace(records) => {
                let replaced = journal.replace(&records).map_err(DiskError::from);
                Done::Replaced(replaced.map(|()| journal.len()))
            }
            Work::Durable => Done::Durable(journal.durable().map_err(DiskError::from)),
            Work::Mend => Done::Mended(journal.mend().map_err(DiskError::from)),
        };
        if tell.send(done).is_err() {
            return;
        }
    }
}

/// The start messages first: a record never stands for one that is not there.
fn keep(journal: &mut Journal, state: &StateDir, batch: &Batch) -> Result<u64, DiskError> {
    for start in &batch.starts {
        JobDir::new(start.job, state.job(start.job)).create(&start.json)?;
    }
    if !batch.starts.is_empty() {
        sync_dir(&state.jobs())?;
    }
    if !batch.records.is_empty() {
        journal.append(&batch.records)?;
    }
    Ok(journal.len())
}
