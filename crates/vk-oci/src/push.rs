//! Artifacts into a registry and out of it: blobs by a probe or an upload, manifests as they are.

use std::path::Path;

use reqwest::header::LOCATION;
use reqwest::{Method, Response, StatusCode, Url};

use crate::client::{Ask, Client, Payload, is_transient, retry_after};
use crate::digest::Digest;
use crate::error::Error;
use crate::origin::authority;
use crate::reference::Reference;

impl Client {
    /// Whether a repository has a blob: one `HEAD`, which is all that pushing the same content again
    /// costs.
    ///
    /// # Errors
    /// A registry that does not let us in or fails.
    pub async fn has_blob(&self, repository: &Reference, digest: Digest) -> Result<bool, Error> {
        let path = format!("blobs/{digest}");
        let ask = Ask::push(Method::HEAD, &path, Payload::Nothing);
        match self.send(repository, &ask).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Uploads a file of `length` bytes as the blob `digest`, in one request of its own. The registry
    /// checks the digest. A broken upload begins again.
    ///
    /// # Errors
    /// A registry that does not let us in, refuses, or fails after all tries; a file that cannot be
    /// read.
    pub async fn push_blob(
        &self,
        repository: &Reference,
        digest: Digest,
        file: &Path,
        length: u64,
    ) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let last = attempt >= self.config.attempts;
            let payload = Payload::File { path: file, length };
            match self.upload(repository, digest, payload).await {
                Ok(response) if response.status().is_success() => return Ok(()),
                // An upload that the registry no longer knows begins anew, too.
                Ok(response) if !last && begins_again(response.status()) => {
                    self.back_off(attempt, retry_after(&response)).await;
                }
                Ok(response) => return Err(self.refusal(repository, response).await),
                Err(Error::Unreachable { .. }) if !last => self.back_off(attempt, None).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Uploads a small blob that is in memory, unless it is there.
    ///
    /// # Errors
    /// As [`Client::push_blob`].
    pub async fn push_small(&self, repository: &Reference, bytes: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::of(bytes);
        if self.has_blob(repository, digest).await? {
            return Ok(digest);
        }
        let media_type = "application/octet-stream";
        let payload = Payload::Document { media_type, bytes };
        let response = self.upload(repository, digest, payload).await?;
        match response.status().is_success() {
            true => Ok(digest),
            false => Err(self.refusal(repository, response).await),
        }
    }

    /// One upload: where it goes, then all of it.
    async fn upload(
        &self,
        repository: &Reference,
        digest: Digest,
        payload: Payload<'_>,
    ) -> Result<Response, Error> {
        let begin = Ask::push(Method::POST, "blobs/uploads/", Payload::Nothing);
        let begun = self.send(repository, &begin).await?;
        let to = self.upload_place(repository, &begun, digest)?;
        let put = Ask::push(Method::PUT, "blobs/uploads/", payload);
        self.send_authorized(repository, &put, to).await
    }

    /// Where an upload that was begun goes: a way that may be gone, with the digest it ends in.
    fn upload_place(
        &self,
        repository: &Reference,
        begun: &Response,
        digest: Digest,
    ) -> Result<Url, Error> {
        let location = begun.headers().get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok());
        let to = location.and_then(|to| begun.url().join(to).ok());
        let mut to = to.ok_or_else(|| Error::Answer {
            image: repository.familiar(),
            at: authority(begun.url()),
            status: begun.status().as_u16(),
            message: "it says no place for the upload".to_owned(),
        })?;
        let allowed = self.origins.may_go(begun.url(), &to);
        allowed.map_err(|why| Error::Refused {
            image: repository.familiar(),
            what: format!(
                "{} sends the upload to {}: {why}",
                authority(begun.url()),
                authority(&to)
            ),
        })?;
        // What the registry put there (its state of the upload) stays.
        to.query_pairs_mut()
            .append_pair("digest", &digest.to_string());
        Ok(to)
    }

    /// Puts a manifest under a reference's tag. Blobs it names must be there before.
    ///
    /// # Errors
    /// A reference without a tag; a registry that does not let us in, refuses, or fails.
    pub async fn push_manifest(
        &self,
        tagged: &Reference,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<Digest, Error> {
        let Some(tag) = tagged.tag() else {
            return Err(Error::Refused {
                image: tagged.familiar(),
                what: "a manifest is pushed under a tag".to_owned(),
            });
        };
        let path = format!("manifests/{tag}");
        let payload = Payload::Document { media_type, bytes };
        let ask = Ask::push(Method::PUT, &path, payload);
        self.send(tagged, &ask).await?;
        Ok(Digest::of(bytes))
    }

    /// The manifest under a reference's tag, as the registry sent it, of at most `limit` bytes; checked
    /// against the digest that the registry says with it, where it says one.
    ///
    /// # Errors
    /// Nothing under that tag, more than the limit, other content than its digest, a registry that
    /// does not let us in or fails.
    pub async fn manifest(
        &self,
        tagged: &Reference,
        media_type: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, Error> {
        let path = match (tagged.digest(), tagged.tag()) {
            (Some(digest), _) => format!("manifests/{digest}"),
            (None, tag) => format!("manifests/{}", tag.unwrap_or("latest")),
        };
        let ask = Ask::manifest(&path, media_type);
        let (bytes, said) = self.small_with_digest(tagged, &ask, limit).await?;
        match tagged.digest().or(said) {
            Some(wanted) if wanted != Digest::of(&bytes) => Err(Error::Digest {
                image: tagged.familiar(),
                wanted,
                found: Digest::of(&bytes),
            }),
            _ => Ok(bytes),
        }
    }
}

fn begins_again(status: StatusCode) -> bool {
    is_transient(status) || status == StatusCode::NOT_FOUND
}
