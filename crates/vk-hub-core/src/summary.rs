//! What is kept of a job's spec.

use serde::{Deserialize, Serialize};
use vk_hub_proto::display::sanitized;
use vk_hub_proto::job::{CiJob, JobSpec};
use vk_hub_proto::limit::DEFAULT_TRACE_BYTES;

/// What records and operators see of a job: taken from [`CiJob::redacted`], so no secret can be in
/// it (CRED-12), and cut to display text, so that ten thousand of them are small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The GitLab server.
    pub server_url: String,
    /// GitLab's number of the job.
    pub gitlab_job: u64,
    /// Its name.
    pub name: String,
    /// Its pipeline stage.
    pub stage: String,
    /// Its pipeline.
    pub pipeline: u64,
    /// Its project.
    pub project: u64,
    /// Its project's path.
    pub project_path: String,
    /// Branch or tag.
    pub ref_name: String,
    /// Its commit.
    pub sha: String,
    /// Its image; empty for the node's default.
    pub image: String,
    /// Seconds it may take.
    pub timeout_secs: u64,
    /// Where its output is cut.
    pub limit_bytes: u64,
}

impl JobSummary {
    /// The summary of a spec.
    #[must_use]
    pub fn of(spec: &JobSpec) -> JobSummary {
        match spec {
            JobSpec::GitlabCi(job) => JobSummary::of_ci(&job.redacted()),
        }
    }

    fn of_ci(job: &CiJob) -> JobSummary {
        let limit_bytes = match job.trace.limit_bytes {
            0 => DEFAULT_TRACE_BYTES,
            given => given,
        };
        JobSummary {
            server_url: sanitized(&job.server_url),
            gitlab_job: job.job.id,
            name: sanitized(&job.job.name),
            stage: sanitized(&job.job.stage),
            pipeline: job.job.pipeline_id,
            project: job.job.project_id,
            project_path: sanitized(&job.job.project_path),
            ref_name: sanitized(&job.sources.ref_name),
            sha: sanitized(&job.sources.sha),
            image: sanitized(&job.image.name),
            timeout_secs: job.timeout_secs,
            limit_bytes,
        }
    }
}
