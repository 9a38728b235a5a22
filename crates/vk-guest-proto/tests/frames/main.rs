//! Frames of any content: sent as they are, and bent on the way.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may"
)]

mod bent;
mod kinds;
mod round_trips;
