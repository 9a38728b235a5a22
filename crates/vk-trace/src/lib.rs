//! A job's output on its way to GitLab: bytes in, the bytes that GitLab's trace will hold out.
//!
//! Each stream goes through a chain of its own, and all chains append to one output:
//!
//! 1. UTF-8 repair ([`utf8`](mod@utf8)): each invalid byte becomes U+FFFD (STAGE-29);
//! 2. masking: phrases, longest first ([`phrase`]), then URL parameters ([`url`]), then what
//!    follows a token prefix ([`token`]) (STAGE-25);
//! 3. stamps ([`stamp`], STAGE-27), unless the job turned them off (DISP-45);
//! 4. the limit ([`limit`], STAGE-28).
//!
//! [`Trace`] is the whole of it and the only way in. It does no I/O and reads no clock: the time of
//! a read is an argument. It fails closed: after an error no byte comes out any more (STAGE-34).
//!
//! This crate must not know of jobs, files, sockets or any other crate of the workspace.

#![forbid(unsafe_code)]

mod chain;
mod error;
mod flag;
mod limit;
mod line;
mod phrase;
mod read_time;
mod search;
mod secrets;
mod section;
mod sink;
mod stamp;
mod token;
mod trace;
mod url;
mod utf8;

pub use error::TraceError;
pub use flag::{BadFlag, timestamps_wanted};
pub use limit::{DEFAULT_LIMIT, OVERHANG};
pub use line::Line;
pub use read_time::ReadTime;
pub use secrets::{MAX_PHRASE_BYTES, MAX_PHRASES, Secrets};
pub use section::Section;
pub use stamp::MAX_HELD_LINE;
pub use token::DEFAULT_TOKEN_PREFIXES;
pub use trace::{Kind, Origin, Settings, Trace};
