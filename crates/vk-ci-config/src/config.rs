//! The file as it was read.

use crate::faults::Faults;
use crate::limit::MAX_FILE;
use crate::model::Model;
use crate::yaml::{Entry, Map, Node, Value};
use crate::{ConfigError, Context, Pipeline, Position, decide, expand, graph, read, yaml};

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    file: String,
    merged: Map,
    model: Model,
}

impl Config {
    /// Reads and checks the text of a file; `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, as far as one fault does not hide another.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let mut faults = Faults::default();
        let read = parse(text, &mut faults);
        match read {
            Some((merged, model)) => faults.or(file, ()).map(|()| Self {
                file: file.into(),
                merged,
                model,
            }),
            None => Err(faults.into_error(file)),
        }
    }

    /// Decides all rules.
    ///
    /// # Errors
    ///
    /// The rules leave out the pipeline, all its jobs, or a job that another one needs; or a rule
    /// cannot be decided.
    pub fn pipeline(&self, context: &Context) -> Result<Pipeline, ConfigError> {
        decide::decide(&self.file, &self.model, context)
    }

    /// The configuration as it stands after anchors, references, `extends` and `default`, as YAML
    /// that reads as the same configuration again. Hidden jobs are left out.
    pub fn merged(&self) -> String {
        yaml::write(&self.merged)
    }
}

fn parse(text: &str, faults: &mut Faults) -> Option<(Map, Model)> {
    if text.len() > MAX_FILE {
        let what = format!("the file has more than {MAX_FILE} bytes");
        faults.add(None, what, "split the pipeline");
        return None;
    }
    let root = yaml::compose(text, faults)?;
    let root = expand::expand(root, faults)?;
    let layout = expand::lay_out(root, faults);
    let model = read::read(&layout, faults);
    graph::check(&model, faults);
    let mut merged = Map::default();
    merged.set(stages(&model));
    let globals = layout.globals.into_iter();
    let globals = globals.filter(|entry| entry.key != "stages");
    globals
        .chain(layout.jobs)
        .for_each(|entry| merged.set(entry));
    Some((merged, model))
}

/// `stages` written out.
fn stages(model: &Model) -> Entry {
    let at = Position { line: 1, column: 1 };
    let names = model.stages.iter().map(|name| Node::text(at, name));
    Entry {
        key: "stages".into(),
        at,
        value: Node {
            at,
            value: Value::List(names.collect()),
        },
    }
}
