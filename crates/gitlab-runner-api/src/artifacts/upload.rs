//! `POST /jobs/:id/artifacts`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use futures_util::stream::try_unfold;
use reqwest::{Body, Response, StatusCode, Url};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use vk_hub_proto::Secret;

use super::location::location;
use super::refusal::refusal;
use super::{ArtifactClient, READ, REDIRECTS_MAX};
use crate::answer::Headers;

/// Tries, and tries where GitLab says that it is not available (ART-14).
const TRIES: u32 = 3;
const TRIES_UNAVAILABLE: u32 = 6;
/// The longest wait that GitLab may ask for (ART-14).
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// An upload of which nothing is taken for so long has stalled (ART-14).
const STALL: Duration = Duration::from_secs(300);
/// Bytes read of the file at a time.
const CHUNK: usize = 64 << 10;

/// One archive to upload.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    /// GitLab's number of the job.
    pub job: u64,
    /// Its token.
    pub token: &'a Secret,
    /// The archive; each try sends these very bytes (ART-18).
    pub file: &'a Path,
    /// The name GitLab shall give it.
    pub file_name: &'a str,
    /// `zip`, `gzip`, `raw`; empty leaves it out.
    pub format: &'a str,
    /// `archive`, or a report's type; empty leaves it out.
    pub artifact_type: &'a str,
    /// How long GitLab keeps it; empty leaves it out.
    pub expire_in: &'a str,
}

/// How an upload ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadEnd {
    /// GitLab has it.
    Uploaded,
    /// GitLab takes none so large (ART-07).
    TooLarge,
    /// It did not arrive, and why.
    Failed(String),
}

/// One try, for the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The answer's status, where one came.
    pub status: Option<u16>,
    /// What it says, or why there is none.
    pub message: String,
    /// Whether it is tried again.
    pub again: bool,
}

impl ArtifactClient {
    /// Uploads an archive; `tell` hears of each try.
    pub async fn upload(&self, upload: &Upload<'_>, mut tell: impl FnMut(&Tried)) -> UploadEnd {
        let boundary = boundary();
        for number in 1.. {
            let (status, message, asked) = match self.attempt(upload, &boundary).await {
                Ok(answer) => answer,
                Err(why) => (None, why, None),
            };
            let again = wait_before_next(number, status, asked);
            let tried = Tried {
                status,
                message: explained(status, message),
                again: again.is_some(),
            };
            tell(&tried);
            match (status, again) {
                (Some(201), _) => return UploadEnd::Uploaded,
                (Some(413), _) => return UploadEnd::TooLarge,
                (_, Some(wait)) => tokio::time::sleep(wait).await,
                (_, None) => return UploadEnd::Failed(tried.message),
            }
        }
        UploadEnd::Failed("not tried".to_owned())
    }

    /// One try, redirects followed; status, message, and the wait GitLab asks for.
    async fn attempt(
        &self,
        upload: &Upload<'_>,
        boundary: &str,
    ) -> Result<(Option<u16>, String, Option<Duration>), String> {
        let mut url = self.upload_url(upload)?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.post(&url, upload, boundary).await?;
            if !matches!(response.status().as_u16(), 307 | 308) {
                let status = response.status().as_u16();
                let headers = Headers::read(response.headers(), SystemTime::now());
                let message = tokio::time::timeout(READ, refusal(response)).await;
                let message = message.unwrap_or_default();
                return Ok((Some(status), message, headers.retry_after));
            }
            url = location(&url, response.headers())?;
        }
        Err(format!("more than {REDIRECTS_MAX} redirects"))
    }

    /// The endpoint with its query: each part only where it says something, in alphabetical order
    /// (ART-05).
    fn upload_url(&self, upload: &Upload<'_>) -> Result<Url, String> {
        let path = format!("jobs/{}/artifacts", upload.job);
        let mut url = self.base.endpoint(&path).ok_or("no such URL")?;
        let parts = [
            ("artifact_format", upload.format),
            ("artifact_type", upload.artifact_type),
            ("expire_in", upload.expire_in),
        ];
        for (name, value) in parts {
            if !value.is_empty() {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        Ok(url)
    }

    async fn post(
        &self,
        url: &Url,
        upload: &Upload<'_>,
        boundary: &str,
    ) -> Result<Response, String> {
        let sent = Arc::new(AtomicU64::new(0));
        let (body, length) = multipart(upload, boundary, Arc::clone(&sent)).await?;
        let request = self
            .up
            .post(url.clone())
            .headers(self.token_for(url, upload.token))
            .header(
                "content-type",
                format!("multipart/form-data; boundary={boundary}"),
            )
            .header("content-length", length)
            .body(body);
        tokio::select! {
            answer = request.send() => answer.map_err(|error| crate::client::chain(&error)),
            why = given_up(&sent, length, (STALL, READ)) => Err(why),
        }
    }
}

/// One part, named `file` (ART-04, ART-20), and its whole length.
async fn multipart(
    upload: &Upload<'_>,
    boundary: &str,
    sent: Arc<AtomicU64>,
) -> Result<(Body, u64), String> {
    let read = |error: std::io::Error| format!("cannot read {}: {error}", upload.file.display());
    let file = File::open(upload.file).await.map_err(read)?;
    let size = file.metadata().await.map_err(read)?.len();
    let name: String = upload
        .file_name
        .chars()
        .map(|c| if c.is_control() { '_' } else { c })
        .collect();
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let foot = format!("\r\n--{boundary}--\r\n");
    let length = size + (head.len() + foot.len()) as u64;
    enum Part {
        Head(String),
        File,
        End,
    }
    let start = (Part::Head(head), file.take(size), foot, size);
    let stream = try_unfold(start, |(part, mut file, foot, left)| async move {
        match part {
            Part::Head(head) => Ok(Some((head.into_bytes(), (Part::File, file, foot, left)))),
            Part::File => {
                let mut chunk = vec![0; CHUNK];
                let read = file.read(&mut chunk).await?;
                chunk.truncate(read);
                if read > 0 {
                    return Ok(Some((chunk, (Part::File, file, foot, left - read as u64))));
                }
                if left > 0 {
                    return Err(std::io::Error::other("the archive became shorter"));
                }
                let foot = foot.into_bytes();
                Ok(Some((foot, (Part::End, file, String::new(), 0))))
            }
            Part::End => Ok(None),
        }
    });
    let counted = stream.inspect_ok(move |chunk: &Vec<u8>| {
        sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    });
    Ok((Body::wrap_stream(counted), length))
}

/// Comes to its end, and says why, once nothing more was taken for a while, or everything was and
/// no answer came for another.
async fn given_up(sent: &AtomicU64, length: u64, (stall, answer): (Duration, Duration)) -> String {
    let mut before = 0;
    loop {
        tokio::time::sleep(stall).await;
        let now = sent.load(Ordering::Relaxed);
        if now >= length {
            tokio::time::sleep(answer).await;
            let seconds = answer.as_secs();
            return format!("everything was sent, and no answer came for {seconds} s");
        }
        if now == before {
            let seconds = stall.as_secs();
            return format!("the upload stalled: nothing was taken for {seconds} s");
        }
        before = now;
    }
}

/// The wait before the next try; none where there is none (ART-08, ART-14, ART-19, ART-21).
fn wait_before_next(tried: u32, status: Option<u16>, asked: Option<Duration>) -> Option<Duration> {
    let tries = match status {
        Some(201 | 400 | 401 | 403 | 404 | 413) => return None,
        Some(503) => TRIES_UNAVAILABLE,
        _ => TRIES,
    };
    let own = match tried {
        1 => 1,
        2 => 2,
        3 => 4,
        _ => 5,
    };
    let wait = asked.map_or(Duration::from_secs(own), |asked| asked.min(RETRY_AFTER_MAX));
    (tried < tries).then_some(wait)
}

/// A status in words, with what GitLab says.
fn explained(status: Option<u16>, message: String) -> String {
    let Some(status) = status else { return message };
    let reason = StatusCode::from_u16(status)
        .ok()
        .and_then(|code| code.canonical_reason());
    let mut text = format!("{status} {}", reason.unwrap_or_default())
        .trim_end()
        .to_owned();
    if status == 200 {
        text.push_str(
            " instead of 201: a proxy before GitLab probably turned the upload into another \
             request (a redirect from http to https?); set the runner's URL as GitLab's own",
        );
    }
    // GitLab's own words often are the status once more.
    if status != 200 && message.starts_with(&status.to_string()) {
        return message;
    }
    if !message.is_empty() {
        text = format!("{text} ({message})");
    }
    text
}

/// A line that no archive holds by chance.
fn boundary() -> String {
    format!("vk-{:032x}", crate::client::drawn())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(status: Option<u16>, asked: Option<u64>) -> Vec<u64> {
        let asked = asked.map(Duration::from_secs);
        let wait = |tried| wait_before_next(tried, status, asked).map(|wait| wait.as_secs());
        (1..).map_while(wait).collect()
    }

    /// ART-07, ART-08, ART-14, ART-21
    #[test]
    fn tries_are_counted_by_the_answer() {
        for end in [201, 400, 401, 403, 404, 413] {
            assert_eq!(waits(Some(end), Some(1)), Vec::<u64>::new(), "{end}");
        }
        for status in [None, Some(200), Some(302), Some(408), Some(500), Some(502)] {
            assert_eq!(waits(status, None), [1, 2], "{status:?}");
        }
        assert_eq!(waits(Some(503), None), [1, 2, 4, 5, 5]);
        assert_eq!(waits(Some(503), Some(7)), [7; 5]);
        assert_eq!(waits(Some(503), Some(3600)), [60; 5]);
    }

    /// ART-19
    #[test]
    fn an_answer_that_is_no_201_is_explained() {
        assert!(explained(Some(200), String::new()).contains("proxy"));
        let said = explained(Some(400), "file is invalid".to_owned());
        assert_eq!(said, "400 Bad Request (file is invalid)");
        assert_eq!(explained(None, "no answer".to_owned()), "no answer");
        // Said once.
        let own = "413 Request Entity Too Large";
        assert_eq!(explained(Some(413), own.to_owned()), own);
    }
}
