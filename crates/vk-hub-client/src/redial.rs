//! The pause between two tries: doubling, with jitter.

use std::time::Duration;

/// Pauses from 1 s to a largest, doubling, each with up to half of itself taken off, so that many
/// that lost the same hub do not come back at once.
#[derive(Clone, Debug)]
pub struct Redial {
    next: Duration,
    largest: Duration,
}

impl Redial {
    /// Pauses of at most `largest`.
    #[must_use]
    pub const fn up_to(largest: Duration) -> Redial {
        Redial {
            next: Duration::from_secs(1),
            largest,
        }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let whole = self.next.min(self.largest);
        self.next = whole.saturating_mul(2).min(self.largest);
        let mut byte = [0; 2];
        // Without randomness there is no jitter; the pause itself is what counts.
        let _ = aws_lc_rs::rand::fill(&mut byte);
        whole - (whole / 2).mul_f64(f64::from(u16::from_be_bytes(byte)) / f64::from(u16::MAX))
    }

    /// A try succeeded: the next pause is short again.
    pub const fn reset(&mut self) {
        self.next = Duration::from_secs(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SESS-21
    #[test]
    fn pauses_double_from_one_second_to_the_largest_and_begin_again() {
        let mut redial = Redial::up_to(Duration::from_secs(60));
        for whole in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let pause = redial.pause();
            let whole = Duration::from_secs(whole);
            assert!(
                pause >= whole / 2 && pause <= whole,
                "{pause:?} of {whole:?}"
            );
        }
        redial.reset();
        assert!(redial.pause() <= Duration::from_secs(1));
    }
}
