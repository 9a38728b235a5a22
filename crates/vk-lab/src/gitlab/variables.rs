//! A job's variables: GitLab's own first, then the project's, the pipeline's, the job's; the last
//! of a name wins.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::job::Job;
use super::response::put;
use super::spec::Variable;
use super::state::{Gitlab, Pipeline, Project};
use super::token::Secret;

/// Longest value that references may make.
const MAX_EXPANDED: usize = 64 << 10;
/// Deepest nesting of references.
const MAX_DEPTH: usize = 16;
/// Most references resolved for one value.
const MAX_REFERENCES: u32 = 1_000;

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
pub(super) fn slug(text: &str) -> String {
    let lower = text.to_lowercase();
    let plain = lower
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let cut: String = plain.take(63).collect();
    cut.trim_matches('-').to_owned()
}

impl Gitlab {
    /// The variables of a job, as the job response lists them: references are resolved but for
    /// those to nothing, to files and to raw ones.
    pub(super) fn variables_json(&self, job: &Job) -> Vec<Value> {
        let list = self.all_variables(job);
        list.iter()
            .map(|entry| entry.json(&expand(&list, entry)))
            .collect()
    }

    fn all_variables(&self, job: &Job) -> Vec<Entry> {
        let Some((pipeline, project)) = self.place_of(job) else {
            return Vec::new();
        };
        let mut own = self.predefined(project, &pipeline.facts());
        own.extend(self.registry_variables(project));
        own.extend(self.job_variables(job, project));
        let mut list: Vec<Entry> = own
            .into_iter()
            .map(|(key, value)| Entry::own(key, &value, true, false))
            .collect();
        list.extend(self.secret_variables(job, project));
        let given = self.given_variables(job).into_iter();
        list.extend(given.map(|(key, variable)| Entry {
            key,
            variable,
            public: false,
        }));
        list
    }

    pub(super) fn place_of(&self, job: &Job) -> Option<(&Pipeline, &Project)> {
        self.pipelines.get(&job.pipeline).zip(self.project_of(job))
    }

    fn job_variables(&self, job: &Job, project: &Project) -> Vec<(&'static str, String)> {
        let started = iso8601(job.started_ms.unwrap_or(job.updated_ms));
        let url = format!("{}/{}/-/jobs/{}", self.base_url, project.path, job.id);
        vec![
            ("CI_JOB_ID", job.id.to_string()),
            ("CI_JOB_URL", url),
            ("CI_JOB_STARTED_AT", started),
            ("CI_JOB_NAME", job.spec.name.clone()),
            ("CI_JOB_NAME_SLUG", slug(&job.spec.name)),
            ("CI_JOB_STAGE", job.spec.stage.clone()),
            ("CI_JOB_TIMEOUT", job.spec.timeout_secs.to_string()),
            ("CI_NODE_TOTAL", "1".into()),
            ("CI_REGISTRY_USER", "gitlab-ci-token".into()),
            ("CI_DEPENDENCY_PROXY_USER", "gitlab-ci-token".into()),
        ]
    }

    fn secret_variables(&self, job: &Job, project: &Project) -> [Entry; 4] {
        let token = job.token.expose();
        [
            Entry::own("CI_JOB_TOKEN", token, false, true),
            Entry::own("CI_REGISTRY_PASSWORD", token, false, true),
            Entry::own("CI_DEPENDENCY_PROXY_PASSWORD", token, false, true),
            Entry::own(
                "CI_REPOSITORY_URL",
                &self.repo_url(job, project),
                false,
                false,
            ),
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

    /// The project's variables that its pipelines get, by name.
    pub fn project_variables(&self) -> BTreeMap<String, String> {
        let open = self.variables.iter().filter(|(_, given)| !given.protected);
        open.map(|(name, given)| (name.clone(), given.value.clone()))
            .collect()
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
        let list = self.all_variables(job);
        let masked = list.iter().filter(|e| e.variable.masked && !e.is_token());
        masked
            .map(|entry| (entry.key.clone(), Secret::new(expand(&list, entry))))
            .collect()
    }
}

/// One variable on its way to a job.
struct Entry {
    key: String,
    variable: Variable,
    public: bool,
}

impl Entry {
    fn own(key: &str, value: &str, public: bool, masked: bool) -> Self {
        let variable = Variable {
            value: value.to_owned(),
            masked,
            ..Variable::default()
        };
        Self {
            key: key.to_owned(),
            variable,
            public,
        }
    }

    /// The job's token is looked for apart, and once.
    fn is_token(&self) -> bool {
        self.key.starts_with("CI_") && self.variable.value.starts_with("glcbt-")
    }

    fn json(&self, value: &str) -> Value {
        let mut entry = json!({
            "key": self.key, "value": value, "public": self.public,
            "masked": self.variable.masked,
        });
        for (name, set) in [("file", self.variable.file), ("raw", self.variable.raw)] {
            if set {
                put(&mut entry, name, true.into());
            }
        }
        entry
    }
}

/// The value of an entry with its references resolved.
fn expand(list: &[Entry], entry: &Entry) -> String {
    if entry.variable.raw {
        return entry.variable.value.clone();
    }
    let mut path = Path {
        within: vec![entry.key.as_str()],
        left: MAX_REFERENCES,
    };
    expand_text(list, &entry.variable.value, &mut path)
}

/// Where an expansion is: the names around it, and how many references it may still resolve.
struct Path<'a> {
    within: Vec<&'a str>,
    left: u32,
}

fn expand_text<'a>(list: &'a [Entry], text: &str, path: &mut Path<'a>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, tail) = reference(after);
        let known = list.iter().rfind(|other| other.key == name);
        let usable = known.filter(|other| {
            let plain = !other.variable.file && !other.variable.raw;
            plain
                && path.within.len() < MAX_DEPTH
                && path.left > 0
                && !path.within.contains(&other.key.as_str())
        });
        match usable.filter(|_| out.len() < MAX_EXPANDED) {
            Some(other) => {
                path.left -= 1;
                path.within.push(&other.key);
                out.push_str(&expand_text(list, &other.variable.value, path));
                path.within.pop();
                rest = tail;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The name that stands behind a `$`, as `NAME` or `{NAME}`, and what follows it.
fn reference(after: &str) -> (&str, &str) {
    if let Some((name, tail)) = after
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'))
    {
        return (name, tail);
    }
    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    after.split_at(end.unwrap_or(after.len()))
}

pub(super) fn host_of(base: &str) -> &str {
    base.split_once("://").map_or(base, |(_, host)| host)
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
    fn references_are_resolved_but_for_unknown_file_and_raw_ones_and_circles() {
        let entry = |key: &str, value: &str, file, raw| {
            let variable = Variable {
                value: value.into(),
                file,
                raw,
                ..Variable::default()
            };
            Entry {
                key: key.into(),
                variable,
                public: false,
            }
        };
        let list = [
            entry("A", "1", false, false),
            entry("A", "2", false, false),
            entry("FILE", "f", true, false),
            entry("RAW", "$A", false, true),
            entry("LOOP", "<$POOL>", false, false),
            entry("POOL", "$LOOP", false, false),
            entry("NEST", "n${A}", false, false),
        ];
        let rows = [
            ("$A${A}x", "22x"),
            ("$NEST-$NOPE-${NOPE}", "n2-$NOPE-${NOPE}"),
            ("$FILE $RAW", "$FILE $RAW"),
            ("$LOOP", "<$LOOP>"),
            ("a$ $$A ${A", "a$ $2 ${A"),
        ];
        for (text, want) in rows {
            assert_eq!(
                expand(&list, &entry("X", text, false, false)),
                want,
                "{text}"
            );
        }
        assert_eq!(expand(&list, &list[3]), "$A");
    }

    #[test]
    fn slugs_are_gitlabs() {
        assert_eq!(slug("Feature/Login_1-"), "feature-login-1");
    }
}
