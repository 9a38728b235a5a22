//! From the mapping to the model: every keyword is known and has the right kind of value, or it is
//! a fault with its place.

mod artifacts;
mod cache;
mod duration;
mod job;
mod needs;
mod retry;
mod rules;
mod stages;
mod value;
mod variables;

use crate::expand::Layout;
use crate::expression::Patterns;
use crate::faults::Faults;
use crate::model::Model;
use crate::yaml::Value;

/// Reads the parts of a file.
pub(crate) fn read(layout: &Layout, faults: &mut Faults) -> Model {
    let mut patterns = Patterns::default();
    let mut model = Model {
        stages: stages::stages(layout.globals.get("stages"), faults),
        ..Model::default()
    };
    if let Some(node) = layout.globals.get("variables") {
        model.variables = variables::global(node, faults);
    }
    if let Some(node) = layout.globals.get("workflow") {
        model.workflow = rules::workflow(node, &mut patterns, faults);
    }
    for entry in layout.jobs.iter() {
        faults.enter(Some(&entry.key));
        if let Value::Map(map) = &entry.value.value {
            model.jobs.push(job::job(entry, map, &mut patterns, faults));
        }
        faults.enter(None);
    }
    model
}
