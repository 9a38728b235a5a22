use crate::ReadTime;

/// What stands where a secret stood.
pub(crate) const MASK: &[u8] = b"[MASKED]";

/// The next link of a chain.
///
/// Text arrives in whole runes of valid UTF-8. A mask arrives apart from text, so that no later
/// link searches it or matches across it.
pub(crate) trait Sink {
    /// Takes text that was read at `at`.
    fn text(&mut self, at: ReadTime, text: &[u8]);

    /// Takes a mask; the bytes it replaces were read at `at`.
    fn mask(&mut self, at: ReadTime);
}

impl<S: Sink> Sink for &mut S {
    fn text(&mut self, at: ReadTime, text: &[u8]) {
        (**self).text(at, text);
    }

    fn mask(&mut self, at: ReadTime) {
        (**self).mask(at);
    }
}

/// A sink that keeps everything, for the tests of single links.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Kept {
    /// Text and masks as one string.
    pub(crate) bytes: Vec<u8>,
    /// Each byte's time of reading.
    pub(crate) times: Vec<ReadTime>,
}

#[cfg(test)]
impl Kept {
    pub(crate) fn string(&self) -> String {
        String::from_utf8(self.bytes.clone()).expect("only whole runes")
    }
}

#[cfg(test)]
impl Sink for Kept {
    fn text(&mut self, at: ReadTime, text: &[u8]) {
        assert!(
            std::str::from_utf8(text).is_ok(),
            "a rune was split: {text:?}"
        );
        self.bytes.extend_from_slice(text);
        self.times.resize(self.bytes.len(), at);
    }

    fn mask(&mut self, at: ReadTime) {
        self.bytes.extend_from_slice(MASK);
        self.times.resize(self.bytes.len(), at);
    }
}
