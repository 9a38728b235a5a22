//! download_artifacts: archives of earlier jobs.

use std::path::{Path, PathBuf};

use gitlab_runner_api::artifacts::Download;
use vk_guest_proto::TarIn;
use vk_hub_proto::job::{Dependency, FailureClass};
use vk_stage_core::StageEnd;

use super::{failed, system, upload};
use crate::archive::unpack;
use crate::context::ArtifactsAt;
use crate::job::Job;
use crate::script::notice;
use crate::transfer_log::Level;

/// Entries of one archive.
const ENTRIES_MAX: u64 = 1_000_000;

pub(super) async fn run(job: &Job) -> Result<(), StageEnd> {
    job.activity(Some("downloading artifacts"));
    for dependency in &job.spec().dependencies {
        let file = dependency.artifacts_file.as_ref();
        if file.is_some_and(|file| !file.filename.is_empty()) {
            one(job, dependency).await?;
        }
    }
    job.activity(None);
    Ok(())
}

async fn one(job: &Job, dependency: &Dependency) -> Result<(), StageEnd> {
    let Dependency { id, name, .. } = dependency;
    job.output.say(&notice(&format!(
        "Downloading artifacts for {name} ({id})..."
    )));
    let zip = match &job.context.artifacts {
        ArtifactsAt::Directory(dir) => local(job, dir, dependency)?,
        ArtifactsAt::GitLab => fetch(job, dependency).await?,
    };
    let tar = job.file("dependency.tar");
    let (from, to, most) = (zip, tar.clone(), job.context.plan.disk_bytes);
    let unpacked = tokio::task::spawn_blocking(move || unpack(&from, &to, most)).await;
    let external = |why: String| failed(FailureClass::ExternalDependency, why);
    unpacked.map_err(system)?.map_err(|error| {
        external(format!(
            "the artifacts of {name} ({id}) cannot be used: {error}"
        ))
    })?;
    let source = tokio::fs::File::open(&tar).await.map_err(system)?;
    let request = TarIn {
        root: job.place.project_dir.clone().into_bytes(),
        owner: Vec::new(),
        max_entries: ENTRIES_MAX,
        max_bytes: job.context.plan.disk_bytes,
    };
    let transfer = job.guest()?.tar_in(request, source).await.map_err(system)?;
    for note in &transfer.notes {
        upload::notes::say(&job.output, note, &job.place.project_dir);
    }
    // The next one overwrites it.
    let _ = std::fs::remove_file(&tar);
    Ok(())
}

async fn fetch(job: &Job, dependency: &Dependency) -> Result<PathBuf, StageEnd> {
    let Dependency {
        id, name, token, ..
    } = dependency;
    let to = job.file("dependency.zip");
    let download = Download {
        job: *id,
        token,
        to: &to,
        bytes_max: job.context.artifact_cap,
    };
    let line = "Downloading artifacts from coordinator...";
    let number = id.to_string();
    match upload::client(job)?.download(&download).await {
        Ok(done) => {
            let mut fields = vec![("id", number.as_str()), ("status", "200")];
            // Only a redirect brings it from elsewhere.
            let own = job.spec().server_url.contains(&format!("//{}", done.host));
            if !own {
                fields.push(("host", &done.host));
            }
            job.output.log(Level::Info, &format!("{line} ok"), &fields);
            Ok(to)
        }
        Err(error) => {
            let text = format!("{line} {error}");
            job.output.log(Level::Error, &text, &[("id", &number)]);
            let server = &job.spec().server_url;
            let message =
                format!("the artifacts of {name} ({id}) were not had from {server}: {error}");
            Err(failed(FailureClass::ExternalDependency, message))
        }
    }
}

/// The one archive that an earlier job left in the directory.
fn local(job: &Job, dir: &Path, dependency: &Dependency) -> Result<PathBuf, StageEnd> {
    let Dependency {
        id,
        name,
        artifacts_file,
        ..
    } = dependency;
    let dir = dir.join(id.to_string());
    let wanted = artifacts_file
        .as_ref()
        .map(|file| file.filename.as_str())
        .unwrap_or_default();
    let wanted = wanted.rsplit('/').next().unwrap_or_default();
    let path = dir.join(wanted);
    if !path.is_file() {
        let message = format!(
            "there are no artifacts of {name} ({id}) at {}",
            path.display()
        );
        return Err(failed(FailureClass::ExternalDependency, message));
    }
    job.output
        .say(&format!("Taking artifacts from {}\n", path.display()));
    Ok(path)
}
