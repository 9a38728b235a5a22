//! What is wrong with a file, and where.

use std::fmt;

/// A place in the file; both numbers begin with 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where; nothing where no one place is to blame (a pipeline without jobs).
    pub at: Option<Position>,
    /// The job it was found in.
    pub job: Option<String>,
    /// What was found, and why it is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

/// All that is wrong with a file: at most [`crate::limit::MAX_FAULTS`], in the file's order.
///
/// It displays as one line a fault: `.gitlab-ci.yml:12:3: job "build": what; what to do`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file's name as it was given.
    pub file: String,
    /// What is wrong; never empty.
    pub faults: Vec<Fault>,
    /// How many more there are.
    pub more: usize,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.file)?;
            if let Some(Position { line, column }) = fault.at {
                write!(f, "{line}:{column}:")?;
            }
            write!(f, " {fault}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n{}: {more} more faults", self.file),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "job {job:?}: ")?;
        }
        write!(f, "{}; {}", self.what, self.hint)
    }
}
