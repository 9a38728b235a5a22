use zeroize::Zeroizing;

use crate::TraceError;

/// How many phrases one job may have masked.
pub const MAX_PHRASES: usize = 16_384;
/// How long the phrases of one job may be in sum, in bytes.
pub const MAX_PHRASE_BYTES: usize = 1 << 20;
/// Registry passwords and the registry token are masked from this length on (STAGE-24): a shorter
/// one is no secret, and would mask half the trace.
const MIN_REGISTRY_CHARS: usize = 8;

/// What must not be seen in a job's trace (STAGE-24). Each kind has its own rule; what a rule drops
/// is not masked. Its `Debug` shows how many there are, never what they are.
#[derive(Clone, Default)]
pub struct Secrets {
    phrases: Vec<Zeroizing<String>>,
    bytes: usize,
}

impl Secrets {
    /// No secrets yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A masked variable's value after expansion (a file variable's: its content). White space
    /// around it is not masked; of any length otherwise, since GitLab says what may be masked.
    /// One with inner line breaks is masked where it stands whole in one stream.
    pub fn masked_variable(&mut self, expanded: &str) {
        self.insert(expanded.trim());
    }

    /// The job's token, or that of one of its dependencies (GL-60).
    pub fn token(&mut self, token: &str) {
        self.insert(token.trim());
    }

    /// A registry's password or token; taken from 8 characters on.
    pub fn registry(&mut self, secret: &str) {
        let secret = secret.trim();
        if secret.chars().nth(MIN_REGISTRY_CHARS - 1).is_some() {
            self.insert(secret);
        }
    }

    /// How many different phrases there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.phrases.len()
    }

    /// Whether there is nothing to mask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.phrases.is_empty()
    }

    fn insert(&mut self, phrase: &str) {
        if phrase.is_empty() {
            return;
        }
        if let Err(at) = self
            .phrases
            .binary_search_by(|known| known.as_str().cmp(phrase))
        {
            self.bytes = self.bytes.saturating_add(phrase.len());
            self.phrases.insert(at, Zeroizing::new(phrase.to_owned()));
        }
    }

    /// Adds what `more` has; says whether anything was new.
    pub(crate) fn merge(&mut self, more: &Self) -> bool {
        let before = self.len();
        for phrase in &more.phrases {
            self.insert(phrase);
        }
        self.len() > before
    }

    /// The phrases, if they are no more than can be searched for.
    pub(crate) fn phrases(&self) -> Result<Vec<&str>, TraceError> {
        if self.len() > MAX_PHRASES {
            return Err(TraceError::TooManyPhrases {
                count: self.len(),
                limit: MAX_PHRASES,
            });
        }
        if self.bytes > MAX_PHRASE_BYTES {
            return Err(TraceError::PhrasesTooLong {
                bytes: self.bytes,
                limit: MAX_PHRASE_BYTES,
            });
        }
        Ok(self.phrases.iter().map(|phrase| phrase.as_str()).collect())
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({} phrases)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// STAGE-24
    #[test]
    fn each_kind_of_secret_has_its_rule() {
        let mut secrets = Secrets::new();
        secrets.masked_variable(" \u{2003}x\n");
        secrets.masked_variable("  \n");
        secrets.masked_variable("line 1\nline 2\n");
        secrets.token("tok");
        secrets.registry("1234567");
        secrets.registry("éééééééé");
        secrets.registry("  345678  ");
        assert_eq!(
            secrets.phrases().unwrap(),
            ["line 1\nline 2", "tok", "x", "éééééééé"]
        );
    }

    #[test]
    fn phrases_are_bounded_in_number_and_length() {
        let mut secrets = Secrets::new();
        secrets.masked_variable(&"a".repeat(MAX_PHRASE_BYTES));
        assert!(secrets.phrases().is_ok());
        secrets.masked_variable("b");
        assert!(matches!(
            secrets.phrases(),
            Err(TraceError::PhrasesTooLong { .. })
        ));

        let mut secrets = Secrets::new();
        (0..=MAX_PHRASES).for_each(|n| secrets.token(&format!("token {n}")));
        assert!(matches!(
            secrets.phrases(),
            Err(TraceError::TooManyPhrases { .. })
        ));
    }

    #[test]
    fn nothing_secret_is_printed() {
        let mut secrets = Secrets::new();
        secrets.token("hunter2hunter2");
        assert_eq!(format!("{secrets:?}"), "Secrets(1 phrases)");
    }
}
