//! A variable as it is given: with a project, a pipeline or a job.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A variable: its value, or a table with its properties.
#[derive(Clone, Deserialize, Serialize)]
#[serde(untagged)]
pub enum VariableSpec {
    /// Only a value.
    Plain(String),
    /// Value and properties.
    Full(Variable),
}

/// A variable with all its properties.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its value.
    pub value: String,
    /// Its value must never stand in a trace.
    #[serde(default)]
    pub masked: bool,
    /// Given to the job as a file.
    #[serde(default)]
    pub file: bool,
    /// References in it are not expanded.
    #[serde(default)]
    pub raw: bool,
    /// Only for protected refs; the stand-in's projects have none, so such a variable is withheld.
    #[serde(default)]
    pub protected: bool,
}

/// Any variable may be a secret: none is shown.
impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variable")
            .field("masked", &self.masked)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for VariableSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.full().fmt(f)
    }
}

impl VariableSpec {
    /// The full form of either spelling.
    pub fn full(&self) -> Variable {
        match self {
            Self::Plain(value) => Variable {
                value: value.clone(),
                ..Variable::default()
            },
            Self::Full(variable) => variable.clone(),
        }
    }
}
