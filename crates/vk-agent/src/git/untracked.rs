//! Untracked files, ignored ones too, as `git ls-files -o` lists them.

use std::fs::File;
use std::io::Read;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::Unknown;
use super::index::{ObjectFormat, Tracked, parse};
use crate::beneath::Beneath;
use crate::context::shown;

/// Most bytes of an index.
const MAX_INDEX: u64 = 1 << 30;
/// Most bytes of `.git` files and configurations.
const MAX_SMALL: u64 = 1 << 20;
/// Most untracked files.
const MAX_FOUND: usize = 2_000_000;

/// Paths below the root, without those of git itself, of submodules and what is in repositories of
/// their own (such a repository is one path).
pub(crate) fn untracked(root: &Beneath) -> Result<Vec<Vec<u8>>, Unknown> {
    let git = git_dir(root, b"")?.ok_or(Unknown::NoRepository)?;
    let tracked = match read_file(&git, c"index", MAX_INDEX)? {
        Some(index) => parse(&index, object_format(&git)?)?,
        // Before the first add there is none, and nothing is tracked.
        None => Tracked::default(),
    };
    let mut found = Vec::new();
    let mut todo = vec![Vec::new()];
    while let Some(dir) = todo.pop() {
        for (name, kind) in list(root, &dir)? {
            let path = if dir.is_empty() {
                name.clone()
            } else {
                [&dir[..], b"/", &name].concat()
            };
            if name == b".git" || tracked.trees.contains(&path) {
                continue;
            }
            let is_dir = kind == FileType::Directory;
            if is_dir && !is_repository(root, &path) {
                todo.push(path);
            } else if !tracked.files.contains(&path) {
                if found.len() >= MAX_FOUND {
                    return Err(Unknown::TooMany(MAX_FOUND));
                }
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A directory's names, without pipes, sockets and devices, which git does not see.
fn list(root: &Beneath, path: &[u8]) -> Result<Vec<(Vec<u8>, FileType)>, Unknown> {
    let unreadable = |errno: Errno| Unknown::Read(shown(path).into_owned(), reason(errno));
    let dir = match root.open(path, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
        result => result.map_err(unreadable)?,
    };
    let mut list = Vec::new();
    for entry in Dir::read_from(&dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            kind => kind,
        };
        if matches!(
            kind,
            FileType::Directory | FileType::RegularFile | FileType::Symlink
        ) {
            list.push((name.to_bytes().to_vec(), kind));
        }
    }
    Ok(list)
}

/// Whether a directory below the root is the top of another repository.
fn is_repository(root: &Beneath, path: &[u8]) -> bool {
    let Ok(Some(git)) = git_dir(root, path) else {
        return false;
    };
    [c"HEAD", c"objects", c"refs"]
        .iter()
        .all(|name| statat(&git, *name, AtFlags::empty()).is_ok())
}

/// The git directory of a worktree: `.git` itself, or where a file of that name points.
fn git_dir(root: &Beneath, worktree: &[u8]) -> Result<Option<OwnedFd>, Unknown> {
    let at = if worktree.is_empty() {
        b".git".to_vec()
    } else {
        [worktree, b"/.git"].concat()
    };
    let unreadable = |errno: Errno| Unknown::Read(shown(&at).into_owned(), reason(errno));
    match root.open_dir(&at) {
        Ok(dir) => return Ok(Some(dir)),
        Err(Errno::NOTDIR) => {}
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(unreadable(errno)),
    }
    let file = root
        .open(&at, OFlags::RDONLY | OFlags::NONBLOCK)
        .map_err(unreadable)?;
    let text = read_bounded(file, MAX_SMALL).map_err(|why| Unknown::Read(".git".into(), why))?;
    let Some(target) = text.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii) else {
        return Ok(None);
    };
    // A submodule's lies in the git directory of the repository around it.
    let from = root.open_dir(worktree).map_err(unreadable)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(
        &from,
        target,
        flags,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    ) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(unreadable(errno)),
    }
}

/// SHA-1, unless the repository's configuration says otherwise.
fn object_format(git: &OwnedFd) -> Result<ObjectFormat, Unknown> {
    let config = read_file(git, c"config", MAX_SMALL)?.unwrap_or_default();
    let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
    let mut in_extensions = false;
    let mut format = ObjectFormat::Sha1;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_extensions = line.starts_with("[extensions]");
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_extensions) {
            match (key.trim(), value.trim()) {
                ("objectformat", "sha256") => format = ObjectFormat::Sha256,
                ("objectformat", "sha1") => format = ObjectFormat::Sha1,
                ("objectformat", other) => {
                    return Err(Unknown::Index(format!(
                        "object format {other} is not known"
                    )));
                }
                _ => {}
            }
        }
    }
    Ok(format)
}

/// A regular file of the git directory, whole.
fn read_file(git: &OwnedFd, name: &std::ffi::CStr, max: u64) -> Result<Option<Vec<u8>>, Unknown> {
    let shown = || format!(".git/{}", name.to_string_lossy());
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat2(git, name, flags, Mode::empty(), rules) {
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Unknown::Read(shown(), reason(errno))),
        Ok(fd) => read_bounded(fd, max)
            .map(Some)
            .map_err(|why| Unknown::Read(shown(), why)),
    }
}

fn read_bounded(fd: OwnedFd, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::from(fd).take(max + 1).read_to_end(&mut bytes);
    match read {
        Ok(n) if u64::try_from(n).is_ok_and(|n| n <= max) => Ok(bytes),
        Ok(_) => Err(format!("it is over {max} bytes long")),
        Err(error) => Err(error.to_string()),
    }
}

fn reason(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}
