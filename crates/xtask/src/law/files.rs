//! Rules about files as such: their length, their names, and what no text of the project may hold.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Breach;
use crate::source;

/// A file of more lines has more than one subject.
const MOST_LINES: usize = 600;

/// Names that say nothing of a subject.
const EMPTY_NAMES: [&str; 9] = [
    "utils", "util", "common", "helpers", "helper", "manager", "managers", "misc", "shared",
];

/// Folders that exist on the machine of whoever builds, and nowhere else.
const MACHINE_FOLDERS: [&str; 2] = ["work", "root"];

/// Checks every file.
pub(crate) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Breach>> {
    let mut breaches = Vec::new();
    for file in files {
        let path = root.join(file);
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        // What is not text is a fixture.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        breaches.extend(name(file));
        breaches.extend(length(file, &text));
        if !is_data(file) {
            breaches.extend(machine_paths(file, &text));
        }
    }
    Ok(breaches)
}

/// Recorded or generated data: paths in it are its own.
fn is_data(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == "Cargo.lock")
        || file.components().any(|part| part.as_os_str() == "golden")
}

fn name(file: &Path) -> Option<Breach> {
    let module = file.with_extension("");
    let empty = module
        .iter()
        .find(|part| EMPTY_NAMES.iter().any(|name| part == name))?;
    let what = format!("the name {empty:?} says nothing: name it after its subject");
    Some(Breach::in_file(file, what))
}

fn length(file: &Path, text: &str) -> Option<Breach> {
    let lines = text.lines().count();
    let too_long = source::is_rust(file) && lines > MOST_LINES;
    too_long.then(|| {
        let what = format!("{lines} lines, of at most {MOST_LINES}: cut it by subject");
        Breach::in_file(file, what)
    })
}

fn machine_paths(file: &Path, text: &str) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for folder in MACHINE_FOLDERS {
            if names_folder(line, folder) {
                let what = format!("/{folder}/ is a folder of one machine: name it by a setting");
                breaches.push(Breach::at(file, index + 1, what));
            }
        }
    }
    breaches
}

/// Whether a line holds the absolute path of a top folder, or of something below it.
fn names_folder(line: &str, folder: &str) -> bool {
    let needle = format!("/{folder}/");
    line.match_indices(&needle).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        // After a name, a brace or a closing quote the slash goes on with another path.
        !before.is_some_and(|c| c.is_alphanumeric() || "._-)}]*?>~".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_told_from_other_paths() {
        let path = |folder: &str| format!("see /{folder}/main/x");
        assert!(names_folder(&path("work"), "work"));
        assert!(names_folder(&format!("\"/{}/.cargo\"", "root"), "root"));
        assert!(!names_folder("net/work/x and $dir/work/y", "work"));
        assert!(!names_folder("{dir}/work/y", "work"));
        assert!(!names_folder("/workshop/x", "work"));
    }

    #[test]
    fn a_file_of_601_lines_is_too_long() {
        let file = Path::new("crates/a/src/b.rs");
        assert!(length(file, &"x\n".repeat(600)).is_none());
        assert!(length(file, &"x\n".repeat(601)).is_some());
        assert!(length(Path::new("docs/long.md"), &"x\n".repeat(601)).is_none());
    }

    #[test]
    fn empty_names_are_found_in_files_and_folders() {
        assert!(name(Path::new("crates/a/src/utils.rs")).is_some());
        assert!(name(Path::new("crates/a/src/common/mod.rs")).is_some());
        assert!(name(Path::new("crates/a/src/commons.rs")).is_none());
    }
}
