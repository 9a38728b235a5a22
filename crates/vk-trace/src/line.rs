/// A line of the node's own, in the colours of gitlab-runner's build log. A text may have line
/// breaks; each part is then stamped, and only the whole is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Uncoloured: `Running with …`, `Using image …`.
    Plain(&'a str),
    /// The title of a section, see [`Section::title`](crate::Section::title).
    Title(&'a str),
    /// Good news: `Job succeeded`.
    Info(&'a str),
    /// `WARNING: …`.
    Warning(&'a str),
    /// `ERROR: …`, as in `ERROR: Job failed: exit code 1`.
    Error(&'a str),
}

impl Line<'_> {
    /// The line's bytes, with colours and line break.
    pub(crate) fn render(self) -> Vec<u8> {
        let (before, text, after) = match self {
            Self::Plain(text) => ("\x1b[0K", text, ""),
            Self::Title(text) => ("\x1b[0K\x1b[36;1m", text, "\x1b[0;m"),
            Self::Info(text) => ("\x1b[32;1m", text, ""),
            Self::Warning(text) => ("\x1b[0;33mWARNING: ", text, ""),
            Self::Error(text) => ("\x1b[31;1mERROR: ", text, ""),
        };
        [before, text, after, "\x1b[0;m\n"].concat().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// STAGE-14
    #[test]
    fn lines_have_the_colours_of_gitlab_runner() {
        for (line, bytes) in [
            (Line::Plain("a"), &b"\x1b[0Ka\x1b[0;m\n"[..]),
            (Line::Title("a"), b"\x1b[0K\x1b[36;1ma\x1b[0;m\x1b[0;m\n"),
            (Line::Info("a"), b"\x1b[32;1ma\x1b[0;m\n"),
            (Line::Warning("a"), b"\x1b[0;33mWARNING: a\x1b[0;m\n"),
            (Line::Error("a"), b"\x1b[31;1mERROR: a\x1b[0;m\n"),
        ] {
            assert_eq!(line.render(), bytes);
        }
    }
}
