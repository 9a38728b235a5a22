//! Regular expressions as GitLab's rules have them: RE2's, found anywhere in the text.

use std::collections::HashMap;

use regex::bytes::{Regex, RegexBuilder};

use super::translate::translate;
use crate::limit::{MAX_EXPRESSION, MAX_PATTERN, MAX_PATTERNS};

/// Deepest nesting of groups.
const MAX_GROUPS: u32 = 100;

/// A compiled regular expression; a copy shares it.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Whether it is found in a text.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }
}

/// All regular expressions of a file, each compiled once.
#[derive(Debug, Default)]
pub(crate) struct Patterns(HashMap<String, Pattern>);

impl Patterns {
    /// Compiles what stands between the slashes. `\/` there means `/`.
    ///
    /// # Errors
    ///
    /// Why it is none, without a word of the pattern itself; or there are too many.
    pub(crate) fn pattern(&mut self, body: &str, flags: &str) -> Result<Pattern, String> {
        if body.len() > MAX_EXPRESSION {
            return Err(format!("it is longer than {MAX_EXPRESSION} bytes"));
        }
        let body = translate(&body.replace("\\/", "/"))?;
        let body = match flags {
            "" => body,
            flags => format!("(?{flags}){body}"),
        };
        if let Some(known) = self.0.get(&body) {
            return Ok(known.clone());
        }
        if self.0.len() >= MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} of them"));
        }
        let pattern = Pattern(compile(&body)?);
        self.0.insert(body, pattern.clone());
        Ok(pattern)
    }

    /// Reads a text of the form `/pattern/flags`; nothing where it has another form.
    pub(crate) fn of_text(&mut self, text: &str) -> Option<Result<Pattern, String>> {
        let (body, flags) = text.strip_prefix('/')?.rsplit_once('/')?;
        let is_flag = |c: char| matches!(c, 'i' | 's' | 'm' | 'U');
        let well = flags.chars().all(is_flag);
        well.then(|| self.pattern(body, flags))
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(pattern)
        .size_limit(MAX_PATTERN)
        .dfa_size_limit(MAX_PATTERN)
        .nest_limit(MAX_GROUPS)
        .build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => format!("it needs more than {limit} bytes"),
        error => reason(&error.to_string()),
    })
}

/// The last line of a message; those before it show the pattern.
fn reason(message: &str) -> String {
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).into()
}
