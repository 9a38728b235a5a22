//! How a job ended, in GitLab's words, and what the trace says where no node says it.

use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::job::{FailureClass, JobResult, JobSpec, gitlab_failure_reason};
use vk_hub_proto::limit::SPEC_BYTES;

use super::{Ended, Taken};
use crate::HubFailure;

/// Characters of another program's text that a line of the trace takes over.
const QUOTED_CHARS: usize = 512;

/// A failure of this class.
pub(super) fn failed(class: FailureClass, taken: &Taken, lines: Vec<String>, at: u64) -> Ended {
    Ended {
        success: false,
        failure_reason: Some(gitlab_failure_reason(class, &taken.failure_reasons).to_owned()),
        exit_code: None,
        lines,
        at,
    }
}

/// What a finished job's result says (FAIL-28: an exit code is a script's alone).
pub(super) fn by_result(result: &JobResult, taken: &Taken, at: u64) -> Ended {
    let Some(class) = result.failure else {
        return Ended {
            success: true,
            failure_reason: None,
            exit_code: None,
            lines: Vec::new(),
            at,
        };
    };
    let lines = match class {
        FailureClass::NoCapacity => vec![system_failure(&format!(
            "no node of the fleet took the job within {} s",
            taken.place_within_secs
        ))],
        FailureClass::Lost => vec![system_failure("the job's node was lost")],
        _ => Vec::new(),
    };
    Ended {
        exit_code: result.exit_code.filter(|_| class == FailureClass::Script),
        ..failed(class, taken, lines, at)
    }
}

/// The hub has no such job any more.
pub(super) fn lost_by_hub(taken: &Taken, at: u64) -> Ended {
    let line = system_failure("the fleet hub has no record of the job any more");
    failed(FailureClass::Lost, taken, vec![line], at)
}

/// The hub removed the relay that the job belongs to: it says nothing of it any more.
pub(super) fn relay_removed(hub_url: &str, why: &str, taken: &Taken, at: u64) -> Ended {
    let line = system_failure(&format!(
        "the fleet hub {hub_url} does not know this runner's daemon any more: {}",
        quoted(why)
    ));
    failed(FailureClass::Lost, taken, vec![line], at)
}

/// The hub did not answer in time (ERR-29).
pub(super) fn not_submitted(hub_url: &str, last: &str, taken: &Taken, at: u64) -> Ended {
    let line = system_failure(&format!(
        "the fleet hub {hub_url} did not take the job within {} s: {}",
        taken.place_within_secs,
        quoted(last)
    ));
    failed(FailureClass::NoCapacity, taken, vec![line], at)
}

/// The job was stopped before it ran, and why is not known any more.
pub(super) fn stopped(taken: &Taken, at: u64) -> Ended {
    let line = system_failure("the fleet did not take the job");
    failed(FailureClass::System, taken, vec![line], at)
}

/// The daemon cannot keep the job's record (STATE-22).
pub(super) fn not_kept(why: &str, taken: &Taken, at: u64) -> Ended {
    let line = system_failure(&format!(
        "the runner cannot write its state: {}",
        quoted(why)
    ));
    failed(FailureClass::System, taken, vec![line], at)
}

/// The spec is larger than any hub takes (SPEC-82).
pub(super) fn too_large(bytes: usize, taken: &Taken, at: u64) -> Ended {
    let line = format!(
        "ERROR: Job failed: its specification has {bytes} bytes, and the fleet takes {SPEC_BYTES} at most: use fewer or shorter variables and scripts"
    );
    failed(FailureClass::Configuration, taken, vec![line], at)
}

/// The hub refused the submission (ERR-22 to ERR-24, ERR-30, ERR-31).
pub(super) fn refused(failure: &HubFailure, hub_url: &str, taken: &Taken, at: u64) -> Ended {
    let (class, lines) = match failure.code {
        Some(ErrorCode::ApprovalPending) => (
            FailureClass::Configuration,
            not_approved(
                failure,
                hub_url,
                taken,
                "is waiting for approval on",
                "Pending",
            ),
        ),
        Some(ErrorCode::ProjectRejected) => (
            FailureClass::Configuration,
            not_approved(failure, hub_url, taken, "was rejected on", "Rejected"),
        ),
        Some(ErrorCode::TooLarge) => (
            FailureClass::Configuration,
            vec![format!(
                "ERROR: Job failed: the fleet hub {hub_url} refused the job: {}",
                quoted(&failure.message)
            )],
        ),
        _ => (
            FailureClass::System,
            vec![system_failure(&format!(
                "the fleet hub {hub_url} refused the job: {}",
                quoted(&failure.message)
            ))],
        ),
    };
    failed(class, taken, lines, at)
}

/// The two lines of a refusal that an operator can undo. The hub's text begins with `server` where
/// the whole server is meant rather than the project.
fn not_approved(
    failure: &HubFailure,
    hub_url: &str,
    taken: &Taken,
    how: &str,
    page: &str,
) -> Vec<String> {
    let (server, project) = match taken.spec.as_deref() {
        Some(JobSpec::GitlabCi(job)) => (
            format!("GitLab server {}", job.server_url),
            format!(
                "project {} (ID {})",
                job.job.project_path, job.job.project_id
            ),
        ),
        None => ("GitLab server".to_owned(), "project".to_owned()),
    };
    let whole_server = failure.message.trim_start().starts_with("server");
    let who = if whole_server { server } else { project };
    vec![
        format!("ERROR: {who} {how} the fleet hub {hub_url}."),
        format!("Retry this job once an operator has approved it (Connections > GitLab > {page})."),
    ]
}

fn system_failure(what: &str) -> String {
    format!("ERROR: Job failed (system failure): {what}")
}

/// Another program's text, on one line and no longer than it helps.
fn quoted(text: &str) -> String {
    text.chars()
        .take(QUOTED_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
