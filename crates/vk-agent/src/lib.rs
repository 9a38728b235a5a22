//! The guest's init, and the host's hands in the guest.
//!
//! One program with two lives: process 1 of a virtual machine, and an ordinary process in namespaces
//! (`vk-agent process`). In both it dials the host, never listens, and does what the frames of
//! `vk-guest-proto` ask: runs commands, mounts disks, makes and extracts archives. It stays outside
//! the job's root.
//!
//! It must not know anything else of the workspace.

#![deny(unsafe_code)]

mod agent;
mod archive;
mod beneath;
pub mod boot;
pub mod command;
mod conn;
mod context;
mod control;
mod dial;
mod exec;
pub mod fault;
mod files;
mod git;
mod glob;
mod mounts;
mod process;
mod reaper;
mod root;
mod stream;
mod sys;
mod usage;
