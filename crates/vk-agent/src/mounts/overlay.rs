//! Overlays of a read-only tree and writable space.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use vk_guest_proto::{Failure, Mode};

use crate::context::OrFail;

/// An overlay to be mounted.
pub(super) struct Overlay<'a> {
    /// What is seen through it.
    pub(super) lower: &'a Path,
    /// What is seen where that has nothing, each where those before it have nothing.
    pub(super) beneath: &'a [&'a Path],
    /// Where its changes go; made where missing.
    pub(super) writable: &'a Path,
    pub(super) mode: Mode,
}

pub(super) fn mount_overlay(overlay: &Overlay<'_>, at: &Path) -> Result<(), Failure> {
    let what = || format!("overlay {} at {}", overlay.lower.display(), at.display());
    let (upper, work) = (
        overlay.writable.join("upper"),
        overlay.writable.join("work"),
    );
    fs::create_dir_all(&upper).or_fail(what)?;
    if !at.exists() {
        fs::create_dir_all(at).or_fail(what)?;
    }
    // The overlay's own directory is the upper one, so that must look like the lower one.
    let like = fs::metadata(overlay.lower).or_fail(what)?;
    fs::set_permissions(&upper, Permissions::from_mode(like.mode() & 0o7777)).or_fail(what)?;
    match (
        overlay.mode,
        chown(&upper, Some(like.uid()), Some(like.gid())),
    ) {
        // In a namespace the owner may be one that has no name there.
        (Mode::Process, _) | (Mode::Vm, Ok(())) => {}
        (Mode::Vm, Err(error)) => return Err(error).or_fail(what),
    }
    let mut last = Errno::INVAL;
    // The writable space does not outlive the job: nothing in it needs syncing, where the kernel
    // knows how to leave that out.
    for extra in extras(overlay.mode) {
        fresh(&work).or_fail(what)?;
        let mut options = Vec::new();
        let beneath = overlay.beneath.iter().map(|path| (":", *path));
        let lower = std::iter::once(("lowerdir=", overlay.lower)).chain(beneath);
        for (name, path) in lower.chain([
            (",upperdir=", upper.as_path()),
            (",workdir=", work.as_path()),
        ]) {
            options.extend_from_slice(name.as_bytes());
            options.extend(escaped(path.as_os_str().as_bytes()));
        }
        options.extend_from_slice(extra.as_bytes());
        let options = CString::new(options)
            .map_err(std::io::Error::other)
            .or_fail(what)?;
        match mount(
            "overlay",
            at,
            "overlay",
            MountFlags::NOATIME,
            Some(options.as_c_str()),
        ) {
            Ok(()) => return Ok(()),
            Err(errno) => last = errno,
        }
        if last != Errno::INVAL {
            break;
        }
    }
    Err(last).or_fail(what)
}

/// An empty directory for the overlay's own use. What an earlier mount, or one that failed, left
/// there says that its changes may not be whole, and would be refused.
fn fresh(work: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(work)
}

/// Options to try, in order. `redirect_dir` lets a job rename a directory of its image;
/// `userxattr` is what an unprivileged overlay keeps its marks in.
fn extras(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Vm => &[",redirect_dir=on,volatile", ",redirect_dir=on", ""],
        Mode::Process => &[",userxattr,volatile", ",userxattr"],
    }
}

/// Overlay's own escapes: a colon divides layers, a comma options.
fn escaped(path: &[u8]) -> impl Iterator<Item = u8> {
    path.iter().flat_map(|byte| {
        let escape = matches!(byte, b'\\' | b':' | b',').then_some(b'\\');
        escape.into_iter().chain([*byte])
    })
}
