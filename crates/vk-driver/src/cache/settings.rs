//! What a job's variables say about its caches.

use std::time::Duration;

/// `CACHE_REQUEST_TIMEOUT` where a job says nothing, in minutes.
const TIMEOUT_MINUTES: u64 = 10;

/// Settings of a job about its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheSettings {
    /// How long one request to the registry may take (CACHE-09).
    pub(crate) request_timeout: Duration,
    /// How hard archives are compressed.
    pub(crate) level: i32,
    /// What was not understood.
    pub(crate) warnings: Vec<String>,
}

impl CacheSettings {
    /// Reads them; `variable` gives a variable's content.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> CacheSettings {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut warnings = Vec::new();
        let minutes = match given("CACHE_REQUEST_TIMEOUT") {
            None => TIMEOUT_MINUTES,
            Some(text) => match text.parse::<i64>() {
                // As upstream: no time at all is the usual time.
                Ok(minutes) => u64::try_from(minutes)
                    .ok()
                    .filter(|minutes| *minutes > 0)
                    .unwrap_or(TIMEOUT_MINUTES),
                Err(_) => {
                    warnings.push(format!(
                        "CACHE_REQUEST_TIMEOUT: expected int got {text:?}, using default value: \
                         {TIMEOUT_MINUTES}"
                    ));
                    TIMEOUT_MINUTES
                }
            },
        };
        let level = match given("CACHE_COMPRESSION_LEVEL").as_deref() {
            Some("fastest") => 1,
            Some("fast") => 2,
            None | Some("default") => 3,
            Some("slow") => 7,
            Some("slowest") => 11,
            Some(other) => {
                warnings.push(format!(
                    "CACHE_COMPRESSION_LEVEL: expected one of 'fastest', 'fast', 'default', 'slow' \
                     or 'slowest' got {other:?}, using default value 'default'"
                ));
                3
            }
        };
        CacheSettings {
            request_timeout: Duration::from_secs(minutes.saturating_mul(60)),
            level,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> CacheSettings {
        CacheSettings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    /// CACHE-09
    #[test]
    fn a_request_may_take_as_many_minutes_as_the_job_says() {
        for (value, minutes) in [
            ("", 10),
            ("1", 1),
            ("45", 45),
            ("0", 10),
            ("-3", 10),
            ("x", 10),
        ] {
            let settings = read("CACHE_REQUEST_TIMEOUT", value);
            assert_eq!(settings.request_timeout.as_secs(), minutes * 60, "{value}");
            assert_eq!(settings.warnings.len(), usize::from(value == "x"));
        }
    }

    #[test]
    fn levels_have_gitlab_runners_names() {
        let level = |value: &str| read("CACHE_COMPRESSION_LEVEL", value).level;
        let all = ["fastest", "fast", "default", "slow", "slowest"].map(level);
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        let odd = read("CACHE_COMPRESSION_LEVEL", "best");
        assert_eq!((odd.level, odd.warnings.len()), (level("default"), 1));
    }
}
