//! Frames between a host's job process and the agent in its guest.
//!
//! Bytes in, values out: no I/O, no async, no clock. The host reads what an untrusted guest says,
//! so every decoder here is bounded and never panics.
//!
//! # Connections
//!
//! The guest dials, always; the agent never listens. Each connection carries one stream:
//!
//! 1. The agent sends an [`Opening`] of fixed length: magic, the range of protocol versions it
//!    speaks, the VM's [`Secret`], what the stream is for ([`Purpose`]) and its number. A host that
//!    finds a wrong secret closes without a word.
//! 2. The host answers with one byte ([`Opening::choose`]): the version both will speak, or
//!    [`REFUSED`] when there is none in common or the stream was not asked for.
//! 3. From then on both sides send frames: a little-endian `u32` length of what follows (at most
//!    [`limits::MAX_FRAME`]), a kind byte, a body.
//!
//! The first connection is the control stream (number 0): the agent says [`ControlToHost::Hello`],
//! then the host sends [`ControlToAgent`] requests, each with a number of its own, each answered
//! exactly once by [`ControlToHost::Answer`], in any order. [`Op::Open`] asks the agent to dial a
//! further stream of a number the host chose; on it the host sends one [`Request`] cut into
//! [`StreamToAgent::Request`] parts, then data, and the agent answers with [`StreamToHost`] frames.
//!
//! # Endings
//!
//! There is no half-close: a user-space vsock turns it into a close of both sides. End of data, exit
//! status and errors are frames. A stream that ends without its final frame is an error, never an
//! end ([`Decoder::end`]). The side that sends the last frame is always the agent; it then waits
//! (bounded) for the host to close, discarding what still comes, so that no byte in flight is lost
//! to a reset. A host that closes earlier gives the stream up: the agent then kills the exec's
//! whole process tree, or stops the archive or file transfer where it stands.
//!
//! # Flow control
//!
//! A stream is a connection, and the connection's own back-pressure is the flow control: who does
//! not read, stops the writer, and no other stream. There is no credit window. For this to hold,
//! neither side may ever wait on one stream to serve another: signals travel on the control stream,
//! so that a full stdin or an unread output cannot delay a kill.
//!
//! # Sizes
//!
//! Nothing but a frame, a request and the strings in them is bounded. Scripts, variables and files
//! of any size and content (NUL and invalid UTF-8 included) travel as [`StreamToAgent::Data`]
//! chunks: an exec's stdin (one that fits may be in its request), a tar, or a file. Only what the kernel itself bounds (one argument or
//! environment string below 128 KiB) is refused, by name ([`FailureCode::TooLarge`]).
//!
//! This crate must not know I/O, nor anything else of the workspace.

#![forbid(unsafe_code)]

mod archive;
mod control;
mod decoder;
mod error;
mod exec;
mod failure;
mod file;
pub mod limits;
mod macros;
mod mount;
mod opaque;
mod opening;
mod request;
mod secret;
mod stream;
mod wire;

pub use archive::{Note, NoteCode, TarIn, TarOut};
pub use control::{Answer, ControlToAgent, ControlToHost, Hello, Mode, Op, Usage};
pub use decoder::{Decoder, Frame, encode};
pub use error::{DecodeError, EncodeError};
pub use exec::{EnvVar, Exec, ExecEnd, ExitStatus, Scope, Stdin};
pub use failure::{Failure, FailureCode};
pub use file::{FileIn, FileInfo, FileKind, FileOut};
pub use mount::{DiskFormat, MountRoot, MountTree, SetUp, TreeAccess, Volume};
pub use opaque::Opaque;
pub use opening::{
    CONTROL_STREAM, HIGHEST_VERSION, LOWEST_VERSION, MAGIC, OPENING_LEN, Opening, Purpose, REFUSED,
};
pub use request::{Assembly, Request};
pub use secret::{SECRET_LEN, Secret};
pub use stream::{Channel, StreamToAgent, StreamToHost, TransferEnd};
