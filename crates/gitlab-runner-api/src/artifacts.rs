//! Artifacts to and from GitLab (ART clauses): a client of its own, for a job's token alone.

mod download;
mod location;
mod refusal;
mod upload;

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Certificate, Url};
use vk_hub_proto::Secret;

use crate::base_url::BaseUrl;
use crate::client::ClientError;

pub use download::{Download, DownloadError, Downloaded};
pub use upload::{Tried, Upload, UploadEnd};

/// A connection, TLS aside, is made within this.
const CONNECT: Duration = Duration::from_secs(30);
/// A pause in an answer that ends it; an answer to an upload that does not begin for so long after
/// all of it was sent.
const READ: Duration = Duration::from_secs(600);
/// One attempt, body and all (ART-14).
const ATTEMPT: Duration = Duration::from_secs(3600);
/// Redirects followed by one attempt.
const REDIRECTS_MAX: usize = 5;

/// Moves artifacts.
#[derive(Clone, Debug)]
pub struct ArtifactClient {
    /// For what is asked in a moment and answered at length.
    down: reqwest::Client,
    /// For what is sent at length: its answer may not begin for an hour.
    up: reqwest::Client,
    base: BaseUrl,
}

impl ArtifactClient {
    /// A client of the GitLab at `base`, which trusts the certificates in `ca` (PEM) beside the
    /// system's.
    ///
    /// # Errors
    /// Certificates that cannot be read.
    pub fn new(base: BaseUrl, ca: Option<&str>, version: &str) -> Result<Self, ClientError> {
        let certificates = match ca {
            Some(pem) => certificates(pem)?,
            None => Vec::new(),
        };
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(format!("vk {version} (linux/amd64)"))
                .http1_only()
                .connect_timeout(CONNECT)
                .timeout(ATTEMPT)
                // Each is looked at: where it leads, and what may be sent there.
                .redirect(reqwest::redirect::Policy::none());
            match certificates.is_empty() {
                true => builder,
                false => builder.tls_certs_merge(certificates.clone()),
            }
        };
        // This limit also counts while a request is being sent.
        let down = crate::client::build(|| builder().read_timeout(READ), &base)?;
        let up = crate::client::build(builder, &base)?;
        Ok(ArtifactClient { down, up, base })
    }

    /// The token's header where `url` is GitLab's own origin; none elsewhere (ART-10, ART-22).
    fn token_for(&self, url: &Url, token: &Secret) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if url.origin().ascii_serialization() == self.base.origin()
            && let Ok(mut value) = HeaderValue::from_str(token.expose())
        {
            value.set_sensitive(true);
            headers.insert("job-token", value);
        }
        headers
    }
}

fn certificates(pem: &str) -> Result<Vec<Certificate>, ClientError> {
    Certificate::from_pem_bundle(pem.as_bytes()).map_err(|source| ClientError::Content {
        path: "the job's server_ca_pem".into(),
        what: "certificate in PEM",
        source,
    })
}
