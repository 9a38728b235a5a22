//! The report `dotenv`: gzipped `NAME=value` lines, few and short.

use std::io::Read as _;

/// Most bytes once unpacked.
const MAX_BYTES: u64 = 5 * 1_024;
/// Most variables.
const MAX_VARIABLES: usize = 20;

/// Why GitLab does not take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DotenvError {
    /// Not gzip, or not text.
    #[error("it is no gzipped text")]
    NotText,
    /// Over one of the limits.
    #[error("it has more than 5 KiB or 20 variables")]
    TooMuch,
    /// A line without a name and a value.
    #[error("line {0} is not NAME=value")]
    Line(usize),
}

/// Checks an upload.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(gzipped: &[u8]) -> Result<(), DotenvError> {
    let mut text = String::new();
    let mut reader = flate2::read::MultiGzDecoder::new(gzipped).take(MAX_BYTES + 1);
    reader
        .read_to_string(&mut text)
        .map_err(|_| DotenvError::NotText)?;
    let lines = || {
        text.lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
    };
    if text.len() as u64 > MAX_BYTES || lines().count() > MAX_VARIABLES {
        return Err(DotenvError::TooMuch);
    }
    match lines().find(|(_, line)| !is_assignment(line)) {
        Some((at, _)) => Err(DotenvError::Line(at + 1)),
        None => Ok(()),
    }
}

fn is_assignment(line: &str) -> bool {
    let Some((name, _)) = line.split_once('=') else {
        return false;
    };
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn each_rule_of_a_dotenv_refuses() {
        let many = "A=1\n".repeat(21);
        let long = format!("A={}", "x".repeat(6_000));
        let rows = [
            ("A=1\n\nB_2=x=y\n", Ok(())),
            ("A=1\nnot one\n", Err(DotenvError::Line(2))),
            ("2A=1", Err(DotenvError::Line(1))),
            (many.as_str(), Err(DotenvError::TooMuch)),
            (long.as_str(), Err(DotenvError::TooMuch)),
        ];
        for (text, want) in rows {
            assert_eq!(check(&gzip(text)), want, "{text:?}");
        }
        assert_eq!(check(b"A=1"), Err(DotenvError::NotText));
    }
}
