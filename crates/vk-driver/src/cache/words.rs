//! Sizes and ages as people read them.

use std::time::Duration;

/// Bytes in decimal units, as gitlab-runner shows sizes.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = "KB";
    for next in units.into_iter().skip(1) {
        if value < 999.995 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    format!("{value:.2} {unit}")
}

/// How long something is ago, by its two largest units.
pub(crate) fn age(age: Duration) -> String {
    let secs = age.as_secs();
    let (days, hours, minutes) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{secs}s"),
        (0, 0, minutes) => format!("{minutes}m{}s", secs % 60),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1100, "1.10 KB"),
            (999_999, "1.00 MB"),
            (12_345_678, "12.35 MB"),
            (10 << 30, "10.74 GB"),
            (u64::MAX, "18.45 EB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (secs, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (7500, "2h5m"),
            (90_000, "1d1h"),
        ] {
            assert_eq!(age(Duration::from_secs(secs)), text);
        }
    }
}
