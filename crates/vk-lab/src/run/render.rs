//! From a job's stored trace to lines that people read: stamps and section markers taken out, what
//! was overwritten left out, and nothing that could do more to a terminal than colour it.

/// A line that is longer than this is shown in parts.
const LONGEST: usize = 64 << 10;
/// `2026-01-02T03:04:05.678901Z 00O `: a time, a stream, and whether the line goes on.
const STAMP: usize = 32;

/// Reads a trace as it comes.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Bytes of the line that has not ended.
    begun: Vec<u8>,
    /// Lines that belong together, so far.
    held: Option<Vec<u8>>,
}

impl Reader {
    /// Takes the next bytes; the lines that are whole by them. A line that is continued later is
    /// two.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.begun);
                self.physical(&line, &mut lines);
            } else {
                self.begun.push(*byte);
                if self.begun.len() >= LONGEST {
                    let line = std::mem::take(&mut self.begun);
                    self.physical(&line, &mut lines);
                }
            }
        }
        lines.extend(self.held.take());
        lines
    }

    /// What is left at the trace's end.
    pub(super) fn finish(&mut self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let line = std::mem::take(&mut self.begun);
        if !line.is_empty() {
            self.physical(&line, &mut lines);
        }
        lines.extend(self.held.take());
        lines
    }

    fn physical(&mut self, line: &[u8], lines: &mut Vec<Vec<u8>>) {
        let (goes_on, text) = match stamp(line) {
            Some(stamp) => (stamp.goes_on, stamp.text),
            None => (false, line),
        };
        match &mut self.held {
            Some(held) if goes_on && held.len() < LONGEST => held.extend_from_slice(text),
            _ => lines.extend(self.held.replace(text.to_vec())),
        }
    }
}

/// A line's stamp, and what it stamps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamped<'a> {
    /// The time, as ISO 8601 with microseconds.
    pub(super) time: &'a [u8],
    goes_on: bool,
    /// The line.
    pub(super) text: &'a [u8],
}

/// Reads the stamp of a line, if it has one.
pub(super) fn stamp(line: &[u8]) -> Option<Stamped<'_>> {
    let (head, text) = line.split_at_checked(STAMP)?;
    let (time, rest) = head.split_at_checked(27)?;
    let shape = b"dddd-dd-ddTdd:dd:dd.ddddddZ";
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    let [b' ', a, b, b'O' | b'E', last] = rest else {
        return None;
    };
    let goes_on = match last {
        b' ' => false,
        b'+' => true,
        _ => return None,
    };
    let sound = time.iter().zip(shape).all(fits) && a.is_ascii_hexdigit() && b.is_ascii_hexdigit();
    sound.then_some(Stamped {
        time,
        goes_on,
        text,
    })
}

/// A line as it is shown; nothing where it holds only markers.
pub(super) fn shown(line: &[u8], colour: bool) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let mut parts = text.split('\r').map(|part| plain(part, colour));
    let mut last: Option<String> = None;
    let mut markers = false;
    for part in &mut parts {
        if is_marker(&part) {
            markers = true;
        } else if !strip(&part).is_empty() || last.is_none() {
            last = Some(part);
        }
    }
    let last = last.unwrap_or_default();
    (!(markers && strip(&last).is_empty())).then_some(last)
}

/// Whether a part marks the begin or the end of a section.
fn is_marker(part: &str) -> bool {
    let rest = part
        .strip_prefix("section_start:")
        .or_else(|| part.strip_prefix("section_end:"));
    rest.and_then(|rest| rest.split_once(':'))
        .is_some_and(|(time, name)| !name.is_empty() && time.bytes().all(|b| b.is_ascii_digit()))
}

/// The text without colours.
fn strip(text: &str) -> String {
    plain(text, false)
}

/// The text with its colours, or without; every other escape sequence and control character goes.
fn plain(text: &str, colour: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_control()) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let (sequence, after) = escape(from);
        let is_colour = sequence.starts_with("\u{1b}[")
            && sequence.ends_with('m')
            && sequence
                .bytes()
                .skip(2)
                .all(|b| b.is_ascii_digit() || b == b';' || b == b'm');
        if sequence == "\t" || (colour && is_colour) {
            out.push_str(sequence);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Splits what a control character begins from what follows it.
fn escape(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let end = match (bytes.first(), bytes.get(1)) {
        // A control sequence: parameters, then one final byte.
        (Some(0x1b), Some(b'[')) => {
            let tail = bytes.iter().skip(2);
            let length = tail.take_while(|b| (0x20..0x40).contains(*b)).count();
            3 + length
        }
        // A command of the operating system's: up to BEL or the string terminator.
        (Some(0x1b), Some(b']' | b'P' | b'^' | b'_')) => {
            let bell = text.find('\u{7}').map(|at| at + 1);
            let terminator = text.find("\u{1b}\\").map(|at| at + 2);
            let ends = bell.into_iter().chain(terminator);
            ends.min().unwrap_or(text.len())
        }
        (Some(0x1b), Some(_)) => 2,
        _ => text.chars().next().map_or(0, char::len_utf8),
    };
    let mut end = end.min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&str]) -> Vec<String> {
        let mut reader = Reader::default();
        let mut lines = Vec::new();
        for part in parts {
            lines.extend(reader.push(part.as_bytes()));
        }
        lines.extend(reader.finish());
        let lines = lines.iter().map(|line| shown(line, false));
        lines.flatten().collect()
    }

    const AT: &str = "2026-01-02T03:04:05.678901Z 00O";

    #[test]
    fn stamps_go_and_continued_lines_are_one() {
        let trace = format!("{AT} one\n{AT} tw\n{AT}+o\n{AT} three");
        assert_eq!(lines(&[&trace]), ["one", "two", "three"]);
        let (a, b) = trace.split_at(40);
        assert_eq!(lines(&[a, b]), ["one", "two", "three"], "cut anywhere");
        assert_eq!(lines(&["no stamp\n", "2026 nor here\n"]).len(), 2);
    }

    #[test]
    fn markers_go_and_their_headings_stay() {
        let marked = "section_start:1:prepare_executor[collapsed=true]\r\u{1b}[0K\u{1b}[36;1mHeading\u{1b}[0;m\n\
                      section_end:2:prepare_executor\r\u{1b}[0K\nsection_start:nothing\n\n";
        assert_eq!(lines(&[marked]), ["Heading", "section_start:nothing", ""]);
        let line = b"section_end:1:a\r\x1b[0Ksection_start:2:b\r\x1b[0K\x1b[32mgreen\x1b[0m";
        assert_eq!(shown(line, true).unwrap(), "\u{1b}[32mgreen\u{1b}[0m");
    }

    #[test]
    fn the_last_state_of_an_overwritten_line_is_shown() {
        assert_eq!(lines(&["10%\r50%\r100%\r\n"]), ["100%"]);
        assert_eq!(lines(&["\r\n"]), [""]);
    }

    #[test]
    fn nothing_but_colours_reaches_a_terminal() {
        for (text, want) in [
            ("a\u{1b}[2Jb", "ab"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("\u{1b}[31mred\u{1b}[m", "\u{1b}[31mred\u{1b}[m"),
            ("\u{1b}[?25lx\u{1b}", "x"),
            ("\u{1b}cé\u{9b}31m\u{0}\ty", "é31m\ty"),
            ("\u{1b}é", ""),
            ("\u{1b}[31;:mx", "x"),
        ] {
            assert_eq!(plain(text, true), want, "{text:?}");
        }
    }
}
