//! `!reference [job, keyword, …]`: what stands there, itself written out.

use super::budget::Budget;
use crate::Position;
use crate::faults::Faults;
use crate::limit::MAX_NESTED;
use crate::yaml::{Map, Node, Value};

/// Writes out every reference.
pub(crate) fn resolve(root: &Map, faults: &mut Faults) -> Option<Map> {
    let mut resolver = Resolver {
        root,
        budget: Budget::default(),
        faults,
    };
    let mut result = root.clone();
    let mut whole = true;
    for entry in result.iter_mut() {
        let is_job = !super::is_global(&entry.key);
        resolver.faults.enter(is_job.then_some(entry.key.as_str()));
        whole &= resolver.node(&mut entry.value, 0);
    }
    faults.enter(None);
    whole.then_some(result)
}

struct Resolver<'a> {
    root: &'a Map,
    budget: Budget,
    faults: &'a mut Faults,
}

impl Resolver<'_> {
    /// Writes out what is in a node; false when it cannot be done.
    fn node(&mut self, node: &mut Node, level: usize) -> bool {
        match &mut node.value {
            Value::Reference(path) => {
                let path = std::mem::take(path);
                match self.target(node.at, &path, level.saturating_add(1)) {
                    Some(found) => *node = found,
                    None => return false,
                }
                true
            }
            Value::List(list) => {
                let done = list.iter_mut().map(|item| self.node(item, level));
                done.filter(|done| !done).count() == 0
            }
            Value::Map(map) => {
                let done = map
                    .iter_mut()
                    .map(|entry| self.node(&mut entry.value, level));
                done.filter(|done| !done).count() == 0
            }
            _ => true,
        }
    }

    fn target(&mut self, at: Position, path: &[String], level: usize) -> Option<Node> {
        let shown = || format!("`!reference [{}]`", path.join(", "));
        if level > MAX_NESTED {
            let what = format!("{} leads over more than {MAX_NESTED} references", shown());
            self.faults.add(
                at,
                what,
                "it may come back to itself: remove one of the links",
            );
            return None;
        }
        let Some(found) = self.find(path) else {
            let what = format!("{} leads nowhere", shown());
            self.faults.add(
                at,
                what,
                "name a job of this file and a keyword that it has",
            );
            return None;
        };
        let mut found = found.clone();
        if !self.budget.take(found.size(), at, self.faults) {
            return None;
        }
        self.node(&mut found, level).then_some(found)
    }

    fn find(&self, path: &[String]) -> Option<&Node> {
        let (first, rest) = path.split_first()?;
        let mut node = self.root.get(first)?;
        for name in rest {
            let Value::Map(map) = &node.value else {
                return None;
            };
            node = map.get(name)?;
        }
        let empty = matches!(node.value, Value::Null | Value::Bool(false));
        (!empty).then_some(node)
    }
}
