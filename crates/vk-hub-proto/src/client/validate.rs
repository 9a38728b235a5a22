//! What the types alone cannot refuse: numbers out of range, and jobs that no node can file.

use super::{Envelope, JobSubmission, Placement, RenewRequest, ReservationRequest};
use crate::job::{CiJob, JobSpec};
use crate::limit;

/// A body that parses and yet makes no sense: 400 `invalid`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// An envelope of nothing (PLACE-42).
    #[error("envelope.{field} must be at least 1")]
    EmptyEnvelope {
        /// `mem_mib` or `cpus`.
        field: &'static str,
    },
    /// Too many labels (PLACE-42).
    #[error("{count} labels, at most {} are allowed", limit::LABELS)]
    Labels {
        /// How many there were.
        count: usize,
    },
    /// A lease out of range (API-56).
    #[error("lease_secs is {secs}, it must be 1 to {}", limit::LEASE_SECS)]
    Lease {
        /// What was asked.
        secs: u32,
    },
    /// A placing time out of range (API-56).
    #[error(
        "place_within_secs is {secs}, it must be at most {}",
        limit::PLACE_WITHIN_SECS
    )]
    PlaceWithin {
        /// What was asked.
        secs: u32,
    },
    /// GitLab's number of the job is missing (DISP-81).
    #[error("job.id is 0, a job has a number")]
    NoJobNumber,
    /// A job without a project (ERR-05).
    #[error("job.project_id or job.project_path is missing: a job belongs to a project")]
    NoProject,
    /// A project path of another shape than GitLab's (DISP-81).
    #[error("job.project_path must be components of A-Z a-z 0-9 . _ - between slashes")]
    ProjectPath,
}

impl Envelope {
    /// # Errors
    /// An envelope of nothing.
    pub const fn validate(&self) -> Result<(), Invalid> {
        if self.mem_mib == 0 {
            return Err(Invalid::EmptyEnvelope { field: "mem_mib" });
        }
        if self.cpus == 0 {
            return Err(Invalid::EmptyEnvelope { field: "cpus" });
        }
        Ok(())
    }
}

impl Placement {
    /// # Errors
    /// An envelope of nothing, or too many labels.
    pub const fn validate(&self) -> Result<(), Invalid> {
        if self.labels.len() > limit::LABELS {
            return Err(Invalid::Labels {
                count: self.labels.len(),
            });
        }
        self.envelope.validate()
    }
}

const fn validate_lease(secs: u32) -> Result<(), Invalid> {
    if secs == 0 || secs > limit::LEASE_SECS {
        return Err(Invalid::Lease { secs });
    }
    Ok(())
}

impl ReservationRequest {
    /// # Errors
    /// A placement that makes no sense, or a lease out of range.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.placement.validate()?;
        validate_lease(self.lease_secs)
    }
}

impl RenewRequest {
    /// # Errors
    /// A lease out of range.
    pub const fn validate(&self) -> Result<(), Invalid> {
        validate_lease(self.lease_secs)
    }
}

impl JobSubmission {
    /// The size of the spec is not judged here: the edge has the bytes (API-31).
    ///
    /// # Errors
    /// A placement or placing time that makes no sense, or a job that [`CiJob::validate`] refuses.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.placement.validate()?;
        if self.place_within_secs > limit::PLACE_WITHIN_SECS {
            return Err(Invalid::PlaceWithin {
                secs: self.place_within_secs,
            });
        }
        match &self.spec {
            JobSpec::GitlabCi(job) => job.validate(),
        }
    }
}

impl CiJob {
    /// # Errors
    /// No number, no project, or a project path that is not GitLab's shape (DISP-81, ERR-05).
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.job.id == 0 {
            return Err(Invalid::NoJobNumber);
        }
        if self.job.project_id == 0 || self.job.project_path.is_empty() {
            return Err(Invalid::NoProject);
        }
        if !is_project_path(&self.job.project_path) {
            return Err(Invalid::ProjectPath);
        }
        Ok(())
    }
}

fn is_project_path(path: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    path.len() <= 1024
        && path.split('/').all(|part| {
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(allowed)
        })
}
