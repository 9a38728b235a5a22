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
//! A variant's name alone means whatever bears it; before it may stand, each with a dot, the core it
//! belongs to, where a program has several ([`KillPoints::of`]), and `Record` or `Effect`:
//! `job.Effect.Removed:after:1`.
//!
//! `VK_KILL_AT=@<file>` reads the moment from a file whenever a boundary is reached, so that a
//! program that runs can be told. No file is no moment; counting begins when the file's text
//! changes, and whoever dies removes the file just before.
//!
//! With `:hold` behind it in that file the program does not die: it writes its process number to the
//! file's name with the ending `held`, removes the file and stops (SIGSTOP), so that a test does
//! something else at that very moment: kills what the program has started, or cuts a connection. It
//! goes on when that word is removed and the process is continued.
//!
//! Times that no test can wait for, and bounds that none can fill, come from `VK_TEST_<NAME>` in such
//! a build ([`seconds`], [`number`]).
//!
//! It must know neither cores nor edges: variants are names.

#![forbid(unsafe_code)]

mod at;
#[cfg(feature = "kill-points")]
mod counting;
#[cfg(not(feature = "kill-points"))]
mod idle;

pub use at::{At, AtError, Boundary, Kind};
#[cfg(feature = "kill-points")]
pub use counting::{KillPoints, number, seconds};
#[cfg(not(feature = "kill-points"))]
pub use idle::{KillPoints, number, seconds};
