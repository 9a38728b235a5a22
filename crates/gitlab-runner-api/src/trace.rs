//! `PATCH /jobs/:id/trace` (GL-16, GL-17).

use vk_hub_proto::Secret;

use crate::answer::Outcome;
use crate::client::{Auth, Client};
use crate::observe::Endpoint;
use crate::retry::Retry;

/// `Content-Range` of so many bytes at an offset: inclusive, without unit or total (GL-17). Of none
/// it is that of one byte: GitLab reads the start alone.
fn content_range(offset: u64, len: u64) -> String {
    format!("{offset}-{}", offset.saturating_add(len.max(1) - 1))
}

impl Client {
    /// Appends bytes to a job's trace. With none, the answer still says how the job stands.
    pub async fn patch_trace(
        &self,
        job: u64,
        token: &Secret,
        debug_trace: bool,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Outcome {
        let path = format!("jobs/{job}/trace?debug_trace={debug_trace}");
        let range = content_range(offset, bytes.len() as u64);
        let bytes: std::sync::Arc<[u8]> = bytes.into();
        let build = |client: &Client| {
            let body = reqwest::Body::from(bytes.to_vec());
            let request = client.request(reqwest::Method::PATCH, &path, Auth::Job(token))?;
            Some(
                request
                    .header("content-type", "text/plain")
                    .header("content-range", &range)
                    .body(body),
            )
        };
        self.send(build, (Endpoint::Trace, Retry::USUAL, None))
            .await
            .0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-17, PORT-19
    #[test]
    fn the_content_range_is_inclusive_without_unit_or_total() {
        assert_eq!(content_range(0, 1), "0-0");
        assert_eq!(content_range(0, 17), "0-16");
        assert_eq!(content_range(0, 51), "0-50");
        assert_eq!(content_range(51, 1_048_576), "51-1048626");
        assert_eq!(content_range(51, 0), "51-51");
        assert_eq!(content_range(0, 0), "0-0");
    }
}
