/// A value of `FF_TIMESTAMPS` that says neither yes nor no; stamps stay on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("FF_TIMESTAMPS is neither true nor false; using the default: true")]
pub struct BadFlag;

/// Whether a job wants stamps: the expanded value of its variable `FF_TIMESTAMPS`, `None` where it
/// has none. On by default; no other place has a say (STAGE-21, DISP-45). Spellings are those that
/// Go's `strconv.ParseBool` takes.
///
/// # Errors
/// [`BadFlag`] for any other value: the default holds, and the job's trace should say so.
pub fn timestamps_wanted(value: Option<&str>) -> Result<bool, BadFlag> {
    match value.unwrap_or_default() {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(BadFlag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// STAGE-21, DISP-45
    #[test]
    fn stamps_are_on_unless_the_job_says_no() {
        assert_eq!(timestamps_wanted(None), Ok(true));
        for yes in ["", "1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(timestamps_wanted(Some(yes)), Ok(true), "{yes:?}");
        }
        for no in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(timestamps_wanted(Some(no)), Ok(false), "{no:?}");
        }
        for bad in ["no", "fALSE", " false", "2", "off"] {
            assert_eq!(timestamps_wanted(Some(bad)), Err(BadFlag), "{bad:?}");
        }
    }
}
