//! The job: what it is ([`JobSpec`]), how it ended ([`JobResult`]), and GitLab's word for that.

mod cache_key;
mod cache_place;
mod failure;
mod redact;
mod result;
mod spec;

pub use cache_key::{Sanitized, sanitize};
pub use failure::gitlab_failure_reason;
pub use redact::MASKED;

pub use result::{ArtifactOutcome, ArtifactState, FailureClass, JobResult, JobUsage};
pub use spec::{
    ArtifactFormat, ArtifactSpec, CachePolicy, CacheSpec, CiJob, CiJobInfo, Dependency,
    DependencyFile, Hook, HookName, Image, JobSpec, ObjectFormat, Port, PullPolicy, RefType,
    RegistryCredential, Sources, Step, TraceOptions, Variable, When,
};
