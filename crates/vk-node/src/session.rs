//! The session with the hub: dialled again and again, one at a time.

mod outbox;
mod serve;

pub(crate) use outbox::Outbox;
pub(crate) use serve::{Link, Told, chain, keep};
