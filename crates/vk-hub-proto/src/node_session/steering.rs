//! What an operator wants of a node, and the commands sent to it.

use serde::{Deserialize, Serialize};

use crate::hex::Hex;

/// The desired state: applied once a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredState {
    /// Rises with every change.
    pub generation: u64,
    /// Caps the node's placed work; none leaves it to the node. Written as `null` when absent.
    #[serde(default)]
    pub ceiling: Option<u32>,
    /// Whether the node takes new work.
    pub acquisition: Acquisition,
}

/// Whether a node takes new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acquisition {
    /// It does.
    Run,
    /// It does not; also how an unknown word is read.
    #[serde(other)]
    Stop,
}

/// What a command asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CommandOp {
    /// Take no new work and let the present work end.
    Drain,
    /// Leave a drain.
    Undrain,
    /// Give every reservation back and take no work until released.
    Quarantine,
    /// Leave the quarantine.
    Release,
    /// Install another release.
    Update {
        /// Its version.
        version: String,
        /// Its digest.
        sha256: Hex<32>,
        /// Its bytes.
        size: u64,
        /// By a release key, padded base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Also where the node has it already or it is older.
        #[serde(default)]
        force: bool,
        /// Give up draining after this long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_secs: Option<u32>,
    },
    /// Put the node's stores back to empty.
    Reset {
        /// The images too.
        #[serde(default)]
        images: bool,
    },
    /// Install CI tools (version 4).
    Tools {
        /// Their version.
        version: String,
        /// Their digest.
        sha256: Hex<32>,
        /// Their bytes.
        size: u64,
    },
    /// A command this version does not know; refused.
    #[serde(other)]
    Other,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CommandOutcome {
    /// It is kept and under way.
    Accepted,
    /// It is done.
    Done,
    /// It was tried and failed.
    Failed {
        /// Why.
        message: String,
    },
    /// It was not tried.
    Refused {
        /// Why.
        reason: String,
    },
    /// It came too late.
    Expired,
    /// An outcome this version does not know.
    #[serde(other)]
    Other,
}
