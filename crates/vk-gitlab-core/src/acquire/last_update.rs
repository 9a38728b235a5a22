//! `last_update`: what lets GitLab hold a job request until its queue changes.

use std::time::Duration;

use vk_step::Now;

/// How often one request goes without it, against a queue value that went stale (GL-61).
const DROPPED_EVERY: Duration = Duration::from_secs(300);
/// A longer value is not GitLab's.
const LONGEST: usize = 1024;

/// The value of the newest answer that had one; it is the runner's, whichever lane it came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastUpdate {
    value: Option<String>,
    dropped: Now,
}

impl LastUpdate {
    pub(super) const fn new(now: Now) -> LastUpdate {
        LastUpdate {
            value: None,
            dropped: now,
        }
    }

    /// Takes an answer's value; an answer without one keeps the old (GL-04, GL-45).
    pub(super) fn answered(&mut self, value: Option<String>) {
        if let Some(value) = value.filter(|value| !value.is_empty() && value.len() <= LONGEST) {
            self.value = Some(value);
        }
    }

    /// What the next request sends.
    pub(super) fn next(&mut self, now: Now) -> Option<String> {
        self.value.as_ref()?;
        if now.since(self.dropped) >= DROPPED_EVERY {
            self.dropped = now;
            return None;
        }
        self.value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Now {
        Now::from_millis(secs * 1000)
    }

    /// GL-04, GL-45
    #[test]
    fn the_newest_value_is_echoed_and_an_answer_without_one_keeps_it() {
        let mut last = LastUpdate::new(at(0));
        assert_eq!(last.next(at(1)), None);
        last.answered(Some("a".to_owned()));
        assert_eq!(last.next(at(2)).as_deref(), Some("a"));
        last.answered(None);
        last.answered(Some(String::new()));
        last.answered(Some("x".repeat(LONGEST + 1)));
        assert_eq!(last.next(at(3)).as_deref(), Some("a"));
        last.answered(Some("b".to_owned()));
        assert_eq!(last.next(at(4)).as_deref(), Some("b"));
    }

    /// GL-61
    #[test]
    fn one_request_every_five_minutes_goes_without_it() {
        let mut last = LastUpdate::new(at(0));
        last.answered(Some("a".to_owned()));
        assert!(last.next(at(299)).is_some());
        assert_eq!(last.next(at(300)), None);
        assert!(last.next(at(301)).is_some());
        assert!(last.next(at(599)).is_some());
        assert_eq!(last.next(at(600)), None);
    }
}
