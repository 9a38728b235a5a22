//! `tests.json`: the list of staged test programs, written by `stage`, read by `test`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One staged test program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TestProgram {
    /// The crate whose tests it holds.
    pub(super) package: String,
    /// `lib`, `bin` or `test`.
    pub(super) kind: String,
    /// The target's name.
    pub(super) target: String,
    /// Where it lies, relative to the root.
    pub(super) path: PathBuf,
    #[serde(flatten)]
    pub(super) wishes: Wishes,
}

/// What a crate says about its tests: `[package.metadata.vk-test]` in its manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Wishes {
    /// Seconds one test program may take.
    #[serde(default)]
    pub(super) limit_secs: Option<u64>,
    /// Print what passing tests print too.
    #[serde(default)]
    pub(super) show_output: bool,
    /// Run this many of its tests at a time, instead of as many as there are CPUs.
    #[serde(default)]
    pub(super) threads: Option<u16>,
}

impl Wishes {
    /// Reads a crate's wishes from its metadata table.
    pub(super) fn of(package: &str, metadata: &serde_json::Value) -> Result<Self> {
        let Some(table) = metadata.get("vk-test") else {
            return Ok(Self::default());
        };
        serde_json::from_value(table.clone())
            .with_context(|| format!("[package.metadata.vk-test] of {package}"))
    }
}

impl TestProgram {
    /// `vk-step lib`, `vk-tests fleet`.
    pub(super) fn name(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{} {}", self.package, self.target),
            kind => format!("{} {kind}", self.package),
        }
    }
}

/// Writes the list.
pub(super) fn write(root: &Path, programs: &[TestProgram]) -> Result<()> {
    let path = root.join("tests.json");
    let text = serde_json::to_string_pretty(programs).context("writing the list of tests")?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// Reads the list.
pub(super) fn read(root: &Path) -> Result<Vec<TestProgram>> {
    let path = root.join("tests.json");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("reading {}: run `xtask stage` first", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_and_misspelt_ones_are_errors() {
        let table = serde_json::json!({ "vk-test": { "limit-secs": 1800, "show-output": true } });
        let wishes = Wishes::of("a", &table).unwrap();
        assert_eq!((wishes.limit_secs, wishes.show_output), (Some(1800), true));
        assert_eq!(
            Wishes::of("a", &serde_json::Value::Null).unwrap(),
            Wishes::default()
        );
        let wrong = serde_json::json!({ "vk-test": { "limit": 1 } });
        assert!(
            Wishes::of("vk-sim", &wrong)
                .unwrap_err()
                .to_string()
                .contains("vk-sim")
        );
    }

    #[test]
    fn the_list_reads_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let program = TestProgram {
            package: "vk-sim".to_owned(),
            kind: "test".to_owned(),
            target: "seeds".to_owned(),
            path: "tests/vk-sim--test--seeds".into(),
            wishes: Wishes {
                limit_secs: Some(9),
                show_output: true,
                threads: None,
            },
        };
        write(dir.path(), std::slice::from_ref(&program)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [program]);
    }
}
