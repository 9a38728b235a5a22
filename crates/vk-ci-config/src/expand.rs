//! From the file as it is written to the file as it is meant, in GitLab's order: `extends`, then
//! `!reference`, then what each job takes from `default`.

mod budget;
mod defaults;
mod extends;
mod flatten;
mod reference;

use crate::faults::Faults;
use crate::yaml::{Map, Node, Value};

pub(crate) use defaults::is_global;
pub(crate) use defaults::{Layout, lay_out};

/// The file's mapping with `extends` and references written out; nothing when that cannot be done.
pub(crate) fn expand(root: Node, faults: &mut Faults) -> Option<Map> {
    let at = root.at;
    let map = match root.value {
        Value::Map(map) => map,
        Value::Null => {
            faults.add(
                at,
                "the file is empty",
                "give it at least one job with a `script`",
            );
            return None;
        }
        _ => {
            let what = format!("the file is {}, not a mapping", root.kind());
            faults.add(at, what, "begin with the name of a job and a colon");
            return None;
        }
    };
    let map = extends::extend(&map, faults)?;
    reference::resolve(&map, faults)
}
