//! A registry token that comes with a job's start.

use serde::{Deserialize, Serialize};

use crate::Secret;
use crate::limit::{REGISTRY_NAME_BYTES, REGISTRY_NAMESPACES, REGISTRY_TOKEN_BYTES};
use crate::secret::expose;

/// A token for the node's registry, made for one job (REG-01, DISP-71).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Read")]
pub struct RegistryGrant {
    /// The registry it is for, as the node's inventory had it (REG-22); at most
    /// [`REGISTRY_NAME_BYTES`].
    pub url: String,
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
    pub cache_repository: Option<String>,
    /// What the token grants, for the job to know: the registry goes by the token itself. At most
    /// [`REGISTRY_NAMESPACES`].
    pub namespaces: Vec<Namespace>,
}

/// Something at a registry, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// A repository, or what repositories lie below; visible ASCII without `=`, at most
    /// [`REGISTRY_NAME_BYTES`].
    pub prefix: String,
    /// Of `r` (read), `w` (write) and `l` (lock); a letter of a later version may be among them.
    pub rights: String,
}

/// As it stands on the wire.
#[derive(Deserialize)]
struct Read {
    url: String,
    username: String,
    token: Secret,
    expires_in_secs: u64,
    #[serde(default)]
    cache_repository: Option<String>,
    #[serde(default)]
    namespaces: Vec<Namespace>,
}

impl TryFrom<Read> for RegistryGrant {
    type Error = &'static str;

    fn try_from(read: Read) -> Result<RegistryGrant, &'static str> {
        let grant = RegistryGrant {
            url: read.url,
            username: read.username,
            token: read.token,
            expires_in_secs: read.expires_in_secs,
            cache_repository: read.cache_repository,
            namespaces: read.namespaces,
        };
        grant.validate().map(|()| grant)
    }
}

impl RegistryGrant {
    /// Whether the other side reads it.
    ///
    /// # Errors
    /// What is too long, or cannot stand in a header or a list.
    pub fn validate(&self) -> Result<(), &'static str> {
        let token = self.token.expose();
        if token.is_empty() || token.len() > REGISTRY_TOKEN_BYTES {
            return Err("a registry token has 1 to 16384 bytes");
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a registry token is visible ASCII");
        }
        let repository = self.cache_repository.as_ref();
        let mut names = [&self.url, &self.username].into_iter().chain(repository);
        if names.any(|name| name.len() > REGISTRY_NAME_BYTES) {
            return Err("what comes with a registry token has at most 1024 bytes each");
        }
        if self.namespaces.len() > REGISTRY_NAMESPACES {
            return Err("a registry token has at most 128 namespaces");
        }
        if !self.namespaces.iter().all(Namespace::is_good) {
            return Err("a namespace is visible ASCII without =, its rights a few of a-z");
        }
        Ok(())
    }
}

impl Namespace {
    fn is_good(&self) -> bool {
        let of_list = |byte: u8| byte.is_ascii_graphic() && byte != b'=';
        let (prefix, rights) = (&self.prefix, &self.rights);
        prefix.len() <= REGISTRY_NAME_BYTES
            && prefix.bytes().all(of_list)
            && (1..=8).contains(&rights.len())
            && rights.bytes().all(|byte| byte.is_ascii_lowercase())
    }
}
