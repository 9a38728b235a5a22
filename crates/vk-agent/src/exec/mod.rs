//! Commands: who they run as, how they are started, fed, heard, signalled and ended.

mod cgroup;
mod plan;
mod pump;
mod start;
mod tree;
pub(crate) mod users;

pub(crate) use cgroup::Cgroups;
pub(crate) use pump::serve;
pub(crate) use start::identity;
pub(crate) use tree::{Tree, kill_descendants};
