//! What a test program says about its tests, as the standard test harness prints it.

use std::ops::AddAssign;

/// Passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Reads `test result: ok. 12 passed; 0 failed; …`.
pub(super) fn result_line(line: &str) -> Option<Totals> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |word: &str| {
        let mut parts = counts.split(';').map(str::trim);
        parts.find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
    };
    Some(Totals {
        passed: count("passed")?,
        failed: count("failed")?,
    })
}

/// The name in `test a::b ... FAILED`.
pub(super) fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_read_whatever_the_outcome() {
        let line = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; \
                    finished in 0.00s";
        assert_eq!(
            result_line(line),
            Some(Totals {
                passed: 12,
                failed: 0
            })
        );
        let line = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            result_line(line),
            Some(Totals {
                passed: 1,
                failed: 2
            })
        );
    }

    #[test]
    fn other_lines_are_none() {
        assert_eq!(result_line("test result: ok."), None);
        assert_eq!(result_line("test a::result ... ok"), None);
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }
}
