//! `extends`: mappings are merged deeply, everything else is replaced.

use std::collections::HashMap;

use super::budget::Budget;
use crate::Position;
use crate::faults::Faults;
use crate::limit::MAX_EXTENDS;
use crate::yaml::{Entry, Map, Node, Value};

const KEY: &str = "extends";

/// Writes out every `extends`.
pub(crate) fn extend(root: &Map, faults: &mut Faults) -> Option<Map> {
    let mut extender = Extender {
        root,
        done: HashMap::new(),
        chain: Vec::new(),
        budget: Budget::default(),
        faults,
    };
    let mut result = Map::default();
    let mut whole = true;
    for entry in root.iter() {
        let Value::Map(_) = &entry.value.value else {
            result.set(entry.clone());
            continue;
        };
        match extender.extended(&entry.key) {
            Some((map, _)) => result.set(Entry {
                value: Node {
                    at: entry.value.at,
                    value: Value::Map(map),
                },
                ..entry.clone()
            }),
            None => whole = false,
        }
    }
    whole.then_some(result)
}

struct Extender<'a> {
    root: &'a Map,
    /// Finished ones, and how many levels each has; nothing for one that is wrong.
    done: HashMap<&'a str, Option<(Map, usize)>>,
    /// Those that are being extended, from the outermost.
    chain: Vec<&'a str>,
    budget: Budget,
    faults: &'a mut Faults,
}

impl<'a> Extender<'a> {
    /// A mapping of the file with what it extends, and its levels.
    fn extended(&mut self, name: &'a str) -> Option<(Map, usize)> {
        if let Some(done) = self.done.get(name) {
            return done.clone();
        }
        self.chain.push(name);
        let result = self.extend(name);
        self.chain.pop();
        self.done.insert(name, result.clone());
        result
    }

    fn extend(&mut self, name: &'a str) -> Option<(Map, usize)> {
        let entry = self.root.entry(name)?;
        let Value::Map(own) = &entry.value.value else {
            return None;
        };
        let Some(extends) = own.get(KEY).filter(|node| node.value != Value::Null) else {
            let mut own = own.clone();
            own.retain(|entry| entry.key != KEY);
            return Some((own, 1));
        };
        self.faults.enter(Some(name));
        let names = self.names(extends)?;
        let mut result = Map::default();
        let mut levels = 0;
        for (at, base) in names {
            let (map, depth) = self.base(at, base)?;
            levels = levels.max(depth);
            self.faults.enter(Some(name));
            result = merged(result, map);
        }
        let mut own = own.clone();
        own.retain(|entry| entry.key != KEY);
        let value = Value::Map(merged(result, own));
        let at = entry.value.at;
        let node = Node { at, value };
        if levels >= MAX_EXTENDS {
            self.too_deep(extends.at);
            return None;
        }
        let fits = self.budget.take(node.size(), at, self.faults);
        self.faults.enter(None);
        match node.value {
            Value::Map(map) if fits => Some((map, levels.saturating_add(1))),
            _ => None,
        }
    }

    fn names(&mut self, extends: &'a Node) -> Option<Vec<(Position, &'a str)>> {
        let nodes = match &extends.value {
            Value::List(list) => list.as_slice(),
            _ => std::slice::from_ref(extends),
        };
        let names = nodes.iter().map(|node| match &node.value {
            Value::Text(name) => Ok((node.at, name.as_str())),
            _ => Err(node),
        });
        match names.collect::<Result<Vec<_>, _>>() {
            Ok(names) => Some(names),
            Err(node) => {
                let what = format!("`extends` names {}", node.kind());
                let hint = "name a job, or list the names of several";
                self.faults.add(node.at, what, hint);
                None
            }
        }
    }

    fn base(&mut self, at: Position, name: &'a str) -> Option<(Map, usize)> {
        if self.chain.contains(&name) {
            let what = format!("`extends` comes back to `{name}`");
            self.faults
                .add(at, what, "remove one of the links of the circle");
            return None;
        }
        if self.chain.len() >= MAX_EXTENDS {
            self.too_deep(at);
            return None;
        }
        match self.root.get(name).map(|node| &node.value) {
            Some(Value::Map(_)) => self.extended(name),
            found => {
                let what = match found {
                    None => format!("it extends `{name}`, which is not in the file"),
                    Some(_) => format!("it extends `{name}`, which is not a mapping"),
                };
                self.faults
                    .add(at, what, "name a job of this file, hidden ones included");
                None
            }
        }
    }

    fn too_deep(&mut self, at: Position) {
        let what = format!("`extends` goes over more than {MAX_EXTENDS} levels");
        self.faults.add(at, what, "extend fewer jobs in a row");
    }
}

/// `over` on top of `base`.
fn merged(mut base: Map, over: Map) -> Map {
    for entry in over {
        let entry = match (
            base.get(&entry.key).map(|node| &node.value),
            entry.value.value,
        ) {
            (Some(Value::Map(below)), Value::Map(above)) => Entry {
                value: Node {
                    at: entry.value.at,
                    value: Value::Map(merged(below.clone(), above)),
                },
                key: entry.key,
                at: entry.at,
            },
            (_, value) => Entry {
                value: Node {
                    at: entry.value.at,
                    value,
                },
                key: entry.key,
                at: entry.at,
            },
        };
        base.set(entry);
    }
    base
}
