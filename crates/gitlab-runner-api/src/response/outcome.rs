//! What came of a job request.

use serde::Deserialize;
use serde_json::Value;
use vk_hub_proto::Secret;

use super::job::JobResponse;
use crate::answer::Outcome;

/// What came of a job request.
#[derive(Clone, Debug)]
pub enum JobRequestOutcome {
    /// 201: a job.
    Job(Box<JobResponse>, Outcome),
    /// 201 with a job that cannot be read: what is known of it (SPEC-69).
    Undecodable(Undecodable, Outcome),
    /// Any other answer, or none.
    None(Outcome),
}

/// A job that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// Its number and token, where even these can be read: the job can then be failed.
    pub job: Option<(u64, Secret)>,
    /// What is wrong with it.
    pub why: String,
}

impl JobRequestOutcome {
    pub(crate) fn read(outcome: Outcome, body: &[u8]) -> JobRequestOutcome {
        if outcome.status != Some(201) {
            return JobRequestOutcome::None(outcome);
        }
        match serde_json::from_slice::<JobResponse>(body) {
            Ok(job) if job.id > 0 && !job.token.is_empty() => {
                JobRequestOutcome::Job(Box::new(job), outcome)
            }
            Ok(_) => undecodable(body, "it has no id or no token".to_owned(), outcome),
            // The error of a reader may repeat what it read.
            Err(error) => undecodable(body, place(&error), outcome),
        }
    }
}

fn place(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Data => "a field has another type than it should",
        serde_json::error::Category::Eof => "it breaks off",
        _ => "it is no JSON",
    };
    format!("{kind}, at line {} column {}", error.line(), error.column())
}

fn undecodable(body: &[u8], why: String, outcome: Outcome) -> JobRequestOutcome {
    #[derive(Deserialize)]
    struct Known {
        id: Value,
        token: Value,
    }
    let known = serde_json::from_slice::<Known>(body).ok();
    let job = known.and_then(|known| {
        let id = known.id.as_u64().filter(|id| *id > 0)?;
        let token = known.token.as_str().filter(|token| !token.is_empty())?;
        Some((id, Secret::from(token)))
    });
    JobRequestOutcome::Undecodable(Undecodable { job, why }, outcome)
}
