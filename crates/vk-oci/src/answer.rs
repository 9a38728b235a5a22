//! Answers read no further than allowed.

use reqwest::Response;
use serde::Deserialize;

use crate::error::shown;

/// Bytes of an error answer that are read.
const ERROR_BYTES: u64 = 64 << 10;

/// Why a body was not taken.
pub(crate) enum BodyError {
    /// It is longer than the limit.
    TooLong,
    /// The connection broke.
    Broken(reqwest::Error),
}

/// A whole body of at most `limit` bytes.
pub(crate) async fn body(response: &mut Response, limit: u64) -> Result<Vec<u8>, BodyError> {
    if response
        .content_length()
        .is_some_and(|length| length > limit)
    {
        return Err(BodyError::TooLong);
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(BodyError::TooLong);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[derive(Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<OneError>,
    /// Token services say this.
    #[serde(default)]
    details: String,
}

#[derive(Deserialize)]
struct OneError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// What an error answer says, for display.
pub(crate) async fn message(mut response: Response) -> String {
    let Ok(bytes) = body(&mut response, ERROR_BYTES).await else {
        return "(no readable answer)".into();
    };
    let text = match serde_json::from_slice::<Errors>(&bytes) {
        Ok(Errors { errors, details }) => match errors.first() {
            Some(OneError { code, message }) if message.is_empty() => code.clone(),
            Some(OneError { code, message }) => format!("{message} ({code})"),
            None => details,
        },
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    if text.trim().is_empty() {
        "(nothing said)".into()
    } else {
        shown(&text)
    }
}
