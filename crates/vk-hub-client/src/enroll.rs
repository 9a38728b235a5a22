//! Enrolment: a key's public half is pinned on the hub.

use std::time::Duration;

use hyper::Method;
use serde::de::DeserializeOwned;
use vk_hub_proto::enroll::{EnrollRequest, NodeEnrolled, RelayEnrolled};
use vk_hub_proto::{NodeId, RelayId, signed};

use crate::api::refusal;
use crate::connect::Dialer;
use crate::key::Key;
use crate::request::{Outgoing, RequestError, send};
use crate::tls::{TlsError, Trust};
use crate::token::EnrolmentToken;
use crate::url::HubUrl;

/// How long enrolment may take.
const WITHIN: Duration = Duration::from_secs(30);

/// What a hub that took the key answered.
#[derive(Clone, Debug)]
pub struct Joined<Id> {
    /// The ID it gave.
    pub id: Id,
    /// The CA to trust from now on, PEM; none on plain loopback.
    pub ca_pem: Option<Vec<u8>>,
}

/// An enrolment that failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// The CA cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The hub refused the token or the key.
    #[error("the hub refused the enrolment ({status}): {why}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// In its words.
        why: String,
    },
    /// The answer makes no sense.
    #[error("the hub's answer to the enrolment makes no sense")]
    Nonsense(#[source] serde_json::Error),
}

/// Enrols a relay's key at `POST /v1/gitlab/enroll` (ENR-04, ENR-11, ENR-20).
///
/// # Errors
/// See [`EnrollError`].
pub async fn enroll_relay(
    url: &HubUrl,
    token: &EnrolmentToken,
    ca: Option<Vec<u8>>,
    key: &Key,
    hostname: &str,
) -> Result<Joined<RelayId>, EnrollError> {
    let message = signed::enroll_relay(&key.public().0, token.secret().expose());
    let body = body(token, key, &message, hostname);
    let (answer, ca_pem) = post::<RelayEnrolled>(url, token, ca, "/v1/gitlab/enroll", body).await?;
    Ok(Joined {
        id: answer.relay_id,
        ca_pem,
    })
}

/// Enrols a node's key at `POST /v1/enroll`.
///
/// # Errors
/// See [`EnrollError`].
pub async fn enroll_node(
    url: &HubUrl,
    token: &EnrolmentToken,
    ca: Option<Vec<u8>>,
    key: &Key,
    hostname: &str,
) -> Result<Joined<NodeId>, EnrollError> {
    let message = signed::enroll(&key.public().0, token.secret().expose());
    let body = body(token, key, &message, hostname);
    let (answer, ca_pem) = post::<NodeEnrolled>(url, token, ca, "/v1/enroll", body).await?;
    Ok(Joined {
        id: answer.node_id,
        ca_pem,
    })
}

fn body(token: &EnrolmentToken, key: &Key, message: &[u8], hostname: &str) -> EnrollRequest {
    EnrollRequest {
        token: token.secret().clone(),
        public_key: key.public(),
        signature: key.sign(message),
        hostname: hostname.to_owned(),
    }
}

async fn post<A: DeserializeOwned>(
    url: &HubUrl,
    token: &EnrolmentToken,
    ca: Option<Vec<u8>>,
    path: &str,
    request: EnrollRequest,
) -> Result<(A, Option<Vec<u8>>), EnrollError> {
    let trust = ca.map_or_else(|| Trust::KeyHash(*token.ca_key_sha256()), Trust::Pem);
    let dialer = Dialer::new(url.clone(), &trust)?;
    let body = serde_json::to_vec(&request).map_err(EnrollError::Nonsense)?;
    let outgoing = Outgoing {
        method: Method::POST,
        path,
        body,
        signer: None,
        within: WITHIN,
    };
    let answer = send(&dialer, outgoing).await?;
    if answer.status != 200 {
        let why = refusal(&answer).error;
        return Err(EnrollError::Refused {
            status: answer.status,
            why,
        });
    }
    let enrolled = serde_json::from_slice(&answer.body).map_err(EnrollError::Nonsense)?;
    let ca_pem = match trust {
        _ if !url.is_tls() => None,
        Trust::Pem(pem) => Some(pem),
        Trust::KeyHash(_) => dialer.found_ca().map(String::into_bytes),
    };
    Ok((enrolled, ca_pem))
}
