//! What an expression says of some variables.

use super::parser::{Expression, Join};
use super::pattern::{Pattern, Patterns};

/// Why an expression cannot be decided. It holds no value of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undecided(pub(crate) String);

/// Where the values of variables come from.
pub(crate) trait Lookup {
    /// A variable's value; nothing where there is none.
    fn value(&self, name: &str) -> Option<&str>;
}

/// A value.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Null,
    Bool(bool),
    Text(&'a str),
    Pattern(&'a Pattern),
}

impl Value<'_> {
    /// Whether `&&` and `||` take it for true: an empty text is.
    fn counts(&self) -> bool {
        !matches!(self, Self::Null | Self::Bool(false))
    }

    fn text(&self) -> &str {
        match self {
            Self::Null | Self::Pattern(_) => "",
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
            Self::Text(text) => text,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => one == other,
            _ => false,
        }
    }
}

impl Expression {
    /// Whether the expression holds: a text with nothing but white space in it does not.
    ///
    /// # Errors
    ///
    /// A variable's value is used as a regular expression and is none.
    pub(crate) fn holds(
        &self,
        variables: &dyn Lookup,
        patterns: &mut Patterns,
    ) -> Result<bool, Undecided> {
        Ok(match self.value(variables, patterns)? {
            Value::Null => false,
            Value::Bool(value) => value,
            Value::Text(text) => !text.trim().is_empty(),
            Value::Pattern(_) => true,
        })
    }

    fn value<'a>(
        &'a self,
        variables: &'a dyn Lookup,
        patterns: &mut Patterns,
    ) -> Result<Value<'a>, Undecided> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::Text(text),
            Self::Pattern(pattern) => Value::Pattern(pattern),
            Self::Variable(name) => variables.value(name).map_or(Value::Null, Value::Text),
            Self::Joined(left, join, right) => {
                return joined(left, *join, right, variables, patterns);
            }
        })
    }
}

fn joined<'a>(
    left: &'a Expression,
    join: Join,
    right: &'a Expression,
    variables: &'a dyn Lookup,
    patterns: &mut Patterns,
) -> Result<Value<'a>, Undecided> {
    let value = left.value(variables, patterns)?;
    match join {
        Join::And if !value.counts() => Ok(value),
        Join::Or if value.counts() => Ok(value),
        Join::And | Join::Or => right.value(variables, patterns),
        Join::Equals => Ok(Value::Bool(
            value.equals(&right.value(variables, patterns)?),
        )),
        Join::NotEquals => Ok(Value::Bool(
            !value.equals(&right.value(variables, patterns)?),
        )),
        Join::Matches => Ok(Value::Bool(matches(&value, right, variables, patterns)?)),
        Join::NotMatches => Ok(Value::Bool(!matches(&value, right, variables, patterns)?)),
    }
}

/// Whether what stands right is found in what stands left. A text that is no `/pattern/` is looked
/// at the other way round, as in GitLab: whether the left one is a part of it.
fn matches(
    left: &Value<'_>,
    right: &Expression,
    variables: &dyn Lookup,
    patterns: &mut Patterns,
) -> Result<bool, Undecided> {
    let text = left.text();
    match right.value(variables, patterns)? {
        Value::Null => Ok(false),
        Value::Pattern(pattern) => Ok(pattern.is_in(text)),
        Value::Bool(_) => Err(Undecided(
            "a condition stands right of =~ or !~, where a regular expression must stand".into(),
        )),
        Value::Text(other) => match patterns.of_text(other) {
            None => Ok(other.contains(text)),
            Some(pattern) => pattern.map(|pattern| pattern.is_in(text)).map_err(|why| {
                Undecided(format!("{} is no regular expression: {why}", named(right)))
            }),
        },
    }
}

/// An operand for an error; a variable's value may be a secret.
fn named(operand: &Expression) -> String {
    match operand {
        Expression::Variable(name) => format!("the value of ${name}"),
        _ => "what stands right of =~ or !~".into(),
    }
}
