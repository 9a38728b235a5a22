//! How often another GitLab server is reported: a GitLab that shows one key after the other would have
//! the hub write without end, which it does not take.

use std::time::Duration;

use tokio::time::Instant;

/// So many in a row.
const MOST: u32 = 8;
/// One more for each such time that passes.
const EVERY: Duration = Duration::from_secs(10);

/// What is left of the share.
#[derive(Debug)]
pub(super) struct Changes {
    /// When all of it is there again.
    whole: Instant,
}

impl Changes {
    pub(super) const fn new(now: Instant) -> Changes {
        Changes { whole: now }
    }

    /// Takes one.
    ///
    /// # Errors
    /// None is left: when one will be.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let whole = self.whole.max(now);
        let next = whole.checked_sub(EVERY * (MOST - 1)).unwrap_or(now);
        if next > now {
            return Err(next);
        }
        self.whole = whole + EVERY;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_free_and_then_one_comes_with_each_while() {
        let begun = Instant::now();
        let mut changes = Changes::new(begun);
        let taken = (0..20).filter(|_| changes.take(begun).is_ok()).count();
        assert_eq!(taken, 8);
        let next = begun + EVERY;
        assert_eq!(changes.take(begun), Err(next));
        assert_eq!(changes.take(next), Ok(()));
        assert_eq!(changes.take(next), Err(next + EVERY));
        let later = next + EVERY * 100;
        let taken = (0..20).filter(|_| changes.take(later).is_ok()).count();
        assert_eq!(taken, 8, "what is not used is not saved up");
    }
}
