//! download_artifacts: archives of earlier jobs.

use std::path::{Path, PathBuf};

use gitlab_runner_api::artifacts::{Download, DownloadError};
use tokio::net::unix::pipe;
use vk_guest_proto::TarIn;
use vk_hub_proto::job::{Dependency, FailureClass};
use vk_stage_core::StageEnd;

use super::{failed, system, upload};
use crate::archive::{ENTRIES_MAX, UnpackError, unpack};
use crate::context::ArtifactsAt;
use crate::job::Job;
use crate::script::notice;
use crate::transfer_log::Level;

/// What begins each line about a download.
const LINE: &str = "Downloading artifacts from coordinator...";

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
    match &job.context.artifacts {
        ArtifactsAt::Directory(dir) => {
            let zip = local(job, dir, dependency)?;
            extract(job, dependency, zip).await
        }
        ArtifactsAt::GitLab => {
            let zip = job.file("dependency.zip");
            let extracted = match fetch(job, dependency, &zip).await {
                Ok(()) => extract(job, dependency, zip.clone()).await,
                Err(end) => Err(end),
            };
            // What it holds is in the guest, or of no use; the job's disk is small.
            let _ = std::fs::remove_file(&zip);
            extracted
        }
    }
}

/// Into the guest, as it is unpacked (GUEST-05).
async fn extract(job: &Job, dependency: &Dependency, zip: PathBuf) -> Result<(), StageEnd> {
    let Dependency { id, name, .. } = dependency;
    let most = job.context.plan.disk_bytes;
    let request = TarIn {
        root: job.place.project_dir.clone().into_bytes(),
        owner: Vec::new(),
        max_entries: u64::from(ENTRIES_MAX),
        max_bytes: most,
    };
    let cannot = |error: std::io::Error| system(format!("cannot make a pipe: {error}"));
    let (from, to) = std::io::pipe().map_err(cannot)?;
    let from = pipe::Receiver::from_owned_fd(from.into()).map_err(cannot)?;
    let guest = job.guest()?;
    let unpacking = tokio::task::spawn_blocking(move || unpack(&zip, to, most));
    let transfer = guest.tar_in(request, from).await;
    let unpacked = unpacking.await.map_err(system)?;
    let transfer = match (unpacked, transfer) {
        // Where the guest takes no more, that is what there is to tell.
        (Err(UnpackError::Io(error)), Err(refused))
            if error.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            return Err(upload::refused(&refused));
        }
        (Err(error), _) => {
            return Err(failed(
                FailureClass::ExternalDependency,
                format!("the artifacts of {name} ({id}) cannot be used: {error}"),
            ));
        }
        (Ok(()), transfer) => transfer.map_err(|error| upload::refused(&error))?,
    };
    for note in &transfer.notes {
        upload::notes::say(&job.output, note, &job.place.project_dir);
    }
    Ok(())
}

async fn fetch(job: &Job, dependency: &Dependency, to: &Path) -> Result<(), StageEnd> {
    let Dependency {
        id, name, token, ..
    } = dependency;
    let download = Download {
        job: *id,
        token,
        to,
        bytes_max: job.archive_cap(),
    };
    let number = id.to_string();
    let tell = |error: &DownloadError| {
        say_failed(job, &number, error, Level::Warning, "failed");
        job.output.log(Level::Warning, "Retrying...", &[]);
    };
    match upload::client(job)?.download_telling(&download, tell).await {
        Ok(done) => {
            let mut fields = vec![("id", number.as_str()), ("status", "200")];
            // Only a redirect brings it from elsewhere.
            let own = job.spec().server_url.contains(&format!("//{}", done.host));
            if !own {
                fields.push(("host", &done.host));
            }
            job.output.log(Level::Info, &format!("{LINE} ok"), &fields);
            Ok(())
        }
        Err(error) => {
            let (level, how) = match error.status {
                Some(401) => (Level::Error, "unauthorized"),
                Some(403) => (Level::Error, "forbidden"),
                Some(404) => (Level::Error, "not found"),
                _ => (Level::Warning, "failed"),
            };
            say_failed(job, &number, &error, level, how);
            let server = &job.spec().server_url;
            let message =
                format!("the artifacts of {name} ({id}) were not had from {server}: {error}");
            job.output.log(Level::Fatal, &message, &[]);
            Err(failed(FailureClass::ExternalDependency, message))
        }
    }
}

/// A try that failed, as gitlab-runner's downloader says it. Where GitLab gave a reason, that stands
/// for the status.
fn say_failed(job: &Job, id: &str, error: &DownloadError, level: Level, how: &str) {
    let said = error.to_string();
    let status = match error.status {
        Some(404) => "404",
        _ => &said,
    };
    let fields = [("id", id), ("status", status)];
    job.output.log(level, &format!("{LINE} {how}"), &fields);
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
