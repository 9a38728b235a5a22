//! GitLab's word for how a job ended.

use super::FailureClass;

/// Reasons that every GitLab takes, whatever its list says (FAIL-29).
const ALWAYS_KNOWN: [&str; 3] = [
    "script_failure",
    "runner_system_failure",
    "job_execution_timeout",
];

/// The reason where nothing else is left.
const UNKNOWN: &str = "unknown_failure";

/// What an older GitLab knows in place of a reason (FAIL-16).
fn older(reason: &str) -> Option<&'static str> {
    match reason {
        "image_pull_failure" | "runner_external_dependency_failure" => {
            Some("runner_system_failure")
        }
        "runner_configuration_error" => Some("script_failure"),
        _ => None,
    }
}

/// The reason a class has on today's GitLab; none where it is [`UNKNOWN`] whatever GitLab knows.
fn reason(class: FailureClass) -> Option<&'static str> {
    Some(match class {
        FailureClass::Script => "script_failure",
        FailureClass::Timeout => "job_execution_timeout",
        FailureClass::ImagePull => "image_pull_failure",
        FailureClass::Configuration => "runner_configuration_error",
        FailureClass::ExternalDependency => "runner_external_dependency_failure",
        FailureClass::System
        | FailureClass::NoCapacity
        | FailureClass::Lost
        | FailureClass::Other => "runner_system_failure",
        FailureClass::Interrupted => "runner_interrupted",
        FailureClass::Canceled => return None,
    })
}

/// The `failure_reason` for a job that ended so, on a GitLab whose `features.failure_reasons` for
/// this job are `known`: the class's own reason where it is known, else its older one, else
/// `unknown_failure` (FAIL-05 to FAIL-16; behaviour of gitlab-runner's mapper).
#[must_use]
pub fn gitlab_failure_reason(class: FailureClass, known: &[String]) -> &'static str {
    let is_known =
        |reason: &str| ALWAYS_KNOWN.contains(&reason) || known.iter().any(|word| word == reason);
    // No reason has more than one older one, so two looks are all it takes.
    let first = reason(class);
    [first, first.and_then(older)]
        .into_iter()
        .flatten()
        .find(|word| is_known(word))
        .unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn today() -> Vec<String> {
        [
            "image_pull_failure",
            "runner_configuration_error",
            "runner_external_dependency_failure",
            "runner_interrupted",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn assert_reason(class: FailureClass, today_says: &str, older_says: &str) {
        assert_eq!(
            gitlab_failure_reason(class, &today()),
            today_says,
            "{class:?} today"
        );
        assert_eq!(
            gitlab_failure_reason(class, &[]),
            older_says,
            "{class:?} on an older GitLab"
        );
    }

    /// FAIL-06
    #[test]
    fn a_steps_exit_code_is_a_script_failure() {
        assert_reason(FailureClass::Script, "script_failure", "script_failure");
    }

    /// FAIL-07
    #[test]
    fn a_timeout_is_a_job_execution_timeout() {
        assert_reason(
            FailureClass::Timeout,
            "job_execution_timeout",
            "job_execution_timeout",
        );
    }

    /// FAIL-08, FAIL-16
    #[test]
    fn an_image_pull_is_a_system_failure_to_an_older_gitlab() {
        assert_reason(
            FailureClass::ImagePull,
            "image_pull_failure",
            "runner_system_failure",
        );
    }

    /// FAIL-09, FAIL-16
    #[test]
    fn a_configuration_error_is_a_script_failure_to_an_older_gitlab() {
        assert_reason(
            FailureClass::Configuration,
            "runner_configuration_error",
            "script_failure",
        );
    }

    /// FAIL-10, FAIL-16
    #[test]
    fn an_external_dependency_is_a_system_failure_to_an_older_gitlab() {
        assert_reason(
            FailureClass::ExternalDependency,
            "runner_external_dependency_failure",
            "runner_system_failure",
        );
    }

    /// FAIL-11
    #[test]
    fn a_system_failure_is_a_runner_system_failure() {
        assert_reason(
            FailureClass::System,
            "runner_system_failure",
            "runner_system_failure",
        );
    }

    /// FAIL-12, FAIL-16
    #[test]
    fn an_interrupted_job_is_unknown_to_an_older_gitlab() {
        assert_reason(
            FailureClass::Interrupted,
            "runner_interrupted",
            "unknown_failure",
        );
    }

    /// FAIL-13
    #[test]
    fn a_cancelled_job_is_an_unknown_failure_whatever_gitlab_knows() {
        assert_reason(FailureClass::Canceled, "unknown_failure", "unknown_failure");
        let known = vec!["job_canceled".to_owned(), "canceled".to_owned()];
        assert_eq!(
            gitlab_failure_reason(FailureClass::Canceled, &known),
            "unknown_failure"
        );
    }

    /// FAIL-14
    #[test]
    fn a_job_without_a_place_is_a_runner_system_failure() {
        assert_reason(
            FailureClass::NoCapacity,
            "runner_system_failure",
            "runner_system_failure",
        );
    }

    /// FAIL-15
    #[test]
    fn a_lost_node_is_a_runner_system_failure() {
        assert_reason(
            FailureClass::Lost,
            "runner_system_failure",
            "runner_system_failure",
        );
    }

    /// FAIL-29
    #[test]
    fn an_unknown_class_reads_as_a_system_failure() {
        let class: FailureClass = serde_json::from_str("\"of_a_later_day\"").unwrap();
        assert_reason(class, "runner_system_failure", "runner_system_failure");
    }

    /// PORT-33: with an empty list of supported reasons, upstream's table.
    #[test]
    fn with_no_reason_listed_each_maps_as_upstreams_does() {
        let rows = [
            (FailureClass::ImagePull, "runner_system_failure"),
            (FailureClass::Configuration, "script_failure"),
            (FailureClass::ExternalDependency, "runner_system_failure"),
            (FailureClass::Interrupted, "unknown_failure"),
            (FailureClass::Canceled, "unknown_failure"),
            (FailureClass::Script, "script_failure"),
            (FailureClass::System, "runner_system_failure"),
            (FailureClass::Timeout, "job_execution_timeout"),
        ];
        for (class, reason) in rows {
            assert_eq!(gitlab_failure_reason(class, &[]), reason, "{class:?}");
        }
    }
}
