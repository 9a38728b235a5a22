//! `user[:group]` to numbers, by the image's own `/etc/passwd` and `/etc/group`: there is no name
//! service in a static program, and the image's would be the image's code.

use vk_guest_proto::{Failure, FailureCode};

use crate::context::{fail, shown};

/// Most bytes of either file.
pub(crate) const MAX_DATABASE: u64 = 4 << 20;
/// Most supplementary groups (the kernel's own bound).
const MAX_GROUPS: usize = 65_536;

/// Who a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl Identity {
    pub(crate) const ROOT: Identity = Identity {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
    };
}

/// Resolves a specification. A name is looked for before a number is read as such; a number that
/// nobody has is taken as it is, with group 0. Without a group, the groups that list the user come
/// along; with one, it alone counts.
pub(crate) fn resolve(spec: &[u8], passwd: &[u8], group: &[u8]) -> Result<Identity, Failure> {
    let (user, named_group) = match spec.iter().position(|b| *b == b':') {
        Some(colon) => {
            let (user, rest) = spec.split_at(colon);
            (
                user,
                rest.split_first()
                    .map(|(_, group)| group)
                    .filter(|g| !g.is_empty()),
            )
        }
        None => (spec, None),
    };
    let who = find_user(if user.is_empty() { b"0" } else { user }, passwd)?;
    let (gid, groups) = match named_group {
        Some(name) => (find_group(name, group)?, Vec::new()),
        None => (who.gid, groups_of(who.name, group)),
    };
    Ok(Identity {
        uid: who.uid,
        gid,
        groups,
    })
}

struct User<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
}

fn find_user<'a>(user: &[u8], passwd: &'a [u8]) -> Result<User<'a>, Failure> {
    let entries = || {
        lines(passwd).filter_map(|line| {
            let mut fields = line.split(|b| *b == b':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            let uid = number(fields.nth(1)?)?;
            Some(User {
                name,
                uid,
                gid: number(fields.next()?)?,
            })
        })
    };
    if let Some(found) = entries().find(|entry| entry.name == user) {
        return Ok(found);
    }
    let Some(uid) = number(user) else {
        let message = format!("no user {} in the image's /etc/passwd", shown(user));
        return fail(FailureCode::UnknownUser, message);
    };
    Ok(entries().find(|entry| entry.uid == uid).unwrap_or(User {
        name: b"",
        uid,
        gid: 0,
    }))
}

/// Name, number and members of each group.
fn group_entries(group: &[u8]) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    lines(group).filter_map(|line| {
        let mut fields = line.split(|b| *b == b':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let gid = number(fields.nth(1)?)?;
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

fn find_group(name: &[u8], group: &[u8]) -> Result<u32, Failure> {
    let found = group_entries(group)
        .find(|entry| entry.0 == name)
        .map(|entry| entry.1);
    found.or_else(|| number(name)).ok_or_else(|| {
        let message = format!("no group {} in the image's /etc/group", shown(name));
        Failure::new(FailureCode::UnknownUser, message)
    })
}

fn groups_of(user: &[u8], group: &[u8]) -> Vec<u32> {
    let lists = |members: &[u8]| members.split(|b| *b == b',').any(|member| member == user);
    let mut groups: Vec<u32> = group_entries(group)
        .filter(|(_, _, members)| !user.is_empty() && lists(members))
        .map(|(_, gid, _)| gid)
        .take(MAX_GROUPS)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.starts_with(b"#"))
}

/// A decimal number below the kernel's "no user".
fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|n| *n != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n# note\nbroken\n\
        app:x:1000:1001:App:/home/app:/bin/sh\n12:x:77:78::/:\n";
    const GROUP: &[u8] = b"root:x:0:\napp:x:1001:\ndocker:x:999:app,other\nwheel:x:10:other\n\
        audio:x:29:app\n";

    fn id(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity {
            uid,
            gid,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn users_and_groups_are_the_images() {
        for (spec, expected) in [
            ("", id(0, 0, &[])),
            ("root", id(0, 0, &[])),
            ("app", id(1000, 1001, &[29, 999])),
            ("1000", id(1000, 1001, &[29, 999])),
            ("1000:", id(1000, 1001, &[29, 999])),
            ("app:docker", id(1000, 999, &[])),
            ("1000:5", id(1000, 5, &[])),
            ("4711", id(4711, 0, &[])),
            ("4711:4712", id(4711, 4712, &[])),
            // A name of digits is a name first.
            ("12", id(77, 78, &[])),
            ("77", id(77, 78, &[])),
            (":docker", id(0, 999, &[])),
        ] {
            assert_eq!(
                resolve(spec.as_bytes(), PASSWD, GROUP),
                Ok(expected),
                "{spec}"
            );
        }
    }

    #[test]
    fn unknown_names_and_impossible_numbers_are_refused() {
        for spec in [
            "nobody",
            "app:nogroup",
            "4294967295",
            "99999999999",
            "-1",
            "+1",
            "1 ",
        ] {
            let failure = resolve(spec.as_bytes(), PASSWD, GROUP).unwrap_err();
            assert_eq!(failure.code, FailureCode::UnknownUser, "{spec}");
        }
    }

    #[test]
    fn an_image_without_users_still_has_numbers() {
        assert_eq!(resolve(b"", b"", b""), Ok(Identity::ROOT));
        assert_eq!(resolve(b"5:6", b"", b""), Ok(id(5, 6, &[])));
        assert!(resolve(b"root", b"", b"").is_err());
    }
}
