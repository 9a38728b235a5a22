use crate::ReadTime;

/// How long a step's name may be in a marker, in bytes.
const MAX_STEP_NAME: usize = 255;

/// A stage of a job as GitLab's trace shows it: a section that can be folded, with a title. A stage
/// with nothing to do has neither (STAGE-30).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// Admission, image, boot, services.
    PrepareExecutor,
    /// The first script in the job's environment.
    PrepareScript,
    /// The repository.
    GetSources,
    /// Clearing the working tree after a failed fetch.
    ClearWorktree,
    /// Caches in.
    RestoreCache,
    /// Artifacts of earlier jobs in.
    DownloadArtifacts,
    /// A step of the job, by GitLab's name for it (`script`).
    Step(String),
    /// The job's `after_script`.
    AfterScript,
    /// Caches out.
    ArchiveCache,
    /// Caches out after a failure.
    ArchiveCacheOnFailure,
    /// Artifacts out.
    UploadArtifactsOnSuccess,
    /// Artifacts out after a failure.
    UploadArtifactsOnFailure,
    /// Removal of file variables.
    CleanupFileVariables,
}

impl Section {
    /// The section's name in its markers. A step's is cut to 255 bytes, and its control characters
    /// become `_`, so that a marker is always one.
    #[must_use]
    pub fn name(&self) -> String {
        let name = match self {
            Self::PrepareExecutor => "prepare_executor",
            Self::PrepareScript => "prepare_script",
            Self::GetSources => "get_sources",
            Self::ClearWorktree => "clear_worktree",
            Self::RestoreCache => "restore_cache",
            Self::DownloadArtifacts => "download_artifacts",
            Self::Step(step) => return step_name(step),
            Self::AfterScript => "after_script",
            Self::ArchiveCache => "archive_cache",
            Self::ArchiveCacheOnFailure => "archive_cache_on_failure",
            Self::UploadArtifactsOnSuccess => "upload_artifacts_on_success",
            Self::UploadArtifactsOnFailure => "upload_artifacts_on_failure",
            Self::CleanupFileVariables => "cleanup_file_variables",
        };
        name.to_owned()
    }

    /// What the trace says under the section's head; `executor` is named by the first.
    #[must_use]
    pub fn title(&self, executor: &str) -> String {
        let title = match self {
            Self::PrepareExecutor => return format!("Preparing the \"{executor}\" executor"),
            Self::PrepareScript => "Preparing environment",
            Self::GetSources => "Getting source from Git repository",
            Self::ClearWorktree => {
                "Deleting all tracked and untracked files due to source fetch failure"
            }
            Self::RestoreCache => "Restoring cache",
            Self::DownloadArtifacts => "Downloading artifacts",
            Self::Step(step) => {
                return format!("Executing \"{}\" stage of the job script", step_name(step));
            }
            Self::AfterScript => "Running after_script",
            Self::ArchiveCache => "Saving cache for successful job",
            Self::ArchiveCacheOnFailure => "Saving cache for failed job",
            Self::UploadArtifactsOnSuccess => "Uploading artifacts for successful job",
            Self::UploadArtifactsOnFailure => "Uploading artifacts for failed job",
            Self::CleanupFileVariables => "Cleaning up project directory and file based variables",
        };
        title.to_owned()
    }

    /// The marker that opens the section (`edge` is `start`) or closes it (`end`).
    pub(crate) fn marker(&self, edge: &str, at: ReadTime) -> Vec<u8> {
        let (seconds, name) = (at.unix_seconds(), self.name());
        format!("section_{edge}:{seconds}:{name}\r\x1b[0K").into_bytes()
    }
}

fn step_name(step: &str) -> String {
    let end = step.floor_char_boundary(MAX_STEP_NAME);
    let name = step.get(..end).unwrap_or_default();
    let plain = |rune: char| if rune.is_control() { '_' } else { rune };
    "step_".chars().chain(name.chars().map(plain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// STAGE-30
    #[test]
    fn markers_and_titles_are_those_of_gitlab_runner() {
        let at = ReadTime::from_unix(1_767_323_045, 999_999);
        let marker = Section::PrepareExecutor.marker("start", at);
        assert_eq!(
            marker,
            b"section_start:1767323045:prepare_executor\r\x1b[0K"
        );
        let marker = Section::Step("script".into()).marker("end", at);
        assert_eq!(marker, b"section_end:1767323045:step_script\r\x1b[0K");
        assert_eq!(
            Section::PrepareExecutor.title("vk"),
            "Preparing the \"vk\" executor"
        );
        let step = Section::Step("release".into());
        assert_eq!(
            step.title("vk"),
            "Executing \"step_release\" stage of the job script"
        );
    }

    #[test]
    fn a_step_name_cannot_break_its_marker() {
        let step = Section::Step(format!("a\r\n\x1b{}", "é".repeat(300)));
        let name = step.name();
        assert!(name.starts_with("step_a___é") && !name.contains(char::is_control));
        assert!(name.len() <= 5 + MAX_STEP_NAME);
    }
}
