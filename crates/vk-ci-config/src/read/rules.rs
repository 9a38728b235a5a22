//! `rules` of a job and of `workflow`.

use super::value::{boolean, given, known, list, map, text, wrong};
use super::variables;
use crate::expression::{Expression, Patterns, Wrong};
use crate::faults::Faults;
use crate::model::{Rule, RuleWhen};
use crate::pipeline::When;
use crate::yaml::{Map, Node, Value};

/// What a rule may hold.
struct Kind {
    keyword: &'static str,
    keys: &'static [&'static str],
    refused: &'static [&'static str],
    when: &'static str,
}

const OF_JOB: Kind = Kind {
    keyword: "rules",
    keys: &["if", "when", "allow_failure", "variables"],
    refused: &["changes", "exists", "needs", "interruptible", "start_in"],
    when: "on_success, on_failure, always, manual or never",
};

const OF_WORKFLOW: Kind = Kind {
    keyword: "workflow:rules",
    keys: &["if", "when", "variables"],
    refused: &["changes", "exists", "auto_cancel"],
    when: "always or never",
};

/// Reads a job's `rules`.
pub(super) fn of_job(
    node: &Node,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Option<Vec<Rule>> {
    rules(node, &OF_JOB, patterns, faults)
}

/// Reads `workflow`.
pub(super) fn workflow(
    node: &Node,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Option<Vec<Rule>> {
    let map = map(node, "workflow", faults)?;
    known(
        map,
        "workflow:",
        &["rules"],
        &["name", "auto_cancel"],
        faults,
    );
    rules(given(map, "rules")?, &OF_WORKFLOW, patterns, faults)
}

fn rules(
    node: &Node,
    kind: &Kind,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Option<Vec<Rule>> {
    let items = list(node, kind.keyword, "rules", faults)?;
    if items.is_empty() {
        let what = format!("`{}` has no rule", kind.keyword);
        faults.add(node.at, what, "give one, or remove it");
        return None;
    }
    let rules = items
        .iter()
        .filter_map(|item| rule(item, kind, patterns, faults));
    Some(rules.collect())
}

fn rule(node: &Node, kind: &Kind, patterns: &mut Patterns, faults: &mut Faults) -> Option<Rule> {
    let Value::Map(map) = &node.value else {
        wrong(node, kind.keyword, "mappings with `if` or `when`", faults);
        return None;
    };
    if map.len() == 0 {
        faults.add(node.at, "a rule is empty", "give it an `if` or a `when`");
        return None;
    }
    known(
        map,
        &format!("{}:", kind.keyword),
        kind.keys,
        kind.refused,
        faults,
    );
    let mut rule = Rule {
        condition: given(map, "if").and_then(|node| condition(node, kind, patterns, faults)),
        when: given(map, "when").and_then(|node| when(node, kind, faults)),
        allow_failure: None,
        variables: variables::Variables::new(),
    };
    if kind.keys.contains(&"allow_failure") {
        rule.allow_failure = allow_failure(map, faults);
    }
    if let Some(node) = given(map, "variables") {
        let keyword = format!("{}:variables", kind.keyword);
        rule.variables = variables::of_rule(node, &keyword, faults);
    }
    Some(rule)
}

fn allow_failure(map: &Map, faults: &mut Faults) -> Option<bool> {
    let node = given(map, "allow_failure")?;
    boolean(node, "rules:allow_failure", faults)
}

fn condition(
    node: &Node,
    kind: &Kind,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> Option<(crate::Position, Expression)> {
    let keyword = format!("{}:if", kind.keyword);
    let text = text(node, &keyword, faults)?;
    match Expression::parse(&text, patterns) {
        Ok(expression) => Some((node.at, expression)),
        Err(Wrong { at, what, hint }) => {
            let place = at.map(|at| format!(", at its character {at}"));
            let what = format!("`{keyword}`{}: {what}", place.unwrap_or_default());
            faults.add(node.at, what, hint);
            None
        }
    }
}

fn when(node: &Node, kind: &Kind, faults: &mut Faults) -> Option<RuleWhen> {
    let keyword = format!("{}:when", kind.keyword);
    let word = text(node, &keyword, faults)?;
    let of_workflow = kind.keyword == OF_WORKFLOW.keyword;
    match word.as_str() {
        "never" => return Some(RuleWhen::Never),
        "always" => return Some(RuleWhen::Run(When::Always)),
        word if !of_workflow => {
            if let Some(when) = named(word) {
                return Some(RuleWhen::Run(when));
            }
        }
        _ => {}
    }
    let what = match word.as_str() {
        "delayed" => format!("`{keyword}: delayed` is not supported here"),
        _ => format!("`{keyword}` knows no `{word}`"),
    };
    faults.add(node.at, what, format!("it takes {}", kind.when));
    None
}

/// A word that says when a job runs.
pub(super) fn named(word: &str) -> Option<When> {
    match word {
        "on_success" => Some(When::OnSuccess),
        "on_failure" => Some(When::OnFailure),
        "always" => Some(When::Always),
        "manual" => Some(When::Manual),
        _ => None,
    }
}
