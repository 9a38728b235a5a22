//! ARCHITECTURE.md: every crate stands in it, and every path it names is there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Breach;
use crate::workspace::Metadata;

/// Checks the map against the land.
pub(crate) fn check(root: &Path, metadata: &Metadata) -> Result<Vec<Breach>> {
    let file = Path::new("ARCHITECTURE.md");
    let path = root.join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut breaches = Vec::new();
    for package in metadata.members() {
        if !text.contains(&format!("`{}`", package.name)) {
            let what = format!("the crate {} is not in it", package.name);
            breaches.push(Breach::in_file(file, what));
        }
        if text.contains(&format!("`{}` (not built)", package.name)) {
            let what = format!(
                "it says that {} is not built, and there it is",
                package.name
            );
            breaches.push(Breach::in_file(file, what));
        }
    }
    for (index, line) in text.lines().enumerate() {
        for named in paths(line).filter(|named| !root.join(named).exists()) {
            let what = format!("it names {named}, which is not there");
            breaches.push(Breach::at(file, index + 1, what));
        }
    }
    Ok(breaches)
}

/// The paths in a line: what stands between backquotes and begins like one, patterns left out.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let begins = word.starts_with("crates/") || word.starts_with("docs/");
        begins && !word.contains('*')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_crate_a_lost_path_and_an_old_remark_are_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("crates/a")).unwrap();
        let text = "`a` (not built)\n`crates/a` and `crates/b`, not crates/c, `crates/*/d`\n";
        fs::write(dir.path().join("ARCHITECTURE.md"), text).unwrap();
        let metadata = r#"{"packages": [{"id": "1", "name": "a", "manifest_path": "/a/Cargo.toml"},
            {"id": "2", "name": "z", "manifest_path": "/z/Cargo.toml"}],
            "workspace_members": ["1", "2"], "target_directory": "/t"}"#;
        let found = check(dir.path(), &Metadata::parse(metadata).unwrap()).unwrap();
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "ARCHITECTURE.md: it says that a is not built, and there it is",
                "ARCHITECTURE.md: the crate z is not in it",
                "ARCHITECTURE.md:2: it names crates/b, which is not there",
            ]
        );
    }
}
