//! gitlab-runner's own cases of its network layer, with its values: each against a GitLab that
//! answers by the request, as upstream's does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

mod gitlab;
mod requests;
mod trace;
mod updates;
mod verify;
