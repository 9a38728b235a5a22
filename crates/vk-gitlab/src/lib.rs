//! The daemon's edges: configuration, state files, GitLab, the hub, and the loop that drives the
//! cores of `vk-gitlab-core`.
//!
//! It must not know how a job is run, nor anything of nodes but their names.

#![forbid(unsafe_code)]

pub mod translate;
