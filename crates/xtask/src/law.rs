//! `xtask check`: the checks of the house that the compiler does not make.

mod clippy_law;
mod decisions;
mod files;
mod floors;
mod manifests;
mod map;
mod purity;
mod sources;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::workspace::{self, Metadata};

/// How to check.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the clippy.toml of every pure crate anew from the template, then check
    #[arg(long)]
    write: bool,
    /// Also prove with clippy itself that each ban of the template is in force
    #[arg(long)]
    probe: bool,
}

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    /// The file, relative to the project's root.
    pub(crate) file: String,
    /// Its line, where one can be named.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what to do.
    pub(crate) what: String,
}

impl Breach {
    pub(crate) fn in_file(file: &Path, what: impl Into<String>) -> Self {
        Self {
            file: file.display().to_string(),
            line: None,
            what: what.into(),
        }
    }

    pub(crate) fn at(file: &Path, line: usize, what: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::in_file(file, what)
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// Checks everything; `false` where a rule is broken.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let metadata = Metadata::read(&root)?;
    if args.write {
        clippy_law::write(&root, &metadata)?;
    }
    let mut breaches = Vec::new();
    let files = workspace::files(&root)?;
    breaches.extend(files::check(&root, &files)?);
    breaches.extend(sources::check(&root, &files)?);
    breaches.extend(decisions::check(&root, &files)?);
    breaches.extend(manifests::check(&root, &metadata)?);
    breaches.extend(floors::check(&metadata));
    breaches.extend(map::check(&root, &metadata)?);
    breaches.extend(purity::check(&root, &metadata, &files)?);
    breaches.extend(clippy_law::check(&root, &metadata)?);
    if args.probe {
        breaches.extend(clippy_law::probe(&root, &metadata)?);
    }
    breaches.sort();
    breaches.iter().for_each(|breach| println!("{breach}"));
    let crates = metadata.members().len();
    println!(
        "house: {} files, {crates} crates, {} breaches",
        files.len(),
        breaches.len()
    );
    Ok(breaches.is_empty())
}
