//! One connection to the agent, cut into frames; reads and writes end when the VM does.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;
use vk_guest_proto::{Decoder, Frame, encode};

use super::error::BrokenStream;
use crate::death::Lifeline;

/// After the VM's end, what its last words may still take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A guest that takes nothing for so long, with its agent still answering, is stuck.
pub(super) const STALL: Duration = Duration::from_secs(600);

/// An accepted connection, after its opening.
pub(crate) type Connection = Box<dyn Duplex>;

/// Bytes both ways.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The reading side.
pub(super) struct FrameReader<F> {
    from: ReadHalf<Connection>,
    decoder: Decoder<F>,
    lifeline: Lifeline,
}

/// The writing side. Dropping it closes nothing until the reading side is dropped too.
pub(super) struct FrameWriter {
    to: WriteHalf<Connection>,
    buffer: Vec<u8>,
    lifeline: Lifeline,
}

/// Cuts a connection into its two sides.
pub(super) fn frames<F: Frame>(
    connection: Connection,
    lifeline: &Lifeline,
) -> (FrameReader<F>, FrameWriter) {
    let (from, to) = tokio::io::split(connection);
    let reader = FrameReader {
        from,
        decoder: Decoder::new(),
        lifeline: lifeline.clone(),
    };
    let writer = FrameWriter {
        to,
        buffer: Vec::new(),
        lifeline: lifeline.clone(),
    };
    (reader, writer)
}

impl<F: Frame> FrameReader<F> {
    /// The next frame, however long it takes; `None` after the one that ends the stream.
    pub(super) async fn next(&mut self) -> Result<Option<F>, BrokenStream> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(Some(frame));
            }
            if self.decoder.is_finished() {
                return Ok(None);
            }
            let read = tokio::select! {
                biased;
                read = self.from.read(self.decoder.space()) => read,
                death = self.lifeline.death() => {
                    // What the guest said before its end is still on its way.
                    match timeout(LAST_WORDS, self.from.read(self.decoder.space())).await {
                        Ok(Ok(length)) if length > 0 => Ok(length),
                        _ => return Err(BrokenStream::Dead(death)),
                    }
                }
            };
            match read {
                Ok(0) => return Err(self.lifeline.explain(self.decoder.end()).await),
                Ok(length) => self.decoder.filled(length),
                Err(error) => return Err(self.lifeline.explain(Err(error)).await),
            }
        }
    }

    /// The next frame, unless none comes for [`STALL`].
    pub(super) async fn next_in_time(&mut self) -> Result<Option<F>, BrokenStream> {
        let next = timeout(STALL, self.next()).await;
        next.unwrap_or(Err(BrokenStream::Stalled(STALL)))
    }
}

impl FrameWriter {
    /// Sends a frame, however long the guest takes to take it.
    pub(super) async fn send<F: Frame>(&mut self, frame: &F) -> Result<(), BrokenStream> {
        self.buffer.clear();
        encode(frame, &mut self.buffer)?;
        let sent = tokio::select! {
            biased;
            sent = self.to.write_all(&self.buffer) => sent,
            death = self.lifeline.death() => return Err(BrokenStream::Dead(death)),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lifeline.explain(Err(error)).await),
        }
    }

    /// Sends a frame, unless the guest takes nothing for [`STALL`].
    pub(super) async fn send_in_time<F: Frame>(&mut self, frame: &F) -> Result<(), BrokenStream> {
        let sent = timeout(STALL, self.send(frame)).await;
        sent.unwrap_or(Err(BrokenStream::Stalled(STALL)))
    }
}

impl Lifeline {
    /// What a connection's end means: the VM's, if that ends too within moments.
    async fn explain<E: Into<BrokenStream>>(&self, end: Result<(), E>) -> BrokenStream {
        match (self.death_soon().await, end) {
            (Some(death), _) => BrokenStream::Dead(death),
            (None, Err(error)) => error.into(),
            (None, Ok(())) => BrokenStream::OutOfTurn,
        }
    }
}
