//! Gathers what is wrong while a file is read.

use crate::limit::MAX_FAULTS;
use crate::{ConfigError, Fault, Position};

/// What is wrong so far, and whose it is.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Fault>,
    more: usize,
    job: Option<String>,
}

impl Faults {
    /// Says whose the faults that follow are.
    pub(crate) fn enter(&mut self, job: Option<&str>) {
        self.job = job.map(String::from);
    }

    /// Adds one. The same one at the same place (in a copy) counts once.
    pub(crate) fn add(
        &mut self,
        at: impl Into<Option<Position>>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let fault = Fault {
            at: at.into(),
            job: self.job.clone(),
            what: what.into(),
            hint: hint.into(),
        };
        let same = |known: &Fault| (known.at, &known.what) == (fault.at, &fault.what);
        if self.found.iter().any(same) {
            return;
        }
        if self.found.len() < MAX_FAULTS {
            self.found.push(fault);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Whether there is one.
    pub(crate) fn any(&self) -> bool {
        !self.found.is_empty()
    }

    /// `value` where nothing is wrong.
    ///
    /// # Errors
    ///
    /// All that is wrong, in the file's order.
    pub(crate) fn or<T>(self, file: &str, value: T) -> Result<T, ConfigError> {
        if self.found.is_empty() {
            return Ok(value);
        }
        Err(self.into_error(file))
    }

    /// All that is wrong, in the file's order.
    pub(crate) fn into_error(mut self, file: &str) -> ConfigError {
        self.found.sort_by_key(|fault| fault.at);
        ConfigError {
            file: file.into(),
            faults: self.found,
            more: self.more,
        }
    }
}
