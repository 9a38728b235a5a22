//! How GitLab has the ends of the example's jobs, beside those of the stock runner's.

use crate::fleet::{Ended, Ran};
/// What differs: job, ours instead. The reasons are the page's part "The result".
const DIFFERENT: [(&str, &str, Option<i64>, &str); 15] = [
    (
        "settings:submodules",
        "failed",
        None,
        "runner_configuration_error",
    ),
    (
        "git:attempts",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    ("cache:wrong", "success", None, "none"),
    (
        "tree:bad-path",
        "failed",
        None,
        "runner_configuration_error",
    ),
    ("tree:no-checkout", "success", None, "none"),
    (
        "tree:closed",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "upload:too-large",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "upload:forbidden",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "upload:given-up",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "upload:first-of-two",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "download:missing",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "download:forbidden",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "download:unwell",
        "failed",
        None,
        "runner_external_dependency_failure",
    ),
    (
        "artifacts:two-raw",
        "failed",
        None,
        "runner_configuration_error",
    ),
    (
        "artifacts:zipped-directory",
        "failed",
        None,
        "runner_configuration_error",
    ),
];

/// What is not as it is recorded or listed, in words.
pub(crate) fn compare(recorded: &str, ran: &[Ran]) -> Vec<String> {
    let recorded: Vec<_> = recorded.lines().map(read).collect();
    assert_eq!(recorded.len(), ran.len());
    let mut wrong = Vec::new();
    for ((name, stock), ours) in recorded.into_iter().zip(ran) {
        assert_eq!(name, ours.name);
        let listed = DIFFERENT.iter().find(|(job, ..)| *job == name);
        let expected = match listed {
            None => stock,
            Some((_, status, exit_code, reason)) => {
                let expected = Ended {
                    status: (*status).to_owned(),
                    exit_code: *exit_code,
                    failure_reason: (*reason).to_owned(),
                };
                if expected == stock {
                    wrong.push(format!("{name}: no difference is left: {stock:?}"));
                }
                expected
            }
        };
        if ours.ended != expected {
            wrong.push(format!(
                "{name}: ended as {:?}, not {expected:?}",
                ours.ended
            ));
        }
    }
    wrong
}

/// `name status exit-code reason`, `none` for what is not there.
fn read(line: &str) -> (&str, Ended) {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, status, exit_code, reason] = words[..] else {
        panic!("four words: {line:?}");
    };
    let ended = Ended {
        status: status.to_owned(),
        exit_code: exit_code.parse().ok(),
        failure_reason: reason.to_owned(),
    };
    (name, ended)
}
