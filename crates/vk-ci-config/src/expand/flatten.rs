//! Lists in lists, as references leave them, made one list.

use crate::Position;
use crate::faults::Faults;
use crate::limit::{MAX_LIST, MAX_NESTED};
use crate::yaml::{Node, Value};

/// Flattens a list; anything else stays as it is.
pub(crate) fn flatten(node: &mut Node, keyword: &str, faults: &mut Faults) {
    let Value::List(list) = &mut node.value else {
        return;
    };
    let mut flat = Vec::new();
    let deepest = take(std::mem::take(list), 0, &mut flat);
    if let Some(at) = deepest {
        let what = format!("`{keyword}` has lists more than {MAX_NESTED} deep");
        faults.add(at, what, "nest them less");
    }
    if flat.len() > MAX_LIST {
        let what = format!("`{keyword}` has more than {MAX_LIST} entries");
        faults.add(node.at, what, "split the job");
        flat.truncate(MAX_LIST);
    }
    *list = flat;
}

/// Moves the items of a list; answers where one lies too deep.
fn take(list: Vec<Node>, level: usize, flat: &mut Vec<Node>) -> Option<Position> {
    let mut deepest = None;
    for item in list {
        match item.value {
            Value::List(_) if level >= MAX_NESTED => deepest = Some(item.at),
            Value::List(inner) => {
                deepest = take(inner, level.saturating_add(1), flat).or(deepest);
            }
            _ => flat.push(item),
        }
    }
    deepest
}
