//! Tags.

use granit_parser::Tag;

use super::{Stop, short, stop};
use crate::Position;
use crate::yaml::{Node, Value};

/// Whether it is `!reference`.
pub(super) fn is_reference(tag: &Tag) -> bool {
    tag.handle() == "!" && tag.suffix() == "reference"
}

/// Whether the tag is the given one of YAML's own.
pub(super) fn core_tag(at: Position, tag: Option<&Tag>, suffix: &str) -> Result<bool, Stop> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema_tag(suffix) => Ok(true),
        Some(tag) if tag.handle().is_empty() && tag.suffix() == "!" => Ok(suffix == "str"),
        Some(tag) => {
            let what = format!("the tag `{}` is not supported here", short(&tag.original()));
            Err(stop(
                at,
                what,
                "`!reference [job, keyword]` is the one tag that is",
            ))
        }
    }
}

/// What `!reference` names.
pub(super) fn reference(at: Position, path: Vec<Node>) -> Result<Value, Stop> {
    let names = path.into_iter().map(|item| match item.value {
        Value::Text(name) => Ok(name),
        _ => Err(stop(
            item.at,
            "`!reference` takes names only",
            "put it into quotes",
        )),
    });
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    if names.is_empty() {
        return Err(stop(
            at,
            "`!reference` names nothing",
            "write `!reference [job, keyword]`",
        ));
    }
    Ok(Value::Reference(names))
}
