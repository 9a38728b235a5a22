//! What of a job spec decides the order of stages, and the job's settings about it.

use std::borrow::Cow;
use std::time::Duration;

use vk_hub_proto::job::{ArtifactSpec, CacheSpec, CiJob, When};

use crate::duration::{self, Signed};
use crate::io::Stage;

/// Where a job states no timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(7200);
/// `RUNNER_AFTER_SCRIPT_TIMEOUT` where a job states none.
const DEFAULT_AFTER_SCRIPT_TIMEOUT: Duration = Duration::from_secs(300);

/// Fixed for the job's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// From the job's begin to its end, all stages included.
    pub timeout: Duration,
    /// Around all steps together (`RUNNER_SCRIPT_TIMEOUT`).
    pub script_timeout: Option<Duration>,
    /// Around `after_script` (`RUNNER_AFTER_SCRIPT_TIMEOUT`).
    pub after_script_timeout: Duration,
    /// A failing `after_script` leaves the result alone (`AFTER_SCRIPT_IGNORE_ERRORS`, STAGE-36).
    pub after_script_ignore_errors: bool,
    /// Attempts of preparing, where it failed for a reason that may pass.
    pub prepare_attempts: u32,
    /// `GET_SOURCES_ATTEMPTS`, 1 to 10 (STAGE-33).
    pub get_sources_attempts: u32,
    /// `RESTORE_CACHE_ATTEMPTS`, 1 to 10.
    pub restore_cache_attempts: u32,
    /// `ARTIFACT_DOWNLOAD_ATTEMPTS`, 1 to 10.
    pub download_attempts: u32,
    /// Waits between attempts are 5 s doubling to 5 min, else 1 s doubling to 5 s
    /// (`FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY`).
    pub exponential_backoff: bool,
    /// Whether there are caches.
    pub restores_cache: bool,
    /// Whether there are artifacts of earlier jobs.
    pub downloads_artifacts: bool,
    /// The job's steps in order, `after_script` aside.
    pub steps: Vec<StepPlan>,
    /// Whether there is an `after_script`.
    pub after_script: bool,
    /// Caches to keep after a success, after a failure.
    pub archives_cache: Wanted,
    /// Artifacts to upload after a success, after a failure.
    pub uploads_artifacts: Wanted,
    /// From SIGTERM to SIGKILL, from there to the VM's end, and from there to giving up.
    pub kill_grace: Duration,
    /// What was not understood or was cut, for one warning.
    pub warnings: Vec<String>,
    /// The same of the scripts' timeouts: a warning each, where the first script would begin.
    pub script_warnings: Vec<String>,
}

/// One step. What a step says of its own `when` and `allow_failure` is left aside, as gitlab-runner
/// leaves it: a step that fails is the last, and fails the job. Whether the job may fail is GitLab's
/// to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// Its place in the spec's list.
    pub index: usize,
    /// The stage's name: `step_` and the step's name in lower case.
    pub name: String,
}

/// Whether something is wanted after either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// After a success.
    pub on_success: bool,
    /// After a failure.
    pub on_failure: bool,
}

impl Wanted {
    fn of(whens: impl Iterator<Item = When>) -> Wanted {
        let mut wanted = Wanted::default();
        for when in whens {
            wanted.on_success |= when != When::OnFailure;
            wanted.on_failure |= when != When::OnSuccess;
        }
        wanted
    }
}

impl Plan {
    /// Reads a spec. `variable` gives the content of a variable of the job after expansion, none
    /// where it is not set.
    #[must_use]
    pub fn new(job: &CiJob, variable: impl Fn(&str) -> Option<String>) -> Plan {
        let mut settings = Settings {
            variable: &variable,
            warnings: Vec::new(),
            cut: Vec::new(),
            script_warnings: Vec::new(),
        };
        let timeout = match job.timeout_secs {
            0 => DEFAULT_TIMEOUT,
            secs => Duration::from_secs(secs),
        };
        let is_after = |step: &&vk_hub_proto::job::Step| step.name == "after_script";
        let cached = |cache: &&CacheSpec| cache.untracked || !cache.paths.is_empty();
        let selects = |artifact: &&ArtifactSpec| {
            artifact.untracked || !artifact.paths.is_empty() || !artifact.exclude.is_empty()
        };
        Plan {
            timeout,
            script_timeout: settings.timeout("RUNNER_SCRIPT_TIMEOUT", timeout),
            after_script_timeout: settings
                .timeout("RUNNER_AFTER_SCRIPT_TIMEOUT", timeout)
                .unwrap_or(DEFAULT_AFTER_SCRIPT_TIMEOUT),
            prepare_attempts: 3,
            get_sources_attempts: settings.attempts("GET_SOURCES_ATTEMPTS"),
            download_attempts: settings.attempts("ARTIFACT_DOWNLOAD_ATTEMPTS"),
            restore_cache_attempts: settings.attempts("RESTORE_CACHE_ATTEMPTS"),
            after_script_ignore_errors: settings.flag("AFTER_SCRIPT_IGNORE_ERRORS", true),
            exponential_backoff: settings.flag("FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY", true),
            restores_cache: job.caches.iter().any(|cache| cached(&cache)),
            downloads_artifacts: job.dependencies.iter().any(|dependency| {
                let file = dependency.artifacts_file.as_ref();
                file.is_some_and(|file| !file.filename.is_empty())
            }),
            steps: steps(job),
            after_script: job
                .steps
                .iter()
                .any(|step| is_after(&step) && !step.script.is_empty()),
            archives_cache: Wanted::of(job.caches.iter().filter(cached).map(|c| c.when)),
            uploads_artifacts: Wanted::of(job.artifacts.iter().filter(selects).map(|a| a.when)),
            kill_grace: Duration::from_secs(10),
            // As gitlab-runner has them: what it cuts, it cuts once all is read.
            warnings: [settings.warnings, settings.cut].concat(),
            script_warnings: settings.script_warnings,
        }
    }

    /// A stage's name: in sections, in reports, and for `held`.
    #[must_use]
    pub fn name(&self, stage: Stage) -> &str {
        match stage {
            Stage::PrepareExecutor => "prepare_executor",
            Stage::PrepareScript => "prepare_script",
            Stage::GetSources => "get_sources",
            Stage::ClearWorktree => "clear_worktree",
            Stage::RestoreCache => "restore_cache",
            Stage::DownloadArtifacts => "download_artifacts",
            Stage::Step(n) => self.step(n).map_or("step", |step| step.name.as_str()),
            Stage::AfterScript => "after_script",
            Stage::ArchiveCache => "archive_cache",
            Stage::ArchiveCacheOnFailure => "archive_cache_on_failure",
            Stage::UploadArtifactsOnSuccess => "upload_artifacts_on_success",
            Stage::UploadArtifactsOnFailure => "upload_artifacts_on_failure",
            Stage::CleanupFileVariables => "cleanup_file_variables",
        }
    }

    /// A stage's title in the trace.
    #[must_use]
    pub fn title(&self, stage: Stage) -> Cow<'_, str> {
        Cow::Borrowed(match stage {
            Stage::PrepareExecutor => "Preparing the \"vk\" executor",
            Stage::PrepareScript => "Preparing environment",
            Stage::GetSources => "Getting source from Git repository",
            Stage::ClearWorktree => {
                "Deleting all tracked and untracked files due to source fetch failure"
            }
            Stage::RestoreCache => "Restoring cache",
            Stage::DownloadArtifacts => "Downloading artifacts",
            Stage::Step(_) => {
                let name = self.name(stage);
                let title = format!("Executing \"{name}\" stage of the job script");
                return Cow::Owned(title);
            }
            Stage::AfterScript => "Running after_script",
            Stage::ArchiveCache => "Saving cache for successful job",
            Stage::ArchiveCacheOnFailure => "Saving cache for failed job",
            Stage::UploadArtifactsOnSuccess => "Uploading artifacts for successful job",
            Stage::UploadArtifactsOnFailure => "Uploading artifacts for failed job",
            Stage::CleanupFileVariables => "Cleaning up project directory and file based variables",
        })
    }

    pub(crate) fn step(&self, n: u32) -> Option<&StepPlan> {
        self.steps.get(usize::try_from(n).ok()?)
    }

    /// How often a stage is tried.
    pub(crate) fn attempts(&self, stage: Stage) -> u32 {
        match stage {
            Stage::PrepareExecutor => self.prepare_attempts,
            Stage::GetSources => self.get_sources_attempts,
            Stage::RestoreCache => self.restore_cache_attempts,
            Stage::DownloadArtifacts => self.download_attempts,
            _ => 1,
        }
    }

    /// How long to wait before an attempt from the second on.
    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let (first, most) = match self.exponential_backoff {
            true => (5, 300),
            false => (1, 5),
        };
        let doublings = attempt.saturating_sub(2).min(16);
        Duration::from_secs((first << doublings).min(most))
    }
}

fn steps(job: &CiJob) -> Vec<StepPlan> {
    let steps = job.steps.iter().enumerate();
    steps
        .filter(|(_, step)| step.name != "after_script")
        .map(|(index, step)| StepPlan {
            index,
            name: format!("step_{}", step.name.to_lowercase()),
        })
        .collect()
}

struct Settings<'a, F: Fn(&str) -> Option<String>> {
    variable: &'a F,
    warnings: Vec<String>,
    /// What was out of its range.
    cut: Vec<String>,
    /// What is wrong with the scripts' timeouts.
    script_warnings: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Settings<'_, F> {
    /// A variable that is set and not empty.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    fn warn_of_script(&mut self, text: String) {
        self.script_warnings.push(text);
    }

    /// A timeout, none where none above zero is given.
    fn timeout(&mut self, name: &str, job: Duration) -> Option<Duration> {
        let value = self.get(name)?;
        match duration::parse(&value) {
            None => self.warn_of_script(format!("Ignoring malformed {name} timeout: {value}")),
            Some(Signed::Negative) => {
                self.warn_of_script(format!("Ignoring relative {name} timeout: {value}"));
            }
            Some(Signed::Positive(timeout)) if timeout > job => self.warn_of_script(format!(
                "{name} timeout: {value} is longer than job timeout. Setting to job timeout"
            )),
            Some(Signed::Positive(timeout)) => return Some(timeout).filter(|t| !t.is_zero()),
        }
        None
    }

    fn attempts(&mut self, name: &str) -> u32 {
        let Some(value) = self.get(name) else {
            return 1;
        };
        let Ok(attempts) = value.parse::<i64>() else {
            self.warn(format!(
                "{name}: expected int got {value:?}, using default value: 1"
            ));
            return 1;
        };
        let cut = attempts.clamp(1, 10);
        if cut != attempts {
            self.cut.push(format!(
                "{name}: number of attempts out of the range [1, 10], clamping to: {cut}"
            ));
        }
        u32::try_from(cut).unwrap_or(1)
    }

    fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.get(name).as_deref() {
            None => default,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(value) => {
                let text = match name.starts_with("FF_") {
                    true => {
                        format!("{name}: could not parse feature flag, expected bool, got {value}")
                    }
                    false => format!(
                        "{name}: expected bool got {value:?}, using default value: {default}"
                    ),
                };
                self.warn(text);
                default
            }
        }
    }
}
