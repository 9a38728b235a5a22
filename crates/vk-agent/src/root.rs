//! The job's root as the agent reaches into it: every path is resolved inside it, whatever symlinks
//! the job laid.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, chownat, fchmod, fchown, fstat, mkdirat,
    openat2, readlinkat,
};
use rustix::io::Errno;
use vk_guest_proto::{Failure, FailureCode, FileInfo, FileKind, Opaque};

use crate::context::{OrFail, fail, shown};

/// The job's root directory, and the mount namespace that has it as its root.
#[derive(Debug)]
pub(crate) struct JobRoot {
    dir: OwnedFd,
    mounts: Option<OwnedFd>,
    /// A directory on the writable space, for its figures.
    writable: Option<OwnedFd>,
}

/// Who shall own what is made.
pub(crate) type Owner = Option<(u32, u32)>;

impl JobRoot {
    /// A root assembled from disks or directories.
    pub(crate) fn mounted(dir: OwnedFd, mounts: OwnedFd, writable: OwnedFd) -> Self {
        Self {
            dir,
            mounts: Some(mounts),
            writable: Some(writable),
        }
    }

    /// A directory as a root, without a namespace.
    pub(crate) fn plain(dir: OwnedFd) -> Self {
        Self {
            dir,
            mounts: None,
            writable: None,
        }
    }

    /// The agent's own root: nothing was mounted.
    pub(crate) fn own() -> Result<Self, Failure> {
        let dir = rustix::fs::open(
            "/",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .or_fail(|| "open the root directory".into())?;
        Ok(Self::plain(dir))
    }

    /// The namespace a command must enter.
    pub(crate) fn mounts(&self) -> Option<BorrowedFd<'_>> {
        self.mounts.as_ref().map(AsFd::as_fd)
    }

    /// Where the job's changes lie.
    pub(crate) fn writable(&self) -> Option<BorrowedFd<'_>> {
        self.writable.as_ref().map(AsFd::as_fd)
    }

    /// Opens a path of the job's, symlinks followed inside its root.
    pub(crate) fn open(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let rules = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(
            &self.dir,
            inside(path),
            flags | OFlags::CLOEXEC,
            mode,
            rules,
        )
    }

    /// A directory of the job's.
    pub(crate) fn open_dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// A whole regular file of at most `max` bytes.
    pub(crate) fn read_small(&self, path: &[u8], max: u64) -> Result<Vec<u8>, Failure> {
        let what = || format!("read {}", shown(path));
        let file = self
            .open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
            .or_fail(what)?;
        let mut bytes = Vec::new();
        let mut file = std::io::Read::take(std::fs::File::from(file), max.saturating_add(1));
        std::io::Read::read_to_end(&mut file, &mut bytes).or_fail(what)?;
        if u64::try_from(bytes.len()).is_ok_and(|len| len > max) {
            return fail(
                FailureCode::TooLarge,
                format!("{}: over {max} bytes", what()),
            );
        }
        Ok(bytes)
    }

    /// What a path is, or `None` where there is nothing.
    pub(crate) fn stat(&self, path: &[u8], follow: bool) -> Result<Option<FileInfo>, Failure> {
        let what = || format!("look at {}", shown(path));
        let flags = if follow {
            OFlags::PATH
        } else {
            OFlags::PATH | OFlags::NOFOLLOW
        };
        let fd = match self.open(path, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            result => result.or_fail(what)?,
        };
        let stat = fstat(&fd).or_fail(what)?;
        let kind = kind_of(&stat);
        let target = if kind == FileKind::Symlink {
            readlinkat(&fd, c"", Vec::new()).or_fail(what)?.into_bytes()
        } else {
            Vec::new()
        };
        Ok(Some(FileInfo {
            kind,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            target: Opaque::from(target),
        }))
    }

    /// Makes a directory and its parents, as far as they are missing; what is made has `mode` and
    /// `owner`.
    pub(crate) fn make_dirs(
        &self,
        path: &[u8],
        mode: u32,
        owner: Owner,
    ) -> Result<OwnedFd, Failure> {
        let what = || format!("make the directory {}", shown(path));
        let mut at = Vec::with_capacity(path.len());
        let mut dir = self.open_dir(b"/").or_fail(what)?;
        for name in path
            .split(|b| *b == b'/')
            .filter(|name| !name.is_empty() && *name != b".")
        {
            at.push(b'/');
            at.extend_from_slice(name);
            dir = match self.open_dir(&at) {
                Err(Errno::NOENT) => {
                    make_dir(&dir, name, mode, owner).or_fail(what)?;
                    self.open_dir(&at).or_fail(what)?
                }
                result => result.or_fail(what)?,
            };
        }
        Ok(dir)
    }

    /// Makes a directory and its parents where they are missing, and lets everybody change it, whoever
    /// had it before.
    pub(crate) fn make_open(&self, path: &[u8], owner: Owner) -> Result<(), Failure> {
        let what = || format!("open the directory {} to all", shown(path));
        self.make_dirs(path, 0o755, owner)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.open(path, flags, Mode::empty()).or_fail(what)?;
        if let Some((uid, gid)) = owner {
            fchown(&dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).or_fail(what)?;
        }
        fchmod(&dir, Mode::from_raw_mode(0o777)).or_fail(what)
    }
}

/// Makes one directory; that it is there already is no error.
pub(crate) fn make_dir(at: impl AsFd, name: &[u8], mode: u32, owner: Owner) -> Result<(), Errno> {
    match mkdirat(&at, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => return Ok(()),
        result => result?,
    }
    if let Some((uid, gid)) = owner {
        chownat(
            &at,
            name,
            Some(Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
    }
    Ok(())
}

/// `path` without its leading slashes, `.` for the root itself.
fn inside(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    match path.get(start..) {
        None | Some([]) => b".",
        Some(rest) => rest,
    }
}

fn kind_of(stat: &Stat) -> FileKind {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => FileKind::File,
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}
