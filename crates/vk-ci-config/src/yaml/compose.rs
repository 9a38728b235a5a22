//! From the parser's events to the tree: aliases stand as copies, merge keys are merged.

mod key;
mod tag;

use std::collections::{BTreeSet, HashMap};

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::node::{Entry, Map, Node, Size, Value};
use super::scalar::{Plain, plain};
use crate::Position;
use crate::faults::Faults;
use crate::limit::{MAX_DEPTH, MAX_LIST, MAX_NODES, MAX_SCALAR_BYTES};
use key::{Key, KeyPlace, key_of, merge};
use tag::{core_tag, is_reference, reference};

/// Reads one document.
///
/// The first thing that makes a tree impossible ends it with a fault and nothing.
pub(crate) fn compose(text: &str, faults: &mut Faults) -> Option<Node> {
    let options = granit_parser::options! {
        block_scalar_eof_without_line_feed: true,
        disallow_directives: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut composer = Composer::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let result = event
            .map_err(|error| Stop::from(&error))
            .and_then(|(event, span)| {
                let start = span.tag_start().unwrap_or(span.start);
                composer.take(event, position(&start), position(&span.start))
            });
        if let Err(stop) = result {
            faults.add(stop.at, stop.what, stop.hint);
            return None;
        }
    }
    for (at, what, hint) in composer.wrong {
        faults.add(at, what, hint);
    }
    Some(composer.root.unwrap_or(Node {
        at: Position { line: 1, column: 1 },
        value: Value::Null,
    }))
}

fn position(marker: &Marker) -> Position {
    Position {
        line: marker.line(),
        column: marker.col().saturating_add(1),
    }
}

/// Why there is no tree.
struct Stop {
    at: Position,
    what: String,
    hint: &'static str,
}

impl From<&ScanError> for Stop {
    fn from(error: &ScanError) -> Self {
        Self {
            at: position(error.marker()),
            what: format!("this is not YAML: {}", error.info()),
            hint: "check quotes, brackets and indentation here and in the line before",
        }
    }
}

fn stop(at: Position, what: impl Into<String>, hint: &'static str) -> Stop {
    Stop {
        at,
        what: what.into(),
        hint,
    }
}

/// A collection whose end has not come.
struct Frame {
    at: Position,
    anchor: usize,
    kind: Open,
}

enum Open {
    List(Vec<Node>),
    Reference(Vec<Node>),
    Map {
        map: Map,
        /// Keys written in this mapping itself, not merged into it.
        own: BTreeSet<String>,
        key: Option<(Position, Key)>,
    },
}

#[derive(Default)]
struct Composer {
    open: Vec<Frame>,
    root: Option<Node>,
    anchors: HashMap<usize, (Node, Size)>,
    documents: usize,
    nodes: usize,
    bytes: usize,
    /// What is wrong but does not end the reading.
    wrong: Vec<(Position, String, &'static str)>,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, at: Position, content: Position) -> Result<(), Stop> {
        match event {
            Event::DocumentStart(..) => self.document(at),
            Event::Scalar(text, style, anchor, tag) => {
                let value = self.scalar(at, &text, style, tag.as_deref())?;
                self.count(
                    at,
                    Size {
                        nodes: 1,
                        bytes: text.len(),
                        depth: 0,
                    },
                )?;
                if let Some(mut key) = self.expects_key() {
                    return key_of(&mut key, at, &value, style, tag.is_some());
                }
                self.node(at, Node { at: content, value }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                let list = Vec::new();
                let kind = match tag.as_deref() {
                    Some(tag) if is_reference(tag) => Open::Reference(list),
                    tag => {
                        core_tag(at, tag, "seq")?;
                        Open::List(list)
                    }
                };
                self.start(at, content, anchor, kind)
            }
            Event::MappingStart(_, anchor, tag) => {
                core_tag(at, tag.as_deref(), "map")?;
                let kind = Open::Map {
                    map: Map::default(),
                    own: BTreeSet::new(),
                    key: None,
                };
                self.start(at, content, anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(at),
            Event::Alias(id) => self.alias(at, id),
            _ => Ok(()),
        }
    }

    fn document(&mut self, at: Position) -> Result<(), Stop> {
        self.documents = self.documents.saturating_add(1);
        if self.documents > 1 {
            let what = "a second document begins here";
            return Err(stop(
                at,
                what,
                "give one; a header with `spec:` is not supported",
            ));
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        at: Position,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
    ) -> Result<Value, Stop> {
        let is_text = core_tag(at, tag, "str")? || style != ScalarStyle::Plain;
        if is_text {
            return Ok(Value::Text(text.into()));
        }
        match plain(text) {
            Plain::Is(value) => Ok(value),
            Plain::Odd(what) => {
                let what = format!("GitLab reads `{}` as {what}", short(text));
                self.wrong.push((at, what, "put it into quotes"));
                self.wrong.truncate(MAX_LIST);
                Ok(Value::Text(text.into()))
            }
        }
    }

    fn count(&mut self, at: Position, size: Size) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(size.nodes);
        self.bytes = self.bytes.saturating_add(size.bytes);
        if self.nodes > MAX_NODES || self.bytes > MAX_SCALAR_BYTES {
            let what = format!(
                "with all aliases written out there are more than {MAX_NODES} values, or more \
                 than {MAX_SCALAR_BYTES} bytes of text"
            );
            return Err(stop(at, what, "use fewer aliases of large parts"));
        }
        if self.open.len().saturating_add(size.depth) > MAX_DEPTH {
            let what = format!("lists and mappings lie more than {MAX_DEPTH} deep");
            return Err(stop(at, what, "nest them less"));
        }
        Ok(())
    }

    /// The place of the next key, where one must come next.
    fn expects_key(&mut self) -> Option<KeyPlace<'_>> {
        match self.open.last_mut().map(|frame| &mut frame.kind) {
            Some(Open::Map { own, key, .. }) if key.is_none() => Some(KeyPlace { own, key }),
            _ => None,
        }
    }

    fn start(
        &mut self,
        at: Position,
        content: Position,
        anchor: usize,
        kind: Open,
    ) -> Result<(), Stop> {
        if self.expects_key().is_some() {
            return Err(stop(
                at,
                "a list or a mapping stands as a key",
                "use text as the key",
            ));
        }
        self.open.push(Frame {
            at: content,
            anchor,
            kind,
        });
        self.count(
            at,
            Size {
                nodes: 1,
                bytes: 0,
                depth: 0,
            },
        )
    }

    fn end(&mut self, at: Position) -> Result<(), Stop> {
        let Some(Frame {
            at: begun,
            anchor,
            kind,
        }) = self.open.pop()
        else {
            return Err(stop(
                at,
                "a collection ends that never began",
                "check the brackets",
            ));
        };
        let value = match kind {
            Open::List(list) => Value::List(list),
            Open::Reference(path) => reference(begun, path)?,
            Open::Map { map, .. } => Value::Map(map),
        };
        self.node(begun, Node { at: begun, value }, anchor)
    }

    fn alias(&mut self, at: Position, id: usize) -> Result<(), Stop> {
        let Some((node, size)) = self.anchors.get(&id).cloned() else {
            return Err(stop(
                at,
                "an alias stands inside what it names",
                "remove it",
            ));
        };
        self.count(at, size)?;
        if let Some(mut key) = self.expects_key() {
            return key_of(&mut key, at, &node.value, ScalarStyle::SingleQuoted, true);
        }
        self.place(at, node)
    }

    /// A whole node: kept under its anchor, put where it belongs.
    fn node(&mut self, at: Position, node: Node, anchor: usize) -> Result<(), Stop> {
        if anchor != 0 {
            let size = node.size();
            self.count(at, size)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        self.place(at, node)
    }

    fn place(&mut self, at: Position, node: Node) -> Result<(), Stop> {
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let length = match &mut frame.kind {
            Open::List(list) | Open::Reference(list) => {
                list.push(node);
                list.len()
            }
            Open::Map { map, key, .. } => {
                match key.take() {
                    Some((at, Key::Named(key))) => map.set(Entry {
                        key,
                        at,
                        value: node,
                    }),
                    Some((_, Key::Merge)) => merge(at, map, node)?,
                    None => {}
                }
                map.len()
            }
        };
        if length > MAX_LIST {
            let what = format!("this has more than {MAX_LIST} entries");
            return Err(stop(frame.at, what, "split it"));
        }
        Ok(())
    }
}

/// A text as an error shows it.
fn short(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
