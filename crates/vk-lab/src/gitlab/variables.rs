//! A job's variables: GitLab's own first, then the project's, the pipeline's, the job's; the last
//! of a name wins.

use serde_json::{Value, json};

use super::job::Job;
use super::spec::Variable;
use super::state::{Gitlab, Pipeline, Project};
use super::token::Secret;

const ZERO_SHA: &str = "0000000000000000000000000000000000000000";

/// A time as GitLab writes it, in UTC with seconds.
pub(super) fn iso8601(ms: u64) -> String {
    let secs = ms / 1_000;
    let (days, rest) = (secs / 86_400, secs % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The civil date of a day number since 1970-01-01 (proleptic Gregorian).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Letters and digits in lower case, the rest as `-`, at most 63, as GitLab makes slugs.
fn slug(text: &str) -> String {
    let lower = text.to_lowercase();
    let plain = lower
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let cut: String = plain.take(63).collect();
    cut.trim_matches('-').to_owned()
}

impl Gitlab {
    /// The variables of a job, as the job response lists them.
    pub(super) fn variables_json(&self, job: &Job) -> Vec<Value> {
        let Some((pipeline, project)) = self.place_of(job) else {
            return Vec::new();
        };
        let mut list = self.job_variables(job, pipeline, project);
        list.extend(commit_variables(pipeline));
        let mut list: Vec<Value> = list
            .into_iter()
            .map(|(key, value)| public(key, value))
            .collect();
        list.extend(self.secret_variables(job, project));
        for (key, variable) in self.given_variables(job) {
            list.push(given(key, variable));
        }
        list
    }

    pub(super) fn place_of(&self, job: &Job) -> Option<(&Pipeline, &Project)> {
        self.pipelines.get(&job.pipeline).zip(self.project_of(job))
    }

    fn job_variables(&self, job: &Job, line: &Pipeline, project: &Project) -> Vec<(&str, String)> {
        let base = &self.base_url;
        let url = format!("{base}/{}", project.path);
        let (group, name) = project.path.rsplit_once('/').unwrap_or(("", &project.path));
        let host = host_of(base);
        let (host_name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
        let started = iso8601(job.started_ms.unwrap_or(job.updated_ms));
        vec![
            ("CI", "true".into()),
            ("GITLAB_CI", "true".into()),
            ("CI_SERVER", "yes".into()),
            ("CI_SERVER_URL", base.clone()),
            ("CI_SERVER_HOST", host_name.into()),
            ("CI_SERVER_PORT", port.into()),
            (
                "CI_SERVER_PROTOCOL",
                base.split(':').next().unwrap_or_default().into(),
            ),
            ("CI_SERVER_NAME", "GitLab".into()),
            ("CI_API_V4_URL", format!("{base}/api/v4")),
            ("CI_JOB_ID", job.id.to_string()),
            ("CI_JOB_URL", format!("{url}/-/jobs/{}", job.id)),
            ("CI_JOB_STARTED_AT", started),
            ("CI_JOB_NAME", job.spec.name.clone()),
            ("CI_JOB_NAME_SLUG", slug(&job.spec.name)),
            ("CI_JOB_STAGE", job.spec.stage.clone()),
            ("CI_JOB_TIMEOUT", job.spec.timeout_secs.to_string()),
            ("CI_NODE_TOTAL", "1".into()),
            ("CI_REGISTRY_USER", "gitlab-ci-token".into()),
            ("CI_DEPENDENCY_PROXY_USER", "gitlab-ci-token".into()),
            ("CI_PROJECT_ID", project.id.to_string()),
            ("CI_PROJECT_NAME", name.into()),
            ("CI_PROJECT_NAMESPACE", group.into()),
            ("CI_PROJECT_PATH", project.path.clone()),
            ("CI_PROJECT_PATH_SLUG", slug(&project.path)),
            ("CI_PROJECT_URL", url.clone()),
            ("CI_PIPELINE_ID", line.id.to_string()),
            ("CI_PIPELINE_IID", line.id.to_string()),
            ("CI_PIPELINE_SOURCE", "api".into()),
            ("CI_PIPELINE_URL", format!("{url}/-/pipelines/{}", line.id)),
            ("CI_PIPELINE_CREATED_AT", iso8601(line.created_ms)),
        ]
    }

    fn secret_variables(&self, job: &Job, project: &Project) -> Vec<Value> {
        let token = job.token.expose();
        let hidden = |key: &str, value: &str, masked: bool| json!({"key": key, "value": value, "public": false, "masked": masked});
        vec![
            hidden("CI_JOB_TOKEN", token, true),
            hidden("CI_REGISTRY_PASSWORD", token, true),
            hidden("CI_DEPENDENCY_PROXY_PASSWORD", token, true),
            hidden("CI_REPOSITORY_URL", &self.repo_url(job, project), false),
        ]
    }

    pub(super) fn repo_url(&self, job: &Job, project: &Project) -> String {
        let (scheme, host) = self
            .base_url
            .split_once("://")
            .unwrap_or(("http", &self.base_url));
        let token = job.token.expose();
        format!(
            "{scheme}://gitlab-ci-token:{token}@{host}/{}.git",
            project.path
        )
    }

    /// The project's, the pipeline's and the job's variables; protected ones are withheld.
    fn given_variables(&self, job: &Job) -> Vec<(String, Variable)> {
        let mut list: Vec<(String, Variable)> = Vec::new();
        let project = self
            .variables
            .iter()
            .filter(|(_, variable)| !variable.protected);
        list.extend(project.map(|(key, variable)| (key.clone(), variable.clone())));
        if let Some(pipeline) = self.pipelines.get(&job.pipeline) {
            list.extend(
                pipeline
                    .spec
                    .variables
                    .iter()
                    .map(|(k, v)| (k.clone(), v.full())),
            );
        }
        list.extend(
            job.spec
                .variables
                .iter()
                .map(|(k, v)| (k.clone(), v.full())),
        );
        list
    }

    /// Values that must not stand in the job's trace, with their names.
    pub(super) fn masked_values(&self, job: &Job) -> Vec<(String, Secret)> {
        let given = self
            .given_variables(job)
            .into_iter()
            .filter(|(_, v)| v.masked);
        given
            .map(|(key, variable)| (key, Secret::new(variable.value)))
            .collect()
    }
}

fn host_of(base: &str) -> &str {
    base.split_once("://").map_or(base, |(_, host)| host)
}

fn commit_variables(pipeline: &Pipeline) -> Vec<(&'static str, String)> {
    let commit = &pipeline.commit;
    let short: String = commit.sha.chars().take(8).collect();
    let kind = if commit.tag {
        "CI_COMMIT_TAG"
    } else {
        "CI_COMMIT_BRANCH"
    };
    vec![
        ("CI_COMMIT_SHA", commit.sha.clone()),
        ("CI_COMMIT_SHORT_SHA", short),
        ("CI_COMMIT_BEFORE_SHA", ZERO_SHA.into()),
        ("CI_COMMIT_REF_NAME", commit.git_ref.clone()),
        ("CI_COMMIT_REF_SLUG", slug(&commit.git_ref)),
        ("CI_COMMIT_REF_PROTECTED", "false".into()),
        (kind, commit.git_ref.clone()),
    ]
}

fn public(key: &str, value: String) -> Value {
    json!({"key": key, "value": value, "public": true, "masked": false})
}

fn given(key: String, variable: Variable) -> Value {
    let mut entry = json!({
        "key": key, "value": variable.value, "public": false, "masked": variable.masked,
    });
    if variable.file {
        entry["file"] = true.into();
    }
    if variable.raw {
        entry["raw"] = true.into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_dates() {
        let rows = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_772_442_847_999, "2026-03-02T09:14:07Z"),
        ];
        for (ms, text) in rows {
            assert_eq!(iso8601(ms), text);
        }
    }

    #[test]
    fn slugs_are_gitlabs() {
        assert_eq!(slug("Feature/Login_1-"), "feature-login-1");
    }
}
