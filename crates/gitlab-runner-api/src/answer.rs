//! What GitLab's answers say beside their bodies.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

/// The longest interval between two trace patches that GitLab may ask for (GL-19).
const LONGEST_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// GitLab's word for how a job stands: the header's exact words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// `running`.
    Running,
    /// `canceling`.
    Canceling,
    /// `canceled`.
    Canceled,
    /// `success`.
    Success,
    /// `failed`.
    Failed,
    /// Any other word.
    Other,
}

/// The headers a runner reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// `Job-Status`.
    pub job_status: Option<JobStatus>,
    /// The n of `Range: 0-<n>`: a size, and so the next offset.
    pub range_end: Option<u64>,
    /// `X-GitLab-Trace-Update-Interval`, where it is a positive number of seconds.
    pub interval: Option<Duration>,
    /// How long GitLab asks to wait, by `RateLimit-ResetTime` before `Retry-After`.
    pub retry_after: Option<Duration>,
    /// `X-GitLab-Last-Update`, where it is not empty.
    pub last_update: Option<String>,
    /// `X-Request-Id`: GitLab's name for the request, for its operators.
    pub request_id: Option<String>,
}

impl Headers {
    /// Reads them at a moment of the wall clock.
    #[must_use]
    pub fn read(headers: &HeaderMap, now: SystemTime) -> Headers {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let filled = |name| {
            text(name)
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
        };
        Headers {
            job_status: text("job-status").map(job_status),
            range_end: text("range").and_then(range_end),
            interval: text("x-gitlab-trace-update-interval").and_then(interval),
            retry_after: reset_time(text("ratelimit-resettime"), now)
                .or_else(|| seconds(text("retry-after"))),
            last_update: filled("x-gitlab-last-update"),
            request_id: filled("x-request-id"),
        }
    }
}

/// An answer to a request that may be repeated, or the lack of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The HTTP status; none where no whole answer came.
    pub status: Option<u16>,
    /// The headers.
    pub headers: Headers,
    /// Why there is no answer, or what its body says, for logs; at most 1024 characters.
    pub message: String,
    /// Whether the request may have reached GitLab: without that no job can be lost (ADM-38).
    pub sent: bool,
}

fn job_status(word: &str) -> JobStatus {
    match word {
        "running" => JobStatus::Running,
        "canceling" => JobStatus::Canceling,
        "canceled" => JobStatus::Canceled,
        "success" => JobStatus::Success,
        "failed" => JobStatus::Failed,
        _ => JobStatus::Other,
    }
}

/// Exactly two parts around one `-`; the second is what counts.
fn range_end(range: &str) -> Option<u64> {
    let (_, end) = range.split_once('-')?;
    end.parse().ok()
}

fn interval(text: &str) -> Option<Duration> {
    seconds(Some(text)).map(|asked| asked.min(LONGEST_INTERVAL))
}

/// Whole seconds, more than none.
fn seconds(text: Option<&str>) -> Option<Duration> {
    let seconds: u64 = text?.trim().parse().ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Time until an HTTP date; none where it has passed or does not parse.
fn reset_time(text: Option<&str>, now: SystemTime) -> Option<Duration> {
    let then = httpdate::parse_http_date(text?).ok()?;
    then.duration_since(now).ok().filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn read(rows: &[(&str, &str)]) -> Headers {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        // Wed, 21 Oct 2015 07:28:00 GMT
        Headers::read(
            &headers,
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480),
        )
    }

    /// GL-19, PORT-21
    #[test]
    fn the_interval_is_a_positive_number_of_seconds_and_at_most_15_minutes() {
        let interval = |text| read(&[("X-GitLab-Trace-Update-Interval", text)]).interval;
        assert_eq!(interval("10"), Some(Duration::from_secs(10)));
        assert_eq!(interval("60000"), Some(Duration::from_secs(900)));
        for none in ["", "0", "-10", "some text", "1.5"] {
            assert_eq!(interval(none), None, "{none:?}");
        }
        assert_eq!(read(&[]).interval, None);
    }

    /// GL-21, GL-50
    #[test]
    fn a_ranges_end_is_taken_as_it_stands() {
        let end = |text| read(&[("Range", text)]).range_end;
        assert_eq!(end("0-0"), Some(0));
        assert_eq!(end("0-12"), Some(12));
        for none in ["", "12", "0-", "0-1-2", "0-x", "bytes 0-12/13"] {
            assert_eq!(end(none), None, "{none:?}");
        }
    }

    /// GL-35
    #[test]
    fn the_job_status_is_read_by_its_exact_word() {
        let status = |text| read(&[("Job-Status", text)]).job_status;
        assert_eq!(status("canceling"), Some(JobStatus::Canceling));
        assert_eq!(status("canceled"), Some(JobStatus::Canceled));
        assert_eq!(status("failed"), Some(JobStatus::Failed));
        assert_eq!(status("success"), Some(JobStatus::Success));
        assert_eq!(status("Canceled"), Some(JobStatus::Other));
        assert_eq!(read(&[]).job_status, None);
    }

    /// GL-07, GL-08, GL-64
    #[test]
    fn a_reset_time_ahead_comes_before_retry_after() {
        let ahead = ("RateLimit-ResetTime", "Wed, 21 Oct 2015 07:28:07 GMT");
        let past = ("RateLimit-ResetTime", "Wed, 21 Oct 2015 07:27:00 GMT");
        let after = ("Retry-After", "30");
        let wait = |rows: &[(&str, &str)]| read(rows).retry_after.map(|wait| wait.as_secs());
        assert_eq!(wait(&[ahead, after]), Some(7));
        assert_eq!(wait(&[past, after]), Some(30));
        assert_eq!(wait(&[after]), Some(30));
        assert_eq!(
            wait(&[("Retry-After", "Wed, 21 Oct 2015 07:28:07 GMT")]),
            None
        );
        assert_eq!(wait(&[("Retry-After", "-1")]), None);
        assert_eq!(wait(&[]), None);
    }

    /// GL-45
    #[test]
    fn an_empty_last_update_is_none() {
        let last = |rows: &[(&str, &str)]| read(rows).last_update;
        assert_eq!(
            last(&[("X-GitLab-Last-Update", "abc")]).as_deref(),
            Some("abc")
        );
        assert_eq!(last(&[("X-GitLab-Last-Update", "")]), None);
        assert_eq!(last(&[]), None);
    }
}
