//! `needs` and `dependencies`.

use super::value::{boolean, given, known, list, name, wrong};
use crate::faults::Faults;
use crate::limit::MAX_NEEDS;
use crate::model::{Named, Need};
use crate::yaml::{Map, Node, Value};

/// Reads `needs`: names, or mappings with `job`.
pub(super) fn needs(node: &Node, faults: &mut Faults) -> Option<Vec<Need>> {
    let items = list(node, "needs", "jobs", faults)?;
    if items.len() > MAX_NEEDS {
        let what = format!("`needs` has more than {MAX_NEEDS} entries");
        faults.add(node.at, what, "GitLab takes no more of them");
        return None;
    }
    let mut needs: Vec<Need> = Vec::new();
    for item in items {
        let Some(need) = need(item, faults) else {
            continue;
        };
        if needs.iter().any(|known| known.job.name == need.job.name) {
            let what = format!("`needs` names `{}` twice", need.job.name);
            faults.add(item.at, what, "keep one of the two");
            continue;
        }
        needs.push(need);
    }
    Some(needs)
}

fn need(node: &Node, faults: &mut Faults) -> Option<Need> {
    match &node.value {
        Value::Text(_) => Some(Need {
            job: name(node, "needs", faults)?,
            artifacts: true,
            optional: false,
        }),
        Value::Map(map) => of_map(node, map, faults),
        _ => {
            wrong(
                node,
                "needs",
                "names of jobs, or mappings with `job`,",
                faults,
            );
            None
        }
    }
}

fn of_map(node: &Node, map: &Map, faults: &mut Faults) -> Option<Need> {
    let keys = ["job", "artifacts", "optional"];
    let refused = ["project", "ref", "pipeline", "parallel"];
    known(map, "needs:", &keys, &refused, faults);
    let mut flag = |key: &str, otherwise: bool| {
        let found = given(map, key).and_then(|node| {
            let keyword = format!("needs:{key}");
            boolean(node, &keyword, faults)
        });
        found.unwrap_or(otherwise)
    };
    let artifacts = flag("artifacts", true);
    let optional = flag("optional", false);
    let Some(job) = given(map, "job") else {
        faults.add(node.at, "an entry of `needs` lacks `job`", "name the job");
        return None;
    };
    Some(Need {
        job: name(job, "needs:job", faults)?,
        artifacts,
        optional,
    })
}

/// Reads `dependencies`: names.
pub(super) fn dependencies(node: &Node, faults: &mut Faults) -> Option<Vec<Named>> {
    let items = list(node, "dependencies", "names", faults)?;
    let names = items
        .iter()
        .filter_map(|item| name(item, "dependencies", faults));
    Some(names.collect())
}
