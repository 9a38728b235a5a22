//! What the user sees: jobs' lines under their names, and what happens between them.

use std::io::{self, IsTerminal as _, Write as _};

/// Colours of jobs' names, in turn.
const COLOURS: [&str; 6] = ["36", "33", "32", "35", "34", "31"];
/// Widest name before it is cut.
const WIDEST: usize = 32;

/// The standard output. What cannot be written is lost: the pipeline goes on without a reader.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) colour: bool,
    /// Whether lines carry their job's name.
    names: bool,
    width: usize,
}

impl Screen {
    /// For a pipeline of these jobs; `colour` decides where it is given.
    pub(super) fn new(colour: Option<bool>, names: &[String]) -> Self {
        let terminal = || {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            io::stdout().is_terminal() && !plain
        };
        let widest = names.iter().map(|name| name.chars().count()).max();
        Self {
            colour: colour.unwrap_or_else(terminal),
            names: names.len() > 1,
            width: widest.unwrap_or(0).min(WIDEST),
        }
    }

    /// A line of a job's log.
    pub(super) fn line(&self, job: usize, name: &str, text: &str) {
        let end = if self.colour && text.contains('\u{1b}') {
            "\u{1b}[0m"
        } else {
            ""
        };
        if !self.names {
            return put(&format!("{text}{end}"));
        }
        let name: String = name
            .chars()
            .filter(|c| !c.is_control())
            .take(WIDEST)
            .collect();
        let head = format!("{name:width$} |", width = self.width);
        let head = self.coloured(&head, COLOURS.get(job % COLOURS.len()).unwrap_or(&"0"));
        let space = if text.is_empty() { "" } else { " " };
        put(&format!("{head}{space}{text}{end}"));
    }

    /// Something that happened.
    pub(super) fn event(&self, text: &str) {
        put(&self.coloured(&format!("==> {text}"), "1"));
    }

    /// A block of text.
    pub(super) fn block(&self, text: &str) {
        put(text.trim_end_matches('\n'));
    }

    /// Text in a colour, where there are colours.
    pub(super) fn coloured(&self, text: &str, code: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
