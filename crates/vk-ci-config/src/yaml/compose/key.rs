//! Keys of mappings, and what a merge key does.

use std::collections::BTreeSet;

use granit_parser::ScalarStyle;

use super::{Stop, short, stop};
use crate::Position;
use crate::limit::MAX_LIST;
use crate::yaml::{Map, Node, Value};

/// A key whose value has not come.
pub(super) enum Key {
    /// One of the mapping's own.
    Named(String),
    /// `<<`.
    Merge,
}

/// Where a key goes.
pub(super) struct KeyPlace<'a> {
    pub(super) own: &'a mut BTreeSet<String>,
    pub(super) key: &'a mut Option<(Position, Key)>,
}

/// Takes a key.
pub(super) fn key_of(
    place: &mut KeyPlace<'_>,
    at: Position,
    value: &Value,
    style: ScalarStyle,
    tagged: bool,
) -> Result<(), Stop> {
    let Value::Text(text) = value else {
        let what = "this key is a number, a truth value, nothing or a list, not text";
        return Err(stop(at, what, "put it into quotes"));
    };
    if text == "<<" && style == ScalarStyle::Plain && !tagged {
        *place.key = Some((at, Key::Merge));
        return Ok(());
    }
    if !place.own.insert(text.clone()) {
        let what = format!("`{}` stands twice in one mapping", short(text));
        return Err(stop(at, what, "keep one of the two"));
    }
    *place.key = Some((at, Key::Named(text.clone())));
    Ok(())
}

/// What a merge key does: it overwrites what stands before it, as in GitLab; of several mappings
/// the first wins.
pub(super) fn merge(at: Position, map: &mut Map, node: Node) -> Result<(), Stop> {
    let mut sources = match node.value {
        Value::Map(source) => vec![source],
        Value::List(list) => {
            let maps = list.into_iter().map(|item| match item.value {
                Value::Map(source) => Ok(source),
                _ => Err(not_a_mapping(item.at)),
            });
            maps.collect::<Result<_, _>>()?
        }
        _ => return Err(not_a_mapping(at)),
    };
    sources.reverse();
    for entry in sources.into_iter().flatten() {
        map.set(entry);
        if map.len() > MAX_LIST {
            break; // the caller says so
        }
    }
    Ok(())
}

fn not_a_mapping(at: Position) -> Stop {
    let what = "`<<` takes a mapping or a list of mappings";
    stop(at, what, "give it the alias of one, as in `<<: *name`")
}
