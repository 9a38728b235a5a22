//! GitLab's own variables of a pipeline: what its rules are decided with, and what every job of it
//! gets.

use super::state::{Commit, Gitlab, Pipeline, Project};
use super::variables::{host_of, iso8601, slug};

/// Longest commit message that is passed on.
const MAX_MESSAGE: usize = 100 << 10;
const ZERO_SHA: &str = "0000000000000000000000000000000000000000";

/// A pipeline that is, or is to be.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Its id.
    pub id: u64,
    /// When it was made.
    pub created_ms: u64,
    /// What made it.
    pub source: &'a str,
    /// What it runs on.
    pub commit: &'a Commit,
}

impl Pipeline {
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts {
            id: self.id,
            created_ms: self.created_ms,
            source: self.spec.source.as_deref().unwrap_or("api"),
            commit: &self.commit,
        }
    }
}

impl Gitlab {
    /// The variables that GitLab itself gives a pipeline of a project.
    pub fn predefined(&self, project: &Project, line: &Facts<'_>) -> Vec<(&'static str, String)> {
        let mut list = self.server_variables();
        list.extend(project_variables(&self.base_url, project));
        let url = format!("{}/{}/-/pipelines/{}", self.base_url, project.path, line.id);
        list.extend([
            ("CI_PIPELINE_ID", line.id.to_string()),
            ("CI_PIPELINE_IID", line.id.to_string()),
            ("CI_PIPELINE_SOURCE", line.source.to_owned()),
            ("CI_PIPELINE_URL", url),
            ("CI_PIPELINE_CREATED_AT", iso8601(line.created_ms)),
        ]);
        list.extend(commit_variables(line.commit));
        list
    }

    fn server_variables(&self) -> Vec<(&'static str, String)> {
        let base = &self.base_url;
        let host = host_of(base);
        let (host_name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
        let protocol = base.split(':').next().unwrap_or_default();
        vec![
            ("CI", "true".into()),
            ("GITLAB_CI", "true".into()),
            ("CI_SERVER", "yes".into()),
            ("CI_SERVER_URL", base.clone()),
            ("CI_SERVER_HOST", host_name.into()),
            ("CI_SERVER_PORT", port.into()),
            ("CI_SERVER_PROTOCOL", protocol.into()),
            ("CI_SERVER_NAME", "GitLab".into()),
            ("CI_API_V4_URL", format!("{base}/api/v4")),
        ]
    }
}

fn project_variables(base: &str, project: &Project) -> Vec<(&'static str, String)> {
    let (group, name) = project.path.rsplit_once('/').unwrap_or(("", &project.path));
    vec![
        ("CI_PROJECT_ID", project.id.to_string()),
        ("CI_PROJECT_NAME", name.into()),
        ("CI_PROJECT_NAMESPACE", group.into()),
        ("CI_PROJECT_PATH", project.path.clone()),
        ("CI_PROJECT_PATH_SLUG", slug(&project.path)),
        ("CI_PROJECT_URL", format!("{base}/{}", project.path)),
    ]
}

fn commit_variables(commit: &Commit) -> Vec<(&'static str, String)> {
    let short: String = commit.sha.chars().take(8).collect();
    let kind = if commit.tag {
        "CI_COMMIT_TAG"
    } else {
        "CI_COMMIT_BRANCH"
    };
    let mut list = vec![
        ("CI_COMMIT_SHA", commit.sha.clone()),
        ("CI_COMMIT_SHORT_SHA", short),
        ("CI_COMMIT_BEFORE_SHA", ZERO_SHA.into()),
        ("CI_COMMIT_REF_NAME", commit.git_ref.clone()),
        ("CI_COMMIT_REF_SLUG", slug(&commit.git_ref)),
        ("CI_COMMIT_REF_PROTECTED", "false".into()),
        (kind, commit.git_ref.clone()),
    ];
    list.extend(message_variables(commit));
    list
}

/// What is known of the commit itself; nothing of what is not.
fn message_variables(commit: &Commit) -> Vec<(&'static str, String)> {
    let message: String = commit.message.chars().take(MAX_MESSAGE).collect();
    let (title, rest) = message.split_once('\n').unwrap_or((&message, ""));
    let list = [
        ("CI_DEFAULT_BRANCH", commit.default_branch.clone()),
        ("CI_COMMIT_TITLE", title.to_owned()),
        ("CI_COMMIT_DESCRIPTION", rest.trim_start().to_owned()),
        ("CI_COMMIT_MESSAGE", message.clone()),
        ("CI_COMMIT_TIMESTAMP", commit.timestamp.clone()),
        ("CI_COMMIT_AUTHOR", commit.author.clone()),
    ];
    list.into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> Commit {
        Commit {
            git_ref: "Feature/one".into(),
            sha: "0123456789".into(),
            default_branch: "main".into(),
            message: "A title\n\nMore of it\n".into(),
            ..Commit::default()
        }
    }

    #[test]
    fn a_branch_and_a_tag_are_told_apart() {
        let get = |commit: &Commit, name: &str| {
            let found = commit_variables(commit);
            let found = found.into_iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value)
        };
        let branch = commit();
        assert_eq!(
            get(&branch, "CI_COMMIT_BRANCH").as_deref(),
            Some("Feature/one")
        );
        assert_eq!(get(&branch, "CI_COMMIT_TAG"), None);
        assert_eq!(
            get(&branch, "CI_COMMIT_REF_SLUG").as_deref(),
            Some("feature-one")
        );
        assert_eq!(
            get(&branch, "CI_COMMIT_DESCRIPTION").as_deref(),
            Some("More of it\n")
        );
        assert_eq!(get(&branch, "CI_COMMIT_AUTHOR"), None, "it is not known");
        let tag = Commit {
            tag: true,
            ..branch
        };
        assert_eq!(get(&tag, "CI_COMMIT_BRANCH"), None);
        assert_eq!(get(&tag, "CI_COMMIT_TAG").as_deref(), Some("Feature/one"));
    }
}
