//! `retry` and `allow_failure`.

use super::value::{given, integer, known, list, map, text_or_texts, wrong};
use crate::faults::Faults;
use crate::pipeline::{AllowFailure, Retry};
use crate::yaml::{Node, Value};

/// Reasons that GitLab documents for `retry:when`.
const REASONS: [&str; 13] = [
    "always",
    "unknown_failure",
    "script_failure",
    "api_failure",
    "stuck_or_timeout_failure",
    "runner_system_failure",
    "runner_unsupported",
    "stale_schedule",
    "job_execution_timeout",
    "archived_failure",
    "unmet_prerequisites",
    "scheduler_failure",
    "data_integrity_failure",
];

/// Reads `retry`: a number, or a mapping.
pub(super) fn retry(node: &Node, faults: &mut Faults) -> Option<Retry> {
    match &node.value {
        Value::Int(_) => Some(Retry {
            max: max(node, "retry", faults)?,
            ..Retry::default()
        }),
        Value::Map(map) => {
            known(map, "retry:", &["max", "when", "exit_codes"], &[], faults);
            let max = given(map, "max").map_or(Some(0), |node| max(node, "retry:max", faults))?;
            let when = given(map, "when").map(|node| reasons(node, faults));
            let codes = given(map, "exit_codes").map(|node| codes(node, "retry:", faults));
            let mut retry = Retry {
                max,
                when: when.unwrap_or_default(),
                exit_codes: codes.unwrap_or_default(),
            };
            if retry.when.iter().any(|reason| reason == "always") {
                retry.when.clear();
                retry.exit_codes.clear();
            }
            Some(retry)
        }
        _ => {
            wrong(node, "retry", "a number or a mapping", faults);
            None
        }
    }
}

fn max(node: &Node, keyword: &str, faults: &mut Faults) -> Option<u8> {
    let max = integer(node, keyword, faults)?;
    let small = u8::try_from(max).ok().filter(|max| *max <= 2);
    if small.is_none() {
        let what = format!("`{keyword}` takes 0, 1 or 2");
        faults.add(node.at, what, "give one of them");
    }
    small
}

/// The reasons, `always` among them.
fn reasons(node: &Node, faults: &mut Faults) -> Vec<String> {
    let reasons = text_or_texts(node, "retry:when", faults);
    for reason in &reasons {
        if !REASONS.contains(&reason.as_str()) {
            let what = format!("`retry:when` knows no reason `{reason}`");
            faults.add(node.at, what, format!("known are {}", REASONS.join(", ")));
        }
    }
    reasons
}

/// Reads `allow_failure`: true, false, or a mapping with exit codes.
pub(super) fn allow_failure(node: &Node, faults: &mut Faults) -> Option<AllowFailure> {
    match &node.value {
        Value::Bool(all) => Some(AllowFailure::All(*all)),
        Value::Map(_) => {
            let map = map(node, "allow_failure", faults)?;
            known(map, "allow_failure:", &["exit_codes"], &[], faults);
            let Some(node) = given(map, "exit_codes") else {
                let what = "`allow_failure` lacks `exit_codes`";
                faults.add(node.at, what, "give them, or true or false instead");
                return None;
            };
            let exit_codes = codes(node, "allow_failure:", faults);
            Some(AllowFailure::ExitCodes { exit_codes })
        }
        _ => {
            wrong(node, "allow_failure", "true, false or a mapping", faults);
            None
        }
    }
}

fn codes(node: &Node, within: &str, faults: &mut Faults) -> Vec<i64> {
    let keyword = format!("{within}exit_codes");
    match &node.value {
        Value::List(_) => {
            let items = list(node, &keyword, "numbers", faults).unwrap_or_default();
            let codes = items
                .iter()
                .filter_map(|item| integer(item, &keyword, faults));
            codes.collect()
        }
        _ => integer(node, &keyword, faults).into_iter().collect(),
    }
}
