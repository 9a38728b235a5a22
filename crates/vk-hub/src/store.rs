//! What the hub keeps: the fleet's rows, members, enrolment tokens, the audit log.

mod sqlite;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vk_hub_core::Record;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::{NodeId, RelayId};

pub use sqlite::Sqlite;

/// A store that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed.
    #[error("cannot {action} {}", path.display())]
    Database {
        /// What was tried.
        action: &'static str,
        /// The database.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: rusqlite::Error,
    },
    /// A row is not what this program writes.
    #[error("row {row} of {} cannot be read: {why}", path.display())]
    Damaged {
        /// Which row.
        row: String,
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The database is of a later version.
    #[error("{} has schema {found}, this program knows {known}: run the newer vk-hub", path.display())]
    TooNew {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest known here.
        known: i64,
    },
}

/// What an enrolment token is for (ENR-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A node.
    Node,
    /// A relay: a `vk-gitlab`.
    GitLab,
}

impl MemberKind {
    /// The kind's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            MemberKind::Node => "node",
            MemberKind::GitLab => "gitlab",
        }
    }
}

/// A node or relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its ID.
    pub id: [u8; 16],
    /// What it is.
    pub kind: MemberKind,
    /// Its pinned key.
    pub public_key: Hex<32>,
    /// Display text.
    pub hostname: String,
}

impl Member {
    /// The ID as a node's.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        NodeId::from_bytes(self.id)
    }

    /// The ID as a relay's.
    #[must_use]
    pub const fn relay(&self) -> RelayId {
        RelayId::from_bytes(self.id)
    }
}

/// What became of an enrolment token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeemed {
    /// It was good; it is used up now, and this member is pinned.
    Member(Member),
    /// Nobody made it, it was used, it expired, or it is of another kind.
    Refused(&'static str),
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// When, Unix seconds.
    pub at: u64,
    /// What happened.
    pub what: String,
    /// To whom.
    pub detail: String,
}

/// The one place where the hub keeps things. Each call is one transaction, durable when it returns.
pub trait Store: Send {
    /// The fleet's records that still count, oldest position first.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn records(&mut self) -> Result<Vec<Record>, StoreError>;

    /// Keeps records, in order.
    ///
    /// # Errors
    /// See [`StoreError`]; none of them is kept.
    fn append(&mut self, records: &[Record]) -> Result<(), StoreError>;

    /// All members.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn members(&mut self) -> Result<Vec<Member>, StoreError>;

    /// Keeps an enrolment token's hash.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn add_token(
        &mut self,
        hash: &[u8; 32],
        kind: MemberKind,
        expires: u64,
    ) -> Result<(), StoreError>;

    /// Uses a token up and pins a key: a key that is pinned already keeps its ID (ENR-15), else
    /// it gets `fresh`.
    ///
    /// # Errors
    /// See [`StoreError`]; the token is not used up.
    fn redeem(
        &mut self,
        hash: &[u8; 32],
        now: u64,
        wanted: &Member,
    ) -> Result<Redeemed, StoreError>;

    /// Removes a member; false where there is none.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn remove_member(&mut self, id: &[u8; 16], now: u64) -> Result<bool, StoreError>;

    /// The newest lines of the audit log, at most so many, oldest first.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn audit(&mut self, most: u32) -> Result<Vec<AuditLine>, StoreError>;
}
