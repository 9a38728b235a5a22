//! Kill points: a program built with `kill-points` counts the boundaries between its records and
//! effects and dies, as by `kill -9`, at the one that `VK_KILL_AT` names. That is the only way a
//! test chooses the moment of a kill. Built without the feature nothing is counted, read or done.
//!
//! `VK_KILL_AT=<Variant>:<before|synced|after>:<n>`: the n-th time, counted from 1, that
//! - `before`: a step with this record or effect is about to be written,
//! - `synced`: a step with this record or effect is durable and none of its effects is released,
//! - `after`: this effect has been released, or this record is durable and its step's first effect
//!   has been released (all of them where there is none).
//!
//! It must know neither cores nor edges: variants are names.

#![forbid(unsafe_code)]

mod at;
#[cfg(feature = "kill-points")]
mod counting;
#[cfg(not(feature = "kill-points"))]
mod idle;

pub use at::{At, AtError, Boundary};
#[cfg(feature = "kill-points")]
pub use counting::KillPoints;
#[cfg(not(feature = "kill-points"))]
pub use idle::KillPoints;
