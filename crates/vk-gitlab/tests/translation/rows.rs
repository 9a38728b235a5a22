//! Rows of the contract's table: a value of the response, and the values of the spec that it changes.

use serde_json::Value;

use super::fixture::{differences, fixture, leaves, spec, with};

/// A clause, a place of the response, what stands there instead of the fixture's value, and what is
/// otherwise in the spec for it: null where the place is not there any more.
pub(crate) type Row = (
    &'static str,
    &'static str,
    Value,
    Vec<(&'static str, Value)>,
);

/// A row whose value arrives as it is.
pub(crate) fn same(
    clause: &'static str,
    from: &'static str,
    to: &'static str,
    value: Value,
) -> Row {
    (clause, from, value.clone(), vec![(to, value)])
}

/// A row whose value does not arrive.
pub(crate) fn nowhere(clause: &'static str, from: &'static str, value: Value) -> Row {
    (clause, from, value, Vec::new())
}

/// Plays every row, and names each whose spec differs from the fixture's in more or less than it says.
pub(crate) fn assert_rows(rows: Vec<Row>) {
    let mut wrong = Vec::new();
    for (clause, from, value, changes) in rows {
        let row = format!("{clause} {from} = {value}");
        let mut expected = spec(&fixture());
        for (to, value) in changes {
            let (parent, key) = to.rsplit_once('/').unwrap();
            let parent = expected.pointer_mut(parent).unwrap();
            match (value, parent) {
                (Value::Null, Value::Object(members)) => {
                    members.remove(key);
                }
                (value, Value::Array(values)) => values[key.parse::<usize>().unwrap()] = value,
                (value, parent) => parent[key] = value,
            }
        }
        let found = differences(&leaves(&spec(&with(from, value))), &leaves(&expected));
        wrong.extend(found.iter().map(|what| format!("{row}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
