//! Where the project is and what it is made of: its root, its files, its crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Folders that hold products, not sources.
const PRODUCTS: [&str; 6] = [
    ".git",
    "target",
    ".tools",
    ".vk-lab",
    ".test-root",
    "node_modules",
];

/// The project's root: the nearest folder upward that holds the contract.
pub(crate) fn root() -> Result<PathBuf> {
    let start = std::env::current_dir().context("reading the working directory")?;
    let found = start
        .ancestors()
        .find(|dir| dir.join("docs/contract.md").is_file());
    found.map(Path::to_path_buf).with_context(|| {
        format!(
            "no docs/contract.md in {} or above: run this inside the project",
            start.display()
        )
    })
}

/// Every source file below `root`, products left out, as paths relative to `root`, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        let entries = fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
            let kind = entry.file_type().context("reading a file's type")?;
            let product = PRODUCTS.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !product {
                open.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                found.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What `cargo metadata` says, as far as it is asked here.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
}

/// One package: ours or another's.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub(crate) metadata: serde_json::Value,
}

/// One line of a package's dependency tables.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Set for a dependency by path, so for ours.
    pub(crate) path: Option<PathBuf>,
    /// `dev` or `build`; nothing for a program's own.
    pub(crate) kind: Option<String>,
}

/// One thing a package builds.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

impl Package {
    /// The crate's folder.
    pub(crate) fn dir(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// The names of the programs it builds.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &str> {
        let is_bin = |target: &&Target| target.kind.iter().any(|kind| kind == "bin");
        self.targets
            .iter()
            .filter(is_bin)
            .map(|target| target.name.as_str())
    }
}

impl Metadata {
    /// Asks cargo.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = stdout_of(
            cargo(root).args(["metadata", "--format-version", "1", "--no-deps"]),
            "cargo metadata",
        )?;
        Self::parse(&text)
    }

    /// Reads cargo's answer.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("reading the answer of cargo metadata")
    }

    /// The workspace's own crates, by name.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let is_member = |package: &&Package| self.workspace_members.contains(&package.id);
        let mut members: Vec<_> = self.packages.iter().filter(is_member).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// One of the workspace's crates.
    pub(crate) fn member(&self, name: &str) -> Option<&Package> {
        self.members()
            .into_iter()
            .find(|package| package.name == name)
    }
}

/// The cargo that runs this, or the one on the path.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn stdout_of(command: &mut Command, what: &str) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {what}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{what} failed ({}): {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{what} printed no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_not_sources() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "a.rs",
            "target/b.rs",
            "sub/target/c.rs",
            "sub/d.rs",
            ".tools/e",
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(
            files(dir.path()).unwrap(),
            [Path::new("a.rs"), Path::new("sub/d.rs")]
        );
    }

    #[test]
    fn a_failing_command_says_what_it_printed() {
        let error = stdout_of(Command::new("sh").args(["-c", "echo no >&2; exit 3"]), "it");
        let said = format!("{:#}", error.unwrap_err());
        assert!(said.contains("no") && said.contains('3'), "{said}");
    }
}
