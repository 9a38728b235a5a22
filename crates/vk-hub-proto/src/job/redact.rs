//! A spec that may be kept and shown.

use super::{CiJob, Image, JobSpec, Variable};
use crate::Secret;

/// What stands where a secret stood (CRED-13).
pub const MASKED: &str = "[MASKED]";

impl CiJob {
    /// The job without its secrets: tokens, registry passwords, and the value of each variable
    /// that is not public, or masked, or a file, are [`MASKED`] (CRED-13). The only form in which
    /// a spec may reach a record or the audit log (CRED-12).
    #[must_use]
    pub fn redacted(&self) -> CiJob {
        let mut job = self.clone();
        job.token = Secret::from(MASKED);
        job.dependencies
            .iter_mut()
            .for_each(|one| one.token = Secret::from(MASKED));
        job.registry_credentials
            .iter_mut()
            .for_each(|one| one.password = Secret::from(MASKED));
        redact_variables(&mut job.variables);
        redact_image(&mut job.image);
        job.services.iter_mut().for_each(redact_image);
        job
    }
}

impl JobSpec {
    /// [`CiJob::redacted`] of the job inside.
    #[must_use]
    pub fn redacted(&self) -> JobSpec {
        match self {
            JobSpec::GitlabCi(job) => JobSpec::GitlabCi(Box::new(job.redacted())),
        }
    }
}

fn redact_image(image: &mut Image) {
    redact_variables(&mut image.variables);
}

fn redact_variables(variables: &mut [Variable]) {
    for variable in variables {
        if !variable.public || variable.masked || variable.file {
            variable.value = Secret::from(MASKED);
        }
    }
}
