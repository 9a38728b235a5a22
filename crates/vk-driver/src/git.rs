//! Sources, brought by the host's git (STAGE-06): a mirror for each project, a tree for each job.

mod checkout;
mod credential;
#[cfg(test)]
mod dumb_server;
mod host;
mod mirror;
#[cfg(test)]
mod tests;

pub(crate) use checkout::{Wanted, check_out};
pub(crate) use credential::Credential;
pub(crate) use host::{GitError, HostGit};
pub(crate) use mirror::{Fetched, Mirror};
