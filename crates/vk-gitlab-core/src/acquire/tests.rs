//! The acquire core's tests, by subject.

mod answers;
mod capacity;
mod drain;
mod gates;
mod lease;
mod random;
mod runner;
mod verify;
