//! `POST /runners/verify` (GL-01, GL-43, GL-44).

use serde::{Deserialize, Serialize};

use crate::answer::Outcome;
use crate::client::{Auth, Client, JsonRequest};
use crate::features::Info;
use crate::observe::Endpoint;
use crate::retry::Retry;

#[derive(Serialize)]
struct Body<'a> {
    info: &'a Info,
    token: &'a str,
    system_id: &'a str,
}

/// What GitLab says of a token it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Verified {
    /// GitLab's number of the runner; 0 where it does not say.
    #[serde(default)]
    pub id: u64,
    /// When the token expires, in RFC 3339; none for never.
    #[serde(default)]
    pub token_expires_at: Option<String>,
}

/// What came of a verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyOutcome {
    /// GitLab takes the token.
    Taken(Verified),
    /// GitLab refuses it: 403.
    Refused,
    /// Nothing that says anything about the token.
    Unavailable(Outcome),
}

impl Client {
    /// Asks whether GitLab takes the runner's token.
    pub async fn verify(&self) -> VerifyOutcome {
        let identity = self.identity();
        let body = Body {
            info: &identity.info,
            token: identity.token.expose(),
            system_id: &identity.system_id,
        };
        let request = JsonRequest {
            method: reqwest::Method::POST,
            path: "runners/verify",
            auth: Auth::Runner,
            endpoint: Endpoint::Verify,
            retry: Retry::USUAL,
            within: None,
        };
        let (outcome, body) = self.json(request, &body).await;
        match outcome.status {
            // An ancient GitLab's 200 may have no body at all: the token is taken all the same.
            Some(200) => VerifyOutcome::Taken(serde_json::from_slice(&body).unwrap_or_default()),
            Some(403) => VerifyOutcome::Refused,
            _ => VerifyOutcome::Unavailable(outcome),
        }
    }
}
