//! Sources, brought by the host's git (STAGE-06): a mirror for each project, a tree for each job.

mod checkout;
mod collect;
mod credential;
mod extent;
mod fetch;
mod foreign;
mod host;
mod kept;
mod lfs;
mod limits;
mod lock;
mod mirror;
mod room;
mod submodules;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
mod unfollowed;
mod walls;

pub(crate) use checkout::Wanted;
pub use collect::{CollectedSources, Gone, collect_sources};
pub(crate) use credential::Credential;
pub(crate) use extent::{TreeBounds, Trees};
pub(crate) use fetch::Fetched;
pub(crate) use host::{GitError, HostGit};
pub(crate) use kept::{Disks, Image, Kept, Places, check_out_at, lend};
pub(crate) use lfs::{Lfs, Pulled};
pub(crate) use mirror::{Mirror, name_of_project, name_of_url};
pub use room::SourceBounds;
pub(crate) use submodules::{Rewrites, Site, Updated, update};
pub(crate) use walls::GitWalls;
pub use walls::try_git;
