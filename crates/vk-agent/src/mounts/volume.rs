//! Disks by their serial, directories, memory.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use vk_guest_proto::{DiskFormat, Failure, FailureCode, Mode, Volume};

use crate::context::{OrFail, fail, shown};
use crate::fault::log;

/// How long a disk may take to appear.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where the kernel shows its block devices.
const BLOCK: &str = "/sys/block";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Makes a volume's tree accessible; where it is then. Disks and memory are mounted `at`, a
/// directory is used where it lies.
pub(super) fn attach(mode: Mode, volume: &Volume, at: &Path) -> Result<PathBuf, Failure> {
    let what = || format!("mount {volume:?} at {}", at.display());
    match volume {
        Volume::Directory { path } => {
            let path = PathBuf::from(OsStr::from_bytes(path));
            if mode == Mode::Vm {
                return fail(
                    FailureCode::Unsupported,
                    "a directory as a volume of a machine",
                );
            }
            if !path.is_absolute() || !path.is_dir() {
                let message = format!("{} is not an absolute directory", path.display());
                return fail(FailureCode::NotFound, message);
            }
            return Ok(path);
        }
        Volume::Disk { serial, format } => {
            let disk = find(serial)?;
            let what = || format!("mount the disk {} ({})", shown(serial), disk.display());
            fs::create_dir_all(at).or_fail(what)?;
            match format {
                DiskFormat::Erofs => {
                    read_ahead(&disk);
                    mount(&disk, at, "erofs", MountFlags::RDONLY, None)
                }
                DiskFormat::Ext4 => mount_ext4(&disk, at),
            }
            .or_fail(what)?;
        }
        Volume::Memory { max_bytes } => {
            fs::create_dir_all(at).or_fail(what)?;
            let options = CString::new(format!("mode=0755,size={max_bytes}"));
            let options = options.map_err(std::io::Error::other).or_fail(what)?;
            mount(
                "tmpfs",
                at,
                "tmpfs",
                MountFlags::empty(),
                Some(options.as_c_str()),
            )
            .or_fail(what)?;
        }
    }
    Ok(at.to_owned())
}

/// How much the kernel reads of an image's file where it reads any: a request to the host costs more
/// than what it brings, and a shell's libraries are read whole in any case.
const READ_AHEAD_KIB: &[u8] = b"1024";

/// Has the kernel read that much ahead. A disk that is read in small pieces is a slower one, no worse.
fn read_ahead(disk: &Path) {
    let Some(name) = disk.file_name() else {
        return;
    };
    let at = Path::new(BLOCK).join(name).join("queue/read_ahead_kb");
    if let Err(error) = fs::write(&at, READ_AHEAD_KIB) {
        log(&format!("write {}: {error}", at.display()));
    }
}

/// A job's own disk is new, and gone with the job: nobody need write its inode tables or read its
/// bitmaps beforehand, which the kernel would do beside the job's first commands, nor suspect what
/// lies on it.
const NEW: &CStr = c"noinit_itable,noblock_validity,no_prefetch_block_bitmaps";

fn mount_ext4(disk: &Path, at: &Path) -> Result<(), Errno> {
    let try_with = |options| mount(disk, at, "ext4", MountFlags::NOATIME, options);
    match try_with(Some(NEW)) {
        // A kernel that does not know one of them, for it has nothing that it would switch off.
        Err(Errno::INVAL) => try_with(None),
        result => result,
    }
}

/// Shows a tree at a place, read-only. It becomes so beside the place first: the job gets a copy of
/// what is mounted there at that moment, and changing it later would change the agent's own only.
pub(super) fn show_read_only(tree: &Path, beside: &Path, at: &Path) -> Result<(), Failure> {
    let what = || format!("mount {} read-only", tree.display());
    fs::create_dir_all(beside).or_fail(what)?;
    mount_bind(tree, beside).or_fail(what)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | kept_flags(beside).or_fail(what)?;
    mount_remount(beside, flags, c"").or_fail(what)?;
    mount_bind(beside, at).or_fail(what)
}

/// The flags a mount has already: a namespace may add to those it was given, not take away.
fn kept_flags(at: &Path) -> Result<MountFlags, Errno> {
    let has = rustix::fs::statvfs(at)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    Ok(pairs
        .into_iter()
        .filter(|(had, _)| has.contains(*had))
        .map(|(_, keep)| keep)
        .collect())
}

/// The device of the disk with a serial, waited for.
fn find(serial: &[u8]) -> Result<PathBuf, Failure> {
    if let Some(device) = usual(serial) {
        return Ok(device);
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let device = devices().find(|device| read_serial(device).as_deref() == Some(serial));
        if let Some(name) = device.as_deref().and_then(Path::file_name) {
            return Ok(Path::new("/dev").join(name));
        }
        if Instant::now() >= end {
            let there: Vec<String> = devices()
                .map(|device| {
                    let serial = read_serial(&device).unwrap_or_default();
                    format!("{} ({})", device.display(), shown(&serial))
                })
                .collect();
            let message = format!(
                "no disk with the serial {:?}; there are: {}",
                shown(serial),
                there.join(", ")
            );
            return fail(FailureCode::NotFound, message);
        }
        sleep(LOOK_EVERY);
    }
}

/// The device where virtio disks are as a rule: no list of all devices is made for it, and no disk
/// behind it is asked, each of which is a request to the host.
fn usual(serial: &[u8]) -> Option<PathBuf> {
    let names = (b'a'..=b'z').map(|letter| format!("vd{}", char::from(letter)));
    let mut names = names.map_while(|name| {
        let found = fs::read(Path::new(BLOCK).join(&name).join("serial")).ok()?;
        Some((name, trimmed(&found).to_vec()))
    });
    let (name, _) = names.find(|(_, found)| found == serial)?;
    Some(Path::new("/dev").join(name))
}

fn devices() -> impl Iterator<Item = PathBuf> {
    fs::read_dir(BLOCK)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// A virtio disk has its serial beside it, a SCSI disk on its page 0x80, behind four bytes.
fn read_serial(device: &Path) -> Option<Vec<u8>> {
    let virtio = fs::read(device.join("serial")).ok();
    let scsi = || {
        fs::read(device.join("device/vpd_pg80"))
            .ok()?
            .get(4..)
            .map(<[u8]>::to_vec)
    };
    let serial = virtio.or_else(scsi)?;
    Some(trimmed(&serial).to_vec())
}

fn trimmed(serial: &[u8]) -> &[u8] {
    let text = serial.split(|byte| *byte == 0).next().unwrap_or_default();
    text.trim_ascii()
}
