//! The server's side of the admin socket.

mod setup;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::admin_status as status;
use super::fault::Plan;
use super::lab::Lab;
use crate::admin::{AdminError, Command, Expected, FaultPlan};
use crate::gitlab::ledger::Expectation;
use crate::gitlab::spec::PipelineSpec;
use crate::gitlab::{Gitlab, NotFound};

/// Most callers at once.
const MAX_CALLERS: usize = 256;
/// Longest line of a caller.
const MAX_LINE: u64 = 16 << 20;
/// Largest file of an expected trace.
const MAX_EXPECTED: u64 = 1 << 30;
/// Bytes of a trace in one line.
const TRACE_PART: usize = 256 << 10;

type Answer = Result<Value, AdminError>;

/// Serves callers for ever.
pub(super) async fn serve(lab: Arc<Lab>, listener: UnixListener) {
    let slots = Arc::new(Semaphore::new(MAX_CALLERS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let lab = Arc::clone(&lab);
        tokio::spawn(async move {
            // An error here is a caller that went away.
            let _ = caller(&lab, stream).await;
            drop(slot);
        });
    }
}

async fn caller(lab: &Arc<Lab>, stream: UnixStream) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        if (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .await?
            == 0
        {
            return Ok(());
        }
        let answer = match serde_json::from_slice::<Command>(&line) {
            Ok(Command::Trace { job, follow }) => trace(lab, job, follow, &mut writer).await?,
            Ok(command) => perform(lab, command).await,
            Err(error) => Err(AdminError::new(
                "invalid",
                format!("the line is no command: {error}"),
            )),
        };
        write_line(&mut writer, &rendered(answer)).await?;
    }
}

fn rendered(answer: Answer) -> Value {
    match answer {
        Ok(mut value) => {
            if let Some(object) = value.as_object_mut() {
                object.insert("ok".into(), true.into());
            }
            value
        }
        Err(error) => json!({"ok": false, "error": error}),
    }
}

async fn write_line(
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    value: &Value,
) -> std::io::Result<()> {
    let mut line = value.to_string();
    line.push('\n');
    writer.write_all(line.as_bytes()).await
}

async fn perform(lab: &Arc<Lab>, command: Command) -> Answer {
    match command {
        Command::Trigger { pipeline } => trigger(lab, pipeline).await,
        Command::Cancel { job, force } => {
            let status = lab
                .with(|gitlab, now| gitlab.cancel(job, force, now))
                .map_err(missing)?;
            Ok(json!({"job": job, "status": status}))
        }
        Command::Play { job } => {
            let played = lab
                .with(|gitlab, now| gitlab.play(job, now))
                .map_err(missing)?;
            let text = format!("job {job} waits for nobody; only a manual job is started by hand");
            played
                .then(|| json!({"job": job}))
                .ok_or_else(|| AdminError::new("conflict", text))
        }
        Command::Retry { job } => retry(lab, job),
        Command::Status { pipeline, wait } => status::answer(lab, pipeline, wait).await,
        Command::Invariants => Ok(lab.look(|gitlab, _| status::broken(gitlab))),
        Command::Expect { job, expected } => expect(lab, job, expected).await,
        Command::Inject { fault } => inject(lab, fault),
        Command::ForgetTrace { job, keep, tail } => {
            let size = lab
                .with(|gitlab, _| match tail {
                    Some(tail) => gitlab.forget_tail(job, tail),
                    None => gitlab.forget_trace(job, keep),
                })
                .map_err(missing)?;
            Ok(json!({"job": job, "size": size}))
        }
        Command::Advance { secs } => {
            lab.clock.advance(secs.saturating_mul(1_000));
            lab.with(Gitlab::reap);
            Ok(json!({"now_ms": lab.clock.now()}))
        }
        Command::Skew { secs } => {
            lab.clock.skew(secs);
            Ok(json!({"now_ms": lab.clock.now()}))
        }
        Command::Set(edit) => setup::set(lab, edit),
        Command::Runner(edit) => setup::edit_runner(lab, edit),
        Command::AddRunners {
            count,
            tags,
            token_dir,
        } => setup::add_runners(lab, count, &tags, &token_dir),
        Command::Listen(listen) => setup::listen(lab, listen).await,
        Command::Elsewhere => Ok(json!({"requests": lab.faults.elsewhere.seen()})),
        Command::Faults => Ok(json!({"faults": lab.look(|_, now| lab.faults.shown(now))})),
        Command::ClearFaults => Ok(json!({"cleared": lab.faults.clear()})),
        Command::Restart { down_ms } => setup::restart(lab, down_ms),
        Command::Snapshot => {
            lab.with(|gitlab, _| gitlab.take_snapshot());
            Ok(json!({}))
        }
        Command::Rollback => {
            let done = lab.with(|gitlab, _| gitlab.roll_back());
            let text = "there is no snapshot to go back to; take one first";
            done.then(|| json!({}))
                .ok_or_else(|| AdminError::new("conflict", text))
        }
        Command::Totals => Ok(json!({"totals": lab.look(|gitlab, _| gitlab.totals())})),
        Command::LetRead { project, reader } => {
            let done = lab.with(|gitlab, _| gitlab.let_read(&project, &reader));
            let text = format!("there is no project {project:?} or no {reader:?}");
            done.then(|| json!({}))
                .ok_or_else(|| AdminError::new("not_found", text))
        }
        Command::Image { name, layout } => setup::image(lab, &name, &layout),
        Command::HideRef { pipeline, secs } => {
            lab.with(|gitlab, now| gitlab.hide_ref(pipeline, secs, now))
                .map_err(missing)?;
            Ok(json!({ "pipeline": pipeline }))
        }
        Command::Erase { job } => {
            lab.with(|gitlab, _| gitlab.erase(job)).map_err(missing)?;
            Ok(json!({"job": job}))
        }
        Command::DeleteProject { project } => {
            let found = lab.with(|gitlab, _| gitlab.delete_project(&project));
            let text = format!("there is no project {project:?}");
            found
                .then(|| json!({}))
                .ok_or_else(|| AdminError::new("not_found", text))
        }
        Command::Trace { .. } => Err(AdminError::new("failed", "a trace is answered by its own")),
    }
}

fn missing(error: NotFound) -> AdminError {
    AdminError::new("not_found", error.to_string())
}

async fn trigger(lab: &Lab, spec: PipelineSpec) -> Answer {
    spec.check()
        .map_err(|error| AdminError::new("invalid", error.to_string()))?;
    let found = lab.look(|gitlab, _| {
        let project = gitlab.project(spec.project.as_deref())?;
        Some((project.id, project.repository.clone()))
    });
    let (project, repository) = found.ok_or_else(|| {
        let text = "there is no such project, or several and none was named; `vk-lab status` \
                    lists them";
        AdminError::new("not_found", text)
    })?;
    if !lab.look(|gitlab, _| gitlab.has_room(spec.jobs.len())) {
        let text = "the stand-in keeps no more jobs; start a new one";
        return Err(AdminError::new("conflict", text));
    }
    let id = lab.with(|gitlab, _| gitlab.next_pipeline_id());
    let commit = lab
        .git
        .pin(&repository, spec.git_ref.as_deref(), id)
        .await
        .map_err(|error| AdminError::new("failed", error.to_string()))?;
    let names: Vec<String> = spec.jobs.iter().map(|job| job.name.clone()).collect();
    let sha = commit.sha.clone();
    let ids = lab.with(|gitlab, now| gitlab.create_pipeline(id, project, commit, spec, now));
    let jobs: Vec<Value> = names
        .iter()
        .zip(ids)
        .map(|(name, id)| json!({"id": id, "name": name}))
        .collect();
    Ok(json!({"pipeline": id, "sha": sha, "jobs": jobs}))
}

fn retry(lab: &Lab, job: u64) -> Answer {
    let new = lab
        .with(|gitlab, now| gitlab.retry(job, now))
        .map_err(missing)?;
    let text = format!("job {job} has not ended, or was retried already; cancel it first");
    let new = new.ok_or_else(|| AdminError::new("conflict", text))?;
    Ok(json!({"job": new}))
}

async fn expect(lab: &Lab, job: u64, expected: Expected) -> Answer {
    let want = match expected {
        Expected::Contains(parts) => Expectation::Contains(parts),
        Expected::TraceFile(path) => {
            let failed = |error: std::io::Error| {
                AdminError::new("failed", format!("cannot read {}: {error}", path.display()))
            };
            let mut bytes = Vec::new();
            let file = tokio::fs::File::open(&path).await.map_err(failed)?;
            file.take(MAX_EXPECTED)
                .read_to_end(&mut bytes)
                .await
                .map_err(failed)?;
            Expectation::Exactly(bytes)
        }
    };
    let told = lab
        .with(|gitlab, _| gitlab.expect(job, want))
        .map_err(missing)?;
    let text = format!("the bytes of job {job}'s trace were dropped; say what it is to be earlier");
    told.then(|| json!({"job": job}))
        .ok_or_else(|| AdminError::new("conflict", text))
}

fn inject(lab: &Lab, FaultPlan(fault): FaultPlan) -> Answer {
    let invalid = |text: String| {
        let text = format!("{text}; `vk-lab inject --help` lists all faults");
        AdminError::new("invalid", text)
    };
    let plan: Plan = serde_json::from_value(fault)
        .map_err(|error| invalid(format!("the fault is none that is known: {error}")))?;
    if plan.needs_other_host() && lab.faults.elsewhere.url().is_none() {
        let text = "the redirect names no place, and no other host listens: give `to`, or use \
                    {\"cmd\":\"listen\",\"as\":\"elsewhere\",\"addr\":…} first";
        return Err(AdminError::new("conflict", text));
    }
    lab.look(|_, now| lab.faults.plan(plan, now))
        .map_err(invalid)?;
    Ok(json!({}))
}

/// Writes a job's log as it stands, or as it comes. Looking at it counts as watching.
async fn trace(
    lab: &Lab,
    job: u64,
    follow: bool,
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> std::io::Result<Answer> {
    let mut changed = lab.on_change();
    let mut at = 0;
    loop {
        if follow {
            // Not through `with`: a look must not wake those who look.
            lab.watch(job);
        }
        let part = lab.look(|gitlab, _| {
            gitlab.job(job).map(|job| {
                let rest = job.trace.get(at..).unwrap_or_default();
                let part = rest.get(..rest.len().min(TRACE_PART)).unwrap_or_default();
                (
                    part.to_vec(),
                    rest.len() > part.len(),
                    job.status.is_final(),
                )
            })
        });
        let Some((part, more, ended)) = part else {
            return Ok(Err(missing(NotFound::Job(job))));
        };
        if !part.is_empty() {
            at += part.len();
            write_line(writer, &json!({"ok": true, "data": STANDARD.encode(part)})).await?;
        } else if !more && (ended || !follow) {
            return Ok(Ok(json!({"end": true, "job": job})));
        } else {
            // Woken by any change; at least often enough to keep the watch flag alive.
            let _ =
                tokio::time::timeout(std::time::Duration::from_secs(5), changed.changed()).await;
        }
    }
}
