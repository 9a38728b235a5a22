//! Regular expressions as GitLab's rules have them: RE2's, found anywhere in the text.

use regex::bytes::{Regex, RegexBuilder};

use super::translate::translate;
use crate::limit::{MAX_EXPRESSION, MAX_PATTERN};

/// Deepest nesting of groups.
const MAX_GROUPS: u32 = 100;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Compiles what stands between the slashes. `\/` there means `/`.
    ///
    /// # Errors
    ///
    /// Why it is none, without a word of the pattern itself.
    pub(crate) fn new(body: &str, flags: &str) -> Result<Self, String> {
        if body.len() > MAX_EXPRESSION {
            return Err(format!("it is longer than {MAX_EXPRESSION} bytes"));
        }
        let body = translate(&body.replace("\\/", "/"))?;
        let body = match flags {
            "" => body,
            flags => format!("(?{flags}){body}"),
        };
        let compiled = RegexBuilder::new(&body)
            .size_limit(MAX_PATTERN)
            .dfa_size_limit(MAX_PATTERN)
            .nest_limit(MAX_GROUPS)
            .build();
        match compiled {
            Ok(regex) => Ok(Self(regex)),
            Err(regex::Error::CompiledTooBig(limit)) => {
                Err(format!("it needs more than {limit} bytes"))
            }
            Err(error) => Err(reason(&error.to_string())),
        }
    }

    /// Reads a text of the form `/pattern/flags`; nothing where it has another form.
    pub(crate) fn of_text(text: &str) -> Option<Result<Self, String>> {
        let (body, flags) = text.strip_prefix('/')?.rsplit_once('/')?;
        let is_flag = |c: char| matches!(c, 'i' | 's' | 'm' | 'U');
        let well = flags.chars().all(is_flag);
        well.then(|| Self::new(body, flags))
    }

    /// Whether it is found in a text.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }
}

/// The last line of a message; those before it show the pattern.
fn reason(message: &str) -> String {
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).into()
}
