//! Who is enrolled, and by which key: in memory, written through.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vk_hub_proto::enroll::EnrollRequest;
use vk_hub_proto::{Secret, display, signed};

use crate::store::{AuditLine, Member, MemberKind, Redeemed, Store, StoreError};

/// The members of the fleet.
#[derive(Clone)]
pub struct Members {
    store: Arc<Mutex<Box<dyn Store>>>,
    known: Arc<RwLock<BTreeMap<[u8; 16], Member>>>,
    ca_key_sha256: [u8; 32],
}

/// An enrolment that was refused.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The token is no good, in words for the one who joins.
    #[error("{0}: make another with `vk-hub token create`")]
    Token(&'static str),
    /// The signature is not the key's.
    #[error("the signature does not fit the public key")]
    Signature,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gave no randomness.
    #[error("the system gave no randomness")]
    Randomness,
}

impl Members {
    /// The members that a store has; tokens will name the CA whose key has this hash.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn open(mut store: Box<dyn Store>, ca_key_sha256: [u8; 32]) -> Result<Members, StoreError> {
        let known = store
            .members()?
            .into_iter()
            .map(|member| (member.id, member))
            .collect();
        Ok(Members {
            store: Arc::new(Mutex::new(store)),
            known: Arc::new(RwLock::new(known)),
            ca_key_sha256,
        })
    }

    /// A member of a kind, where it is enrolled and not removed.
    #[must_use]
    pub fn find(&self, kind: MemberKind, id: &[u8; 16]) -> Option<Member> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(id).filter(|member| member.kind == kind).cloned()
    }

    /// All members of a kind, by ID.
    #[must_use]
    pub fn all(&self, kind: MemberKind) -> Vec<Member> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .values()
            .filter(|member| member.kind == kind)
            .cloned()
            .collect()
    }

    /// Makes an enrolment token that lives so many seconds (ENR-14).
    ///
    /// # Errors
    /// No randomness, or the store failed.
    pub fn create_token(&self, kind: MemberKind, lives_secs: u64) -> Result<Secret, EnrolError> {
        let mut secret = [0; 32];
        rand::fill(&mut secret).map_err(|_| EnrolError::Randomness)?;
        let token = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(secret),
            URL_SAFE_NO_PAD.encode(self.ca_key_sha256)
        );
        let expires = unix_now().saturating_add(lives_secs);
        self.store().add_token(&hash(&token), kind, expires)?;
        Ok(Secret::new(token))
    }

    /// Enrols a key (ENR-11 to ENR-15). Blocks on the store.
    ///
    /// # Errors
    /// See [`EnrolError`].
    pub fn enrol(&self, kind: MemberKind, request: &EnrollRequest) -> Result<Member, EnrolError> {
        let token = request.token.expose();
        let message = match kind {
            MemberKind::Node => signed::enroll(&request.public_key.0, token),
            MemberKind::GitLab => signed::enroll_relay(&request.public_key.0, token),
        };
        if !is_signed(&request.public_key.0, &message, &request.signature.0) {
            return Err(EnrolError::Signature);
        }
        let mut id = [0; 16];
        rand::fill(&mut id).map_err(|_| EnrolError::Randomness)?;
        let wanted = Member {
            id,
            kind,
            public_key: request.public_key,
            hostname: display::sanitized(&request.hostname),
        };
        match self.store().redeem(&hash(token), unix_now(), &wanted)? {
            Redeemed::Refused(why) => Err(EnrolError::Token(why)),
            Redeemed::Member(member) => {
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                known.insert(member.id, member.clone());
                Ok(member)
            }
        }
    }

    /// Removes a member; false where there is none of that kind. Blocks on the store.
    ///
    /// # Errors
    /// The store failed.
    pub fn remove(&self, kind: MemberKind, id: &[u8; 16]) -> Result<bool, StoreError> {
        if self.find(kind, id).is_none() {
            return Ok(false);
        }
        let removed = self.store().remove_member(id, unix_now())?;
        self.known
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        Ok(removed)
    }

    /// The newest lines of the audit log, at most so many, oldest first. Blocks on the store.
    ///
    /// # Errors
    /// The store failed.
    pub fn audit(&self, most: u32) -> Result<Vec<AuditLine>, StoreError> {
        self.store().audit(most)
    }

    fn store(&self) -> std::sync::MutexGuard<'_, Box<dyn Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a signature is a key's.
#[must_use]
pub fn is_signed(key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, key)
        .verify(message, signature)
        .is_ok()
}

fn hash(token: &str) -> [u8; 32] {
    digest(&SHA256, token.as_bytes())
        .as_ref()
        .try_into()
        .unwrap_or([0; 32])
}

/// Seconds since 1970.
#[must_use]
pub fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
