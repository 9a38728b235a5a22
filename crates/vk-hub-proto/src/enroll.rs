//! Enrolment of nodes (`POST /v1/enroll`) and relays (`POST /v1/gitlab/enroll`).

use serde::{Deserialize, Serialize};

use crate::hex::Hex;
use crate::secret::expose;
use crate::{NodeId, RelayId, Secret};

/// The body of both requests (ENR-11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollRequest {
    /// The enrolment token, as `vk-hub token create` printed it.
    #[serde(serialize_with = "expose")]
    pub token: Secret,
    /// The Ed25519 key to pin.
    pub public_key: Hex<32>,
    /// By that key, over [`crate::signed::enroll`] or [`crate::signed::enroll_relay`].
    pub signature: Hex<64>,
    /// Display text.
    pub hostname: String,
}

/// The answer to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEnrolled {
    /// Its ID.
    pub node_id: NodeId,
}

/// The answer to a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayEnrolled {
    /// Its ID.
    pub relay_id: RelayId,
}
