//! A guest, as its owner uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use vk_guest_proto::{
    Answer, FileInfo, MountRoot, MountTree, Op, Request, SetUp, StreamToHost, Usage,
};

use super::connection::{FrameReader, FrameWriter, frames};
use super::control::Control;
use super::error::{BrokenStream, GuestError};
use super::listener::Expected;
use crate::death::{Death, Lifeline};

/// What is asked on the control stream takes moments, even in a busy guest.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a request's few parts may take to be taken.
const REQUEST: Duration = Duration::from_secs(60);

/// The agent of one VM. Cheap to clone; all clones speak with the same agent.
#[derive(Clone)]
pub struct Guest {
    inner: Arc<Inner>,
}

struct Inner {
    control: Control,
    expected: Arc<Expected>,
    lifeline: Lifeline,
    next_stream: AtomicU32,
}

/// What a set-up found.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// What its paths are, in their order; `None` where there is nothing.
    pub files: Vec<Option<FileInfo>>,
    /// What is in its file; `None` where it cannot be read, or has more than an answer holds.
    pub content: Option<Vec<u8>>,
}

/// The host's time as a set-up tells it: nanoseconds since 1970 in UTC.
#[must_use]
pub fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

impl Guest {
    pub(crate) fn new(control: Control, expected: Arc<Expected>, lifeline: Lifeline) -> Self {
        // Number 0 is the control stream's.
        let next_stream = AtomicU32::new(1);
        Self {
            inner: Arc::new(Inner {
                control,
                expected,
                lifeline,
                next_stream,
            }),
        }
    }

    /// How the VM ended; waits for it.
    pub async fn death(&self) -> Arc<Death> {
        self.inner.lifeline.death().await
    }

    /// Asks whether the agent answers.
    ///
    /// # Errors
    /// [`GuestError::Timeout`] after 60 s, [`GuestError::Dead`]. Of every method here.
    pub async fn ping(&self) -> Result<(), GuestError> {
        self.ask("answer", Op::Ping).await
    }

    /// Assembles the job's root. Once a VM, before the first command, file or archive.
    ///
    /// # Errors
    /// [`GuestError::Refused`], for a disk that is not there, say.
    pub async fn mount_root(&self, plan: MountRoot) -> Result<(), GuestError> {
        self.ask("mount the job's root", Op::MountRoot { plan })
            .await
    }

    /// Mounts a further tree in the job's root.
    ///
    /// # Errors
    /// As [`Guest::mount_root`].
    pub async fn mount_tree(&self, plan: MountTree) -> Result<(), GuestError> {
        self.ask("mount a tree", Op::MountTree { plan }).await
    }

    /// Looks at paths of the job's root; `None` where there is nothing.
    ///
    /// # Errors
    /// [`GuestError::TooLong`] for more than 16 paths, [`GuestError::Refused`].
    pub async fn stat(
        &self,
        paths: Vec<Vec<u8>>,
        follow: bool,
    ) -> Result<Vec<Option<FileInfo>>, GuestError> {
        let what = "look at files";
        let count = paths.len();
        match self
            .answer(what, Op::Stat { paths, follow }, ANSWER)
            .await?
        {
            Answer::Stats { files } if files.len() == count => Ok(files),
            _ => Err(GuestError::broken(what)(BrokenStream::OutOfTurn)),
        }
    }

    /// Sets the guest up for its job, in one go. Once a VM, before the first command, file or archive.
    ///
    /// # Errors
    /// As [`Guest::mount_root`]; [`GuestError::TooLong`] for more than 16 paths or directories.
    pub async fn set_up(&self, plan: SetUp) -> Result<Found, GuestError> {
        let what = "set the guest up";
        let count = plan.look.len();
        match self.answer(what, Op::SetUp { plan }, ANSWER).await? {
            Answer::SetUp { files, content } if files.len() == count => {
                Ok(Found { files, content })
            }
            _ => Err(GuestError::broken(what)(BrokenStream::OutOfTurn)),
        }
    }

    /// What the guest itself says it used.
    ///
    /// # Errors
    /// [`GuestError::Refused`].
    pub async fn usage(&self) -> Result<Usage, GuestError> {
        let what = "say what it used";
        match self.answer(what, Op::Usage, ANSWER).await? {
            Answer::Usage { usage } => Ok(usage),
            _ => Err(GuestError::broken(what)(BrokenStream::OutOfTurn)),
        }
    }

    /// Has the guest write out its disks.
    ///
    /// # Errors
    /// [`GuestError::Refused`].
    pub async fn sync(&self) -> Result<(), GuestError> {
        self.ask("write out its disks", Op::Sync).await
    }

    /// Has the guest kill what runs, unmount and power off, within `limit`.
    pub(crate) async fn power_off(&self, limit: Duration) -> Result<(), GuestError> {
        self.answer("power off", Op::PowerOff, limit)
            .await
            .map(drop)
    }

    /// Asks for something that is only done or not.
    pub(super) async fn ask(&self, what: &'static str, op: Op) -> Result<(), GuestError> {
        match self.answer(what, op, ANSWER).await? {
            Answer::Done => Ok(()),
            _ => Err(GuestError::broken(what)(BrokenStream::OutOfTurn)),
        }
    }

    async fn answer(
        &self,
        what: &'static str,
        op: Op,
        limit: Duration,
    ) -> Result<Answer, GuestError> {
        self.inner.control.ask(what, op, limit).await
    }

    /// Has the agent dial a stream, and sends it its request.
    pub(super) async fn request(
        &self,
        what: &'static str,
        request: &Request,
    ) -> Result<(u32, FrameReader<StreamToHost>, FrameWriter), GuestError> {
        let parts = request
            .to_frames()
            .map_err(|source| GuestError::TooLong { what, source })?;
        let stream = self.inner.next_stream.fetch_add(1, Ordering::Relaxed);
        let purpose = request.purpose();
        let connection = self.inner.expected.expect(stream, purpose);
        let opened = async {
            self.ask(what, Op::Open { stream, purpose }).await?;
            // `Done` says that the agent dialled and was taken: the connection is here.
            connection
                .await
                .map_err(|_| GuestError::broken(what)(BrokenStream::OutOfTurn))
        };
        let late = Err(GuestError::Timeout {
            what,
            after: ANSWER,
        });
        let opened = timeout(ANSWER, opened).await.unwrap_or(late);
        self.inner.expected.forget(stream);
        let (reader, mut writer) = frames(opened?, &self.inner.lifeline);
        let send = async {
            for part in &parts {
                writer.send(part).await.map_err(GuestError::broken(what))?;
            }
            Ok(())
        };
        timeout(REQUEST, send)
            .await
            .unwrap_or(Err(GuestError::Timeout {
                what,
                after: REQUEST,
            }))?;
        Ok((stream, reader, writer))
    }
}
