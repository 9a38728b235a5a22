//! What is said of artifacts on their way, in the form of the log that gitlab-runner's own uploader
//! and downloader write: on the scripts' stderr, a message padded to a width, then fields.

/// Messages shorter than this are padded, in characters.
const WIDTH: usize = 50;
const RESET: &str = "\x1b[0;m";

/// How an entry is coloured, and what word it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// As things should go.
    Info,
    /// Something is not as it was meant, and all goes on.
    Warning,
    /// Something failed.
    Error,
    /// What failed ends the stage.
    Fatal,
}

impl Level {
    const fn marks(self) -> (&'static str, &'static str) {
        match self {
            Level::Info => ("", ""),
            Level::Warning => ("\x1b[0;33m", "WARNING: "),
            Level::Error => ("\x1b[31;1m", "ERROR: "),
            Level::Fatal => ("\x1b[31;1m", "FATAL: "),
        }
    }
}

/// One entry, with its line break. Fields come in the order of their names.
pub(crate) fn entry(level: Level, message: &str, fields: &[(&str, &str)]) -> String {
    let (colour, word) = level.marks();
    let message = format!("{word}{message}");
    let mut text = format!("{colour}{message:<WIDTH$}{RESET} ");
    let mut fields = fields.to_vec();
    fields.sort_unstable();
    for (name, value) in fields {
        text.push_str(&format!(" {colour}{name}{RESET}={value}"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of gitlab-runner 19.4.0.
    #[test]
    fn entries_are_byte_for_byte_those_of_gitlab_runner() {
        let found = "out/: found 2 matching artifact files and directories";
        let none = "nothing: no matching files";
        for (entry, recorded) in [
            (
                entry(Level::Info, found, &[]),
                "out/: found 2 matching artifact files and directories\x1b[0;m \n",
            ),
            (
                entry(Level::Error, "No files to upload", &[]),
                "\x1b[31;1mERROR: No files to upload                         \x1b[0;m \n",
            ),
            (
                entry(Level::Fatal, "too large", &[]),
                "\x1b[31;1mFATAL: too large                                  \x1b[0;m \n",
            ),
            (
                entry(Level::Warning, none, &[("status", "405"), ("id", "3")]),
                "\x1b[0;33mWARNING: nothing: no matching files               \x1b[0;m  \
                 \x1b[0;33mid\x1b[0;m=3 \x1b[0;33mstatus\x1b[0;m=405\n",
            ),
        ] {
            assert_eq!(entry, recorded);
        }
    }
}
