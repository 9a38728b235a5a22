//! A job's variables: which there are, in which order, and what they expand to.

mod expand;
mod list;
mod shell_words;

pub(crate) use expand::TooLong;
pub(crate) use list::{Own, Place, Variables};
pub(crate) use shell_words::{TOO_LONG, expand_word};
