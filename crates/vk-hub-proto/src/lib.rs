//! Every message between `vk-gitlab`, `vk-hub` and `vk node`: the client API, the two sessions,
//! the job spec and its result, and the exact bytes that are signed.
//!
//! Types, bounds and spelling only: no I/O, no async, no cryptography, no clock. A list or string
//! that is too long, or an identifier in another spelling, is refused while it is read. Unknown
//! fields are ignored and unknown enum values read as `Other`, so that versions may meet; what an
//! older peer did not send has a default.

#![forbid(unsafe_code)]

pub mod client;
pub mod dispatch;
pub mod display;
pub mod enroll;
pub mod hex;
pub mod id;
pub mod job;
pub mod limit;
pub mod name;
pub mod node_session;
pub mod relay_session;
pub mod secret;
pub mod signed;

pub use id::{CommandId, Incarnation, JobId, NodeId, RelayId, RequestId, ReservationId};
pub use name::Name;
pub use secret::Secret;
