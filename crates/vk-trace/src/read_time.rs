use std::time::Duration;

/// 9999-12-31T23:59:59Z: the last second that fits a stamp's width.
const LAST_SECOND: u64 = 253_402_300_799;
const SECONDS_A_DAY: u64 = 86_400;

/// Length of a rendered time: `YYYY-MM-DDTHH:MM:SS.uuuuuuZ`.
pub(crate) const RENDERED_LEN: usize = 27;

/// When the node read some bytes, by its wall clock: microseconds since 1970-01-01T00:00:00Z.
///
/// Times before 1970 cannot be said; times after the year 9999 are taken as its last microsecond,
/// so that a stamp always has its width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTime {
    micros: u64,
}

impl ReadTime {
    /// A time `secs` seconds and `micros` microseconds after 1970-01-01T00:00:00Z. Microseconds
    /// over 999,999 count as 999,999: no stamp says a second that has not begun.
    #[must_use]
    pub const fn from_unix(secs: u64, micros: u32) -> Self {
        let micros = if micros > 999_999 { 999_999 } else { micros };
        if secs > LAST_SECOND {
            return Self {
                micros: LAST_SECOND * 1_000_000 + 999_999,
            };
        }
        Self {
            micros: secs * 1_000_000 + micros as u64,
        }
    }

    /// A time `since` after 1970-01-01T00:00:00Z; parts of a microsecond are cut off (STAGE-27).
    #[must_use]
    pub const fn since_epoch(since: Duration) -> Self {
        Self::from_unix(since.as_secs(), since.subsec_micros())
    }

    /// Whole seconds since 1970-01-01T00:00:00Z, as section markers say them.
    #[must_use]
    pub const fn unix_seconds(self) -> u64 {
        self.micros / 1_000_000
    }

    /// The time in UTC with six digits of the second's fraction.
    pub(crate) fn render(self) -> [u8; RENDERED_LEN] {
        let seconds = self.unix_seconds();
        let (year, month, day) = civil(seconds / SECONDS_A_DAY);
        let second = seconds % SECONDS_A_DAY;
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        for (from, width, value) in [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, second / 3600),
            (14, 2, second / 60 % 60),
            (17, 2, second % 60),
            (20, 6, self.micros % 1_000_000),
        ] {
            put_digits(text.iter_mut().skip(from).take(width), value);
        }
        text
    }
}

/// Writes `value` in decimal, right-aligned, over zeros.
fn put_digits<'a>(digits: impl DoubleEndedIterator<Item = &'a mut u8>, mut value: u64) {
    for digit in digits.rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
    }
}

/// Year, month and day of the day `days` after 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from a 1st of March, so that the leap day ends a year: then the months'
/// lengths repeat every five months, and 400 years always have 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let (month, carry) = if march_month < 10 {
        (march_month + 3, 0)
    } else {
        (march_month - 9, 1)
    };
    (cycle * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(secs: u64, micros: u32) -> String {
        String::from_utf8(ReadTime::from_unix(secs, micros).render().to_vec()).unwrap()
    }

    /// STAGE-27
    #[test]
    fn a_time_is_utc_with_six_digits() {
        assert_eq!(text(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(text(1_609_462_800, 20_010), "2021-01-01T01:00:00.020010Z");
        assert_eq!(text(951_782_400, 1), "2000-02-29T00:00:00.000001Z");
        assert_eq!(text(4_107_542_399, 999_999), "2100-02-28T23:59:59.999999Z");
        assert_eq!(text(4_107_542_400, 7), "2100-03-01T00:00:00.000007Z");
        assert_eq!(text(1_767_323_045, 123), "2026-01-02T03:04:05.000123Z");
        assert_eq!(text(u64::MAX, 5), "9999-12-31T23:59:59.999999Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let lengths = |year: u64| {
            let leap =
                year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            [
                31,
                if leap { 29 } else { 28 },
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ]
        };
        let mut expected = (1970, 1, 1);
        for days in 0..=(LAST_SECOND / SECONDS_A_DAY) {
            assert_eq!(civil(days), expected, "day {days}");
            let (year, month, day) = expected;
            expected = if day < lengths(year)[usize::try_from(month).unwrap() - 1] {
                (year, month, day + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
        }
    }

    /// STAGE-27
    #[test]
    fn parts_of_a_microsecond_are_cut_off() {
        let time = ReadTime::since_epoch(Duration::new(5, 1_999));
        assert_eq!(time, ReadTime::from_unix(5, 1));
        assert_eq!(time.unix_seconds(), 5);
        assert_eq!(
            ReadTime::from_unix(5, 1_000_000),
            ReadTime::from_unix(5, 999_999)
        );
    }
}
