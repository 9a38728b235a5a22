//! A registry token that comes with a job's start.

use serde::{Deserialize, Serialize};

use crate::Secret;
use crate::limit::{REGISTRY_NAME_BYTES, REGISTRY_TOKEN_BYTES};
use crate::secret::expose;

/// A token for the node's registry, made for one job (REG-01). What it grants stands in the token
/// itself, for the registry to enforce; a later version may say it here too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Read")]
pub struct RegistryGrant {
    /// Who the token is for, where a registry asks for a name; at most
    /// [`REGISTRY_NAME_BYTES`].
    pub username: String,
    /// The token: visible ASCII, as it stands in a header; at most [`REGISTRY_TOKEN_BYTES`].
    #[serde(serialize_with = "expose")]
    pub token: Secret,
    /// Seconds from now until the token expires: a moment would be read by another clock.
    pub expires_in_secs: u64,
    /// The repository of the job's caches, from the registry's root; it names the protection
    /// (CACHE-10, REG-21). At most [`REGISTRY_NAME_BYTES`]; whether it is a repository's name is
    /// for its reader to see (CACHE-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}

/// As it stands on the wire.
#[derive(Deserialize)]
struct Read {
    username: String,
    token: Secret,
    expires_in_secs: u64,
    #[serde(default)]
    repository: Option<String>,
}

impl TryFrom<Read> for RegistryGrant {
    type Error = &'static str;

    fn try_from(read: Read) -> Result<RegistryGrant, &'static str> {
        let grant = RegistryGrant {
            username: read.username,
            token: read.token,
            expires_in_secs: read.expires_in_secs,
            repository: read.repository,
        };
        grant.validate().map(|()| grant)
    }
}

impl RegistryGrant {
    /// Whether the other side reads it.
    ///
    /// # Errors
    /// What is too long, or cannot stand in a header.
    pub fn validate(&self) -> Result<(), &'static str> {
        let token = self.token.expose();
        if token.is_empty() || token.len() > REGISTRY_TOKEN_BYTES {
            return Err("a registry token has 1 to 16384 bytes");
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a registry token is visible ASCII");
        }
        if self.username.len() > REGISTRY_NAME_BYTES {
            return Err("a registry token's user name has at most 1024 bytes");
        }
        let repository = self.repository.as_deref().unwrap_or_default();
        if repository.len() > REGISTRY_NAME_BYTES {
            return Err("a registry token's repository has at most 1024 bytes");
        }
        Ok(())
    }
}
