//! What the tests with real VMs and the programs they send into a guest agree on: how an inode is
//! told ([`inode`]), how content is hashed ([`content`]), how a tree is listed ([`walk`]); and from where
//! tests take ports ([`port`]).
//!
//! The tests themselves (`tests/`) run the built programs as processes and know the insides of none.

#![forbid(unsafe_code)]

pub mod content;
pub mod inode;
pub mod port;
pub mod walk;
