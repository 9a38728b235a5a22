//! `vk-bench ROOT [RESULTS [PART…]]`: ratios against floors that are measured in the same run, each beside
//! what it is compared with, and counts against their limits. ROOT holds the programs, boot bundle,
//! images and examples as `scripts/lay-out.sh` lays them out; RESULTS gets the table as JSON. PARTs
//! are `cold`, `trace`, `alone` and `many`: all where none is named.
//!
//! Ends 1 where a row is over its limit, 2 where something could not be measured.

#![forbid(unsafe_code)]
#![allow(
    clippy::indexing_slicing,
    reason = "of JSON values alone, where what is missing is null"
)]

mod alone;
mod at_once;
mod cold;
mod daemon;
mod fleet;
mod http;
mod lab;
mod many;
mod program;
mod table;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vk-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether every row is within its limit.
fn run() -> anyhow::Result<bool> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (root, results, parts) = match arguments.as_slice() {
        [root] => (root, None, [].as_slice()),
        [root, results, parts @ ..] => (root, Some(results), parts),
        [] => bail!("usage: vk-bench ROOT [RESULTS [PART…]]"),
    };
    if let Some(part) = parts.iter().find(|part| !is_part(part)) {
        bail!(
            "there is no part {}: cold, trace, alone, many",
            part.display()
        );
    }
    let meant = |name| parts.is_empty() || parts.iter().any(|part| *part == Path::new(name));
    let root = root.canonicalize().context("finding ROOT")?;
    // The rows whose times are compared come first: nothing of the others runs by then.
    let mut rows = Vec::new();
    if meant("cold") {
        rows.extend(cold::measure(&root)?);
    }
    if meant("trace") {
        rows.extend(trace::measure(&root)?);
    }
    if meant("alone") {
        rows.extend(alone::measure(&root)?);
    }
    if meant("many") {
        rows.extend(many::measure(&root)?);
    }
    if cfg!(debug_assertions) {
        println!("Built without optimisation: times are longer than an operator's.");
    }
    print!("{}", table::text(&rows));
    if let Some(path) = results {
        let text = serde_json::to_string_pretty(&table::json(&rows))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(rows.iter().all(table::Row::is_within))
}

fn is_part(name: &Path) -> bool {
    ["cold", "trace", "alone", "many"]
        .iter()
        .any(|part| name == Path::new(part))
}
