//! `vk-bench ROOT [RESULTS]`: ratios against floors that are measured in the same run, each beside
//! what it is compared with. ROOT holds the programs, boot bundle, images and examples as
//! `scripts/lay-out.sh` lays them out; RESULTS gets the table as JSON.
//!
//! Ends 1 where a ratio is over its limit, 2 where something could not be measured.

#![forbid(unsafe_code)]

mod hello;
mod table;

use std::path::PathBuf;
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

/// Whether every ratio is within its limit.
fn run() -> anyhow::Result<bool> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (root, results) = match arguments.as_slice() {
        [root] => (root, None),
        [root, results] => (root, Some(results)),
        _ => bail!("usage: vk-bench ROOT [RESULTS]"),
    };
    let root = root.canonicalize().context("finding ROOT")?;
    let rows = [hello::measure(&root)?];
    print!("{}", table::text(&rows));
    if let Some(path) = results {
        let text = serde_json::to_string_pretty(&table::json(&rows))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(rows.iter().all(table::Row::is_within))
}
