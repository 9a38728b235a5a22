//! The lines about a policy that brought the job (SPEC-60, SPEC-72; gitlab-runner's words).

use gitlab_runner_api::response::PolicyOptions;

/// The lines, unstamped; none for other jobs.
#[must_use]
pub fn policy_lines(options: &PolicyOptions) -> Vec<String> {
    if !options.execution_policy_job {
        return Vec::new();
    }
    let exceptions = &options.policy_variables_override_exceptions;
    let except = if exceptions.is_empty() {
        String::new()
    } else {
        format!(" (except for {})", exceptions.join(", "))
    };
    let about = match options.policy_variables_override_allowed {
        None => "Variables defined in the policy take precedence over matching user-defined CI/CD \
                 variables for this job."
            .to_owned(),
        Some(allowed) => {
            let are = if allowed { "allowed" } else { "ignored" };
            format!(
                "User-defined CI/CD variables are {are} in this job{except} according to the policy."
            )
        }
    };
    vec![
        format!("Job triggered by policy \"{}\".", options.policy_name),
        about,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC-60
    #[test]
    fn a_policy_job_says_so_and_what_becomes_of_variables() {
        let options = |allowed, exceptions: &[&str]| PolicyOptions {
            execution_policy_job: true,
            policy_name: "scan".into(),
            policy_variables_override_allowed: allowed,
            policy_variables_override_exceptions: exceptions.iter().map(|e| (*e).into()).collect(),
        };
        assert!(policy_lines(&PolicyOptions::default()).is_empty());
        let lines = policy_lines(&options(None, &[]));
        assert_eq!(lines[0], "Job triggered by policy \"scan\".");
        assert!(lines[1].starts_with("Variables defined in the policy take precedence"));
        assert_eq!(
            policy_lines(&options(Some(true), &["A", "B"]))[1],
            "User-defined CI/CD variables are allowed in this job (except for A, B) according to \
             the policy."
        );
        assert!(
            policy_lines(&options(Some(false), &[]))[1].contains("are ignored in this job acc")
        );
    }
}
