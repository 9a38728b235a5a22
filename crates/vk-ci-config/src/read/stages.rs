//! `stages`.

use super::value;
use crate::faults::Faults;
use crate::yaml::Node;

/// Always the first stage, whatever the file says.
pub(crate) const FIRST: &str = ".pre";
/// Always the last.
pub(crate) const LAST: &str = ".post";
/// The stages of a file that names none.
const DEFAULT: [&str; 3] = ["build", "test", "deploy"];

/// All stages in order; one that is named twice stands where it is named first.
pub(super) fn stages(node: Option<&Node>, faults: &mut Faults) -> Vec<String> {
    let items = node.and_then(|node| value::list(node, "stages", "names", faults));
    let mut names: Vec<String> = Vec::new();
    for item in items.unwrap_or_default() {
        let Some(named) = value::name(item, "stages", faults) else {
            continue;
        };
        let edge = [FIRST, LAST].contains(&named.name.as_str());
        if !edge && !names.contains(&named.name) {
            names.push(named.name);
        }
    }
    if names.is_empty() {
        names = DEFAULT.map(String::from).to_vec();
    }
    names.insert(0, FIRST.into());
    names.push(LAST.into());
    names
}
