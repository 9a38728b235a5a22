//! GitLab's answers in the cores' words.

use gitlab_runner_api::response::{JobRequestOutcome, JobResponse, Undecodable};
use gitlab_runner_api::{JobStatus, Outcome, StateUpdate, UpdateState, VerifyOutcome};
use vk_gitlab_core::acquire::{RequestAnswer, RequestOutcome, VerifyAnswer};
use vk_gitlab_core::job::{self, GitLabAnswer, Update};
use vk_gitlab_core::{NewJob, Work};
use vk_hub_proto::job::{FailureClass, JobSpec};
use vk_hub_proto::{RequestId, Secret};

use super::expiry::Verified;
use crate::clock::unix_now;
use crate::log_lines;
use crate::translate::{self, Refused, is_timestamped, policy_lines, translate};

/// The job token outlives the job's timeout by so many seconds (GL-59).
const TOKEN_GRACE: u64 = 300;

pub(super) fn answer(outcome: &Outcome) -> GitLabAnswer {
    let headers = &outcome.headers;
    GitLabAnswer {
        status: outcome.status,
        job_status: headers.job_status.map(status),
        range_end: headers.range_end,
        interval: headers.interval,
        retry_after: headers.retry_after,
    }
}

const fn status(status: JobStatus) -> job::JobStatus {
    match status {
        JobStatus::Running => job::JobStatus::Running,
        JobStatus::Canceling => job::JobStatus::Canceling,
        JobStatus::Canceled => job::JobStatus::Canceled,
        JobStatus::Success => job::JobStatus::Success,
        JobStatus::Failed => job::JobStatus::Failed,
        JobStatus::Other => job::JobStatus::Other,
    }
}

pub(super) fn update(update: &Update) -> StateUpdate {
    StateUpdate {
        state: match &update.state {
            job::UpdateState::Running => UpdateState::Running,
            job::UpdateState::Success => UpdateState::Success,
            job::UpdateState::Failed { reason, exit_code } => UpdateState::Failed {
                reason: reason.clone(),
                exit_code: *exit_code,
            },
        },
        output: update.output.map(|point| gitlab_runner_api::Output {
            crc: point.crc,
            bytesize: point.offset,
        }),
    }
}

/// The answer to a verify, and what it says of a token that is taken.
pub(super) fn verified(outcome: VerifyOutcome) -> (VerifyAnswer, Option<Verified>) {
    match outcome {
        VerifyOutcome::Taken(verified) => {
            let verified = Verified {
                id: (verified.id > 0).then_some(verified.id),
                expires_at: verified.token_expires_at,
                needs_certificate: None,
            };
            (VerifyAnswer::Taken, Some(verified))
        }
        VerifyOutcome::Refused => (VerifyAnswer::Refused, None),
        VerifyOutcome::Unavailable(outcome) => {
            let retry_after = outcome.headers.retry_after;
            (VerifyAnswer::Unavailable { retry_after }, None)
        }
    }
}

/// What a verify without a certificate says of a GitLab that took the same token with one; nothing
/// where it did not answer at all.
pub(super) fn needs_certificate(bare: &VerifyOutcome) -> Option<bool> {
    match bare {
        VerifyOutcome::Taken(_) => Some(false),
        VerifyOutcome::Refused => Some(true),
        VerifyOutcome::Unavailable(outcome) => {
            let refused = match outcome.status {
                // nginx's words for it are 400, 495 and 496.
                Some(status) => matches!(status, 400 | 401 | 495 | 496),
                // TLS's are alerts.
                None => ["CertificateRequired", "HandshakeFailure", "BadCertificate"]
                    .iter()
                    .any(|alert| outcome.message.contains(alert)),
            };
            refused.then_some(true)
        }
    }
}

/// The answer to a job request.
pub(super) fn requested(
    outcome: JobRequestOutcome,
    runner: &translate::Runner,
    request_id: RequestId,
) -> RequestAnswer {
    match outcome {
        JobRequestOutcome::Job(job, outcome) => {
            let job = new_job(&job, runner, request_id);
            told(&outcome, RequestOutcome::Job(Box::new(job)))
        }
        JobRequestOutcome::Undecodable(
            Undecodable {
                job: Some((id, token)),
                why,
            },
            outcome,
        ) => {
            let job = unreadable(id, token, &why, request_id);
            told(&outcome, RequestOutcome::Job(Box::new(job)))
        }
        JobRequestOutcome::Undecodable(Undecodable { job: None, why }, outcome) => {
            told(&outcome, RequestOutcome::Undecodable { why })
        }
        JobRequestOutcome::None(outcome) => {
            let retry_after = outcome.headers.retry_after;
            let answer = match outcome.status {
                Some(status) => RequestOutcome::Status {
                    status,
                    retry_after,
                },
                None => RequestOutcome::Failed {
                    why: outcome.message.clone(),
                    sent: outcome.sent,
                },
            };
            told(&outcome, answer)
        }
    }
}

fn told(outcome: &Outcome, answer: RequestOutcome) -> RequestAnswer {
    RequestAnswer {
        last_update: outcome.headers.last_update.clone(),
        outcome: answer,
    }
}

fn new_job(response: &JobResponse, runner: &translate::Runner, request_id: RequestId) -> NewJob {
    let timestamps = is_timestamped(&response.variables);
    let mut lines = policy_lines(&response.policy_options);
    let (work, timeout) = match translate(response, runner) {
        Ok(translated) => {
            for warning in &translated.warnings {
                tracing::warn!(gitlab_job = response.id, %request_id, "{warning}");
            }
            lines.extend(
                translated
                    .warnings
                    .iter()
                    .map(|one| format!("WARNING: {one}")),
            );
            let timeout = translated.job.timeout_secs;
            (
                Work::Run(Box::new(JobSpec::GitlabCi(Box::new(translated.job)))),
                Some(timeout),
            )
        }
        Err(Refused { class, lines }) => (Work::Refuse { class, lines }, None),
    };
    let spec_bytes = match &work {
        Work::Run(spec) => serde_json::to_vec(spec).map_or(0, |json| json.len()),
        Work::Refuse { .. } => 0,
    };
    let debug = response
        .variables
        .iter()
        .rev()
        .find(|one| one.key == "CI_DEBUG_TRACE");
    let now = unix_now();
    NewJob {
        gitlab_job: u64::try_from(response.id).unwrap_or(0),
        token: response.token.clone(),
        request_id,
        work,
        spec_bytes,
        preamble: log_lines::render(&lines, timestamps, std::time::SystemTime::now()),
        failure_reasons: response.features.failure_reasons.clone(),
        debug_trace: debug.is_some_and(|one| is_true(one.value.expose())),
        timestamps,
        taken_at: now,
        token_ends: timeout.map(|timeout| now.saturating_add(timeout).saturating_add(TOKEN_GRACE)),
    }
}

/// Go's `ParseBool` of true (GL-73).
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// A job of which only number and token could be read: it is failed, not lost (SPEC-69).
fn unreadable(id: u64, token: Secret, why: &str, request_id: RequestId) -> NewJob {
    let line = format!("ERROR: this runner cannot read the job that GitLab sent: {why}");
    NewJob {
        gitlab_job: id,
        token,
        request_id,
        work: Work::Refuse {
            class: FailureClass::System,
            lines: vec![line],
        },
        spec_bytes: 0,
        preamble: String::new(),
        failure_reasons: Vec::new(),
        debug_trace: false,
        timestamps: true,
        taken_at: unix_now(),
        token_ends: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-73
    #[test]
    fn debug_trace_is_what_go_reads_as_true() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert!(is_true(text), "{text}");
        }
        for text in ["", "0", "yes", "tRUE", "false"] {
            assert!(!is_true(text), "{text}");
        }
    }

    /// SPEC-69
    #[test]
    fn a_job_that_cannot_be_read_is_failed_by_its_number_and_token() {
        let id = RequestId::from_bytes([1; 16]);
        let job = unreadable(7, Secret::from("t"), "it breaks off", id);
        let Work::Refuse { class, lines } = job.work else {
            panic!("refused")
        };
        assert_eq!((job.gitlab_job, class), (7, FailureClass::System));
        assert!(lines[0].contains("it breaks off"));
    }
}
