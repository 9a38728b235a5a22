//! The job core's tests, by subject, in a small world of their own.

mod cancel;
mod closing;
mod crash;
mod crash_points;
mod fake_gitlab;
mod fake_hub;
mod finish;
mod happy;
mod ported;
mod random;
mod refusals;
mod relay;
mod store;
mod submit;
mod trace;
mod world;
