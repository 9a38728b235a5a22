//! Single files in and out.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, openat, renameat, unlinkat,
};
use vk_guest_proto::limits::MAX_CHUNK;
use vk_guest_proto::{
    Channel, Failure, FailureCode, FileIn, FileOut, StreamToAgent, StreamToHost, TransferEnd,
};

use crate::agent::Agent;
use crate::conn::{Incoming, Outgoing};
use crate::context::{OrFail, fail, shown};
use crate::exec::identity;
use crate::root::Owner;

/// Writes a file: beside its place first, then renamed into it.
pub(crate) fn write(
    agent: &Agent,
    incoming: &mut Incoming<StreamToAgent>,
    file: &FileIn,
) -> Result<TransferEnd, Failure> {
    let what = || format!("write {}", shown(&file.path));
    let root = agent.root()?;
    let owner = agent.owner(&identity(&root, &file.owner)?);
    let (parent, name) = split(&file.path)?;
    let dir = if file.create_parents {
        root.make_dirs(parent, 0o755, owner)?
    } else {
        root.open_dir(parent).or_fail(what)?
    };
    let mode = Mode::from_raw_mode(file.mode & 0o7777);
    if file.append {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let fd = openat(&dir, name, flags | OFlags::CLOEXEC, mode).or_fail(what)?;
        return fill(incoming, fd, mode, owner, &file.path);
    }
    let beside = [b".vk-", name].concat();
    let beside = beside.get(..beside.len().min(255)).unwrap_or_default();
    let _ = unlinkat(&dir, beside, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = openat(&dir, beside, flags, Mode::RUSR | Mode::WUSR).or_fail(what)?;
    let written = fill(incoming, fd, mode, owner, &file.path).and_then(|end| {
        renameat(&dir, beside, &dir, name)
            .or_fail(what)
            .map(|()| end)
    });
    if written.is_err() {
        let _ = unlinkat(&dir, beside, AtFlags::empty());
    }
    written
}

fn fill(
    incoming: &mut Incoming<StreamToAgent>,
    fd: OwnedFd,
    mode: Mode,
    owner: Owner,
    path: &[u8],
) -> Result<TransferEnd, Failure> {
    let what = || format!("write {}", shown(path));
    let mut file = File::from(fd);
    let mut bytes = 0_u64;
    loop {
        match incoming.next() {
            Ok(StreamToAgent::Data { bytes: chunk }) => {
                file.write_all(&chunk).or_fail(what)?;
                bytes = bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(0));
            }
            Ok(StreamToAgent::End) => break,
            Ok(StreamToAgent::Request { .. }) => {
                return fail(
                    FailureCode::Protocol,
                    format!("{}: a second request", what()),
                );
            }
            Err(gone) => return fail(FailureCode::Protocol, format!("{}: {gone}", what())),
        }
    }
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).or_fail(what)?;
    }
    // After the owner, whose change takes the set-user-ID bit away.
    fchmod(&file, mode).or_fail(what)?;
    Ok(TransferEnd { entries: 1, bytes })
}

/// The parent and the last name of an absolute path.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), Failure> {
    let bad = || {
        let message = format!("{:?} is not an absolute path of a file", shown(path));
        Failure::new(FailureCode::Invalid, message)
    };
    if path.first() != Some(&b'/') || path.contains(&0) {
        return Err(bad());
    }
    let slash = path.iter().rposition(|b| *b == b'/').ok_or_else(bad)?;
    let (parent, name) = path
        .split_at_checked(slash.saturating_add(1))
        .ok_or_else(bad)?;
    if matches!(name, b"" | b"." | b"..") {
        Err(bad())
    } else {
        Ok((parent, name))
    }
}

/// Sends a file.
pub(crate) fn read(
    agent: &Agent,
    out: &mut Outgoing,
    file: &FileOut,
) -> Result<TransferEnd, Failure> {
    let what = || format!("read {}", shown(&file.path));
    let root = agent.root()?;
    // Without NONBLOCK a pipe laid there would hold the stream for ever.
    let fd = root
        .open(&file.path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
        .or_fail(what)?;
    let stat = fstat(fd.as_fd()).or_fail(what)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return fail(
            FailureCode::Invalid,
            format!("{}: not a regular file", what()),
        );
    }
    let too_large = || {
        fail(
            FailureCode::TooLarge,
            format!("{}: over {} bytes", what(), file.max_bytes),
        )
    };
    if u64::try_from(stat.st_size).is_ok_and(|size| size > file.max_bytes) {
        return too_large();
    }
    let mut source = File::from(fd);
    let mut chunk = vec![0; MAX_CHUNK];
    let mut bytes = 0_u64;
    loop {
        let n = source.read(&mut chunk).or_fail(what)?;
        let Some(read) = chunk.get(..n).filter(|read| !read.is_empty()) else {
            break;
        };
        bytes = bytes.saturating_add(u64::try_from(n).unwrap_or(0));
        if bytes > file.max_bytes {
            return too_large();
        }
        let frame = StreamToHost::Data {
            channel: Channel::Content,
            bytes: read.into(),
        };
        out.send(&frame).or_fail(what)?;
    }
    Ok(TransferEnd { entries: 1, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_path_with_a_last_name_is_a_files() {
        assert_eq!(split(b"/etc/hosts"), Ok((&b"/etc/"[..], &b"hosts"[..])));
        assert_eq!(split(b"/x"), Ok((&b"/"[..], &b"x"[..])));
        for bad in ["", "x", "etc/x", "/", "/etc/", "/etc/.", "/etc/..", "/a\0b"] {
            assert!(split(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
