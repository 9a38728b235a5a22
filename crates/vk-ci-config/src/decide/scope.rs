//! The variables that a rule sees.

use std::collections::BTreeMap;

use crate::Context;
use crate::expression::Lookup;
use crate::model::JobModel;
use crate::pipeline::Variable;

/// Variables by GitLab's precedence. References in values are not expanded, as in GitLab.
pub(super) struct Scope<'a> {
    /// The pipeline's.
    pub(super) context: &'a Context,
    /// The file's.
    pub(super) variables: &'a BTreeMap<String, Variable>,
    /// The job whose rules they are.
    pub(super) job: Option<&'a JobModel>,
}

impl Lookup for Scope<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        let own = match (name, self.job) {
            ("CI_JOB_NAME", Some(job)) => Some(&job.named.name),
            ("CI_JOB_STAGE", Some(job)) => Some(&job.stage.name),
            _ => None,
        };
        let of_file = self.variables.get(name).map(|variable| &variable.value);
        let project = self.context.project.get(name);
        let found = project
            .or(of_file)
            .or(own)
            .or_else(|| self.context.predefined.get(name));
        found.map(String::as_str)
    }
}
