//! What rules are decided with.

use std::collections::BTreeMap;
use std::fmt;

/// The variables that a pipeline starts with, before the file's own.
///
/// Precedence, highest first: `project`, then the file's (of a rule, of the job, of
/// `workflow:rules`, global), then `predefined`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// What GitLab itself sets (`CI_COMMIT_BRANCH`, `CI_PIPELINE_SOURCE`, …).
    pub predefined: BTreeMap<String, String>,
    /// The project's variables and those given with the pipeline.
    pub project: BTreeMap<String, String>,
}

/// Any variable may be a secret: only names are shown.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("predefined", &self.predefined.keys())
            .field("project", &self.project.keys())
            .finish()
    }
}
