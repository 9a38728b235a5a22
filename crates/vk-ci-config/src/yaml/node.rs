//! The tree.

use crate::Position;

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Where it begins; in a copy (of an alias, a reference, what is extended) where it was written.
    pub(crate) at: Position,
    /// What it is.
    pub(crate) value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing, or `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number, as Ruby would write it.
    Int(String),
    /// Another number, as Ruby would write it.
    Float(String),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping.
    Map(Map),
    /// `!reference [job, keyword, …]`.
    Reference(Vec<String>),
}

/// A mapping in the order of the text; no key stands twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Map(Vec<Entry>);

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: String,
    /// Where the key stands.
    pub(crate) at: Position,
    /// The value.
    pub(crate) value: Node,
}

impl Map {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// A key's entry.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// Sets a key; one that is there keeps its place in the order.
    pub(crate) fn set(&mut self, entry: Entry) {
        match self.0.iter_mut().find(|known| known.key == entry.key) {
            Some(known) => *known = entry,
            None => self.0.push(entry),
        }
    }

    /// The entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// The entries in order, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut()
    }

    /// Keeps the entries of which `keep` says so.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.0.retain(keep);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl IntoIterator for Map {
    type Item = Entry;
    type IntoIter = std::vec::IntoIter<Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// How large a tree is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    /// Nodes, keys included.
    pub(crate) nodes: usize,
    /// Bytes of keys and scalars.
    pub(crate) bytes: usize,
    /// Levels of lists and mappings.
    pub(crate) depth: usize,
}

impl Size {
    /// What `other` adds when it lies in this one.
    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.depth = self.depth.max(other.depth.saturating_add(1));
    }
}

impl Node {
    /// A text.
    pub(crate) fn text(at: Position, text: impl Into<String>) -> Self {
        let value = Value::Text(text.into());
        Self { at, value }
    }

    /// What it is, for an error.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Reference(_) => "a reference",
        }
    }

    /// How large it is. The depth of a tree is bounded while it is composed.
    pub(crate) fn size(&self) -> Size {
        let mut size = Size {
            nodes: 1,
            ..Size::default()
        };
        match &self.value {
            Value::Null | Value::Bool(_) => {}
            Value::Int(text) | Value::Float(text) | Value::Text(text) => size.bytes = text.len(),
            Value::Reference(path) => {
                size.nodes = size.nodes.saturating_add(path.len());
                size.bytes = path.iter().map(String::len).sum();
            }
            Value::List(list) => list.iter().for_each(|item| size.add(item.size())),
            Value::Map(map) => {
                for entry in map.iter() {
                    size.nodes = size.nodes.saturating_add(1);
                    size.bytes = size.bytes.saturating_add(entry.key.len());
                    size.add(entry.value.size());
                }
            }
        }
        size
    }
}
