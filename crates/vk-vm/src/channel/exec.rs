//! Commands in the guest.

use std::time::Duration;

use vk_guest_proto::limits::MAX_CHUNK;
use vk_guest_proto::{
    Channel, Exec, ExecEnd, Op, Opaque, Request, Scope, Stdin, StreamToAgent, StreamToHost,
};

use super::connection::{FrameReader, FrameWriter};
use super::error::{BrokenStream, GuestError};
use super::guest::Guest;

const WHAT: &str = "run a command";

/// A command that was started. Dropping it (both halves) kills the command's whole process tree.
pub struct Running {
    /// To signal it by.
    pub handle: ExecHandle,
    /// What feeds its stdin.
    pub input: Input,
    /// What it says.
    pub output: Output,
}

/// A command's stdin, where that is a stream. Dropping it does not end the stdin: [`Input::end`] does.
pub struct Input {
    writer: FrameWriter,
}

/// A command's output and end.
pub struct Output {
    reader: FrameReader<StreamToHost>,
}

/// Signals a command; usable while its output is read elsewhere, and after its end.
#[derive(Clone)]
pub struct ExecHandle {
    guest: Guest,
    stream: u32,
}

/// What happens to a command, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum ExecEvent {
    /// It runs, as this process of the guest.
    Started(u32),
    /// It wrote this.
    Output(Channel, Vec<u8>),
    /// It ended, and all of its output was told before.
    Ended(ExecEnd),
}

/// What a command wrote, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its stdout (and stderr, where they are merged).
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
    /// Its end.
    pub end: ExecEnd,
}

impl Guest {
    /// Starts a command.
    ///
    /// # Errors
    /// [`GuestError::TooLong`] when the request passes the protocol's bounds, [`GuestError::Dead`];
    /// that the command itself cannot be started is told by [`Output::next`].
    pub async fn exec(&self, exec: Exec) -> Result<Running, GuestError> {
        let (stream, reader, writer) = self.request(WHAT, &Request::Exec { exec }).await?;
        let handle = ExecHandle {
            guest: self.clone(),
            stream,
        };
        Ok(Running {
            handle,
            input: Input { writer },
            output: Output { reader },
        })
    }

    /// Runs a command to its end with this stdin, where that is a stream, and takes at most `limit` bytes of its output
    /// and at most `time`.
    ///
    /// # Errors
    /// As [`Guest::exec`] and [`Output::next`]; [`GuestError::OutputTooLong`]; at the time limit
    /// [`GuestError::Timeout`], and the command is killed.
    pub async fn run(
        &self,
        exec: Exec,
        stdin: &[u8],
        limit: usize,
        time: Duration,
    ) -> Result<Captured, GuestError> {
        let run = async {
            let feeds = exec.stdin == Stdin::Stream;
            let Running {
                mut input,
                mut output,
                ..
            } = self.exec(exec).await?;
            let feed = async {
                if feeds {
                    // A command that does not read all of its stdin is not an error of its run.
                    let _ = input.write(stdin).await;
                    let _ = input.end().await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                captured = capture(&mut output, limit) => captured,
                () = feed => Err(GuestError::OutputTooLong(limit)),
            }
        };
        let ran = tokio::time::timeout(time, run).await;
        ran.unwrap_or(Err(GuestError::Timeout {
            what: WHAT,
            after: time,
        }))
    }
}

async fn capture(output: &mut Output, limit: usize) -> Result<Captured, GuestError> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match output.next().await? {
            ExecEvent::Started(_) => {}
            ExecEvent::Output(channel, bytes) => {
                if stdout.len() + stderr.len() + bytes.len() > limit {
                    return Err(GuestError::OutputTooLong(limit));
                }
                match channel {
                    Channel::Stderr => stderr.extend_from_slice(&bytes),
                    Channel::Stdout | Channel::Content => stdout.extend_from_slice(&bytes),
                }
            }
            ExecEvent::Ended(end) => {
                return Ok(Captured {
                    stdout,
                    stderr,
                    end,
                });
            }
        }
    }
}

impl Output {
    /// What happens next, however long it takes. After [`ExecEvent::Ended`] nothing may be asked.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when the command cannot be started, [`GuestError::Dead`] when the
    /// VM ends before the command does.
    pub async fn next(&mut self) -> Result<ExecEvent, GuestError> {
        let broken = GuestError::broken(WHAT);
        match self.reader.next().await.map_err(&broken)? {
            Some(StreamToHost::Started { pid }) => Ok(ExecEvent::Started(pid)),
            Some(StreamToHost::Data { channel, bytes }) => {
                Ok(ExecEvent::Output(channel, bytes.into_inner()))
            }
            Some(StreamToHost::Exited { end }) => Ok(ExecEvent::Ended(end)),
            Some(StreamToHost::Failed { failure }) => Err(GuestError::Refused {
                what: WHAT,
                failure,
            }),
            Some(StreamToHost::Note { .. } | StreamToHost::Done { .. }) | None => {
                Err(broken(BrokenStream::OutOfTurn))
            }
        }
    }
}

impl Input {
    /// Feeds stdin, however long the command takes to read it.
    ///
    /// # Errors
    /// [`GuestError::Dead`], [`GuestError::Broken`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        for chunk in bytes.chunks(MAX_CHUNK) {
            let data = StreamToAgent::Data {
                bytes: Opaque::from(chunk),
            };
            self.writer
                .send(&data)
                .await
                .map_err(GuestError::broken(WHAT))?;
        }
        Ok(())
    }

    /// Ends stdin.
    ///
    /// # Errors
    /// As [`Input::write`].
    pub async fn end(&mut self) -> Result<(), GuestError> {
        self.writer
            .send(&StreamToAgent::End)
            .await
            .map_err(GuestError::broken(WHAT))
    }
}

impl ExecHandle {
    /// Sends a signal to the command or to all it started.
    ///
    /// # Errors
    /// [`GuestError::Refused`] (not found) when it has ended, [`GuestError::Dead`].
    pub async fn signal(&self, signal: u8, scope: Scope) -> Result<(), GuestError> {
        let op = Op::Signal {
            stream: self.stream,
            signal,
            scope,
        };
        self.guest.ask("signal a command", op).await
    }

    /// Ends the command and all it started: SIGTERM, and SIGKILL after `grace` for what is left.
    ///
    /// # Errors
    /// As [`ExecHandle::signal`].
    pub async fn kill(&self, grace: Duration) -> Result<(), GuestError> {
        let grace_ms = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
        let op = Op::Kill {
            stream: self.stream,
            grace_ms,
        };
        self.guest.ask("end a command", op).await
    }
}
