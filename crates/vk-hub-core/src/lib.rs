//! The hub's fleet core: nodes, capacity, reservations, placement, jobs, their output until it is
//! settled, and history. A pure state machine ([`vk_step::Core`]): no I/O, clock or randomness.
//!
//! Read [`Input`], [`Record`] and [`Effect`] first. Enrolment, keys, signatures, steering commands
//! and the bytes of output are the edge's; this crate must not know of them.
//!
//! The way of a job: `submit` makes it, `capacity` and `class` find it a node, `start` sends it and
//! hears what became of that, `held` compares after every reconnect, `stored` and `output` follow
//! its bytes, `finish` ends it, `settle` lets it go; `lost` and `session` watch who is silent.
//! `relays` holds the daemons' sessions, `approvals` what operators decided of GitLab's servers and
//! projects.
//! Kept state changes in `apply` alone, live and when opened.
//!
//! Affinity to nodes that have a job's built image (PLACE-30 to PLACE-38, PLACE-44) is not built:
//! every job starts on its reservation, or by load.

#![forbid(unsafe_code)]

mod answer;
mod apply;
mod approvals;
mod book;
mod cancel;
mod capacity;
mod check;
mod class;
mod client;
mod clock;
mod config;
mod finish;
mod fleet;
mod from_node;
mod from_relay;
mod held;
mod history;
mod io;
mod job;
mod lease;
mod lost;
mod memory;
mod message;
mod node;
mod open;
mod output;
mod registry;
mod relays;
mod request;
mod reservation;
mod rows;
mod seek;
mod session;
mod settle;
mod start;
mod status;
mod steering;
mod stored;
mod submit;
mod summary;
mod timers;
mod wait;

pub use answer::{Answer, OutputAnswer, Refusal};
pub use approvals::{
    Decision, GitLabProject, GitLabServer, NumberError, ProjectNumber, ServerNumber,
};
pub use config::{Approve, Config, Settings};
pub use fleet::Fleet;
pub use from_node::FromNode;
pub use from_relay::FromRelay;
pub use io::{Effect, Input, Record};
pub use registry::{Registry, TokenScope};
pub use relays::{RELAY_VERSIONS, RelayStatus};
pub use request::{Digest, OperatorRequest, Principal, Request, RequestHandle, SessionHandle};
pub use rows::{Keep, Row, Subject};
pub use session::VERSIONS;
pub use status::{JobStatus, NodeStatus, ReservationStatus};
pub use summary::JobSummary;
