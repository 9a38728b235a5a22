//! Files and archives, into the guest and out of it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use vk_guest_proto::limits::MAX_CHUNK;
use vk_guest_proto::{
    FileIn, FileOut, Note, Opaque, Request, StreamToAgent, StreamToHost, TarIn, TarOut, TransferEnd,
};

use super::connection::{FrameReader, FrameWriter};
use super::error::{BrokenStream, GuestError};
use super::guest::Guest;

/// Notes taken of one transfer; the agent sums up long before.
const NOTES_MAX: usize = 20_000;

/// A transfer that went through whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// What went through.
    pub end: TransferEnd,
    /// What a reader of the log should know.
    pub notes: Vec<Note>,
}

impl Guest {
    /// Extracts the tar that `source` gives.
    ///
    /// # Errors
    /// [`GuestError::Refused`] as soon as the agent cannot go on, [`GuestError::Local`] when
    /// `source` fails (what was extracted by then stays), [`GuestError::Dead`].
    pub async fn tar_in(
        &self,
        tar: TarIn,
        source: impl AsyncRead + Unpin,
    ) -> Result<Transfer, GuestError> {
        self.send("extract an archive", &Request::TarIn { tar }, source)
            .await
    }

    /// Archives files of the guest into `sink`.
    ///
    /// # Errors
    /// [`GuestError::Refused`], [`GuestError::Local`] when `sink` fails, [`GuestError::Dead`]; what
    /// `sink` got by then is no whole archive.
    pub async fn tar_out(
        &self,
        tar: TarOut,
        sink: impl AsyncWrite + Unpin,
    ) -> Result<Transfer, GuestError> {
        self.receive("make an archive", &Request::TarOut { tar }, sink)
            .await
    }

    /// Writes one file of any size; it is there whole or not at all.
    ///
    /// # Errors
    /// As [`Guest::tar_in`].
    pub async fn write_file(
        &self,
        file: FileIn,
        source: impl AsyncRead + Unpin,
    ) -> Result<Transfer, GuestError> {
        self.send("write a file", &Request::FileIn { file }, source)
            .await
    }

    /// Reads one regular file.
    ///
    /// # Errors
    /// As [`Guest::tar_out`].
    pub async fn read_file(
        &self,
        file: FileOut,
        sink: impl AsyncWrite + Unpin,
    ) -> Result<Transfer, GuestError> {
        self.receive("read a file", &Request::FileOut { file }, sink)
            .await
    }

    async fn send(
        &self,
        what: &'static str,
        request: &Request,
        source: impl AsyncRead + Unpin,
    ) -> Result<Transfer, GuestError> {
        let (_, mut reader, mut writer) = self.request(what, request).await?;
        let mut notes = Vec::new();
        // The agent may fail, and say so, long before it has taken everything.
        let early = tokio::select! {
            biased;
            fed = feed(what, source, &mut writer) => { fed?; None }
            end = finish(what, &mut reader, &mut notes, None::<&mut tokio::io::Sink>, false) => {
                Some(end?)
            }
        };
        let end = match early {
            Some(end) => end,
            None => {
                finish(
                    what,
                    &mut reader,
                    &mut notes,
                    None::<&mut tokio::io::Sink>,
                    true,
                )
                .await?
            }
        };
        Ok(Transfer { end, notes })
    }

    async fn receive(
        &self,
        what: &'static str,
        request: &Request,
        mut sink: impl AsyncWrite + Unpin,
    ) -> Result<Transfer, GuestError> {
        // The writing side is kept until the end: without it the connection would be half.
        let (_, mut reader, _writer) = self.request(what, request).await?;
        let mut notes = Vec::new();
        let end = finish(what, &mut reader, &mut notes, Some(&mut sink), true).await?;
        sink.flush().await.map_err(|e| local(what, &e))?;
        Ok(Transfer { end, notes })
    }
}

/// Sends everything `source` gives, and that it was all.
///
/// That the stream breaks is not this side's to tell: the reading side knows why. It then waits
/// to be dropped.
async fn feed(
    what: &'static str,
    mut source: impl AsyncRead + Unpin,
    writer: &mut FrameWriter,
) -> Result<(), GuestError> {
    let mut chunk = vec![0; MAX_CHUNK];
    loop {
        let length = source.read(&mut chunk).await.map_err(|e| local(what, &e))?;
        let frame = match chunk.get(..length) {
            Some(bytes) if !bytes.is_empty() => StreamToAgent::Data {
                bytes: Opaque::from(bytes),
            },
            _ => StreamToAgent::End,
        };
        match writer.send_in_time(&frame).await {
            Ok(()) if length == 0 => return Ok(()),
            Ok(()) => {}
            Err(stalled @ BrokenStream::Stalled(_)) => {
                return Err(GuestError::broken(what)(stalled));
            }
            Err(_) => std::future::pending().await,
        }
    }
}

/// Takes the agent's frames up to the one that ends the transfer; content goes to `sink`.
async fn finish(
    what: &'static str,
    reader: &mut FrameReader<StreamToHost>,
    notes: &mut Vec<Note>,
    mut sink: Option<&mut (impl AsyncWrite + Unpin)>,
    in_time: bool,
) -> Result<TransferEnd, GuestError> {
    let broken = GuestError::broken(what);
    loop {
        let frame = if in_time {
            reader.next_in_time().await
        } else {
            reader.next().await
        };
        match (frame.map_err(&broken)?, sink.as_deref_mut()) {
            (Some(StreamToHost::Data { bytes, .. }), Some(sink)) => {
                sink.write_all(&bytes).await.map_err(|e| local(what, &e))?;
            }
            (Some(StreamToHost::Note { note }), _) => {
                if notes.len() >= NOTES_MAX {
                    return Err(broken(BrokenStream::TooManyNotes(NOTES_MAX)));
                }
                notes.push(note);
            }
            (Some(StreamToHost::Done { end }), _) => return Ok(end),
            (Some(StreamToHost::Failed { failure }), _) => {
                return Err(GuestError::Refused { what, failure });
            }
            _ => return Err(broken(BrokenStream::OutOfTurn)),
        }
    }
}

fn local(what: &'static str, error: &io::Error) -> GuestError {
    GuestError::Local {
        what,
        why: error.to_string(),
    }
}
