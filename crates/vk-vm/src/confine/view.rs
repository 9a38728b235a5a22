//! The file system that a confined program sees: an empty tmpfs with its places bound into it.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use rustix::process::pivot_root;

use super::identity::explain;
use super::program::{Access, Place};

/// Room for directories and mount points only; no content is ever written to the tmpfs.
const TMPFS: &std::ffi::CStr = c"size=1m,nr_inodes=4096,mode=0755";

/// Builds a view of `places` on `root` and makes it the root of this process's file systems.
pub(super) fn enter(root: &Path, places: &[Place]) -> io::Result<()> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|e| explain("part from the host's mounts", e))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("view", root, "tmpfs", flags, TMPFS).map_err(|e| explain("mount the view", e))?;
    for place in in_order(places) {
        bind(root, place).map_err(|e| explain(&format!("show {}", place.path.display()), e))?;
    }
    mount_remount(root, MountFlags::BIND | MountFlags::RDONLY | flags, c"")
        .map_err(|e| explain("make the view read-only", e))?;
    std::env::set_current_dir(root)?;
    // The old root ends up on top of the new one, and is then taken away.
    pivot_root(".", ".").map_err(|e| explain("make the view the root", e))?;
    unmount(".", UnmountFlags::DETACH).map_err(|e| explain("leave the host's root", e))?;
    std::env::set_current_dir("/")
}

/// Directories before what lies in them.
fn in_order(places: &[Place]) -> Vec<&Place> {
    let mut places: Vec<_> = places.iter().collect();
    places.sort();
    places.dedup_by(|next, kept| next.path == kept.path);
    places
}

fn bind(root: &Path, place: &Place) -> io::Result<()> {
    let target = inside(root, &place.path)?;
    if fs::metadata(&place.path)?.is_dir() {
        fs::create_dir_all(&target)?;
    } else if !target.exists() {
        fs::create_dir_all(target.parent().unwrap_or(root))?;
        fs::File::create(&target)?;
    }
    mount_bind_recursive(&place.path, &target)?;
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | inherited(&target)?;
    match place.access {
        Access::Read => flags |= MountFlags::NODEV | MountFlags::RDONLY,
        Access::Write => flags |= MountFlags::NODEV | MountFlags::NOEXEC,
        Access::Device => flags |= MountFlags::NOEXEC,
    }
    mount_remount(&target, flags, c"")?;
    Ok(())
}

/// The place's path below the view's root; a path that is not absolute or goes up is refused.
fn inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a plain absolute path");
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return Err(refused());
    }
    let mut target = root.to_owned();
    for component in components {
        match component {
            Component::Normal(name) => target.push(name),
            _ => return Err(refused()),
        }
    }
    Ok(target)
}

/// Flags of the mount beneath that an unprivileged namespace may not take away.
fn inherited(target: &Path) -> io::Result<MountFlags> {
    let has = statvfs(target)?.f_flag;
    let table = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = table.into_iter().filter(|(held, _)| has.contains(*held));
    Ok(kept.fold(MountFlags::empty(), |all, (_, flag)| all | flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_lands_at_its_own_path_below_the_root() {
        let root = Path::new("/run/view");
        assert_eq!(
            inside(root, Path::new("/usr/bin/x")).unwrap(),
            Path::new("/run/view/usr/bin/x")
        );
        for path in ["usr/bin/x", "/usr/../etc", ""] {
            assert!(inside(root, Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_directory_is_bound_before_what_lies_in_it_and_the_stricter_access_wins() {
        let places = [
            Place::write("/a/b"),
            Place::read("/a/b/c"),
            Place::read("/a"),
            Place::read("/a/b"),
        ];
        let order: Vec<_> = in_order(&places).into_iter().cloned().collect();
        assert_eq!(
            order,
            [
                Place::read("/a"),
                Place::read("/a/b"),
                Place::read("/a/b/c")
            ]
        );
    }
}
