//! The edge: sockets, files, processes and the clock around GitLab's mind.

mod admin;
mod admin_status;
mod artifacts;
mod body;
mod clock;
mod fault;
mod git;
mod http;
mod jobs;
mod lab;
mod projects;
mod registry;
mod request;
mod route;
mod start;
mod variables;

pub(crate) use lab::Lab;
pub(crate) use projects::Git;
pub use projects::GitError;
pub use start::{Options, ServeError, serve};
pub(crate) use start::{Served, open};
