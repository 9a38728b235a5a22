//! What a reader of the log should know, a bounded amount of it.

use std::collections::BTreeMap;

use vk_guest_proto::limits::MAX_PATH;
use vk_guest_proto::{Failure, Note, NoteCode};

/// Most notes of one code; the rest are counted.
const MAX_OF_A_CODE: u64 = 100;

/// Where notes go.
pub(super) type Sink<'a> = dyn FnMut(Note) -> Result<(), Failure> + 'a;

/// Passes notes on until there are too many of a code.
pub(super) struct Notes<'a> {
    sink: &'a mut Sink<'a>,
    counts: BTreeMap<u8, u64>,
}

impl<'a> Notes<'a> {
    pub(super) fn new(sink: &'a mut Sink<'a>) -> Self {
        Self {
            sink,
            counts: BTreeMap::new(),
        }
    }

    pub(super) fn say(
        &mut self,
        code: NoteCode,
        subject: &[u8],
        count: u64,
        text: impl Into<String>,
    ) -> Result<(), Failure> {
        let said = self.counts.entry(key(code)).or_default();
        *said += 1;
        if *said > MAX_OF_A_CODE {
            return Ok(());
        }
        (self.sink)(note(code, subject, count, text))
    }

    /// Says how many notes were left out.
    pub(super) fn close(self) -> Result<(), Failure> {
        for said in self
            .counts
            .into_values()
            .filter(|said| *said > MAX_OF_A_CODE)
        {
            (self.sink)(note(NoteCode::More, b"", said - MAX_OF_A_CODE, ""))?;
        }
        Ok(())
    }
}

fn note(code: NoteCode, subject: &[u8], count: u64, text: impl Into<String>) -> Note {
    let subject = subject
        .get(..subject.len().min(MAX_PATH))
        .unwrap_or_default()
        .to_vec();
    Note {
        code,
        subject,
        count,
        text: text.into(),
    }
}

/// Codes as a map's key. Only what may come once a file needs bounding apart.
fn key(code: NoteCode) -> u8 {
    match code {
        NoteCode::FileIgnored => 1,
        NoteCode::FileChanged => 2,
        NoteCode::EntrySkipped => 3,
        NoteCode::Matched | NoteCode::NoMatch => 4,
        _ => 0,
    }
}
