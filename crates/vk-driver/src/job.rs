//! What the stages of one job share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use vk_hub_proto::job::{ArtifactOutcome, CiJob, Hook, HookName};
use vk_image::Lease;
use vk_stage_core::{Kill, Plan, Stage, StageEnd};
use vk_trace::Secrets;
use vk_vm::Vm;
use vk_vm::channel::Guest;
use vk_vm::usage::HostUsage;

use crate::cache::{CacheSettings, Restored};
use crate::context::{Counts, JobContext, StateSender};
use crate::error::DriverError;
use crate::guest_env::GuestEnv;
use crate::output::Output;
use crate::settings::{Settings, flag_fault, place};
use crate::sources::Sourced;
use crate::variables::{Own, Place, Variables};

/// What the loop hears from inside.
#[derive(Debug)]
pub(crate) enum Inside {
    /// An attempt of a stage ended.
    Ended(Stage, u32, StageEnd),
    /// The VM is gone.
    VmDied(String),
}

/// Whether the ledger gave what was asked: none until it is known.
pub(crate) type Granted = watch::Receiver<Option<Result<(), String>>>;

/// One job.
pub(crate) struct Job {
    pub(crate) context: JobContext,
    pub(crate) plan: Plan,
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    pub(crate) caching: CacheSettings,
    /// Feature flags that are not as they are by default, as the trace's begin lists them.
    pub(crate) flags: String,
    pub(crate) output: Output,
    pub(crate) state: StateSender,
    /// Files of the job that go with it.
    pub(crate) work: PathBuf,
    pub(crate) granted: Granted,
    pub(crate) inside: mpsc::UnboundedSender<Inside>,
    pub(crate) began: Instant,
    /// Held while the VM is being ended, so that the end is waited for.
    pub(crate) ending: tokio::sync::Mutex<()>,
    shared: Mutex<Shared>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.spec().job.id)
            .finish_non_exhaustive()
    }
}

/// What changes while the job runs.
pub(crate) struct Shared {
    pub(crate) variables: Variables,
    pub(crate) vm: Option<Vm>,
    pub(crate) guest: Option<Guest>,
    pub(crate) guest_env: Option<Arc<GuestEnv>>,
    /// No script ran in the guest yet.
    pub(crate) untouched: bool,
    /// The image stays while this is held.
    pub(crate) lease: Option<Lease>,
    /// The checkout that goes on while the VM boots.
    pub(crate) sourcing: Option<Sourcing>,
    /// What came of it.
    pub(crate) sourced: Option<Arc<Sourced>>,
    /// The sources are in the guest.
    pub(crate) mounted: bool,
    pub(crate) outcomes: Vec<ArtifactOutcome>,
    /// What came out of which cache.
    pub(crate) restored: Restored,
    /// What the VM's processes used.
    pub(crate) used: Option<HostUsage>,
    /// What those of the present one had used after the last stage.
    pub(crate) measured: Option<HostUsage>,
}

/// A checkout under way; dropping it ends it.
pub(crate) struct Sourcing(pub(crate) JoinHandle<Result<Sourced, (bool, String)>>);

impl Drop for Sourcing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a running stage is told to stop.
pub(crate) type StopWatch = watch::Receiver<Option<Kill>>;

impl Job {
    /// Sets a job up; nothing runs yet.
    pub(crate) fn new(
        context: JobContext,
        state: StateSender,
        granted: Granted,
        inside: mpsc::UnboundedSender<Inside>,
    ) -> Result<Job, DriverError> {
        let spec = &context.spec;
        let own = Own {
            slot: context.plan.slot,
            project_slot: context.plan.project_slot,
        };
        // The strategy is read before the place it decides on is known: no variable of a place
        // says anything about a strategy.
        let first = Variables::new(
            spec,
            &place(spec, crate::settings::Strategy::Fetch, None),
            own,
        );
        let read = |list: &Variables, name: &str| list.content(name).map(str::to_owned);
        let settings = Settings::read(spec, |name| read(&first, name));
        let place = place(spec, settings.strategy, settings.clone_path.as_deref());
        let variables = Variables::new(spec, &place, own);
        let mut plan = Plan::new(spec, |name| read(&variables, name));
        let mut warnings = context.plan.warnings.clone();
        warnings.extend(settings.warnings.iter().cloned());
        let caching = CacheSettings::read(|name| read(&variables, name));
        warnings.extend(caching.warnings.iter().cloned());
        plan.warnings.splice(0..0, warnings);
        let mut trace = vk_trace::Settings {
            sections: spec.trace.sections,
            limit_bytes: spec.trace.limit_bytes,
            token_prefixes: spec.trace.mask_prefixes.clone(),
            ..vk_trace::Settings::default()
        };
        let mut faults = settings.flag_faults.clone();
        let timestamps = variables.content("FF_TIMESTAMPS");
        match vk_trace::timestamps_wanted(timestamps) {
            Ok(wanted) => trace.timestamps = wanted,
            Err(_) => faults.push(flag_fault("FF_TIMESTAMPS", timestamps.unwrap_or_default())),
        }
        if timestamps == Some("") {
            faults.push(flag_fault("FF_TIMESTAMPS", ""));
        }
        // gitlab-runner says each of them twice.
        plan.warnings.extend(faults.iter().chain(&faults).cloned());
        let flags = [
            ("FF_SCRIPT_SECTIONS", settings.script_sections, false),
            ("FF_TIMESTAMPS", trace.timestamps, true),
            (
                "FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY",
                plan.exponential_backoff,
                true,
            ),
        ];
        let changed = flags.iter().filter(|(_, is, default)| is != default);
        let changed: Vec<_> = changed
            .map(|(name, is, _)| format!("{name}:{is}"))
            .collect();
        let secrets = secrets(&context, &variables);
        let path = context.dirs.job.join("output");
        let output = Output::open(&path, &trace, secrets, state.clone())?;
        let work = context.dirs.job.join("work");
        let shared = Shared {
            variables,
            vm: None,
            guest: None,
            guest_env: None,
            untouched: false,
            lease: None,
            sourcing: None,
            sourced: None,
            mounted: false,
            outcomes: Vec::new(),
            restored: Restored::new(),
            used: None,
            measured: None,
        };
        Ok(Job {
            plan,
            place,
            settings,
            caching,
            flags: changed.join(", "),
            output,
            state,
            work,
            granted,
            inside,
            began: Instant::now(),
            ending: tokio::sync::Mutex::new(()),
            shared: Mutex::new(shared),
            context,
        })
    }

    pub(crate) fn spec(&self) -> &CiJob {
        &self.context.spec
    }

    pub(crate) fn output_path(&self) -> PathBuf {
        self.context.dirs.job.join("output")
    }

    /// What changes; never held across an await.
    pub(crate) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A hook around the checkout, where there are both.
    pub(crate) fn hook(&self, name: HookName) -> Option<&Hook> {
        let mut hooks = self.spec().hooks.iter();
        let hook = hooks.find(|hook| hook.name == name);
        hook.filter(|_| self.settings.strategy.has_sources())
    }

    /// The VM's agent.
    pub(crate) fn guest(&self) -> Result<Guest, StageEnd> {
        self.shared().guest.clone().ok_or_else(|| StageEnd::Failed {
            class: vk_hub_proto::job::FailureClass::System,
            message: "there is no VM".to_owned(),
            transient: false,
        })
    }

    /// Bytes of one archive that lies beside the job's disk while it is sent or taken, at most: as
    /// many as that disk may have, so that a job takes no more than twice what was set aside for it.
    pub(crate) fn archive_cap(&self) -> u64 {
        self.context.artifact_cap.min(self.context.plan.disk_bytes)
    }

    /// Expands a text by the job's variables; `what` names it where that makes too much of it.
    pub(crate) fn expand(&self, text: &str, what: &str) -> Result<String, StageEnd> {
        let expanded = self.shared().variables.expand(text);
        expanded.map_err(|error| StageEnd::Failed {
            class: vk_hub_proto::job::FailureClass::Configuration,
            message: format!("{what} of the job: {error}"),
            transient: false,
        })
    }

    /// Whether the guest is no machine but a process, whose disks are directories.
    pub(crate) fn is_process(&self) -> bool {
        self.context.vmm.accelerator() == vk_vm::Accelerator::Host
    }

    /// Counts something.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.state.send_modify(|state| change(&mut state.counts));
    }

    /// What is being done, for display.
    pub(crate) fn activity(&self, what: Option<&str>) {
        self.state
            .send_modify(|state| state.activity = what.map(str::to_owned));
    }

    /// Adds what a VM used: a job may have had several.
    pub(crate) fn note_usage(&self, used: HostUsage) {
        let mut shared = self.shared();
        let before = shared.used.unwrap_or_default();
        shared.used = Some(HostUsage {
            cpu_ms: before.cpu_ms + used.cpu_ms,
            peak_mem_bytes: before.peak_mem_bytes.max(used.peak_mem_bytes),
        });
    }

    /// What its VMs used.
    pub(crate) fn used(&self) -> Option<HostUsage> {
        self.shared().used
    }

    /// A file of the job's.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }
}

/// What must not be seen (STAGE-24).
fn secrets(context: &JobContext, variables: &Variables) -> Secrets {
    let spec = &context.spec;
    let mut secrets = Secrets::new();
    if let Some(granted) = &context.caches.granted {
        secrets.token(granted.token.reveal());
    }
    for value in variables.masked() {
        secrets.masked_variable(value);
        // As errors quote it, in either way.
        let value = value.trim();
        let debug = format!("{value:?}");
        let debug = debug
            .get(1..debug.len().saturating_sub(1))
            .unwrap_or_default();
        for quoted in [debug, &value.escape_debug().to_string()] {
            if quoted != value {
                secrets.masked_variable(quoted);
            }
        }
    }
    secrets.token(spec.token.expose());
    for dependency in &spec.dependencies {
        secrets.token(dependency.token.expose());
    }
    for credential in &spec.registry_credentials {
        secrets.registry(credential.password.expose());
    }
    secrets
}

/// Makes the directory of the job's own files, anew.
pub(crate) fn make_work(work: &Path) -> Result<(), DriverError> {
    use std::os::unix::fs::DirBuilderExt;
    remove_work(work)?;
    let made = std::fs::DirBuilder::new().mode(0o700).create(work);
    made.map_err(DriverError::file("make", work))
}

/// Removes it. A guest that is a process leaves directories that even their owner may not enter.
pub(crate) fn remove_work(work: &Path) -> Result<(), DriverError> {
    let removed = match std::fs::remove_dir_all(work) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            unlock(work).and_then(|()| std::fs::remove_dir_all(work))
        }
        other => other,
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DriverError::file("remove", work)(error))
        }
        _ => Ok(()),
    }
}

/// Opens every directory at and below a path to its owner.
fn unlock(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            unlock(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_nobody_may_enter_is_removed_all_the_same() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        make_work(&work).unwrap();
        let locked = work.join("a/b");
        std::fs::create_dir_all(&locked).unwrap();
        std::fs::write(locked.join("file"), "x").unwrap();
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
        remove_work(&work).unwrap();
        assert!(!work.exists());
        remove_work(&work).unwrap();
    }
}
