//! What a job's process and the daemon say to each other: frames of a length (u32, big-endian) and
//! that many bytes of JSON, at most 1 MiB.
//!
//! The daemon subscribes, naming the versions it speaks; the process answers with the one it chose
//! and then tells how the job stands, at once and whenever that changes. Orders are levels, not
//! events: repeats are harmless, and the daemon repeats them on every connection.
//!
//! Daemon and process may be of different releases: an upgrade leaves jobs running, and a daemon that
//! was not restarted yet starts processes of the new program. A version is about what the process
//! tells; [`ToJob`]'s orders and [`FromJob::Refused`] keep their form in all of them. Where the two have
//! no version in common the process tells nothing and still takes orders; the daemon takes output and
//! result from their files, whose form no version changes.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use vk_hub_proto::dispatch::GuestSize;
use vk_hub_proto::job::JobResult;
use vk_hub_proto::node_session::VersionRange;
use vk_node_core::Stop;
use vk_node_core::ledger::Resource;

/// The versions this program speaks, as daemon and as job process. A daemon speaks the version of
/// the release before it too, so that an upgrade leaves jobs running.
const VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };
/// What says others in their place, in builds with kill points: `1..2`.
pub(super) const TEST_VERSIONS: &str = "VK_TEST_WIRE_VERSIONS";
/// A frame at most.
pub const FRAME_BYTES: usize = 1 << 20;

/// The versions that this process speaks.
pub(super) fn versions() -> VersionRange {
    if cfg!(feature = "kill-points")
        && let Ok(text) = std::env::var(TEST_VERSIONS)
        && let Some((min, max)) = text.split_once("..")
        && let (Ok(min), Ok(max)) = (min.parse(), max.parse())
    {
        return VersionRange { min, max };
    }
    VERSIONS
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToJob {
    /// The first frame.
    Subscribe {
        /// What the daemon speaks.
        versions: VersionRange,
    },
    /// The job has all it asked for.
    Grant,
    /// The job will not get what it asked for (ADM-34).
    Deny {
        /// What is short.
        short: Resource,
    },
    /// The job is to stop.
    Stop {
        /// How.
        how: Stop,
    },
    /// Something this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// From the job's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum FromJob {
    /// The answer to a subscription.
    Subscribed {
        /// The version from here on.
        version: u32,
    },
    /// There is no common version: nothing is told on this connection, and orders are taken.
    Refused {
        /// What the process speaks.
        versions: VersionRange,
    },
    /// How the job stands.
    State(Box<Progress>),
    /// Something this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// How a job stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The stage that runs or ran last.
    pub stage: Option<String>,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// What it is doing, for display.
    pub activity: Option<String>,
    /// The VM's size, once it runs.
    pub guest: Option<GuestSize>,
    /// From the VMM's start to the agent's hello, in milliseconds, once it was heard.
    pub boot_ms: Option<u64>,
    /// How often one was heard: a job may have several VMs.
    pub boots: u32,
    /// What came of the caches it looked for.
    pub caches: CacheCounts,
    /// What came of pulling its image.
    pub image_pulls: PullCounts,
    /// The VMM's name, once it runs.
    pub vmm: Option<String>,
    /// What the VM runs on, once it runs.
    pub accelerator: Option<String>,
    /// Bytes in the output.
    pub output_len: u64,
    /// How it ended, once output and result are durable.
    pub result: Option<JobResult>,
}

/// Caches that a job looked for, by what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheCounts {
    /// They were there and are in the tree.
    pub hits: u32,
    /// Nothing was saved for the key.
    pub misses: u32,
    /// The registry failed or refused, or what it has is broken.
    pub errors: u32,
}

/// Images that a job had pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PullCounts {
    /// They came.
    pub done: u32,
    /// They did not.
    pub failed: u32,
}

/// Reads frames. A read that is dropped loses nothing.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from here.
    pub const fn new(from: R) -> Self {
        FrameReader {
            from,
            buffer: Vec::new(),
        }
    }

    /// The next frame; none at an end between two frames.
    ///
    /// # Errors
    /// The connection failed, ended inside a frame, or a frame is too large or no message.
    pub async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if len > FRAME_BYTES {
            let why = format!("a frame of {len} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let Some(payload) = rest.get(..len) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(payload)?;
        self.buffer.drain(..4 + len);
        Ok(Some(message))
    }
}

/// Writes one frame.
///
/// # Errors
/// The connection failed, or the message is too large.
pub async fn write_frame<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let len = u32::try_from(json.len())
        .ok()
        .filter(|_| json.len() <= FRAME_BYTES)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut frame = Vec::with_capacity(4 + json.len());
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&json);
    to.write_all(&frame).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_arrive_whole_however_they_are_cut() {
        let (mut to, from) = tokio::io::duplex(7);
        let said = [
            ToJob::Subscribe { versions: VERSIONS },
            ToJob::Grant,
            ToJob::Stop {
                how: Stop::Graceful,
            },
        ];
        let sent = said.clone();
        let writing = tokio::spawn(async move {
            for message in &sent {
                write_frame(&mut to, message).await.unwrap();
            }
        });
        let mut frames = FrameReader::new(from);
        for message in said {
            assert_eq!(frames.next::<ToJob>().await.unwrap(), Some(message));
        }
        assert_eq!(frames.next::<ToJob>().await.unwrap(), None);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn an_end_inside_a_frame_and_a_frame_too_large_are_errors() {
        let torn = [0, 0, 0, 9, b'{'];
        let error = FrameReader::new(&torn[..])
            .next::<ToJob>()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let large = [0xff, 0xff, 0xff, 0xff, b'{'];
        let error = FrameReader::new(&large[..])
            .next::<ToJob>()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_a_later_version_says_is_ignored() {
        let later: ToJob = serde_json::from_str(r#"{"say":"pause","for":3}"#).unwrap();
        assert_eq!(later, ToJob::Other);
        let later: FromJob =
            serde_json::from_str(r#"{"tell":"state","stage":"get_sources","mood":1}"#).unwrap();
        let FromJob::State(state) = later else {
            panic!("{later:?}")
        };
        assert_eq!(state.stage.as_deref(), Some("get_sources"));
    }
}
