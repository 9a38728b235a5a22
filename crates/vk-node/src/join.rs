//! Joining a hub.

use vk_hub_client::enrolment::{Enrolment, EnrolmentError};
use vk_hub_client::{EnrollError, EnrolmentToken, HubUrl, KeyError, enroll_node};
use vk_hub_proto::NodeId;

use crate::daemon::known_jobs;
use crate::host;
use crate::journal::{Journal, JournalError};
use crate::state_dir::{StateDir, StateDirError};

/// A node that could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The state directory; a running daemon has it locked.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// It joined before.
    #[error("this node has joined a hub already: join with --replace to leave that one")]
    Enrolled,
    /// It has jobs.
    #[error(
        "the node still has {0} job(s) whose result its hub has not recorded: let them end first \
         (vk node run); where that hub is gone or has removed this node they cannot: once none of \
         their processes runs, remove `node/journal` and `node/jobs` in the state directory, which \
         gives them up"
    )]
    HasJobs(usize),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The hub.
    #[error(transparent)]
    Enroll(#[from] EnrollError),
    /// What joining leaves on disk.
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
}

/// Where to join, and how.
pub struct Join<'a> {
    /// The hub.
    pub hub: HubUrl,
    /// What it gave out for this.
    pub token: &'a EnrolmentToken,
    /// The CA to trust, PEM; the one the token names where none is given (ENR-20).
    pub ca: Option<Vec<u8>>,
    /// Leave another hub for it.
    pub replace: bool,
}

/// Makes a key, has the hub pin it, and keeps key, hub, CA and ID under `<state_dir>/node`. Refused
/// while a daemon runs there, while there are jobs, and where it joined before and `replace` is
/// not set.
///
/// # Errors
/// See [`JoinError`].
pub async fn join(state: &StateDir, join: Join<'_>) -> Result<NodeId, JoinError> {
    let _lock = state.lock()?;
    let directory = state.enrolment();
    if directory.is_enrolled() && !join.replace {
        return Err(JoinError::Enrolled);
    }
    if state.journal().exists() {
        let (_, records) = Journal::open(&state.journal())?;
        match known_jobs(&records) {
            0 => {}
            jobs => return Err(JoinError::HasJobs(jobs)),
        }
    }
    let key = directory.joining_key()?;
    let hostname = host::hostname();
    let joined = enroll_node(&join.hub, join.token, join.ca, &key, &hostname).await?;
    directory.save(&Enrolment {
        hub: join.hub,
        id: joined.id,
        key,
        ca_pem: joined.ca_pem,
    })?;
    Ok(joined.id)
}
