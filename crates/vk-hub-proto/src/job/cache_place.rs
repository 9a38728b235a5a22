//! What names a project's caches at a registry: the same for whoever names them.

use super::CiJob;

/// What GitLab says of a ref where its answer itself does not.
const PROTECTED: &str = "CI_COMMIT_REF_PROTECTED";

impl CiJob {
    /// Whether the job's ref is protected; the variable speaks where GitLab's answer does not
    /// (CACHE-21). It is the first of that name: GitLab's own stand first, so a job that sets one
    /// of that name claims nothing.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        let mut variables = self.variables.iter();
        let variable = variables.find(|variable| variable.key == PROTECTED);
        let says_so = variable.is_some_and(|variable| variable.value.expose() == "true");
        self.sources.protected.unwrap_or(says_so)
    }

    /// What tells this job's project from all others in the name of a repository:
    /// `<gitlab host>[/<gitlab path>]/<project id>` (CACHE-03, CACHE-16).
    #[must_use]
    pub fn project_repository(&self) -> String {
        let (scheme, rest) = match self.server_url.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => ("", self.server_url.as_str()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = authority.to_ascii_lowercase();
        let usual = match scheme {
            "https" => ":443",
            "http" => ":80",
            _ => "\0",
        };
        let host = authority.strip_suffix(usual).unwrap_or(&authority);
        // What is left of an IPv6 address between brackets.
        let host = host.replace(['[', ']'], "").replace(':', "-");
        let mut name = host.trim_start_matches('-').to_owned();
        let path = path.split(['?', '#']).next().unwrap_or_default();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            name.push('/');
            name.push_str(&part.to_ascii_lowercase());
        }
        format!("{name}/{}", self.job.project_id)
    }
}
