//! The relay's session: `GET /v1/gitlab/session`, of the kind nodes hold (SESS-16 to SESS-19).

use serde::{Deserialize, Serialize};

use crate::client::Placement;
use crate::hex::Hex;
use crate::node_session::{RefusedCode, VersionRange};
use crate::{Incarnation, RelayId};

/// From the daemon to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RelayMessage {
    /// The first message: who is here, and what it speaks.
    Hello {
        /// The versions it speaks.
        versions: VersionRange,
        /// Who.
        relay_id: RelayId,
        /// This life of the daemon.
        incarnation: Incarnation,
        /// The program's version.
        version: String,
    },
    /// The answer to the challenge.
    Auth {
        /// Ed25519 by the relay's key, over [`crate::signed::relay_session_auth`].
        signature: Hex<64>,
    },
    /// What this daemon is (SESS-17).
    Report(Box<RelayReport>),
    /// A sign of life with what changes (SESS-18).
    Heartbeat {
        /// Each runner.
        runners: Vec<RunnerBeat>,
    },
    /// A type this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// From the hub to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HubRelayMessage {
    /// What to sign, and the version chosen.
    Challenge {
        /// The highest version both speak.
        version: u32,
        /// The versions the hub speaks.
        versions: VersionRange,
        /// Drawn for this session.
        nonce: Hex<32>,
    },
    /// The daemon is who it says.
    Welcome {
        /// Seconds between heartbeats.
        heartbeat_secs: u32,
    },
    /// The session ends.
    Refused {
        /// Why, for the program.
        code: RefusedCode,
        /// Why, for people.
        reason: String,
    },
    /// How the GitLab server stands (SESS-19).
    Server {
        /// Whether runners may ask it for jobs.
        status: ServerStatus,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A type this version does not know; ignored.
    #[serde(other)]
    Other,
}

/// How a GitLab server stands with the hub's operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerStatus {
    /// Runners may ask for jobs.
    Approved,
    /// An operator rejected it.
    Rejected,
    /// The relay was bound to another one.
    Rebound,
    /// Nobody decided yet; also how an unknown word is read.
    #[serde(other)]
    Pending,
}

/// What a daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReport {
    /// The program's version.
    pub version: String,
    /// Its host.
    pub host: String,
    /// Its system ID towards GitLab.
    pub system_id: String,
    /// Jobs it takes at most.
    pub concurrent: u32,
    /// Its GitLab server.
    pub server: RelayServer,
    /// Its runners.
    pub runners: Vec<RelayRunner>,
}

/// The GitLab server a daemon serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayServer {
    /// Its URL.
    pub url: String,
    /// SHA-256 of its certificate's public key; none for plain http (SESS-28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spki_sha256: Option<Hex<32>>,
}

/// One runner of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRunner {
    /// Its name in the configuration.
    pub name: String,
    /// GitLab's number for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<u64>,
    /// Where its jobs go.
    pub placement: Placement,
    /// Jobs it takes at most; 0 leaves it to `concurrent`.
    pub limit: u32,
    /// Whether GitLab took its token; none before the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_accepted: Option<bool>,
}

/// One runner in a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerBeat {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: RelayRunnerState,
    /// Job requests outstanding.
    pub requests: u32,
    /// Jobs held.
    pub jobs: u32,
    /// GitLab's last answer to a job request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<LastAnswer>,
}

/// GitLab's last answer to a job request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAnswer {
    /// Its HTTP status; 0 where none came.
    pub status: u16,
    /// Seconds ago.
    pub age_secs: u64,
}

/// What a runner does (SESS-07).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayRunnerState {
    /// Asks GitLab for jobs.
    Polling,
    /// Waits for room on the fleet.
    WaitingCapacity,
    /// Waits for an operator.
    ServerPending,
    /// Pauses after failures.
    Unhealthy,
    /// GitLab refused its token.
    TokenRefused,
    /// A state this version does not know.
    #[serde(other)]
    Other,
}
