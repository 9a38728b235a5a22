//! Values of a wanted kind.

use crate::faults::Faults;
use crate::limit::{MAX_LIST, MAX_NAME};
use crate::model::Named;
use crate::yaml::{Map, Node, Value};

/// Says that a keyword has a value of another kind than it takes.
pub(super) fn wrong(node: &Node, keyword: &str, takes: &str, faults: &mut Faults) {
    let what = format!("`{keyword}` takes {takes}, and this is {}", node.kind());
    let hint = match node.value {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => "put it into quotes if it is text",
        Value::Map(_) => "put it into quotes if it is text with a colon in it",
        _ => "see docs/ci-yaml.md",
    };
    faults.add(node.at, what, hint);
}

/// A text.
pub(super) fn text(node: &Node, keyword: &str, faults: &mut Faults) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => {
            wrong(node, keyword, "text", faults);
            None
        }
    }
}

/// A text of 1 to 255 bytes.
pub(super) fn name(node: &Node, keyword: &str, faults: &mut Faults) -> Option<Named> {
    let name = text(node, keyword, faults)?;
    if name.is_empty() || name.len() > MAX_NAME {
        let what = format!("`{keyword}` has an empty name or one of more than {MAX_NAME} bytes");
        faults.add(node.at, what, "give another name");
        return None;
    }
    Some(Named { name, at: node.at })
}

/// A list's items.
pub(super) fn list<'a>(
    node: &'a Node,
    keyword: &str,
    of: &str,
    faults: &mut Faults,
) -> Option<&'a [Node]> {
    match &node.value {
        Value::List(list) if list.len() > MAX_LIST => {
            let what = format!("`{keyword}` has more than {MAX_LIST} entries");
            faults.add(node.at, what, "give fewer");
            None
        }
        Value::List(list) => Some(list),
        _ => {
            wrong(node, keyword, &format!("a list of {of}"), faults);
            None
        }
    }
}

/// A list of texts.
pub(super) fn texts(node: &Node, keyword: &str, faults: &mut Faults) -> Vec<String> {
    let items = list(node, keyword, "texts", faults).unwrap_or_default();
    let texts = items.iter().filter_map(|item| text(item, keyword, faults));
    texts.collect()
}

/// One text, or a list of texts.
pub(super) fn text_or_texts(node: &Node, keyword: &str, faults: &mut Faults) -> Vec<String> {
    match &node.value {
        Value::Text(text) => vec![text.clone()],
        Value::List(_) => texts(node, keyword, faults),
        _ => {
            wrong(node, keyword, "text or a list of texts", faults);
            Vec::new()
        }
    }
}

/// A truth value.
pub(super) fn boolean(node: &Node, keyword: &str, faults: &mut Faults) -> Option<bool> {
    match node.value {
        Value::Bool(value) => Some(value),
        _ => {
            wrong(node, keyword, "true or false", faults);
            None
        }
    }
}

/// A whole number that an `i64` holds.
pub(super) fn integer(node: &Node, keyword: &str, faults: &mut Faults) -> Option<i64> {
    match &node.value {
        Value::Int(number) if number.parse::<i64>().is_ok() => number.parse().ok(),
        _ => {
            let what = format!("`{keyword}` takes a whole number");
            faults.add(node.at, what, "give one without quotes");
            None
        }
    }
}

/// A mapping's entries.
pub(super) fn map<'a>(node: &'a Node, keyword: &str, faults: &mut Faults) -> Option<&'a Map> {
    match &node.value {
        Value::Map(map) => Some(map),
        _ => {
            wrong(node, keyword, "a mapping", faults);
            None
        }
    }
}

/// A key's value; `null` counts as none.
pub(super) fn given<'a>(map: &'a Map, key: &str) -> Option<&'a Node> {
    map.get(key).filter(|node| node.value != Value::Null)
}

/// Says which keys of a mapping are not among the known ones. `within` ends in a colon, or is
/// empty for a job.
pub(super) fn known(
    map: &Map,
    within: &str,
    known: &[&str],
    refused: &[&str],
    faults: &mut Faults,
) {
    for entry in map.iter() {
        let key = entry.key.as_str();
        if known.contains(&key) {
            continue;
        }
        let hint = match refused.contains(&key) {
            true => "remove it, or run this pipeline in GitLab".to_owned(),
            false => format!("known are {}", known.join(", ")),
        };
        let what = match refused.contains(&key) {
            true => format!("`{within}{key}` is not supported here"),
            false => format!("`{within}{key}` is no keyword"),
        };
        faults.add(entry.at, what, hint);
    }
}
