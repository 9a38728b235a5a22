//! The hub's answers in the cores' words.

use std::sync::Arc;

use vk_gitlab_core::HubFailure;
use vk_gitlab_core::job::OutputRead;
use vk_hub_client::api::{ApiError, OutputRead as Read};

/// Characters of a failure's text kept.
const TEXT: usize = 1024;

pub(super) fn failure(error: &ApiError) -> HubFailure {
    let text = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text.chars().take(TEXT).collect::<String>()
    };
    match error {
        ApiError::Refused {
            status,
            date,
            refusal,
        } => {
            if *status == 401 {
                // Most often a clock is off: both are named (AUTH-20).
                tracing::error!(
                    hub_says = refusal.error,
                    hub_date = date.as_deref().unwrap_or("not sent"),
                    our_unix_time = crate::clock::unix_now(),
                    "the hub did not accept a signature"
                );
            }
            let message: String = refusal.error.chars().take(TEXT).collect();
            HubFailure {
                retry_after: error.retry_after(),
                job: refusal.job,
                ..HubFailure::coded(refusal.code, *status, message)
            }
        }
        ApiError::Request(_) | ApiError::Nonsense { .. } => HubFailure::transport(text(error)),
    }
}

/// What a read brought, cut to what may be kept.
pub(super) fn output(
    read: Result<Read, ApiError>,
    max_bytes: u64,
) -> Result<(OutputRead, Arc<[u8]>), HubFailure> {
    match read.map_err(|error| failure(&error))? {
        Read::PastEnd { length } => Ok((
            OutputRead {
                len: 0,
                total: length,
                complete: false,
            },
            Arc::from([]),
        )),
        Read::Bytes(output) => {
            let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
            let cut = output.bytes.len() > most;
            let bytes = output.bytes.get(..most).unwrap_or(&output.bytes);
            let read = OutputRead {
                len: bytes.len() as u64,
                total: output.length,
                complete: output.complete && !cut,
            };
            Ok((read, Arc::from(bytes)))
        }
    }
}
