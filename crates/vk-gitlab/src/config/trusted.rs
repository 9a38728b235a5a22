//! Files that decide what the daemon does: who may write them, and how much is read of them.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Who asks.
#[derive(Clone, Copy, Debug)]
struct Us {
    user: u32,
    group: u32,
    /// What the kernel shows for users that this user namespace does not have, where it has not every
    /// user: files that a container is given from outside most often belong to one of them.
    nobody: Option<u32>,
}

/// What matters of a file's metadata.
#[derive(Clone, Copy, Debug)]
struct About {
    user: u32,
    group: u32,
    mode: u32,
    /// It stands on a mount that nobody here can write to.
    read_only: bool,
    /// The configuration says that a platform mounts secrets here (`mounted_secrets`).
    mounted: bool,
}

/// What a file is, for the rules of who may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// The configuration itself. It says what else is trusted: nothing loosens its own rules.
    Config,
    /// Nothing secret, or what others' reading is only warned about (CFG-14).
    Open,
    /// A key that not everybody may read; a group may.
    Key,
}

/// A file as it was read.
pub(super) struct Trusted {
    pub(super) bytes: Vec<u8>,
    /// Its mode, where others than its owner may read it.
    pub(super) readable: Option<u32>,
}

/// Reads a file of at most so many bytes. It may be a symbolic link, as secrets often are: what counts
/// is the file it leads to. `mounted`: whether the configuration says that a platform mounts secrets
/// here, which loosens the rules for what stands on a read-only mount.
///
/// # Errors
/// It cannot be read, or others than the daemon and root decide what it holds; the text says what to do.
pub(super) fn read(
    path: &Path,
    most: u64,
    secrecy: Secrecy,
    mounted: bool,
) -> Result<Trusted, String> {
    let shown = path.display();
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} does not exist: create it"),
        io::ErrorKind::PermissionDenied => {
            format!("{shown} cannot be read by this user: let vk-gitlab's user own it, mode 0600")
        }
        _ => format!("{shown} cannot be read: {error}"),
    };
    // A pipe in its place must not hold the daemon.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    let mode = metadata.mode() & 0o777;
    let mount = rustix::fs::fstatvfs(&file);
    let about = About {
        user: metadata.uid(),
        group: metadata.gid(),
        mode,
        read_only: mount
            .is_ok_and(|mount| mount.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
        mounted,
    };
    check(path, &metadata, about, secrecy)?;
    let bytes = bounded(file, most).map_err(cannot)?;
    let Some(bytes) = bytes else {
        return Err(format!(
            "{shown} is larger than {most} bytes: it is no such file"
        ));
    };
    let readable = (mode & 0o044 != 0).then_some(mode);
    Ok(Trusted { bytes, readable })
}

fn check(path: &Path, metadata: &Metadata, about: About, secrecy: Secrecy) -> Result<(), String> {
    if !metadata.is_file() {
        return Err(format!("{} is no regular file", path.display()));
    }
    let us = Us {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
        nobody: nobody(),
    };
    let wrong = judged(about, us, secrecy);
    wrong.map_or(Ok(()), |wrong| {
        Err(format!(
            "{0} {1}",
            path.display(),
            wrong.replace("{}", &path.display().to_string())
        ))
    })
}

/// What is wrong with a file of ours, as the end of a sentence. A group that is the daemon's own may
/// write what it reads: where each user has a group, files are made so.
fn judged(about: About, us: Us, secrecy: Secrecy) -> Option<String> {
    let About {
        user, group, mode, ..
    } = about;
    let given = us.nobody == Some(user);
    let ours = user == 0 || user == us.user || us.user == 0;
    let by_platform = about.mounted && about.read_only && secrecy != Secrecy::Config;
    if given && !ours && !by_platform {
        let or = match (secrecy, about.mounted) {
            (Secrecy::Config, _) => "",
            (_, false) => ", or, in a container, mount it read-only and set mounted_secrets = true",
            (_, true) => ", or mount it read-only",
        };
        return Some(format!(
            "belongs to a user that this user namespace does not have (shown as {user}): chown it to vk-gitlab's user or root{or}"
        ));
    }
    if !given && !ours {
        return Some(format!(
            "belongs to user {user}, who is neither vk-gitlab's nor root: chown it to one of them"
        ));
    }
    if mode & 0o002 != 0 {
        return Some(format!(
            "can be written by everybody (mode {mode:o}): chmod o-w {{}}"
        ));
    }
    if mode & 0o020 != 0 && group != us.group && group != 0 {
        return Some(format!(
            "can be written by group {group} (mode {mode:o}): chmod g-w {{}}"
        ));
    }
    if secrecy == Secrecy::Key && mode & 0o004 != 0 && !by_platform {
        let or = match about.mounted {
            false => {
                "or, in a container whose platform mounts secrets so, set mounted_secrets = true"
            }
            true => "or mount it read-only: mounted_secrets is about such mounts alone",
        };
        return Some(format!(
            "is a key that everybody can read (mode {mode:o}): chmod o-r {{}}, {or}"
        ));
    }
    None
}

/// What users are shown as that this user namespace does not have; none where it has every user, that
/// one among them, or that is not known.
fn nobody() -> Option<u32> {
    let read = |path: &str| bounded(File::open(path).ok()?, 64 * 1024).ok()?;
    let text = |path: &str| String::from_utf8(read(path)?).ok();
    let shown = text("/proc/sys/kernel/overflowuid")?.trim().parse().ok()?;
    let has = has_user(&text("/proc/self/uid_map")?, shown)?;
    (!has).then_some(shown)
}

/// Whether a user namespace has this user, by its map: ranges of first, first outside, and length.
fn has_user(map: &str, user: u32) -> Option<bool> {
    for line in map.lines() {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (first, length) = (numbers.next()?.ok()?, numbers.nth(1)?.ok()?);
        let user = u64::from(user);
        if user >= first && user - first < length {
            return Some(true);
        }
    }
    Some(false)
}

/// All of a file; none where it has more bytes than that.
fn bounded(file: File, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= most);
    Ok(fits.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Us = Us {
        user: 500,
        group: 500,
        nobody: None,
    };

    #[test]
    fn who_may_write_a_file_is_who_may_be_trusted_with_it() {
        let (open, key) = (Secrecy::Open, Secrecy::Key);
        let rows = [
            (500, 500, 0o600, open, None),
            (0, 0, 0o644, open, None),
            (0, 500, 0o640, key, None),
            (0, 0, 0o664, open, None),
            (500, 500, 0o664, open, None),
            (500, 4, 0o640, open, None),
            (501, 501, 0o600, open, Some("belongs to user 501")),
            (501, 500, 0o644, open, Some("belongs to user 501")),
            (500, 500, 0o602, open, Some("chmod o-w")),
            (0, 0, 0o666, open, Some("chmod o-w")),
            (500, 4, 0o620, open, Some("chmod g-w")),
            (0, 4, 0o664, open, Some("chmod g-w")),
            (500, 500, 0o644, key, Some("chmod o-r")),
            (500, 500, 0o604, key, Some("chmod o-r")),
        ];
        for (user, group, mode, secrecy, wrong) in rows {
            let about = About {
                user,
                group,
                mode,
                read_only: false,
                mounted: false,
            };
            let told = judged(about, US, secrecy);
            let fits = match (&told, wrong) {
                (None, None) => true,
                (Some(told), Some(wrong)) => told.contains(wrong),
                _ => false,
            };
            assert!(fits, "{about:?} {secrecy:?}: {told:?}, not {wrong:?}");
        }
        let root = Us {
            user: 0,
            group: 0,
            nobody: None,
        };
        let theirs = About {
            user: 501,
            group: 501,
            mode: 0o600,
            read_only: false,
            mounted: false,
        };
        assert_eq!(judged(theirs, root, open), None, "root may read anybody's");
    }

    #[test]
    fn what_a_platform_mounts_read_only_is_trusted_where_the_configuration_says_so() {
        let inside = Us {
            nobody: Some(65534),
            ..US
        };
        let given = |user, mode, read_only, mounted| About {
            user,
            group: user,
            mode,
            read_only,
            mounted,
        };
        let key = Secrecy::Key;
        for (about, us) in [
            (given(65534, 0o400, true, true), inside),
            (given(65534, 0o444, true, true), inside),
            (given(500, 0o444, true, true), US),
        ] {
            assert_eq!(judged(about, us, key), None, "{about:?}");
        }
        // What a service's sandbox shows so, outside containers, nobody loosened.
        let sandboxed = "set mounted_secrets = true";
        let rows = [
            (given(65534, 0o400, true, false), inside, sandboxed),
            (
                given(65534, 0o400, false, true),
                inside,
                "mount it read-only",
            ),
            (given(500, 0o444, true, false), US, sandboxed),
            (given(500, 0o444, false, true), US, "or mount it read-only"),
            (given(65534, 0o420, true, true), inside, "chmod g-w"),
            (given(65534, 0o402, true, true), inside, "chmod o-w"),
            (given(501, 0o400, true, true), inside, "belongs to user 501"),
            (given(65534, 0o400, true, true), US, "belongs to user 65534"),
        ];
        for (about, us, wrong) in rows {
            let told = judged(about, us, key).unwrap();
            assert!(told.contains(wrong), "{about:?}: {told}");
        }
        let told = judged(given(65534, 0o400, true, true), inside, Secrecy::Config).unwrap();
        assert!(
            told.ends_with("chown it to vk-gitlab's user or root"),
            "{told}"
        );
    }

    #[test]
    fn a_namespace_has_the_users_of_its_map() {
        let whole = "         0          0 4294967295\n";
        assert_eq!(has_user(whole, 65534), Some(true));
        let rootless = "         0       1000          1\n         1     100000      65533\n";
        assert_eq!(has_user(rootless, 65533), Some(true));
        assert_eq!(has_user(rootless, 65534), Some(false));
        assert_eq!(has_user("0 1000 1\n65534 100000 1\n", 65534), Some(true));
        for nonsense in ["0\n", "a b c\n"] {
            assert_eq!(has_user(nonsense, 0), None, "{nonsense}");
        }
    }
}
