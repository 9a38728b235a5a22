//! Tokens for registries, made for one job each and kept nowhere (REG-01, REG-16).
//!
//! Their form is Distribution's: a JWT that says which repositories may be read and written, signed
//! by a key whose certificate goes along. A registry checks it by itself and never asks the hub.

mod key;
mod secret_file;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use vk_hub_core::{Effect, TokenScope};
use vk_hub_proto::dispatch::{HubJobMessage, Namespace, RegistryGrant};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::node_session::HubMessage;
use vk_hub_proto::{JobId, Secret};

use crate::config::{ConfigError, RegistryConfig, is_repository};
use key::SigningKey;

/// Who a token is for, where a registry asks for a name.
const USERNAME: &str = "vk-job";
/// How far a registry's clock may be behind the hub's.
const CLOCK_SKEW_SECS: u64 = 60;

/// Makes tokens, by the registries' URLs.
#[derive(Debug, Default)]
pub struct Tokens {
    issuers: BTreeMap<String, Issuer>,
}

#[derive(Debug)]
struct Issuer {
    service: String,
    issuer: String,
    key: SigningKey,
}

/// A token that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The core knows a registry that the edge does not.
    #[error("no key belongs to {0}")]
    NoKey(String),
    /// The name of GitLab's host, or a path below it, is none of a repository.
    #[error("{0:?}, made of GitLab's URL and the project's number, is no repository's name")]
    NoRepository(String),
    /// The clock stands before 1970.
    #[error("the clock is wrong: set it")]
    Clock,
    /// The key, or the source of randomness, failed.
    #[error("it cannot be signed")]
    Sign,
    /// The token does not fit the start.
    #[error("{0}: name fewer repositories in read, or fewer certificates in certificate_file")]
    TooLarge(&'static str),
}

#[derive(Serialize)]
struct Header<'a> {
    typ: &'static str,
    alg: &'static str,
    x5c: &'a [String],
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: String,
    aud: &'a str,
    exp: u64,
    nbf: u64,
    iat: u64,
    jti: Hex<16>,
    access: Vec<Access<'a>>,
}

#[derive(Serialize)]
struct Access<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    actions: &'static [&'static str],
}

impl<'a> Access<'a> {
    const fn new(name: &'a str, actions: &'static [&'static str]) -> Access<'a> {
        Access {
            kind: "repository",
            name,
            actions,
        }
    }
}

impl Tokens {
    /// Reads the keys.
    ///
    /// # Errors
    /// A file that cannot be read or used, or that others may read.
    pub fn open(registries: &[RegistryConfig]) -> Result<Tokens, ConfigError> {
        let mut issuers = BTreeMap::new();
        for registry in registries {
            let issuer = Issuer {
                service: registry.service.clone(),
                issuer: registry.issuer.clone(),
                key: SigningKey::open(registry)?,
            };
            issuers.insert(registry.url.clone(), issuer);
        }
        Ok(Tokens { issuers })
    }

    /// Puts the token that a start is to carry into its message. Where none can be made the job
    /// starts without (REG-16).
    pub(crate) fn put(&self, effect: &Effect, message: &mut HubMessage) {
        let Effect::Start {
            job,
            token: Some(scope),
            ..
        } = effect
        else {
            return;
        };
        let HubMessage::Job(HubJobMessage::Start { registry, .. }) = message else {
            return;
        };
        match self.make(scope, *job, SystemTime::now()) {
            Ok(grant) => *registry = Some(Box::new(grant)),
            Err(error) => tracing::warn!(
                %job, registry = scope.registry, %error,
                "no registry token can be made: the job starts without one"
            ),
        }
    }

    /// Makes a token.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn make(
        &self,
        scope: &TokenScope,
        job: JobId,
        now: SystemTime,
    ) -> Result<RegistryGrant, TokenError> {
        let no_key = || TokenError::NoKey(scope.registry.clone());
        let by = self.issuers.get(&scope.registry).ok_or_else(no_key)?;
        if !is_repository(&scope.repository) {
            return Err(TokenError::NoRepository(scope.repository.clone()));
        }
        let now = now.duration_since(UNIX_EPOCH);
        let now = now.map_err(|_| TokenError::Clock)?.as_secs();
        let life = scope.life.as_secs();
        let mut jti = [0; 16];
        rand::fill(&mut jti).map_err(|_| TokenError::Sign)?;
        let mut access = vec![Access::new(&scope.repository, &["pull", "push"])];
        access.extend(scope.read.iter().map(|name| Access::new(name, &["pull"])));
        let claims = Claims {
            iss: &by.issuer,
            sub: format!("{USERNAME}-{job}"),
            aud: &by.service,
            exp: now.saturating_add(life),
            nbf: now.saturating_sub(CLOCK_SKEW_SECS),
            iat: now,
            jti: Hex(jti),
            access,
        };
        let namespace = |prefix: &String, rights: &str| Namespace {
            prefix: prefix.clone(),
            rights: rights.to_owned(),
        };
        let mut namespaces = vec![namespace(&scope.repository, "rw")];
        namespaces.extend(scope.read.iter().map(|name| namespace(name, "r")));
        let grant = RegistryGrant {
            url: scope.registry.clone(),
            username: USERNAME.to_owned(),
            token: by.sign(&claims)?,
            expires_in_secs: life,
            cache_repository: Some(scope.repository.clone()),
            namespaces,
        };
        grant.validate().map_err(TokenError::TooLarge)?;
        Ok(grant)
    }
}

impl Issuer {
    fn sign(&self, claims: &Claims<'_>) -> Result<Secret, TokenError> {
        let header = Header {
            typ: "JWT",
            alg: self.key.algorithm(),
            x5c: self.key.chain(),
        };
        let (header, claims) = (part(&header)?, part(claims)?);
        let text = format!("{header}.{claims}");
        let signature = self.key.sign(text.as_bytes()).ok_or(TokenError::Sign)?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(Secret::new(format!("{text}.{signature}")))
    }
}

fn part(of: &impl Serialize) -> Result<String, TokenError> {
    let json = serde_json::to_vec(of).map_err(|_| TokenError::Sign)?;
    Ok(URL_SAFE_NO_PAD.encode(json))
}

#[cfg(test)]
mod tests;
