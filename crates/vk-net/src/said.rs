use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// No packet of the keeper's is larger.
pub const SAID_MAX: usize = 4096;

/// What the keeper says on its stdout, a socket that keeps packets apart: one JSON value each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The tap, in the descriptor that comes with this packet, and the guest's addresses. What the
    /// guest sends is filtered already; nothing leads out yet.
    Tap(Plan),
    /// The way out and the resolver are there.
    Ready,
}
