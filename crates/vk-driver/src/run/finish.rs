//! A job's end: nothing runs on, the output is closed, the result is written.

use std::time::Duration;

use tokio::time::timeout;
use vk_hub_proto::job::{ArtifactOutcome, ArtifactState, FailureClass, JobResult, JobUsage};
use vk_stage_core::End;
use vk_vm::Vm;

use crate::error::DriverError;
use crate::job::{Job, remove_work};
use crate::marks::write_result;

/// Reading what was used takes moments.
const USAGE: Duration = Duration::from_secs(2);
/// A checkout that is given up ends within moments.
const ENDING: Duration = Duration::from_secs(10);
/// How often the job's files are removed where they resist, and how long after one another.
const REMOVALS: u32 = 5;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(200);

/// Reads what the VM's processes used, after the last stage and before anything is cleaned up
/// (DISP-58).
pub(super) async fn measure(job: &Job) {
    // Whoever would end it meanwhile waits.
    let _ending = job.ending.lock().await;
    let vm = job.shared().vm.take();
    let lent = Lent { job, vm };
    let Some(vm) = &lent.vm else { return };
    let used = timeout(USAGE, vm.usage()).await.ok().flatten();
    if let Some(used) = used {
        tracing::info!(
            cpu_ms = used.cpu_ms,
            peak_mem_bytes = used.peak_mem_bytes,
            "what the job's VM used"
        );
    }
    job.shared().measured = used;
    drop(lent);
    if let Some(used) = used {
        super::usage::report(job, used);
    }
}

/// The job's VM, which goes back to it.
struct Lent<'a> {
    job: &'a Job,
    vm: Option<Vm>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.job.shared().vm = self.vm.take();
    }
}

/// Ends the VM at once, if there is one, and notes what its processes used: as it was measured, or
/// now, where the job did not come so far.
pub(super) async fn end_vm(job: &Job) {
    let _ending = job.ending.lock().await;
    let (vm, measured) = {
        let mut shared = job.shared();
        shared.guest = None;
        (shared.vm.take(), shared.measured.take())
    };
    let Some(vm) = vm else { return };
    let usage = match measured {
        Some(measured) => Some(measured),
        None => timeout(USAGE, vm.usage()).await.ok().flatten(),
    };
    // Nothing in it outlives the job: it need not write out its disks.
    let stopped = vm.stop(Duration::ZERO).await;
    if let Some(used) = usage.or(stopped.usage) {
        job.note_usage(used);
    }
}

/// Ends what is left, and records how the job ended.
pub(super) async fn finish(job: &Job, end: &End) -> Result<JobResult, DriverError> {
    let sourcing = job.shared().sourcing.take();
    if let Some(mut sourcing) = sourcing {
        sourcing.0.abort();
        let _ = timeout(ENDING, &mut sourcing.0).await;
    }
    end_vm(job).await;
    job.shared().lease = None;
    clear_away(job).await;
    let end = &with_output(end, job.output.failed());
    let line = end.line();
    let text = line.to_string();
    let closing = [super::shown(&line, &text)];
    let output_len = job.output.finish(&job.output_path(), &closing)?;
    let plan = &job.context.plan;
    let used = job.used();
    let has_vm = job.state.borrow().guest.is_some();
    let wall = u64::try_from(job.began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let result = JobResult {
        failure: end.failure,
        exit_code: end.exit_code,
        message: end.message.as_deref().map(|text| job.output.masked(text)),
        output_len,
        artifacts: outcomes(job),
        usage: Some(JobUsage {
            wall_ms: wall,
            cpu_ms: used.map(|used| used.cpu_ms),
            peak_mem_bytes: used.map(|used| used.peak_mem_bytes),
            cpus: has_vm.then_some(plan.cpus),
            mem_mib: has_vm.then_some(plan.mem_mib),
        }),
    };
    write_result(&job.context.dirs.job, &result)?;
    job.state
        .send_modify(|state| state.result = Some(result.clone()));
    Ok(result)
}

/// A job that ended well without its output did not end well.
fn with_output(end: &End, failed: Option<String>) -> End {
    match failed {
        Some(message) if end.failure.is_none() => End {
            failure: Some(FailureClass::System),
            exit_code: None,
            message: Some(message),
        },
        _ => end.clone(),
    }
}

/// Removes the job's files. What was just killed may still be letting go of them.
async fn clear_away(job: &Job) {
    for _ in 0..REMOVALS {
        match remove_work(&job.work) {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "files of a job are left"),
        }
        tokio::time::sleep(BETWEEN_REMOVALS).await;
    }
    tracing::error!("files of a job stay in {}", job.work.display());
}

/// One outcome for each artifact of the spec: what no stage came to was skipped.
fn outcomes(job: &Job) -> Vec<ArtifactOutcome> {
    let mut outcomes = std::mem::take(&mut job.shared().outcomes);
    for spec in job.spec().artifacts.iter().skip(outcomes.len()) {
        outcomes.push(ArtifactOutcome {
            name: spec.name.clone(),
            artifact_type: spec.artifact_type.clone(),
            state: ArtifactState::Skipped,
        });
    }
    outcomes
}
