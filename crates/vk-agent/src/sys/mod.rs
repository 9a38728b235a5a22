//! The calls that need `unsafe`, and nothing else: a vsock address, and the children that are made
//! by fork, which between fork and exec may use only calls that are safe after a signal.

#![allow(unsafe_code)]

mod after_fork;
mod holder;
mod interface;
mod launch;
mod vsock;

pub(crate) use holder::{JobMounts, job_mounts};
pub(crate) use interface::{interface_up, loopback_up};
pub(crate) use launch::{Launch, Record, launch};
pub(crate) use vsock::connect_vsock;
