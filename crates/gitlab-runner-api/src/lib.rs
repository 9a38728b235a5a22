//! GitLab's runner API as a runner speaks it: the types, leniently read, and the client.
//!
//! Behaviour follows gitlab-runner 19.5 (see NOTICE); where the contract wants another, the
//! clause's ID stands beside it. This crate must not know the hub or its messages; of
//! `vk-hub-proto` it takes the secret's type alone.

#![forbid(unsafe_code)]

mod answer;
pub mod artifacts;
mod base_url;
mod client;
mod features;
mod leaf;
mod observe;
pub mod response;
mod retry;
mod token;
mod trace;
mod update;
mod verify;

pub use answer::{Headers, JobStatus, Outcome};
pub use base_url::{BaseUrl, BaseUrlError};
pub use client::{Client, ClientError, Identity, TlsFiles};
pub use features::{Features, Info};
pub use leaf::Leaf;
pub use observe::{Endpoint, Observer};
pub use retry::Retry;
pub use token::{is_created_runner_token, short_token};
pub use update::{Output, StateUpdate, UpdateState};
pub use verify::{Verified, VerifyOutcome};
