//! The clause table of `docs/contract.md`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// The parts of the work a clause can belong to, in the order they are printed.
pub(crate) const PARTS: [&str; 4] = ["daemon", "node", "hub", "guests"];

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clause {
    /// `ADM-07`
    pub(crate) id: String,
    /// One of [`PARTS`].
    pub(crate) part: String,
    /// What must hold.
    pub(crate) obligation: String,
}

impl Clause {
    /// `ADM` of `ADM-07`.
    pub(crate) fn section(&self) -> &str {
        section_of(&self.id)
    }
}

/// The part of an ID before its number.
pub(crate) fn section_of(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

/// Every clause of the contract, in the table's order.
#[derive(Debug)]
pub(crate) struct Contract {
    pub(crate) clauses: Vec<Clause>,
}

impl Contract {
    /// Reads the tables. A row with an ID that stands twice, or with an unknown part, is an error.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut lines = BTreeMap::new();
        let mut clauses = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let Some(clause) = row(line) else { continue };
            if let Some(first) = lines.insert(clause.id.clone(), number) {
                bail!(
                    "docs/contract.md:{number}: {} stands in line {first} too",
                    clause.id
                );
            }
            if !PARTS.contains(&clause.part.as_str()) {
                bail!(
                    "docs/contract.md:{number}: unknown part {:?}: one of {PARTS:?}",
                    clause.part
                );
            }
            clauses.push(clause);
        }
        if clauses.is_empty() {
            bail!("docs/contract.md holds no clause: rows look like `| ADM-07 | who | … | part |`");
        }
        Ok(Self { clauses })
    }

    /// Whether a clause has this ID.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.clauses.iter().any(|clause| clause.id == id)
    }

    /// Whether any clause's ID starts with this section.
    pub(crate) fn has_section(&self, section: &str) -> bool {
        self.clauses
            .iter()
            .any(|clause| clause.section() == section)
    }

    /// The sections in the table's order.
    pub(crate) fn sections(&self) -> Vec<&str> {
        let mut sections: Vec<&str> = Vec::new();
        for clause in &self.clauses {
            if !sections.contains(&clause.section()) {
                sections.push(clause.section());
            }
        }
        sections
    }
}

/// Reads one line, if it is a clause's row.
fn row(line: &str) -> Option<Clause> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = inner.split('|').map(str::trim);
    let id = cells.next().filter(|id| is_id(id))?;
    let _who = cells.next()?;
    let obligation = cells.next()?;
    let part = cells.next_back()?;
    Some(Clause {
        id: id.to_owned(),
        part: part.to_owned(),
        obligation: obligation.to_owned(),
    })
}

/// Whether a word has a clause ID's form: capitals, a hyphen, two or three digits.
pub(crate) fn is_id(word: &str) -> bool {
    let Some((section, number)) = word.split_once('-') else {
        return false;
    };
    (2..=6).contains(&section.len())
        && section.bytes().all(|byte| byte.is_ascii_uppercase())
        && (2..=3).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The words of a text that have a clause ID's form, in order.
pub(crate) fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
        .filter(|word| is_id(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| ID | who | obligation | how it would be checked | part |
|---|---|---|---|---|
| ADM-01 | hub | Capacity is advisory. | unit | hub |
| ADM | 28 | 10 | 3 | 41 |
| GL-77 | gitlab | As the runner does. | fake-GitLab e2e | daemon |
";

    #[test]
    fn rows_are_read_and_other_tables_are_not() {
        let contract = Contract::parse(TABLE).unwrap();
        let ids: Vec<_> = contract
            .clauses
            .iter()
            .map(|c| (&*c.id, &*c.part))
            .collect();
        assert_eq!(ids, [("ADM-01", "hub"), ("GL-77", "daemon")]);
        assert_eq!(contract.sections(), ["ADM", "GL"]);
        assert_eq!(contract.clauses[0].obligation, "Capacity is advisory.");
    }

    #[test]
    fn an_id_that_stands_twice_is_an_error() {
        let twice = format!("{TABLE}| ADM-01 | hub | Again. | unit | hub |\n");
        let error = Contract::parse(&twice).unwrap_err().to_string();
        assert!(error.contains(":6: ADM-01 stands in line 3"), "{error}");
    }

    #[test]
    fn an_unknown_part_is_an_error() {
        let row = "| ADM-02 | hub | x | unit | moon |";
        assert!(
            Contract::parse(row)
                .unwrap_err()
                .to_string()
                .contains("moon")
        );
    }

    #[test]
    fn ids_are_whole_words() {
        let found: Vec<_> =
            ids_in("ADM-07, (GL-101); SHA-256 UTF-8 XADM-07a ADM-7 vk-ADM-07").collect();
        assert_eq!(found, ["ADM-07", "GL-101", "SHA-256"]);
    }
}
