//! A program's way to the hub, daemon and node alike: TLS 1.3 trusting exactly the enrolled CA,
//! the connection's exporter, signed requests, enrolment, key files, the session's opening and the
//! pauses between redials.
//!
//! It must know neither GitLab nor jobs nor the state machines.

#![forbid(unsafe_code)]

pub mod api;
mod connect;
mod enroll;
pub mod enrolment;
mod file;
mod key;
mod observe;
mod redial;
mod request;
pub mod session;
mod tls;
mod token;
mod url;

pub use connect::{ConnectError, Connection, Dialer, Stream};
pub use enroll::{EnrollError, Joined, enroll_node, enroll_relay};
pub use file::FileError;
pub use key::{Key, KeyError};
pub use observe::{Asked, Observer};
pub use redial::Redial;
pub use request::{Answer, RequestError, Signer};
pub use tls::{TlsError, Trust, spki_sha256};
pub use token::EnrolmentToken;
pub use url::{HubUrl, HubUrlError};
