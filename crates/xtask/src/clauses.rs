//! `make clauses`: which clauses of the contract stand above which tests, and which above none.

mod report;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::contract::{self, Contract};
use crate::{source, testfns, workspace};
use report::Report;

/// How to print.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the clauses that stand above no test, of one part or of all
    #[arg(long, value_name = "PART", num_args = 0..=1, default_missing_value = "all",
          value_parser = ["all", "daemon", "node", "hub", "guests"])]
    missing: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A place where an ID stands above a test.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Mention {
    /// Relative to the project's root.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) test: String,
}

/// Prints the report; `false` where a test names a clause that the contract does not hold.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let root = workspace::root()?;
    let path = root.join("docs/contract.md");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut report = Report::new(Contract::parse(&text)?);
    collect(&root, &mut report)?;

    if args.json {
        println!("{}", report.json()?);
    } else if let Some(part) = &args.missing {
        print!("{}", report.missing(part));
    } else {
        print!("{}", report.text());
    }
    for (id, mention) in &report.unknown {
        let Mention { file, line, test } = mention;
        eprintln!("{file}:{line}: {test}: docs/contract.md holds no clause {id}");
    }
    Ok(report.unknown.is_empty())
}

/// Reads every test of the workspace into the report.
fn collect(root: &Path, report: &mut Report) -> Result<()> {
    let crates = Path::new("crates");
    let files = workspace::files(root)?;
    for file in files
        .iter()
        .filter(|file| file.starts_with(crates) && source::is_rust(file))
    {
        for test in testfns::in_file(root, file)? {
            for id in claimed(&report.contract, &test.docs) {
                let file = file.display().to_string();
                report.add(
                    id,
                    Mention {
                        file,
                        line: test.line,
                        test: test.name.clone(),
                    },
                );
            }
        }
    }
    Ok(())
}

/// The clause IDs a doc comment claims, each once. A word such as `SHA-256` in a sentence is none;
/// a line of nothing but IDs claims them all, so that a misspelt section is seen.
fn claimed(contract: &Contract, docs: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for line in docs.lines() {
        let only_ids = !line.trim().is_empty()
            && line
                .split([',', ' '])
                .filter(|word| !word.is_empty())
                .all(contract::is_id);
        for id in contract::ids_in(line) {
            let ours = only_ids || contract.has_section(contract::section_of(id));
            if ours && !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract() -> Contract {
        Contract::parse(
            "| ADM-07 | gitlab | a | unit | daemon |\n| GL-01 | gitlab | b | unit | daemon |",
        )
        .unwrap()
    }

    #[test]
    fn ids_are_claimed_in_lists_and_in_sentences() {
        assert_eq!(
            claimed(&contract(), " ADM-07, GL-01\n"),
            ["ADM-07", "GL-01"]
        );
        assert_eq!(
            claimed(&contract(), " ADM-07: never a request without one (GL-01)."),
            ["ADM-07", "GL-01"]
        );
        assert_eq!(claimed(&contract(), " ADM-07\n ADM-07"), ["ADM-07"]);
    }

    #[test]
    fn other_words_with_a_number_are_no_clauses() {
        assert!(claimed(&contract(), " The SHA-256 of UTF-8 text.").is_empty());
    }

    #[test]
    fn a_misspelt_id_is_claimed_so_that_it_is_reported() {
        assert_eq!(claimed(&contract(), " ADN-07"), ["ADN-07"]);
        assert_eq!(claimed(&contract(), " see ADM-99 for more"), ["ADM-99"]);
    }

    #[test]
    fn a_tree_is_read_and_an_unknown_id_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("crates/a/src");
        fs::create_dir_all(&src).unwrap();
        fs::write(
            src.join("lib.rs"),
            "/// ADM-07, ADM-08\n#[test]\nfn t() {}\n",
        )
        .unwrap();
        let mut report = Report::new(contract());
        collect(dir.path(), &mut report).unwrap();
        let mention = Mention {
            file: "crates/a/src/lib.rs".to_owned(),
            line: 3,
            test: "t".to_owned(),
        };
        assert_eq!(report.unknown, [("ADM-08".to_owned(), mention.clone())]);
        assert_eq!(report.mentions("ADM-07"), [mention]);
        assert!(report.mentions("GL-01").is_empty());
    }
}
