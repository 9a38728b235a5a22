//! `GET /jobs/:id/artifacts`.

use std::path::Path;
use std::time::Duration;

use reqwest::{Response, StatusCode, Url};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use vk_hub_proto::Secret;

use super::location::location;
use super::refusal::refusal;
use super::{ArtifactClient, REDIRECTS_MAX};

/// Tries of a server that may do better, and of one that does not know the job yet (ART-23).
const TRIES: u32 = 3;
/// Between them.
const WAIT: Duration = Duration::from_secs(1);

/// An earlier job's archive.
#[derive(Clone, Copy, Debug)]
pub struct Download<'a> {
    /// GitLab's number of that job.
    pub job: u64,
    /// The token of the same dependency (ART-11).
    pub token: &'a Secret,
    /// Where it goes; made or emptied.
    pub to: &'a Path,
    /// Most bytes it may have.
    pub bytes_max: u64,
}

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// The status.
    pub status: u16,
    /// The server it came from.
    pub host: String,
    /// Its bytes.
    pub bytes: u64,
}

/// Why nothing was fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DownloadError {
    /// The status, where an answer came.
    pub status: Option<u16>,
    /// In words.
    pub message: String,
}

impl ArtifactClient {
    /// Fetches an archive.
    ///
    /// # Errors
    /// After the last try: what the server says, or why there is no answer; more bytes than may be.
    pub async fn download(&self, download: &Download<'_>) -> Result<Downloaded, DownloadError> {
        self.download_telling(download, |_| {}).await
    }

    /// The same; `tell` hears of each try that failed and is followed by another.
    ///
    /// # Errors
    /// As [`Client::download`].
    pub async fn download_telling(
        &self,
        download: &Download<'_>,
        tell: impl Fn(&DownloadError),
    ) -> Result<Downloaded, DownloadError> {
        let mut tried = 1;
        loop {
            // Object storage is asked for directly at first; a server that fails so is asked for
            // the bytes themselves.
            let error = match self.fetch(download, tried == 1).await {
                Ok(downloaded) => return Ok(downloaded),
                Err(error) => error,
            };
            let is_final = matches!(error.status, Some(403 | 404 | 413));
            if is_final || tried >= TRIES {
                return Err(error);
            }
            tell(&error);
            tried += 1;
            tokio::time::sleep(WAIT).await;
        }
    }

    async fn fetch(
        &self,
        download: &Download<'_>,
        direct: bool,
    ) -> Result<Downloaded, DownloadError> {
        let path = format!("jobs/{}/artifacts", download.job);
        let url = self.base.endpoint(&path);
        let mut url = url.ok_or_else(|| failed(None, "no such URL"))?;
        if direct {
            url.query_pairs_mut().append_pair("direct_download", "true");
        }
        for _ in 0..=REDIRECTS_MAX {
            let response = self.get(&url, download.token).await?;
            let status = response.status();
            if status == StatusCode::OK {
                let host = url.host_str().unwrap_or_default().to_owned();
                let bytes = save(response, download).await?;
                return Ok(Downloaded {
                    status: 200,
                    host,
                    bytes,
                });
            }
            if !status.is_redirection() {
                let said = refusal(response).await;
                return Err(failed(Some(status.as_u16()), &in_words(status, &said)));
            }
            let led = location(&url, response.headers());
            url = led.map_err(|why| failed(Some(status.as_u16()), &why))?;
        }
        Err(failed(
            None,
            &format!("more than {REDIRECTS_MAX} redirects"),
        ))
    }

    async fn get(&self, url: &Url, token: &Secret) -> Result<Response, DownloadError> {
        let request = self
            .down
            .get(url.clone())
            .headers(self.token_for(url, token));
        let sent = request.send().await;
        sent.map_err(|error| failed(None, &crate::client::chain(&error)))
    }
}

async fn save(mut response: Response, download: &Download<'_>) -> Result<u64, DownloadError> {
    let write = |error: std::io::Error| {
        failed(
            None,
            &format!("cannot write {}: {error}", download.to.display()),
        )
    };
    let too_many = || {
        let most = download.bytes_max;
        failed(
            Some(413),
            &format!("the archive has more than {most} bytes"),
        )
    };
    // What says so itself is not begun.
    if response.content_length() > Some(download.bytes_max) {
        return Err(too_many());
    }
    let mut file = File::create(download.to).await.map_err(write)?;
    let mut bytes = 0_u64;
    loop {
        let chunk = response.chunk().await;
        let chunk = chunk.map_err(|error| failed(None, &crate::client::chain(&error)))?;
        let Some(chunk) = chunk else { break };
        bytes += chunk.len() as u64;
        if bytes > download.bytes_max {
            return Err(too_many());
        }
        file.write_all(&chunk).await.map_err(write)?;
    }
    file.flush().await.map_err(write)?;
    Ok(bytes)
}

fn failed(status: Option<u16>, message: &str) -> DownloadError {
    DownloadError {
        status,
        message: message.to_owned(),
    }
}

/// A status in words, with what the server says of it, where that is more than the status.
fn in_words(status: StatusCode, said: &str) -> String {
    let text = status.to_string();
    if said.is_empty() || text.starts_with(said) || said.starts_with(status.as_str()) {
        return text;
    }
    format!("{text} ({said})")
}
