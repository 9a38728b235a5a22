//! Where a job's output stands: offsets and lengths, never bytes.

use vk_hub_proto::limit::TRACE_SLACK_BYTES;

/// The output of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// Bytes the hub stores at most (DISP-79).
    cap: u64,
    /// The end of what arrived, what is dropped past the cap included.
    received: u64,
    /// The end of what the edge was told to store.
    stored: u64,
    /// The end of what is durable: all that anybody may see.
    durable: u64,
    /// Nothing is added any more.
    closed: bool,
}

/// What to do about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Append `len` bytes from `skip` on at `offset`.
    Store { offset: u64, skip: u64, len: u64 },
    /// Nothing new in it, or past the cap.
    Nothing,
    /// It begins past the end of what arrived (DISP-52).
    Gap { end: u64 },
}

impl Output {
    /// The output of a job cut at `limit_bytes`, of which `durable` bytes are there.
    pub(crate) fn new(limit_bytes: u64, durable: u64) -> Output {
        Output {
            cap: limit_bytes.saturating_add(TRACE_SLACK_BYTES),
            received: durable,
            stored: durable,
            durable,
            closed: false,
        }
    }

    pub(crate) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Takes `len` bytes at `offset`: what is known is trimmed (DISP-51), what is past the cap
    /// dropped (DISP-79).
    pub(crate) fn take(&mut self, offset: u64, len: u64) -> Take {
        let full = self.stored >= self.cap;
        if offset > self.received && !full {
            return Take::Gap { end: self.received };
        }
        let end = offset.saturating_add(len);
        let fresh = end.min(self.cap).saturating_sub(self.stored);
        self.received = self.received.max(end);
        if fresh == 0 {
            return Take::Nothing;
        }
        let taken = Take::Store {
            offset: self.stored,
            skip: self.stored.saturating_sub(offset),
            len: fresh,
        };
        self.stored += fresh;
        taken
    }

    /// The edge synced up to `length`; whether that is more than before.
    pub(crate) fn synced(&mut self, length: u64) -> bool {
        let durable = length.min(self.stored).max(self.durable);
        let more = durable > self.durable && !self.closed;
        if more {
            self.durable = durable;
        }
        more
    }

    /// What may be acked: only what is durable, and once that reaches the cap all that arrived
    /// (DISP-50).
    pub(crate) fn acked(&self) -> u64 {
        if self.durable >= self.cap {
            self.received
        } else {
            self.durable
        }
    }

    /// The job is over at `length`; what the edge still holds beyond does not count.
    pub(crate) fn close(&mut self, length: u64) {
        *self = Output {
            received: length,
            stored: length,
            durable: length,
            closed: true,
            ..*self
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAP: u64 = 10 + TRACE_SLACK_BYTES;

    fn store(offset: u64, skip: u64, len: u64) -> Take {
        Take::Store { offset, skip, len }
    }

    /// DISP-51, DISP-52
    #[test]
    fn an_overlap_is_trimmed_and_a_gap_is_refused() {
        let mut output = Output::new(10, 0);
        assert_eq!(output.take(0, 100), store(0, 0, 100));
        assert_eq!(output.take(50, 100), store(100, 50, 50));
        assert_eq!(output.take(20, 100), Take::Nothing);
        assert_eq!(output.take(151, 1), Take::Gap { end: 150 });
        assert_eq!(output.take(150, 1), store(150, 0, 1));
    }

    /// DISP-50
    #[test]
    fn nothing_is_acked_before_it_is_durable() {
        let mut output = Output::new(10, 0);
        output.take(0, 100);
        assert_eq!((output.acked(), output.durable()), (0, 0));
        assert!(output.synced(60));
        assert!(!output.synced(60) && !output.synced(10));
        assert_eq!(output.acked(), 60);
        assert!(output.synced(1_000));
        assert_eq!(output.acked(), 100, "never more than was stored");
    }

    /// DISP-79
    #[test]
    fn past_the_cap_bytes_are_acked_and_dropped_once_the_rest_is_durable() {
        let mut output = Output::new(10, 0);
        output.take(0, CAP - 1);
        assert_eq!(output.take(CAP - 1, 5), store(CAP - 1, 0, 1));
        assert_eq!(output.take(CAP + 4, 6), Take::Nothing);
        assert_eq!(output.take(CAP + 900, 1), Take::Nothing, "no violation");
        assert_eq!(output.acked(), 0);
        output.synced(CAP);
        assert_eq!((output.durable(), output.acked()), (CAP, CAP + 901));
    }

    #[test]
    fn a_closed_output_does_not_grow() {
        let mut output = Output::new(10, 5);
        output.take(5, 5);
        output.close(5);
        assert!(!output.synced(10));
        assert_eq!(output.durable(), 5);
    }

    proptest! {
        /// DISP-50, DISP-51, DISP-79
        #[test]
        fn whatever_is_resent_the_stored_bytes_are_the_outputs_own_in_order(
            limit in 0_u64..50,
            steps in prop::collection::vec((0_u64..200, 1_u64..90, any::<bool>()), 1..60),
        ) {
            let mut output = Output::new(limit, 0);
            let mut end = 0;
            for (back, len, sync) in steps {
                let offset = output.received.saturating_sub(back);
                let acked = output.acked();
                if let Take::Store { offset: at, skip, len: taken } = output.take(offset, len) {
                    prop_assert_eq!(at, end);
                    prop_assert_eq!(offset + skip, at);
                    prop_assert!(skip + taken <= len);
                    end += taken;
                }
                prop_assert!(output.acked() >= acked);
                prop_assert!(output.durable <= end && end <= output.cap);
                if sync {
                    output.synced(end);
                    prop_assert_eq!(output.durable, end);
                }
                prop_assert!(output.acked() <= output.received);
            }
        }
    }
}
