//! The daemon's own lines in a trace: gitlab-runner's form, stream 00, stdout (GL-26, GL-74).

use std::time::SystemTime;

use vk_trace::{Line, ReadTime, Secrets, Settings, Trace};

/// Renders lines; one that begins with `ERROR: ` or `WARNING: ` has its colour.
#[must_use]
pub(crate) fn render(lines: &[String], timestamps: bool, now: SystemTime) -> String {
    let settings = Settings {
        timestamps,
        ..Settings::default()
    };
    let Ok(mut trace) = Trace::new(&settings, Secrets::new()) else {
        return lines.join("\n");
    };
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let at = ReadTime::since_epoch(since);
    let mut out = Vec::new();
    for line in lines {
        let line = match (line.strip_prefix("ERROR: "), line.strip_prefix("WARNING: ")) {
            (Some(text), _) => Line::Error(text),
            (None, Some(text)) => Line::Warning(text),
            (None, None) => Line::Plain(line),
        };
        // The trace is open and its limit far away: nothing else can fail.
        if trace.line(at, line, &mut out).is_err() {
            break;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rendered(timestamps: bool) -> String {
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_323_045_000_007);
        render(&["ERROR: no".into(), "why".into()], timestamps, now)
    }

    /// GL-26
    #[test]
    fn the_daemons_lines_are_stamped_as_stream_00_stdout() {
        assert_eq!(
            rendered(true),
            "2026-01-02T03:04:05.000007Z 00O \x1b[31;1mERROR: no\x1b[0;m\n\
             2026-01-02T03:04:05.000007Z 00O \x1b[0Kwhy\x1b[0;m\n"
        );
    }

    /// GL-27
    #[test]
    fn without_timestamps_they_are_bare() {
        assert_eq!(
            rendered(false),
            "\x1b[31;1mERROR: no\x1b[0;m\n\x1b[0Kwhy\x1b[0;m\n"
        );
    }
}
