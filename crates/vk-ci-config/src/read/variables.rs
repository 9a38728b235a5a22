//! `variables`.

use std::collections::BTreeMap;

use super::value::{boolean, given, known, map, text, texts, wrong};
use crate::faults::Faults;
use crate::limit::MAX_NAME;
use crate::pipeline::Variable;
use crate::yaml::{Entry, Map, Node, Value};

/// Variables by name.
pub(crate) type Variables = BTreeMap<String, Variable>;

/// Those of the whole file.
pub(super) fn global(node: &Node, faults: &mut Faults) -> Variables {
    let keys = ["value", "description", "options", "expand"];
    variables(node, "variables", &keys, faults)
}

/// Those of a job.
pub(super) fn of_job(node: &Node, faults: &mut Faults) -> Variables {
    variables(node, "variables", &["value", "expand"], faults)
}

/// Those of a rule, which have a value only.
pub(super) fn of_rule(node: &Node, keyword: &str, faults: &mut Faults) -> Variables {
    variables(node, keyword, &[], faults)
}

fn variables(node: &Node, keyword: &str, keys: &[&str], faults: &mut Faults) -> Variables {
    let entries = map(node, keyword, faults).into_iter().flat_map(Map::iter);
    let mut variables = Variables::new();
    for entry in entries {
        check_name(entry, keyword, faults);
        if let Some(variable) = variable(&entry.value, keyword, keys, faults) {
            variables.insert(entry.key.clone(), variable);
        }
    }
    variables
}

fn check_name(entry: &Entry, keyword: &str, faults: &mut Faults) {
    let name = &entry.key;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
        let what = format!("`{keyword}` has a name that no variable can have");
        let hint = format!("use letters, digits and _, at most {MAX_NAME} bytes");
        faults.add(entry.at, what, hint);
    }
}

fn variable(node: &Node, keyword: &str, keys: &[&str], faults: &mut Faults) -> Option<Variable> {
    if let Some(value) = scalar(node) {
        return Some(Variable { value, raw: false });
    }
    match &node.value {
        Value::Map(map) if !keys.is_empty() => Some(full(map, keyword, keys, faults)),
        _ if keys.is_empty() => {
            wrong(
                node,
                keyword,
                "a text, a number, true or false for each name",
                faults,
            );
            None
        }
        _ => {
            let takes = "a text, a number, true or false, or a mapping with `value`, for each name";
            wrong(node, keyword, takes, faults);
            None
        }
    }
}

/// A scalar as Ruby writes it.
fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(value) | Value::Int(value) | Value::Float(value) => Some(value.clone()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn full(map: &Map, keyword: &str, keys: &[&str], faults: &mut Faults) -> Variable {
    known(map, &format!("{keyword}:NAME:"), keys, &[], faults);
    let value = given(map, "value").map(|node| match scalar(node) {
        Some(value) => value,
        None => {
            wrong(node, "value", "a text, a number, true or false", faults);
            String::new()
        }
    });
    if let Some(node) = given(map, "description") {
        text(node, "description", faults);
    }
    if let Some(node) = given(map, "options") {
        let options = texts(node, "options", faults);
        if !value.as_ref().is_some_and(|value| options.contains(value)) {
            let what = "the `value` of a variable is not among its `options`";
            faults.add(node.at, what, "give one of them as `value`");
        }
    }
    let expand = given(map, "expand").and_then(|node| boolean(node, "expand", faults));
    Variable {
        value: value.unwrap_or_default(),
        raw: expand == Some(false),
    }
}
