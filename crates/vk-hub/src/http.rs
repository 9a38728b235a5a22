//! The listener for nodes, daemons and clients: HTTP/1.1, over TLS 1.3 or loopback.

mod answer;
mod auth;
mod client;
mod enrol;
mod heard;
mod listener;
mod node;
mod relay;
mod routes;
mod seats;
mod websocket;

pub use listener::{Context, Listener};
pub use seats::{Caps, Seats, TurnedAway};
