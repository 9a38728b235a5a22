//! get_sources: the checkout's tree comes into the guest, with the job's hooks around it.

use std::sync::Arc;

use vk_guest_proto::{MountTree, TreeAccess};
use vk_hub_proto::job::HookName;
use vk_stage_core::StageEnd;

use super::{failed, script, system};
use crate::job::{Job, StopWatch};
use crate::script::notice;
use crate::settings::Strategy;
use crate::sources::{self, Sourced, class};

pub(super) async fn run(job: &Arc<Job>, attempt: u32, stop: StopWatch) -> Result<(), StageEnd> {
    let begun = job.shared().sourcing.take();
    if !job.shared().mounted {
        let mut sourcing = match begun {
            Some(sourcing) => sourcing,
            None => sources::begin(job, attempt),
        };
        job.activity(Some("bringing the sources"));
        let before = announce_fetch(job);
        let sourced = (&mut sourcing.0).await.map_err(system)?;
        let sourced = sourced.map_err(|(own, message)| failed(class(own), message))?;
        mount(job).await?;
        script::hook(job, HookName::PreGetSourcesScript, stop.clone()).await?;
        job.output.say(&before);
        announce(job, &sourced);
    } else {
        script::hook(job, HookName::PreGetSourcesScript, stop.clone()).await?;
    }
    job.activity(None);
    script::hook(job, HookName::PostGetSourcesScript, stop).await
}

/// All of the builds' directory is one tree, so that a job may remove its own.
async fn mount(job: &Job) -> Result<(), StageEnd> {
    let volume = {
        let shared = job.shared();
        shared
            .vm
            .as_ref()
            .and_then(|vm| vm.volume(sources::DISK).cloned())
    };
    let volume = volume.ok_or_else(|| system("the VM has no disk for the sources"))?;
    let at = job.place.builds_dir.clone().into_bytes();
    let plan = MountTree {
        volume,
        at,
        access: TreeAccess::Overlay,
    };
    job.guest()?.mount_tree(plan).await.map_err(system)?;
    job.shared().mounted = true;
    Ok(())
}

/// What is said before the checkout; hooks come first, so it is kept for after them.
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
    if let Some(fetched) = &sourced.fetched {
        let dir = &job.place.project_dir;
        job.output.say(&format!(
            "Initialized empty Git repository in {dir}/.git/\n"
        ));
        job.output.say(&notice("Created fresh repository."));
        if fetched.by_branch {
            job.output.say(&crate::script::warning(
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
    } else {
        job.output.say(&notice("Skipping Git checkout"));
    }
    job.output.say(&notice("Skipping Git submodules setup"));
}
