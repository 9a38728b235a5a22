//! A job as GitLab hands it over, read as leniently as gitlab-runner reads it (SPEC-67): unknown
//! fields are ignored, and a missing field or `null` is the type's zero value.

mod image;
mod job;
mod lenient;
mod outcome;

pub use image::{
    DockerOptions, ExecutorOptions, Image, KubernetesOptions, Port, UnsupportedOptions,
};
pub use job::{
    Artifact, ArtifactsFile, Cache, Credentials, Dependency, GitInfo, Hook, JobInfo, JobResponse,
    PolicyOptions, ResponseFeatures, RunnerInfo, Step, Variable,
};
pub use outcome::{JobRequestOutcome, Undecodable};
