//! The limit: what GitLab's trace may hold of a job's output (STAGE-28).

/// The limit where a job names none: 4 MiB.
pub const DEFAULT_LIMIT: u64 = 4 << 20;
/// How many bytes can follow those that the limit counts: the notice and the closing line.
pub const OVERHANG: usize = 48 << 10;

/// What is left of the limit. Stamps, sections and colours count (STAGE-20).
#[derive(Debug)]
pub(crate) struct Limit {
    limit: u64,
    left: u64,
    reached: bool,
}

impl Limit {
    /// A limit of `bytes`; 0 means [`DEFAULT_LIMIT`].
    pub(crate) fn new(bytes: u64) -> Self {
        let limit = if bytes == 0 { DEFAULT_LIMIT } else { bytes };
        Self {
            limit,
            left: limit,
            reached: false,
        }
    }

    /// Whether nothing more is taken.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached
    }

    /// Counts what `out` holds from `from` on. Where that reaches the limit, an exact fit too, it
    /// is cut to whole runes within the limit and the notice follows.
    pub(crate) fn count(&mut self, out: &mut Vec<u8>, from: usize) {
        let new = out.len().saturating_sub(from) as u64;
        if self.reached {
            out.truncate(from);
        } else if new < self.left {
            self.left -= new;
        } else {
            let mut end = from.saturating_add(usize::try_from(self.left).unwrap_or(usize::MAX));
            while end > from && out.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
                end -= 1;
            }
            out.truncate(end);
            out.extend_from_slice(notice(self.limit).as_bytes());
            self.reached = true;
        }
    }
}

fn notice(limit: u64) -> String {
    format!(
        "\n\x1b[33;1mJob's log exceeded limit of {limit} bytes.\n\
         Job execution will continue but no more output will be collected.\x1b[0;m\n"
    )
}

/// Cuts `out` so that no more than `max` bytes follow `from`, whole runes and a line break.
pub(crate) fn cut_line(out: &mut Vec<u8>, from: usize, max: usize) {
    if out.len().saturating_sub(from) > max {
        let mut end = from + max - 1;
        while end > from && out.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
            end -= 1;
        }
        out.truncate(end);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: &str, times: usize, limit: u64) -> String {
        let (mut out, mut limit) = (Vec::new(), Limit::new(limit));
        for _ in 0..times {
            let from = out.len();
            out.extend_from_slice(write.as_bytes());
            limit.count(&mut out, from);
        }
        String::from_utf8(out).unwrap()
    }

    /// STAGE-28
    #[test]
    fn the_notice_comes_at_the_first_write_that_reaches_the_limit() {
        for (write, limit, kept, crc) in [
            ("This is the long message", 10, "This is th", 0x2959_21ca),
            ("0123456789", 10, "0123456789", 0xd4b9_9d81),
            ("ǲ", 5, "ǲǲ", 0x318d_2180),
            ("ǲ", 6, "ǲǲǲ", 0x8c2a_1eda),
            ("─", 20, "──────", 0xf187_099c),
            ("─", 1, "", 0x9e26_1b5f),
            ("🐤", 23, "🐤🐤🐤🐤🐤", 0x10e3_2ecd),
            ("🐤", 24, "🐤🐤🐤🐤🐤🐤", 0x26e4_3372_u32),
        ] {
            let out = written(write, 100, limit);
            assert_eq!(out, format!("{kept}{}", notice(limit)), "{write} {limit}");
            assert_eq!(crc32fast::hash(out.as_bytes()), crc, "{write} {limit}");
        }
        let out = ["data before limit\n", "data after limit\n"].concat();
        let out = written(&out, 1, 20);
        assert_eq!(crc32fast::hash(out.as_bytes()), 0x559a_a46f);
    }

    /// STAGE-28
    #[test]
    fn a_limit_of_zero_is_4_mib() {
        let line = "x".repeat(1 << 20);
        assert_eq!(written(&line, 3, 0).len(), 3 << 20);
        let out = written(&line, 4, 0);
        assert_eq!(&out[4 << 20..], notice(4_194_304));
    }

    #[test]
    fn a_cut_line_is_whole_runes_and_a_line_break() {
        let mut out = "ab\u{20ac}\u{20ac}\n".as_bytes().to_vec();
        cut_line(&mut out, 1, 20);
        assert_eq!(out.len(), 9);
        cut_line(&mut out, 1, 7);
        assert_eq!(out, "ab\u{20ac}\n".as_bytes());
    }
}
