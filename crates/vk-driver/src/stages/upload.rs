//! upload_artifacts_on_success and _on_failure.

pub(super) mod notes;

use std::path::Path;

use gitlab_runner_api::artifacts::{ArtifactClient, Tried, Upload, UploadEnd};
use tokio::net::unix::pipe;
use vk_guest_proto::{FailureCode, TarOut};
use vk_hub_proto::job::{
    ArtifactFormat, ArtifactOutcome, ArtifactSpec, ArtifactState, FailureClass, When,
};
use vk_stage_core::StageEnd;
use vk_vm::channel::{GuestError, Transfer};

use super::{failed, system, with_causes};
use crate::archive::{PackError, Packed, file_name, pack_at};
use crate::context::ArtifactsAt;
use crate::job::Job;
use crate::script::notice;
use crate::transfer_log::Level;
use crate::variables::{TOO_LONG, TooLong, expand_word};

/// Said where the patterns select nothing, which is no failure.
const NOTHING: &str = "No files to upload";

/// Uploads what this end of the script wants (ART-15).
pub(super) async fn run(job: &Job, success: bool) -> Result<(), StageEnd> {
    let mut failure = None;
    for (number, spec) in job.spec().artifacts.iter().enumerate() {
        let unwanted = if success {
            When::OnFailure
        } else {
            When::OnSuccess
        };
        let empty = spec.paths.is_empty() && spec.exclude.is_empty() && !spec.untracked;
        let skipped = failure.is_some() || spec.when == unwanted || empty;
        job.shared().outcomes.push(ArtifactOutcome {
            name: spec.name.clone(),
            artifact_type: spec.artifact_type.clone(),
            // What is cut off in the middle did not arrive.
            state: match skipped {
                true => ArtifactState::Skipped,
                false => ArtifactState::Failed,
            },
        });
        if skipped {
            continue;
        }
        job.output.say(&notice("Uploading artifacts..."));
        let (state, end) = one(job, spec, number).await;
        if let Some(outcome) = job.shared().outcomes.last_mut() {
            outcome.state = state;
        }
        failure = failure.or(end);
    }
    failure.map_or(Ok(()), Err)
}

/// What became of one artifact, and the stage's failure if it is one.
async fn one(job: &Job, spec: &ArtifactSpec, number: usize) -> (ArtifactState, Option<StageEnd>) {
    match archive_and_send(job, spec, number).await {
        Ok(state) => (state, None),
        Err((state, end)) => {
            if let StageEnd::Failed { message, .. } = &end {
                job.output.log(Level::Fatal, message, &[]);
            }
            (state, Some(end))
        }
    }
}

async fn archive_and_send(
    job: &Job,
    spec: &ArtifactSpec,
    number: usize,
) -> Result<ArtifactState, (ArtifactState, StageEnd)> {
    let archive = job.file(&format!("artifact-{number}"));
    let sent = selected_and_sent(job, spec, &archive).await;
    // What was sent is GitLab's, and what was not is of no use; the job's disk is small.
    let _ = std::fs::remove_file(&archive);
    sent
}

async fn selected_and_sent(
    job: &Job,
    spec: &ArtifactSpec,
    archive: &Path,
) -> Result<ArtifactState, (ArtifactState, StageEnd)> {
    if !select(job, spec, archive).await? {
        job.output.log(Level::Error, NOTHING, &[]);
        return Ok(ArtifactState::Skipped);
    }
    let base = word(job, &spec.name, "artifact name");
    let name = file_name(&base, spec.format);
    let sent = match &job.context.artifacts {
        ArtifactsAt::Directory(dir) => keep(job, dir, archive, &name),
        ArtifactsAt::GitLab => send(job, spec, archive, &name).await,
    };
    sent.map(|()| ArtifactState::Uploaded)
}

/// Makes the archive of what the patterns select, as it comes from the guest (GUEST-05); whether
/// there was anything.
async fn select(
    job: &Job,
    spec: &ArtifactSpec,
    archive: &Path,
) -> Result<bool, (ArtifactState, StageEnd)> {
    let lost = |end| (ArtifactState::Failed, end);
    let words = |all: &[String], what: &str| -> Vec<Vec<u8>> {
        all.iter()
            .map(|one| word(job, one, what).into_bytes())
            .collect()
    };
    let request = TarOut {
        root: job.place.project_dir.clone().into_bytes(),
        paths: words(&spec.paths, "path"),
        exclude: words(&spec.exclude, "exclude"),
        untracked: spec.untracked,
        list_only: false,
    };
    let cannot = |error: std::io::Error| lost(system(format!("cannot make a pipe: {error}")));
    let (from, to) = std::io::pipe().map_err(cannot)?;
    let mut to = pipe::Sender::from_owned_fd(to.into()).map_err(cannot)?;
    let guest = job.guest().map_err(lost)?;
    let (file, format, cap) = (archive.to_owned(), spec.format, job.archive_cap());
    let level = job.settings.artifact_level;
    let packing = tokio::task::spawn_blocking(move || pack_at(level, from, &file, format, cap));
    let transfer = guest.tar_out(request, &mut to).await;
    // The end of what comes.
    drop(to);
    let packed = packing.await.map_err(|error| lost(system(error)))?;
    if let Ok(transfer) = &transfer {
        for note in &transfer.notes {
            notes::say(&job.output, note, &job.place.project_dir);
        }
    }
    chosen(transfer, packed)
}

/// What came of both sides. Where one failed the other did too: the one that began is told.
fn chosen(
    transfer: Result<Transfer, GuestError>,
    packed: Result<Packed, PackError>,
) -> Result<bool, (ArtifactState, StageEnd)> {
    let lost = |end| Err((ArtifactState::Failed, end));
    match (transfer, packed) {
        (Ok(transfer), Ok(packed)) => Ok(transfer.end.entries > 0 && packed != Packed::Nothing),
        (_, Err(PackError::TooLarge(cap))) => Err(too_large(cap)),
        (_, Err(error @ PackError::Unfit(_))) => lost(failed(FailureClass::Configuration, &error)),
        (Ok(_) | Err(GuestError::Local { .. }), Err(error)) => lost(system(with_causes(&error))),
        (Err(error), _) => lost(refused(&error)),
    }
}

/// How a transfer that the guest refused ends: what the job asked for or did to its tree is no failure
/// of the guest's.
pub(super) fn refused(error: &GuestError) -> StageEnd {
    match error {
        GuestError::TooLong { .. } => failed(FailureClass::Configuration, with_causes(error)),
        GuestError::Refused { failure, .. } => match failure.code {
            FailureCode::NotFound
            | FailureCode::Denied
            | FailureCode::TooLarge
            | FailureCode::NoSpace
            | FailureCode::Escapes => failed(FailureClass::ExternalDependency, error),
            _ => system(error),
        },
        _ => system(error),
    }
}

/// GUEST-11
fn too_large(cap: u64) -> (ArtifactState, StageEnd) {
    let message = format!(
        "the artifacts' archive has more than the {cap} bytes that the job may have here: select less, or \
         give the job a larger disk"
    );
    (
        ArtifactState::TooLarge,
        failed(FailureClass::ExternalDependency, message),
    )
}

/// A text with its variables; as it is, with a warning, where a shell would run something.
pub(super) fn word(job: &Job, text: &str, what: &str) -> String {
    let expanded = {
        let shared = job.shared();
        let image = shared.guest_env.as_deref();
        expand_word(text, &|name: &str| {
            let of_job = shared.variables.seen(name);
            // What the job does not set, the scripts have of the image: `HOME`, `PATH`.
            let of_image = || image.and_then(|image| image.variable(name));
            of_job.or_else(of_image).unwrap_or_default()
        })
        .and_then(|expanded| match shared.variables.grown(text, &expanded) {
            Ok(()) => Ok(expanded),
            Err(TooLong) => Err(TOO_LONG),
        })
    };
    expanded.unwrap_or_else(|error| {
        let line = format!("invalid {what}: {error}");
        job.output.log(Level::Warning, &line, &[]);
        text.to_owned()
    })
}

async fn send(
    job: &Job,
    spec: &ArtifactSpec,
    archive: &Path,
    name: &str,
) -> Result<(), (ArtifactState, StageEnd)> {
    let external = |message: String| failed(FailureClass::ExternalDependency, message);
    let client = client(job).map_err(|end| (ArtifactState::Failed, end))?;
    let format = match spec.format {
        ArtifactFormat::Zip => "zip",
        ArtifactFormat::Gzip => "gzip",
        ArtifactFormat::Raw => "raw",
        ArtifactFormat::Zipzstd => "zipzstd",
        ArtifactFormat::Tarzstd => "tarzstd",
    };
    let upload = Upload {
        job: job.spec().job.id,
        token: &job.spec().token,
        file: archive,
        file_name: name,
        format,
        artifact_type: &spec.artifact_type,
        expire_in: &spec.expire_in,
    };
    let id = job.spec().job.id;
    let kind = match spec.artifact_type.as_str() {
        "" => "archive",
        kind => kind,
    };
    let tell = |tried: &Tried| {
        let line = format!(
            "Uploading artifacts as \"{kind}\" to coordinator... {}",
            tried.message
        );
        let id = id.to_string();
        let mut fields = vec![("id", id.as_str())];
        let status = tried.status.map(|status| status.to_string());
        fields.extend(status.as_ref().map(|status| ("status", status.as_str())));
        let level = match tried.status {
            Some(201) => Level::Info,
            Some(403 | 413) => Level::Error,
            _ => Level::Warning,
        };
        job.output.log(level, &line, &fields);
        if tried.again {
            job.output.log(Level::Warning, "Retrying...", &[]);
        }
    };
    job.activity(Some("uploading artifacts"));
    let end = client.upload(&upload, tell).await;
    job.activity(None);
    match end {
        UploadEnd::Uploaded => Ok(()),
        UploadEnd::TooLarge => Err((
            ArtifactState::TooLarge,
            external("artifacts too large: GitLab takes none of this size (413)".to_owned()),
        )),
        UploadEnd::Failed(why) => Err((
            ArtifactState::Failed,
            external(format!(
                "artifacts were not uploaded to {}: {why}",
                job.spec().server_url
            )),
        )),
    }
}

/// A client of the job's GitLab.
pub(super) fn client(job: &Job) -> Result<ArtifactClient, StageEnd> {
    let url = &job.spec().server_url;
    let external = |why: String| failed(FailureClass::ExternalDependency, why);
    let base = url.parse().map_err(|error| external(format!("{error}")))?;
    let ca = job.spec().server_ca_pem.as_deref();
    let client = ArtifactClient::new(base, ca, &job.context.node.version);
    client.map_err(|error| external(with_causes(&error)))
}

/// Keeps an archive in a directory of this host.
fn keep(
    job: &Job,
    dir: &Path,
    archive: &Path,
    name: &str,
) -> Result<(), (ArtifactState, StageEnd)> {
    let to = dir.join(job.spec().job.id.to_string());
    let put = || {
        std::fs::create_dir_all(&to)?;
        std::fs::copy(archive, to.join(name))
    };
    match put() {
        Ok(bytes) => {
            let line = format!(
                "Keeping artifacts as {} ({bytes} bytes)\n",
                to.join(name).display()
            );
            job.output.say(&line);
            Ok(())
        }
        Err(error) => {
            let message = format!("cannot keep artifacts in {}: {error}", to.display());
            Err((
                ArtifactState::Failed,
                failed(FailureClass::ExternalDependency, message),
            ))
        }
    }
}
