//! Which keys of the file are keywords, which are jobs; and what each job takes from `default`.

use super::flatten::flatten;
use crate::faults::Faults;
use crate::limit::{MAX_JOBS, MAX_NAME};
use crate::yaml::{Entry, Map, Node, Value};

/// Keywords that jobs take from `default`, in the order in which they are written.
const DEFAULTS: [&str; 8] = [
    "image",
    "tags",
    "before_script",
    "after_script",
    "artifacts",
    "cache",
    "hooks",
    "retry",
];
/// Those of them that may also stand at the top of the file.
const AT_TOP: [&str; 4] = ["image", "before_script", "after_script", "cache"];
/// What else the top of the file may have.
const GLOBALS: [&str; 4] = ["stages", "variables", "workflow", "default"];
/// What GitLab knows there and this does not.
const REFUSED: [&str; 5] = ["include", "services", "spec", "types", "pages"];
/// Keywords whose lists may lie in lists.
const NESTED: [&str; 4] = ["before_script", "script", "after_script", "rules"];

/// The parts of a file.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// `stages`, `variables`, `workflow`.
    pub(crate) globals: Map,
    /// The jobs, hidden ones left out, with what they take from `default`.
    pub(crate) jobs: Map,
}

/// Whether a key at the top of the file is a keyword and no job.
pub(crate) fn is_global(key: &str) -> bool {
    GLOBALS.contains(&key) || AT_TOP.contains(&key) || REFUSED.contains(&key)
}

/// Takes a file apart.
pub(crate) fn lay_out(root: Map, faults: &mut Faults) -> Layout {
    let mut layout = Layout::default();
    let defaults = defaults(&root, faults);
    for entry in root {
        let key = entry.key.as_str();
        if REFUSED.contains(&key) {
            refuse(&entry, faults);
        } else if AT_TOP.contains(&key) || key == "default" {
            // taken by `defaults`
        } else if GLOBALS.contains(&key) {
            global(entry, &mut layout.globals, faults);
        } else if !key.starts_with('.') {
            faults.enter(Some(&entry.key));
            if let Some(job) = job(entry, &defaults, faults) {
                layout.jobs.set(job);
            }
            faults.enter(None);
        }
    }
    if layout.jobs.len() > MAX_JOBS {
        let what = format!("the file has more than {MAX_JOBS} jobs");
        faults.add(None, what, "split the pipeline");
        let mut left = MAX_JOBS;
        layout.jobs.retain(|_| {
            left = left.saturating_sub(1);
            left > 0
        });
    }
    layout
}

fn refuse(entry: &Entry, faults: &mut Faults) {
    let (what, hint) = match entry.key.as_str() {
        "pages" => (
            "a job `pages` publishes a site, which is not supported here".to_owned(),
            "give the job another name",
        ),
        key => (
            format!("`{key}` is not supported here"),
            "remove it, or write out what it stands for",
        ),
    };
    faults.add(entry.at, what, hint);
}

fn global(mut entry: Entry, globals: &mut Map, faults: &mut Faults) {
    if entry.value.value == Value::Null {
        return;
    }
    if let ("workflow", Value::Map(workflow)) = (entry.key.as_str(), &mut entry.value.value) {
        for inner in workflow.iter_mut().filter(|inner| inner.key == "rules") {
            flatten(&mut inner.value, "workflow:rules", faults);
        }
    }
    globals.set(entry);
}

/// What `default` and the old keywords at the top of the file give to every job.
fn defaults(root: &Map, faults: &mut Faults) -> Map {
    let mut defaults = Map::default();
    match root.entry("default").map(|entry| &entry.value) {
        None => {}
        Some(node) => match &node.value {
            Value::Null => {}
            Value::Map(map) => map
                .iter()
                .for_each(|entry| default(entry, &mut defaults, faults)),
            _ => {
                let what = format!("`default` is {}, not a mapping", node.kind());
                faults.add(node.at, what, "give it keywords of a job");
            }
        },
    }
    for key in AT_TOP {
        let Some(entry) = root
            .entry(key)
            .filter(|entry| entry.value.value != Value::Null)
        else {
            continue;
        };
        if defaults.get(key).is_some() {
            let what = format!("`{key}` stands at the top of the file and in `default`");
            faults.add(entry.at, what, "keep the one in `default`");
            continue;
        }
        default(entry, &mut defaults, faults);
    }
    defaults
}

fn default(entry: &Entry, defaults: &mut Map, faults: &mut Faults) {
    if entry.key == "timeout" {
        let what = "GitLab gives no job the `timeout` of `default`";
        faults.add(entry.at, what, "give it to the jobs");
    } else if !DEFAULTS.contains(&entry.key.as_str()) {
        let what = format!("`{}` is not supported in `default`", entry.key);
        let hint = format!("it takes {}", DEFAULTS.join(", "));
        faults.add(entry.at, what, hint);
    } else if entry.value.value != Value::Null {
        let mut entry = entry.clone();
        if NESTED.contains(&entry.key.as_str()) {
            flatten(&mut entry.value, &entry.key, faults);
        }
        defaults.set(entry);
    }
}

fn job(mut entry: Entry, defaults: &Map, faults: &mut Faults) -> Option<Entry> {
    if entry.key.is_empty() || entry.key.len() > MAX_NAME {
        let what = format!("a job's name is empty or longer than {MAX_NAME} bytes");
        faults.add(entry.at, what, "rename it");
    }
    let Node { at, value } = &mut entry.value;
    let Value::Map(map) = value else {
        let what = "this is neither a keyword nor a job with keywords of its own";
        faults.add(
            *at,
            what,
            "give it a `script`, or begin its name with `.` to hide it",
        );
        return None;
    };
    map.retain(|entry| entry.value.value != Value::Null);
    for inner in map
        .iter_mut()
        .filter(|inner| NESTED.contains(&inner.key.as_str()))
    {
        flatten(&mut inner.value, &inner.key, faults);
    }
    for key in DEFAULTS {
        if let (None, Some(default)) = (map.get(key), defaults.entry(key)) {
            map.set(default.clone());
        }
    }
    Some(entry)
}
