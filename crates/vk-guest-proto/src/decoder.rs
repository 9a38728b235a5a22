use std::marker::PhantomData;

use crate::error::{DecodeError, EncodeError};
use crate::limits::{LENGTH_FIELD, MAX_FRAME};
use crate::wire::{Reader, Wire};

/// A frame of one kind of stream in one direction.
#[allow(
    private_bounds,
    reason = "the form on the wire is this crate's own matter"
)]
pub trait Frame: Wire {
    /// The type's name, for errors.
    const NAME: &'static str;

    /// Whether nothing may come after it.
    fn is_final(&self) -> bool;
}

/// Appends `frame` to `out`, length first. On an error `out` is as it was.
///
/// # Errors
/// [`EncodeError::TooLong`] where the peer would refuse a string, a list or the whole.
pub fn encode<F: Frame>(frame: &F, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_FIELD]);
    let result = frame.put(out).and_then(|()| patch_length(start, out));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn patch_length(start: usize, out: &mut [u8]) -> Result<(), EncodeError> {
    let len = out.len() - start - LENGTH_FIELD;
    let too_long = EncodeError::TooLong {
        what: "a frame",
        len,
        max: MAX_FRAME,
    };
    if len > MAX_FRAME {
        return Err(too_long);
    }
    let said = u32::try_from(len).map_err(|_| too_long)?.to_le_bytes();
    out.iter_mut()
        .skip(start)
        .zip(said)
        .for_each(|(to, from)| *to = from);
    Ok(())
}

/// Bytes read, frames out; the same for a blocking and an async reader.
///
/// Take frames with [`Decoder::next`] until it has none, read from the connection into
/// [`Decoder::space`], say how much came with [`Decoder::filled`], and at the connection's end ask
/// [`Decoder::end`] whether it was one. It never holds more than one frame of the largest size and
/// what was read with it.
///
/// After an error it stays in error: every later call to `next` gives the same one.
#[derive(Debug)]
pub struct Decoder<F> {
    buf: Vec<u8>,
    /// What is in `buf` and not yet taken: `start..end`.
    start: usize,
    end: usize,
    finished: bool,
    error: Option<DecodeError>,
    frames: PhantomData<F>,
}

/// Room that a reader is given at least.
const ROOM: usize = 16 * 1024;

impl<F: Frame> Default for Decoder<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Frame> Decoder<F> {
    /// A decoder at the start of a stream, after its opening.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buf: Vec::new(),
            start: 0,
            end: 0,
            finished: false,
            error: None,
            frames: PhantomData,
        }
    }

    /// Where the next bytes read shall go; never empty once `next` gave `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let full = LENGTH_FIELD + MAX_FRAME;
        let wanted = self
            .end
            .saturating_add(ROOM)
            .max(self.frame_len().unwrap_or(0))
            .min(full);
        if self.buf.len() < wanted {
            self.buf.resize(wanted, 0);
        }
        self.buf.get_mut(self.end..).unwrap_or_default()
    }

    /// Says that `n` bytes were read into [`Decoder::space`]; more than there was room count as
    /// that room.
    pub fn filled(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.buf.len());
    }

    /// Takes over as much of `bytes` as there is room for, and says how much that was. For a
    /// reader that has the bytes already.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let space = self.space();
        let n = space.len().min(bytes.len());
        space
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        self.filled(n);
        n
    }

    /// Length field and frame together, once the length is there.
    fn frame_len(&self) -> Option<usize> {
        let pending = self.buf.get(self.start..self.end)?;
        let said = pending.first_chunk::<LENGTH_FIELD>()?;
        let len = usize::try_from(u32::from_le_bytes(*said)).unwrap_or(usize::MAX);
        Some(len.saturating_add(LENGTH_FIELD))
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// The peer is broken or hostile: close the connection.
    #[allow(
        clippy::should_implement_trait,
        reason = "None means not yet, not the end"
    )]
    pub fn next(&mut self) -> Result<Option<F>, DecodeError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let result = self.take_frame();
        if let Err(error) = &result {
            self.error = Some(error.clone());
        }
        result
    }

    fn take_frame(&mut self) -> Result<Option<F>, DecodeError> {
        if self.finished && self.end > self.start {
            return Err(DecodeError::AfterEnd);
        }
        let Some(whole) = self.frame_len() else {
            return Ok(None);
        };
        match whole - LENGTH_FIELD {
            0 => return Err(DecodeError::EmptyFrame),
            len if len > MAX_FRAME => {
                return Err(DecodeError::FrameTooLong {
                    len,
                    max: MAX_FRAME,
                });
            }
            _ => {}
        }
        let Some(body) = self
            .buf
            .get(self.start..self.end)
            .and_then(|pending| pending.get(LENGTH_FIELD..whole))
        else {
            return Ok(None);
        };
        let mut from = Reader::new(body);
        let frame = F::get(&mut from)?;
        from.done(F::NAME)?;
        self.start += whole;
        self.finished = frame.is_final();
        Ok(Some(frame))
    }

    /// Whether the frame that ends the stream has been taken.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// What the connection's end means, once `next` has no more frames.
    ///
    /// # Errors
    /// [`DecodeError::EndedEarly`] unless the frame that ends the stream was taken.
    pub fn end(&self) -> Result<(), DecodeError> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None if self.finished => Ok(()),
            None => Err(DecodeError::EndedEarly {
                pending: self.end - self.start,
            }),
        }
    }
}
