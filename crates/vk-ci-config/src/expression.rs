//! The `if:` of a rule: GitLab's expressions over variables.

mod evaluate;
mod lexer;
mod parser;
mod pattern;
mod translate;

#[cfg(test)]
mod tests;

pub(crate) use evaluate::Lookup;
pub(crate) use parser::Expression;
pub(crate) use pattern::Patterns;

/// What is wrong with an expression, and at which character (from 1), where that is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Where.
    pub(crate) at: Option<usize>,
    /// What.
    pub(crate) what: String,
    /// What to do.
    pub(crate) hint: &'static str,
}
