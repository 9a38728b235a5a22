//! get_sources: the checkout's tree comes into the guest, with the job's hooks around it.

use std::sync::Arc;

use vk_guest_proto::{MountTree, TreeAccess};
use vk_hub_proto::job::HookName;
use vk_stage_core::StageEnd;

use super::{failed, script, system};
use crate::git::{Pulled, Updated};
use crate::job::{Job, Sourcing, StopWatch};
use crate::script::{notice, warning};
use crate::settings::{Strategy, Submodules};
use crate::sources::{self, Sourced, class};

pub(super) async fn run(job: &Arc<Job>, attempt: u32, stop: StopWatch) -> Result<(), StageEnd> {
    if !sources::has_disk(job) {
        job.output.say(&announce_fetch(job));
        announce(job, &Sourced::default());
    } else if !job.shared().mounted {
        let (begun, sourced) = {
            let mut shared = job.shared();
            (shared.sourcing.take(), shared.sourced.clone())
        };
        let sourced = match sourced {
            Some(sourced) => {
                before(job, stop.clone()).await?;
                sourced
            }
            None => bring(job, begun, attempt, stop.clone()).await?,
        };
        if sourced.over_base {
            mount(job, sources::BASE, TreeAccess::ReadOnly).await?;
        }
        mount(job, sources::DISK, TreeAccess::Overlay).await?;
        job.shared().mounted = true;
        announce(job, &sourced);
    } else {
        before(job, stop.clone()).await?;
    }
    job.activity(None);
    script::hook(job, HookName::PostGetSourcesScript, stop).await
}

/// Waits for the sources. Once they are there an attempt that comes later has them too: their disk may
/// be other jobs' base by then, and is not written again.
async fn bring(
    job: &Arc<Job>,
    begun: Option<Sourcing>,
    attempt: u32,
    stop: StopWatch,
) -> Result<Arc<Sourced>, StageEnd> {
    let mut sourcing = match begun {
        Some(sourcing) => sourcing,
        None => sources::begin(job, attempt),
    };
    job.activity(Some("bringing the sources"));
    if let Err(end) = before(job, stop).await {
        // Another attempt takes what this one began.
        job.shared().sourcing = Some(sourcing);
        return Err(end);
    }
    job.output.say(&announce_fetch(job));
    let sourced = (&mut sourcing.0).await.map_err(system)?;
    let sourced = sourced.map_err(|(own, message)| failed(class(own), message))?;
    let sourced = Arc::new(sourced);
    job.shared().sourced = Some(Arc::clone(&sourced));
    Ok(sourced)
}

/// The hook before the checkout. What it leaves at the project's place is no part of the tree,
/// unless the job cleans nothing (STAGE-11).
async fn before(job: &Job, stop: StopWatch) -> Result<(), StageEnd> {
    if job.hook(HookName::PreGetSourcesScript).is_none() {
        return Ok(());
    }
    script::hook(job, HookName::PreGetSourcesScript, stop.clone()).await?;
    let settings = &job.settings;
    let keeps = settings.strategy == Strategy::Fetch && settings.git.clean.is_empty();
    if keeps || job.shared().mounted {
        return Ok(());
    }
    script::clear_project(job, stop).await
}

/// All of the builds' directory is one tree, so that a job may remove its own. What is mounted there
/// already is seen where a later overlay has nothing.
async fn mount(job: &Job, disk: &str, access: TreeAccess) -> Result<(), StageEnd> {
    let volume = {
        let shared = job.shared();
        shared.vm.as_ref().and_then(|vm| vm.volume(disk).cloned())
    };
    let volume = volume.ok_or_else(|| system(format!("the VM has no disk {disk}")))?;
    let at = job.place.builds_dir.clone().into_bytes();
    let plan = MountTree { volume, at, access };
    job.guest()?.mount_tree(plan).await.map_err(system)
}

/// What is said before the checkout.
fn announce_fetch(job: &Job) -> String {
    match job.settings.strategy {
        Strategy::None => notice("Skipping Git repository setup"),
        Strategy::Empty => {
            notice("Skipping Git repository setup and creating an empty build directory")
        }
        Strategy::Clone | Strategy::Fetch => match job.spec().sources.depth {
            0 => notice("Fetching changes..."),
            depth => notice(&format!(
                "Fetching changes with git depth set to {depth}..."
            )),
        },
    }
}

fn announce(job: &Job, sourced: &Sourced) {
    let sources = &job.spec().sources;
    let brought = sourced.brought.as_ref();
    if let Some(brought) = brought {
        let dir = &job.place.project_dir;
        job.output.say(&format!(
            "Initialized empty Git repository in {dir}/.git/\n"
        ));
        job.output.say(&notice("Created fresh repository."));
        if brought.fetched.by_branch {
            job.output.say(&warning(
                "The pipeline's ref is gone; the commit was found on its branch",
            ));
        }
    }
    if job.settings.checkout {
        let sha = sources.sha.get(..8).unwrap_or(&sources.sha);
        let text = format!(
            "Checking out {sha} as detached HEAD (ref is {})...",
            sources.ref_name
        );
        job.output.say(&notice(&text));
        if job.settings.git.lfs {
            // What gitlab-runner prints behind `git lfs pull`.
            job.output.say("\n");
        }
    } else {
        job.output.say(&notice("Skipping Git checkout"));
    }
    let updated = brought.and_then(|brought| brought.updated.as_ref());
    match (updated, &job.settings.git.submodules) {
        (Some(updated), Some(wanted)) => announce_submodules(job, updated, wanted),
        _ => job.output.say(&notice("Skipping Git submodules setup")),
    }
    if let Some(brought) = brought {
        announce_lfs(job, brought.pulled);
    }
}

fn announce_lfs(job: &Job, pulled: Pulled) {
    let Pulled {
        objects,
        bytes,
        foreign,
    } = pulled;
    if objects > 0 {
        job.output.say(&format!(
            "Downloading LFS objects: 100% ({objects}/{objects}), {bytes} B\n"
        ));
    }
    if foreign > 0 {
        job.output.say(&warning(&format!(
            "{foreign} LFS files of submodules on other servers stay pointers: this node fetches \
             those of the job's own GitLab"
        )));
    }
}

fn announce_submodules(job: &Job, updated: &Updated, wanted: &Submodules) {
    let recursively = if wanted.recursive { " recursively" } else { "" };
    let depth = match wanted.depth {
        0 => String::new(),
        depth => format!(" with git depth set to {depth}"),
    };
    job.output.say(&notice(&format!(
        "Updating/initializing submodules{recursively}{depth}..."
    )));
    for line in &updated.lines {
        job.output.say(&format!("{line}\n"));
    }
    job.output.say(&notice("Updated submodules"));
    if job.settings.git.lfs {
        job.output.say(&notice("Pulling LFS files..."));
    }
}
