//! What is printed about clauses and tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;

use super::Mention;
use crate::contract::{Clause, Contract, PARTS};

/// Clauses joined with the tests that claim them.
pub(crate) struct Report {
    pub(crate) contract: Contract,
    by_id: BTreeMap<String, Vec<Mention>>,
    /// IDs that tests claim and the contract does not hold.
    pub(crate) unknown: Vec<(String, Mention)>,
}

/// Covered and all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct Count {
    covered: usize,
    all: usize,
}

/// One clause as JSON.
#[derive(Serialize)]
struct JsonClause<'a> {
    id: &'a str,
    part: &'a str,
    section: &'a str,
    tests: &'a [Mention],
}

/// An unknown ID as JSON.
#[derive(Serialize)]
struct JsonUnknown<'a> {
    id: &'a str,
    test: &'a Mention,
}

/// The whole report as JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    clauses: Vec<JsonClause<'a>>,
    unknown: Vec<JsonUnknown<'a>>,
    parts: BTreeMap<&'a str, Count>,
    sections: BTreeMap<&'a str, Count>,
    total: Count,
}

impl Report {
    /// A report of a contract that no test claims yet.
    pub(crate) fn new(contract: Contract) -> Self {
        Self {
            contract,
            by_id: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    /// Notes that a test claims a clause.
    pub(crate) fn add(&mut self, id: String, mention: Mention) {
        if self.contract.knows(&id) {
            self.by_id.entry(id).or_default().push(mention);
        } else {
            self.unknown.push((id, mention));
        }
    }

    /// The tests that claim a clause.
    pub(crate) fn mentions(&self, id: &str) -> &[Mention] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    fn count(&self, of: impl Fn(&Clause) -> bool) -> Count {
        let clauses: Vec<_> = self
            .contract
            .clauses
            .iter()
            .filter(|clause| of(clause))
            .collect();
        let covered = clauses
            .iter()
            .filter(|clause| !self.mentions(&clause.id).is_empty())
            .count();
        Count {
            covered,
            all: clauses.len(),
        }
    }

    /// The full report: covered clauses with their tests, the uncovered, and the sums.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for clause in &self.contract.clauses {
            for Mention { file, line, test } in self.mentions(&clause.id) {
                let _ = writeln!(out, "{:<9} {file}:{line} {test}", clause.id);
            }
        }
        out.push_str("\nAbove no test:\n");
        out.push_str(&self.missing_ids());
        out.push('\n');
        out.push_str(&self.sums());
        out
    }

    /// The uncovered clauses, a line a section.
    fn missing_ids(&self) -> String {
        let mut out = String::new();
        for section in self.contract.sections() {
            let of_section = |clause: &&Clause| clause.section() == section;
            let missing: Vec<&str> = self
                .contract
                .clauses
                .iter()
                .filter(of_section)
                .filter(|clause| self.mentions(&clause.id).is_empty())
                .map(|clause| clause.id.rsplit('-').next().unwrap_or(&clause.id))
                .collect();
            if !missing.is_empty() {
                let _ = writeln!(out, "{section:<6} {}", missing.join(" "));
            }
        }
        out
    }

    /// The uncovered clauses of one part (`all` for every part), with what they say.
    pub(crate) fn missing(&self, part: &str) -> String {
        let mut out = String::new();
        for clause in &self.contract.clauses {
            let asked = part == "all" || part == clause.part;
            if asked && self.mentions(&clause.id).is_empty() {
                let _ = writeln!(
                    out,
                    "{:<9} {:<7} {}",
                    clause.id, clause.part, clause.obligation
                );
            }
        }
        out
    }

    fn sums(&self) -> String {
        let mut out = String::from("Clauses above which a test stands:\n");
        let mut line = |name: &str, count: Count| {
            let _ = writeln!(out, "{name:<8} {:>4} of {:>4}", count.covered, count.all);
        };
        for section in self.contract.sections() {
            line(section, self.count(|clause| clause.section() == section));
        }
        for part in PARTS {
            line(part, self.count(|clause| clause.part == part));
        }
        line("all", self.count(|_| true));
        out
    }

    fn json_clause<'a>(&'a self, clause: &'a Clause) -> JsonClause<'a> {
        let Clause { id, part, .. } = clause;
        JsonClause {
            id,
            part,
            section: clause.section(),
            tests: self.mentions(id),
        }
    }

    /// The report for programs.
    pub(crate) fn json(&self) -> Result<String> {
        let sections = self.contract.sections().into_iter();
        let report = JsonReport {
            clauses: self
                .contract
                .clauses
                .iter()
                .map(|clause| self.json_clause(clause))
                .collect(),
            unknown: self
                .unknown
                .iter()
                .map(|(id, test)| JsonUnknown { id, test })
                .collect(),
            parts: PARTS
                .iter()
                .map(|part| (*part, self.count(|c| c.part == *part)))
                .collect(),
            sections: sections
                .map(|s| (s, self.count(|c| c.section() == s)))
                .collect(),
            total: self.count(|_| true),
        };
        serde_json::to_string_pretty(&report).context("writing the report as JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let table = "| ADM-01 | hub | One. | unit | hub |\n| ADM-02 | gitlab | Two. | unit | daemon |\n\
                     | GL-01 | gitlab | Three. | unit | daemon |";
        let mut report = Report::new(Contract::parse(table).unwrap());
        report.add("ADM-01".to_owned(), mention("t"));
        report.add("ADM-01".to_owned(), mention("u"));
        report.add("ZZ-01".to_owned(), mention("v"));
        report
    }

    fn mention(test: &str) -> Mention {
        Mention {
            file: "a.rs".to_owned(),
            line: 1,
            test: test.to_owned(),
        }
    }

    #[test]
    fn a_clause_above_two_tests_counts_once() {
        let text = report().text();
        assert!(
            text.contains("ADM-01    a.rs:1 t\nADM-01    a.rs:1 u\n"),
            "{text}"
        );
        assert!(text.contains("ADM    02\nGL     01\n"), "{text}");
        assert!(text.contains("ADM         1 of    2\n"), "{text}");
        assert!(text.contains("hub         1 of    1\n"), "{text}");
        assert!(text.contains("all         1 of    3\n"), "{text}");
    }

    #[test]
    fn missing_clauses_can_be_asked_by_part() {
        assert_eq!(report().missing("hub"), "");
        assert_eq!(report().missing("daemon").lines().count(), 2);
        assert_eq!(report().missing("all"), report().missing("daemon"));
    }

    #[test]
    fn json_says_the_same() {
        let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["total"], serde_json::json!({ "covered": 1, "all": 3 }));
        assert_eq!(json["unknown"][0]["id"], "ZZ-01");
        assert_eq!(json["clauses"][0]["tests"][1]["test"], "u");
    }
}
