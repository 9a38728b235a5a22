//! Output of a job between the hub and GitLab.

use std::sync::Arc;

use vk_gitlab_core::job::CallId;

/// The bytes that the last read of a job's output brought. A core that starts anew after a failed
/// write reads anew too, while its read of before is still on its way: that brings nothing any more.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    call: Option<CallId>,
    from: u64,
    bytes: Arc<[u8]>,
}

impl Fetched {
    /// Output is asked for from this offset: what was held is let go.
    pub(super) fn asked(&mut self, call: CallId, from: u64) {
        *self = Fetched {
            call: Some(call),
            from,
            bytes: Arc::default(),
        };
    }

    /// A read brought this.
    pub(super) fn brought(&mut self, call: CallId, bytes: Arc<[u8]>) {
        if self.call == Some(call) {
            self.bytes = bytes;
        }
    }

    /// So many bytes of the job's output, from one of its offsets on; none where not all are held.
    pub(super) fn part(&self, from: u64, len: u64) -> Option<&[u8]> {
        part(&self.bytes, from.checked_sub(self.from)?, len)
    }
}

/// So many bytes of these; none where there are fewer.
pub(super) fn part(bytes: &[u8], from: u64, len: u64) -> Option<&[u8]> {
    let from = usize::try_from(from).ok()?;
    let end = from.checked_add(usize::try_from(len).ok()?)?;
    bytes.get(from..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// STATE-22
    #[test]
    fn an_answer_to_an_earlier_read_takes_nothing_from_the_one_that_is_held() {
        let mut fetched = Fetched::default();
        fetched.asked(CallId(1), 6);
        fetched.asked(CallId(2), 3);
        fetched.brought(CallId(2), Arc::from(*b"defghi"));
        fetched.brought(CallId(1), Arc::from(*b"ghi"));
        assert_eq!(fetched.part(3, 6), Some(&b"defghi"[..]));
        assert_eq!(fetched.part(5, 2), Some(&b"fg"[..]));
        assert_eq!(fetched.part(2, 1), None);
        assert_eq!(fetched.part(8, 2), None);
        fetched.asked(CallId(3), 9);
        assert_eq!(fetched.part(8, 1), None, "they are let go");
    }
}
