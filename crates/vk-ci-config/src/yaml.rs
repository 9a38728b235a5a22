//! YAML as GitLab reads it: a tree in which each node knows its place in the text.
//!
//! GitLab reads YAML 1.1 with Ruby's Psych: `yes` is a truth value, `010` is eight, and a merge key
//! overwrites what stands before it. The tree follows that, so that a file means here what it means
//! there; what would be a date or a time there is refused.

mod compose;
mod node;
mod scalar;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use compose::compose;
pub(crate) use node::{Entry, Map, Node, Size, Value};
pub(crate) use write::write;
