//! A new user namespace's one user.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::sys;

/// Leaves for new namespaces, a user namespace among them, in which the caller's own user and group
/// (and no others) are `inside`.
///
/// The caller then holds every capability over what these namespaces own, and none over the rest.
pub(super) fn enter_as(inside: u32, flags: UnshareFlags) -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(flags | UnshareFlags::NEWUSER).map_err(|e| explain("leave the namespaces", e))?;
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{inside} {user} 1"))?;
    write("/proc/self/gid_map", &format!("{inside} {group} 1"))
}

fn write(path: &str, line: &str) -> io::Result<()> {
    fs::write(path, line).map_err(|e| explain(&format!("write {path}"), e))
}

/// The same error, saying what was tried.
pub(super) fn explain(what: &str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
