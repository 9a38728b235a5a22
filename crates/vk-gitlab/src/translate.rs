//! From GitLab's job response to a job spec: what the node would otherwise have to interpret is
//! settled here (SPEC clauses). Pure: nothing is read, asked or logged.
//!
//! Warnings name things as they were written, never a value (SPEC-75).

mod cache;
mod expand;
mod image;
mod job;
mod policy;
mod url;

pub use expand::Expander;
pub use job::{Refused, Runner, Translated, is_timestamped, translate};
pub use policy::policy_lines;
pub use url::clean_repo_url;
pub use vk_hub_proto::job::{Sanitized, sanitize};
