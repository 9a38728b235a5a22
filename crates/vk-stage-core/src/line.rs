//! The node's own lines about stages, in gitlab-runner's words.

use std::fmt;

/// A line. Its text comes from `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Settings of the job that were not understood or were cut: one warning of several lines.
    Settings(Vec<String>),
    /// Preparing failed; it will be tried again.
    PreparationFailed {
        /// Why.
        message: String,
    },
    /// When it will be.
    PreparationRetry {
        /// After so many seconds.
        secs: u64,
    },
    /// A stage is tried again.
    Retrying,
    /// A stage was stopped by a timeout.
    StageTimeout {
        /// The stage's name.
        stage: String,
    },
    /// The job's timeout ended the script: how to end only that (STAGE-32).
    ScriptTimeoutHint,
    /// The script was stopped by a cancel.
    ScriptCanceled,
    /// A stage failed that may.
    FailureIgnored {
        /// The stage's name.
        stage: String,
        /// Why it failed.
        message: String,
    },
    /// The job's last line, good.
    JobSucceeded,
    /// The job's last line, bad.
    JobFailed {
        /// Not by the job's own doing.
        system: bool,
        /// Why.
        message: String,
    },
}

/// How a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// Bold green.
    Info,
    /// Yellow, behind `WARNING: `.
    Warning,
    /// Bold red, behind `ERROR: `.
    Error,
}

impl Line {
    /// How it is shown.
    #[must_use]
    pub const fn kind(&self) -> LineKind {
        match self {
            Line::PreparationFailed { .. } | Line::JobFailed { .. } => LineKind::Error,
            Line::PreparationRetry { .. } | Line::JobSucceeded => LineKind::Info,
            Line::Settings(_)
            | Line::Retrying
            | Line::StageTimeout { .. }
            | Line::ScriptTimeoutHint
            | Line::ScriptCanceled
            | Line::FailureIgnored { .. } => LineKind::Warning,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Settings(warnings) => f.write_str(&warnings.join("\n")),
            Line::PreparationFailed { message } => write!(f, "Preparation failed: {message}"),
            Line::PreparationRetry { secs } => write!(f, "Will be retried in {secs}s ..."),
            Line::Retrying => f.write_str("Retrying..."),
            Line::StageTimeout { stage } => write!(
                f,
                "{stage} could not run to completion because the timeout was exceeded. \
                 For more control over job and script timeouts see: \
                 https://docs.gitlab.com/ci/runners/configure_runners/\
                 #set-script-and-after_script-timeouts"
            ),
            Line::ScriptTimeoutHint => f.write_str(
                "the job's timeout ends the job at once: with RUNNER_SCRIPT_TIMEOUT below it, \
                 only the script ends, and after_script, caches and artifacts follow",
            ),
            Line::ScriptCanceled => f.write_str("script canceled externally (UI, API)"),
            Line::FailureIgnored { stage, message } => write!(
                f,
                "{stage} failed, but job will continue unaffected: {message}"
            ),
            Line::JobSucceeded => f.write_str("Job succeeded"),
            Line::JobFailed { system, message } => {
                let what = if *system { " (system failure)" } else { "" };
                write!(f, "Job failed{what}: {message}")
            }
        }
    }
}
