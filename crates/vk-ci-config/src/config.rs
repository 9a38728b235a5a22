//! The file as it was read.

use crate::{ConfigError, Context, Fault, Pipeline};

/// A checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    file: String,
}

impl Config {
    /// Reads and checks the text of a file; `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let _ = text;
        Err(not_built(file))
    }

    /// Decides all rules.
    ///
    /// # Errors
    ///
    /// No job is left, or a job needs one that is left out.
    pub fn pipeline(&self, context: &Context) -> Result<Pipeline, ConfigError> {
        let _ = context;
        Err(not_built(&self.file))
    }

    /// The configuration as it stands after anchors, references, `extends` and `default`, as YAML
    /// that reads as the same configuration again.
    pub fn merged(&self) -> String {
        String::new()
    }
}

fn not_built(file: &str) -> ConfigError {
    let fault = Fault {
        at: None,
        job: None,
        what: "reading it is not built yet".into(),
        hint: "give the pipeline as JSON".into(),
    };
    ConfigError {
        file: file.into(),
        faults: vec![fault],
        more: 0,
    }
}
