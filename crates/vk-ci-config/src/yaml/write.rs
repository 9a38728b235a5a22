//! From the tree to text that reads as the same tree.

use super::node::{Map, Node, Value};
use super::scalar::{Plain, plain};

/// Writes a mapping in block style, an empty line between its entries where they are mappings.
pub(crate) fn write(root: &Map) -> String {
    let mut out = String::new();
    for entry in root.iter() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&scalar(&entry.key, Place::Key));
        out.push(':');
        value(&mut out, &entry.value, 0);
    }
    out
}

/// Writes what follows a key's colon or a list's dash, and the end of the line.
fn value(out: &mut String, node: &Node, indent: usize) {
    match &node.value {
        Value::Map(map) if map.len() > 0 => {
            out.push('\n');
            entries(out, map, indent.saturating_add(2), false);
        }
        Value::List(list) if !list.is_empty() => {
            out.push('\n');
            items(out, list, indent.saturating_add(2), false);
        }
        _ => {
            out.push(' ');
            leaf(out, node, indent);
        }
    }
}

/// Writes a mapping's entries; `begun`: the first stands on a line that is already indented.
fn entries(out: &mut String, map: &Map, indent: usize, mut begun: bool) {
    for entry in map.iter() {
        if !std::mem::take(&mut begun) {
            spaces(out, indent);
        }
        out.push_str(&scalar(&entry.key, Place::Key));
        out.push(':');
        value(out, &entry.value, indent);
    }
}

/// Writes a list's items, likewise.
fn items(out: &mut String, list: &[Node], indent: usize, mut begun: bool) {
    for item in list {
        if !std::mem::take(&mut begun) {
            spaces(out, indent);
        }
        out.push_str("- ");
        let inner = indent.saturating_add(2);
        match &item.value {
            Value::Map(map) if map.len() > 0 => entries(out, map, inner, true),
            Value::List(list) if !list.is_empty() => items(out, list, inner, true),
            _ => leaf(out, item, indent),
        }
    }
}

fn spaces(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}

/// Writes what has no lines of its own below it, but a text of several lines.
fn leaf(out: &mut String, node: &Node, indent: usize) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) | Value::Float(number) => out.push_str(number),
        Value::List(_) => out.push_str("[]"),
        Value::Map(_) => out.push_str("{}"),
        Value::Reference(path) => {
            let names: Vec<String> = path.iter().map(|name| double_quoted(name)).collect();
            out.push_str("!reference [");
            out.push_str(&names.join(", "));
            out.push(']');
        }
        Value::Text(text) if is_block(text) => return block(out, text, indent.saturating_add(2)),
        Value::Text(text) => out.push_str(&scalar(text, Place::Value)),
    }
    out.push('\n');
}

/// Whether a text of several lines can stand as it is.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    text.contains('\n')
        && !body.ends_with('\n')
        && !body.is_empty()
        && !body.starts_with([' ', '\t', '\n'])
        && body
            .chars()
            .all(|c| c == '\n' || c == '\t' || is_plain_char(c))
        && body
            .lines()
            .all(|line| line.is_empty() || !line.trim().is_empty())
}

fn block(out: &mut String, text: &str, indent: usize) {
    out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            spaces(out, indent);
            out.push_str(line);
        }
        out.push('\n');
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Value,
}

/// A text on one line: as it is, in single quotes or in double quotes.
fn scalar(text: &str, place: Place) -> String {
    if is_bare(text, place) {
        return text.into();
    }
    if text.chars().all(is_plain_char) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    double_quoted(text)
}

/// Characters that every reader takes as they are. Others are escaped: NEL and the like are line
/// breaks to some.
fn is_plain_char(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202f}'..='\u{d7ff}')
        || matches!(c, '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

/// Whether a text needs no quotes.
fn is_bare(text: &str, place: Place) -> bool {
    let begins = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '$');
    let fits = |c: char| c.is_ascii_alphanumeric() || " _./$=+-@^~();&|<>*\"'\\!?,%:".contains(c);
    let inner = match place {
        Place::Key => !text.contains([':', '?']),
        Place::Value => !text.contains(": ") && !text.ends_with(':'),
    };
    text.starts_with(begins)
        && !text.ends_with(' ')
        && !text.starts_with("...")
        && text.chars().all(fits)
        && inner
        && plain(text) == Plain::Is(Value::Text(text.into()))
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_plain_char(c) => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
