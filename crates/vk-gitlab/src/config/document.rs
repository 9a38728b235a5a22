//! A file in TOML whose every value knows its line, and readers that say what a value must be.
//!
//! No message repeats a value where a token may stand by mistake.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::ConfigError;
use super::schema::{self, Keys};
use super::size::parse_size;
use super::token;

/// A file's text, to find lines in.
pub(super) struct Document<'a> {
    pub(super) path: &'a Path,
    text: &'a str,
}

/// A table of the file, with its name as messages have it: empty for the file itself.
pub(super) struct Table<'a> {
    document: &'a Document<'a>,
    keys: &'static Keys,
    name: String,
    line: usize,
    entries: &'a DeTable<'a>,
}

type Entry<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

impl<'a> Document<'a> {
    pub(super) const fn new(text: &'a str, path: &'a Path) -> Document<'a> {
        Document { path, text }
    }

    /// Reads the text as TOML.
    ///
    /// # Errors
    /// It is none; the message has the line, and nothing of what stands there.
    pub(super) fn read(&self) -> Result<Spanned<DeTable<'a>>, ConfigError> {
        DeTable::parse(self.text).map_err(|error| ConfigError::Parse {
            path: self.path.to_owned(),
            line: self.line(error.span().map_or(0, |span| span.start)),
            // More than the first line may be the parser's view of the text.
            why: error
                .message()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// The whole of it.
    ///
    /// # Errors
    /// It has a key that is not known.
    pub(super) fn root(&'a self, entries: &'a DeTable<'a>) -> Result<Table<'a>, ConfigError> {
        Table {
            document: self,
            keys: &schema::ROOT,
            name: String::new(),
            line: 1,
            entries,
        }
        .known()
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}

impl<'a> Table<'a> {
    /// An error about one of the table's keys, at the line where it stands, or where the table does.
    pub(super) fn error(&self, key: &str, why: impl Into<String>) -> ConfigError {
        let entry = self.entry(key).ok().flatten();
        let line = entry.map_or(self.line, |(at, _)| self.document.line(at.span().start));
        self.error_at(line, key, why)
    }

    fn error_at(&self, line: usize, key: &str, why: impl Into<String>) -> ConfigError {
        ConfigError::Value {
            path: self.document.path.to_owned(),
            line,
            key: match self.name.as_str() {
                "" => key.to_owned(),
                name => format!("{name}.{key}"),
            },
            why: why.into(),
        }
    }

    fn known(self) -> Result<Table<'a>, ConfigError> {
        for key in self.entries.keys() {
            let (name, line) = (key.get_ref(), self.document.line(key.span().start));
            if self.keys.has(name) {
                continue;
            }
            let shown = match token::kind(name) {
                Some(_) => "a token",
                None if name.chars().count() > 64 => "a very long key",
                None => name,
            };
            return Err(self.error_at(line, shown, schema::unknown(self.keys, name)));
        }
        Ok(self)
    }

    /// A key's entry, under either of its spellings.
    fn entry(&self, key: &str) -> Result<Option<Entry<'a>>, ConfigError> {
        let mut found = self
            .entries
            .iter()
            .filter(|(name, _)| schema::same(name.get_ref(), key));
        let first = found.next();
        match found.next() {
            None => Ok(first),
            Some((again, _)) => {
                // The table has its keys in the order of the alphabet.
                let before = first.map_or(0, |(at, _)| at.span().start);
                let line = self.document.line(again.span().start.max(before));
                Err(self.error_at(line, key, "it stands there in both spellings: keep one"))
            }
        }
    }

    fn value(&self, key: &str) -> Result<Option<&'a DeValue<'a>>, ConfigError> {
        Ok(self.entry(key)?.map(|(_, value)| value.get_ref()))
    }

    fn wrong(&self, key: &str, must: &str, value: &DeValue<'_>) -> ConfigError {
        self.error(key, format!("it must be {must}, and is {}", what(value)))
    }

    /// A text that is not empty.
    ///
    /// # Errors
    /// It is no text, empty, or longer than a path may be.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        let Some(value) = self.value(key)? else {
            return Ok(None);
        };
        let text = value
            .as_str()
            .ok_or_else(|| self.wrong(key, "a text in quotes", value))?;
        match text {
            "" => Err(self.error(key, "it is empty: give it a value, or take the key away")),
            text if text.len() > LONGEST_TEXT => {
                let why = format!("it is longer than {LONGEST_TEXT} bytes");
                Err(self.error(key, why))
            }
            text => Ok(Some(text)),
        }
    }

    /// A path, taken from the file's directory where it is relative.
    ///
    /// # Errors
    /// As [`Table::text`]; or it holds a NUL.
    pub(super) fn path(&self, key: &str) -> Result<Option<PathBuf>, ConfigError> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        if text.contains('\0') {
            return Err(self.error(key, "it holds a NUL, which no path can"));
        }
        let directory = self.document.path.parent().unwrap_or(Path::new("."));
        Ok(Some(directory.join(text)))
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is none, or outside the range.
    pub(super) fn number(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, ConfigError> {
        let Some(value) = self.value(key)? else {
            return Ok(default);
        };
        let must = format!("{} to {}", range.start(), range.end());
        let Some(digits) = value.as_integer() else {
            return Err(self.wrong(key, &format!("a whole number, {must}"), value));
        };
        let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let number = number.and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let why = schema::why(self.keys, key);
                self.error(key, format!("it must be {must}{why}"))
            })
    }

    /// A truth value.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        match self.value(key)? {
            None => Ok(false),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.wrong(key, "true or false, without quotes", value)),
        }
    }

    /// A size in bytes; a number alone counts in `unit` bytes.
    ///
    /// # Errors
    /// It is none, or outside the range.
    pub(super) fn size(
        &self,
        key: &str,
        unit: u64,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.value(key)? else {
            return Ok(None);
        };
        let bytes = match (value.as_integer(), value.as_str()) {
            (Some(digits), _) if digits.radix() == 10 => parse_size(digits.as_str(), unit),
            (_, Some(text)) => parse_size(text, unit),
            _ => return Err(self.wrong(key, "a size such as \"512M\" or \"16G\"", value)),
        };
        let bytes = bytes.map_err(|why| self.error(key, why))?;
        if range.contains(&bytes) {
            return Ok(Some(bytes));
        }
        let (least, most) = (schema::size(*range.start()), schema::size(*range.end()));
        let why = schema::why(self.keys, key);
        Err(self.error(key, format!("it must be {least} to {most}{why}")))
    }

    /// A list of texts.
    ///
    /// # Errors
    /// It is none, or one of them is none.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'a str>, ConfigError> {
        let Some(value) = self.value(key)? else {
            return Ok(Vec::new());
        };
        let must = "a list of texts such as [\"large\"]";
        let list = value
            .as_array()
            .ok_or_else(|| self.wrong(key, must, value))?;
        let texts = list.iter().map(|one| {
            let one = one.get_ref();
            let why = || self.error(key, format!("it must be {must}, and holds {}", what(one)));
            one.as_str().ok_or_else(why)
        });
        texts.collect()
    }

    /// A table within this one.
    ///
    /// # Errors
    /// It is none, or has a key that is not known.
    pub(super) fn table(
        &self,
        key: &str,
        keys: &'static Keys,
    ) -> Result<Option<Table<'a>>, ConfigError> {
        let Some((at, value)) = self.entry(key)? else {
            return Ok(None);
        };
        let Some(entries) = value.get_ref().as_table() else {
            return Err(self.wrong(key, &format!("a table, [{key}]"), value.get_ref()));
        };
        let name = match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        };
        let line = self.document.line(at.span().start);
        self.within(keys, name, line, entries).known().map(Some)
    }

    /// The tables of a list of tables.
    ///
    /// # Errors
    /// It is none, or one has a key that is not known.
    pub(super) fn tables(
        &self,
        key: &str,
        keys: &'static Keys,
    ) -> Result<Vec<Table<'a>>, ConfigError> {
        let Some(value) = self.value(key)? else {
            return Ok(Vec::new());
        };
        let must = format!("tables, [[{key}]]");
        let list = value
            .as_array()
            .ok_or_else(|| self.wrong(key, &must, value))?;
        let tables = list.iter().enumerate().map(|(index, value)| {
            let Some(entries) = value.get_ref().as_table() else {
                return Err(self.wrong(key, &must, value.get_ref()));
            };
            let line = self.document.line(value.span().start);
            let name = format!("{key}[{index}]");
            self.within(keys, name, line, entries).known()
        });
        tables.collect()
    }

    const fn within(
        &self,
        keys: &'static Keys,
        name: String,
        line: usize,
        entries: &'a DeTable<'a>,
    ) -> Table<'a> {
        Table {
            document: self.document,
            keys,
            name,
            line,
            entries,
        }
    }
}

/// The longest text: a path has at most 4096 bytes.
const LONGEST_TEXT: usize = 4096;

fn what(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
