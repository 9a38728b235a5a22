//! The hub's fleet core: nodes, capacity, reservations, placement, jobs, their output until it is
//! settled, and history. A pure state machine ([`vk_step::Core`]): no I/O, clock or randomness.
//!
//! Read [`Input`], [`Record`] and [`Effect`] first. Enrolment, keys, signatures, steering commands
//! and the bytes of output are the edge's; this crate must not know of them.

#![forbid(unsafe_code)]

mod answer;
mod config;
mod from_node;
mod io;
mod request;
mod summary;

pub use answer::{Answer, OutputAnswer, Refusal};
pub use config::{Approve, Config, Settings};
pub use from_node::FromNode;
pub use io::{Effect, Input, Record};
pub use request::{Digest, OperatorRequest, Principal, Request, RequestHandle, SessionHandle};
pub use summary::JobSummary;
