//! The list of a job's variables, in gitlab-runner's order.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use vk_hub_proto::Secret;
use vk_hub_proto::job::CiJob;

use super::expand::{TooLong, expand};

/// Bytes of all variables once they are put into each other: a job's spec has far fewer, and each
/// script carries all of them.
const VARIABLES_MAX: usize = 4 << 20;
/// Bytes that variables add to all of a job's texts: names of images, paths, lines of a release.
const TEXTS_MAX: usize = 16 << 20;

/// Where a job's directories are in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The root of builds: `/builds`.
    pub(crate) builds_dir: String,
    /// The project's directory below it.
    pub(crate) project_dir: String,
    /// The directory beside that, for file variables.
    pub(crate) temp_dir: String,
}

/// One variable.
#[derive(Clone, Debug)]
struct Variable {
    key: String,
    /// After expansion; a file's content.
    value: Secret,
    file: bool,
    masked: bool,
}

/// A job's variables after expansion.
#[derive(Debug)]
pub(crate) struct Variables {
    all: Vec<Variable>,
    temp_dir: String,
    /// What with all others would be more than [`VARIABLES_MAX`]; it stands as it was sent.
    too_long: Option<String>,
    /// What texts may still grow by.
    growth: AtomicUsize,
}

/// What only the node knows of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) slot: u32,
    pub(crate) project_slot: u32,
}

impl Variables {
    /// The list: the node's own, which the job's override, the job's as they were sent, and those
    /// that nothing overrides (SPEC-36).
    pub(crate) fn new(job: &CiJob, place: &Place, own: Own) -> Variables {
        let timeout = match job.timeout_secs {
            0 => 7200,
            secs => secs,
        };
        let mut list = List::default();
        if !job.image.name.is_empty() {
            list.own("CI_JOB_IMAGE", &job.image.name);
        }
        list.own("CI_BUILDS_DIR", &place.builds_dir);
        list.own("CI_PROJECT_DIR", &place.project_dir);
        list.own("CI_CONCURRENT_ID", &own.slot.to_string());
        list.own("CI_CONCURRENT_PROJECT_ID", &own.project_slot.to_string());
        list.own("CI_SERVER", "yes");
        list.own("CI_JOB_STATUS", "running");
        list.own("CI_JOB_TIMEOUT", &timeout.to_string());
        if let Some(pem) = &job.server_ca_pem {
            list.push(
                "CI_SERVER_TLS_CA_FILE",
                pem.as_str().into(),
                true,
                false,
                true,
            );
        }
        for variable in &job.variables {
            let (value, file) = (variable.value.clone(), variable.file);
            list.push(&variable.key, value, file, variable.masked, variable.raw);
        }
        list.own("CI_DISPOSABLE_ENVIRONMENT", "true");
        list.own("RUNNER_TEMP_PROJECT_DIR", &place.temp_dir);
        list.expanded(&place.temp_dir)
    }

    /// A variable as a script sees it: a file variable's is its path. Of two of a name, the last.
    pub(crate) fn seen(&self, key: &str) -> Option<String> {
        let variable = self.last(key)?;
        Some(match variable.file {
            true => format!("{}/{key}", self.temp_dir),
            false => variable.value.expose().to_owned(),
        })
    }

    /// A variable's content, a file's too: what settings read.
    pub(crate) fn content(&self, key: &str) -> Option<&str> {
        self.last(key).map(|variable| variable.value.expose())
    }

    fn last(&self, key: &str) -> Option<&Variable> {
        self.all.iter().rev().find(|variable| variable.key == key)
    }

    /// Expands a text once.
    ///
    /// # Errors
    /// It, or all such texts of the job together, would be larger than a node takes.
    pub(crate) fn expand(&self, text: &str) -> Result<String, TooLong> {
        let most = text.len().saturating_add(self.growth.load(Relaxed));
        let expanded = expand(text, most, |name| self.seen(name).unwrap_or_default())?;
        self.grown(text, &expanded)?;
        Ok(expanded)
    }

    /// Counts what a text has grown by.
    ///
    /// # Errors
    /// All of the job's texts together would be larger than a node takes.
    pub(crate) fn grown(&self, from: &str, to: &str) -> Result<(), TooLong> {
        let growth = to.len().saturating_sub(from.len());
        let left = self.growth.load(Relaxed).checked_sub(growth);
        self.growth.store(left.ok_or(TooLong)?, Relaxed);
        Ok(())
    }

    /// Why the variables cannot be used, and what to do; none where they can.
    pub(crate) fn refused(&self) -> Option<String> {
        let key = self.too_long.as_ref()?;
        let mib = VARIABLES_MAX >> 20;
        Some(format!(
            "the job's variables have more than {mib} MiB once they are put into each other, from \
             {key} on: name fewer large ones in it, or mark it `expand: false`"
        ))
    }

    /// Sets `CI_JOB_STATUS`, where it stands first.
    pub(crate) fn set_job_status(&mut self, status: &str) {
        let first = self.all.iter_mut().find(|one| one.key == "CI_JOB_STATUS");
        if let Some(variable) = first {
            variable.value = status.into();
        }
    }

    /// Name, value (a file's content) and whether it is a file, of each in order.
    pub(crate) fn exports(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.all
            .iter()
            .map(|of| (of.key.as_str(), of.value.expose(), of.file))
    }

    /// The masked ones' values (STAGE-24).
    pub(crate) fn masked(&self) -> impl Iterator<Item = &str> {
        let masked = self.all.iter().filter(|variable| variable.masked);
        masked.map(|variable| variable.value.expose())
    }
}

#[derive(Default)]
struct List(Vec<(Variable, bool)>);

impl List {
    fn own(&mut self, key: &str, value: &str) {
        self.push(key, value.into(), false, false, false);
    }

    fn push(&mut self, key: &str, value: Secret, file: bool, masked: bool, raw: bool) {
        let variable = Variable {
            key: key.to_owned(),
            value,
            file,
            masked,
        };
        self.0.push((variable, raw));
    }

    /// One pass over all: each looks up the others as they were sent.
    fn expanded(self, temp_dir: &str) -> Variables {
        let last: HashMap<&str, &Variable> = self
            .0
            .iter()
            .map(|(one, _)| (one.key.as_str(), one))
            .collect();
        let sent = |name: &str| {
            last.get(name)
                .map_or_else(String::new, |one| match one.file {
                    true => format!("{temp_dir}/{name}"),
                    false => one.value.expose().to_owned(),
                })
        };
        let (mut too_long, mut left) = (None, VARIABLES_MAX);
        let all = self.0.iter().map(|(one, raw)| {
            let mut one = one.clone();
            let expanded = match *raw || too_long.is_some() {
                true => Ok(None),
                false => expand(one.value.expose(), left, sent).map(Some),
            };
            match expanded {
                Ok(None) => {}
                Ok(Some(value)) => one.value = Secret::new(value),
                Err(TooLong) => too_long = Some(one.key.clone()),
            }
            left = left.saturating_sub(one.value.expose().len());
            one
        });
        Variables {
            all: all.collect(),
            temp_dir: temp_dir.to_owned(),
            too_long,
            growth: AtomicUsize::new(TEXTS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;

    fn place() -> Place {
        Place {
            builds_dir: "/builds".to_owned(),
            project_dir: "/builds/g/p".to_owned(),
            temp_dir: "/builds/g/p.tmp".to_owned(),
        }
    }

    fn variables(rows: &[(&str, &str, &str)]) -> Variables {
        let mut job = job();
        job.variables = rows
            .iter()
            .map(|(key, value, flags)| vk_hub_proto::job::Variable {
                key: (*key).to_owned(),
                value: (*value).into(),
                public: false,
                file: flags.contains('f'),
                masked: flags.contains('m'),
                raw: flags.contains('r'),
            })
            .collect();
        let own = Own {
            slot: 3,
            project_slot: 1,
        };
        Variables::new(&job, &place(), own)
    }

    /// SPEC-36
    #[test]
    fn the_nodes_own_are_there_and_a_jobs_override_most_of_them() {
        let list = variables(&[
            ("CI_PROJECT_DIR", "/mine", ""),
            ("CI_DISPOSABLE_ENVIRONMENT", "no", ""),
        ]);
        for (key, value) in [
            ("CI_BUILDS_DIR", "/builds"),
            ("CI_PROJECT_DIR", "/mine"),
            ("CI_CONCURRENT_ID", "3"),
            ("CI_CONCURRENT_PROJECT_ID", "1"),
            ("CI_SERVER", "yes"),
            ("CI_JOB_STATUS", "running"),
            ("CI_JOB_TIMEOUT", "3600"),
            ("CI_DISPOSABLE_ENVIRONMENT", "true"),
            ("RUNNER_TEMP_PROJECT_DIR", "/builds/g/p.tmp"),
        ] {
            assert_eq!(list.seen(key).as_deref(), Some(value), "{key}");
        }
    }

    /// SPEC-63
    #[test]
    fn the_servers_ca_is_a_file_where_the_job_has_one() {
        assert_eq!(variables(&[]).seen("CI_SERVER_TLS_CA_FILE"), None);
        let mut job = job();
        job.server_ca_pem = Some("PEM $A".to_owned());
        let own = Own {
            slot: 0,
            project_slot: 0,
        };
        let list = Variables::new(&job, &place(), own);
        assert_eq!(
            list.seen("CI_SERVER_TLS_CA_FILE").as_deref(),
            Some("/builds/g/p.tmp/CI_SERVER_TLS_CA_FILE")
        );
        assert_eq!(list.content("CI_SERVER_TLS_CA_FILE"), Some("PEM $A"));
    }

    #[test]
    fn values_expand_once_against_what_was_sent() {
        let list = variables(&[
            ("A", "$B", ""),
            ("B", "$C", ""),
            ("C", "c", ""),
            ("RAW", "$C", "r"),
            ("FILE", "in $C", "f"),
            ("OF_FILE", "$FILE", ""),
            ("TWICE", "1", ""),
            ("TWICE", "2", ""),
            ("OF_TWICE", "$TWICE", ""),
            ("DOLLAR", "$$C", ""),
        ]);
        for (key, value) in [
            ("A", "$C"),
            ("B", "c"),
            ("RAW", "$C"),
            ("FILE", "in c"),
            ("OF_FILE", "/builds/g/p.tmp/FILE"),
            ("OF_TWICE", "2"),
            ("DOLLAR", "$C"),
        ] {
            assert_eq!(list.content(key), Some(value), "{key}");
        }
    }

    /// As many as a job can have are taken, and none is made larger than all may be together.
    #[test]
    fn variables_that_grow_in_each_other_have_a_bound() {
        let large = "x".repeat(400_000);
        let list = variables(&[("LARGE", &large, ""), ("NINE", &"$LARGE".repeat(9), "")]);
        assert_eq!(list.refused(), None);
        assert_eq!(list.content("NINE").map(str::len), Some(3_600_000));
        let list = variables(&[
            ("LARGE", &large, ""),
            ("NINE", &"$LARGE".repeat(9), ""),
            ("MORE", "$LARGE", ""),
            ("AFTER", "$LARGE", ""),
        ]);
        assert!(list.refused().unwrap().contains("from MORE on"));
        assert_eq!(list.content("AFTER"), Some("$LARGE"));
    }

    /// Each text for itself, and all of them together.
    #[test]
    fn texts_have_a_bound_of_what_variables_make_of_them() {
        let large = "x".repeat(400_000);
        let list = variables(&[("LARGE", &large, "")]);
        assert_eq!(list.expand(&"$LARGE".repeat(43)), Err(TooLong));
        let lines: Vec<_> = std::iter::repeat_with(|| list.expand("$LARGE"))
            .take(43)
            .collect();
        let taken = lines.iter().filter(|line| line.is_ok()).count();
        assert_eq!(taken, TEXTS_MAX / (400_000 - "$LARGE".len()));
        // What names none costs nothing.
        assert_eq!(list.expand("plain"), Ok("plain".to_owned()));
    }

    /// STAGE-24
    #[test]
    fn masked_values_are_those_after_expansion() {
        let list = variables(&[
            ("S", "$T-secret", "m"),
            ("T", "my", ""),
            ("F", "file", "mf"),
        ]);
        assert_eq!(list.masked().collect::<Vec<_>>(), ["my-secret", "file"]);
    }

    #[test]
    fn the_job_status_changes_where_it_stands_first() {
        let mut list = variables(&[]);
        list.set_job_status("failed");
        assert_eq!(list.content("CI_JOB_STATUS"), Some("failed"));
        let mut list = variables(&[("CI_JOB_STATUS", "mine", "")]);
        list.set_job_status("failed");
        assert_eq!(list.content("CI_JOB_STATUS"), Some("mine"));
    }
}
