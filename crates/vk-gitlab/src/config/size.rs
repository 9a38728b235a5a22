//! Sizes such as `16G`: powers of 1024 (CFG-04, CFG-21).

/// Bytes of a size: digits and one of K, M, G, T, or bare digits in units of `unit` bytes.
///
/// # Errors
/// It is no size, or too large.
pub fn parse_size(text: &str, unit: u64) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: write it as 512M, 16G or 1T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..).unwrap_or_default() {
        "" => unit,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        "T" | "t" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-04, CFG-21
    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(parse_size("16G", 1), Ok(16 << 30));
        assert_eq!(parse_size("1T", 1), Ok(1 << 40));
        assert_eq!(parse_size("512M", 1), Ok(512 << 20));
        assert_eq!(parse_size("4096", 1024), Ok(4 << 20));
        for bad in ["", "G", "1.5G", "16GB", "-1G", "16 G", "99999999999T"] {
            assert!(parse_size(bad, 1).is_err(), "{bad}");
        }
    }
}
