//! What of the guest's image decides how scripts run in it: shell, user, home, environment.

use vk_guest_proto::{FileKind, FileOut};
use vk_oci::RunConfig;
use vk_vm::channel::{Found, Guest};

use crate::script::Shell;

/// Shells, best first, as gitlab-runner looks for them.
const SHELLS: [(&str, Shell); 7] = [
    ("/usr/local/bin/bash", Shell::Bash),
    ("/usr/bin/bash", Shell::Bash),
    ("/bin/bash", Shell::Bash),
    ("/usr/local/bin/sh", Shell::Sh),
    ("/usr/bin/sh", Shell::Sh),
    ("/bin/sh", Shell::Sh),
    ("/busybox/sh", Shell::Sh),
];
/// Runs the same shell behind an image's entrypoint.
pub(crate) const DETECT: &str = "for s in /usr/local/bin/bash /usr/bin/bash /bin/bash \
    /usr/local/bin/sh /usr/bin/sh /bin/sh /busybox/sh; do [ -x $s ] && exec $s; done; \
    echo shell not found; exit 1";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where a user's home stands.
pub(crate) const PASSWD: &[u8] = b"/etc/passwd";
const PASSWD_MAX: u64 = 1 << 20;
/// Variables of an image; more is no image's.
const ENV_MAX: usize = 4096;

/// Where shells may be, for a set-up to look at.
pub(crate) fn shells() -> Vec<Vec<u8>> {
    let paths = SHELLS.iter().map(|(path, _)| path.as_bytes().to_vec());
    paths.collect()
}

/// How commands run in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuestEnv {
    /// The shell's path and kind; none where the image has none.
    pub(crate) shell: Option<(String, Shell)>,
    /// `user[:group]`, empty for root.
    pub(crate) user: String,
    /// The user's shell by `/etc/passwd`, where the user stands there.
    pub(crate) login_shell: Option<String>,
    /// What runs the shell, where anything does.
    pub(crate) entrypoint: Vec<String>,
    /// Where it starts.
    pub(crate) cwd: String,
    /// The image's variables, with `PATH` and `HOME`.
    pub(crate) env: Vec<(String, String)>,
}

impl GuestEnv {
    /// A variable of the image; of two the later.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let mut from_last = self.env.iter().rev();
        let found = from_last.find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    /// By what the guest's set-up found at [`shells`] and in [`PASSWD`]. `user` and `entrypoint` are the
    /// job's wishes, empty where it has none.
    pub(crate) async fn read(
        guest: &Guest,
        found: Found,
        image: &RunConfig,
        user: &str,
        entrypoint: &[String],
    ) -> GuestEnv {
        let is_program =
            |info: &vk_guest_proto::FileInfo| info.kind == FileKind::File && info.mode & 0o111 != 0;
        let shell = SHELLS
            .iter()
            .zip(found.files)
            .find_map(|((path, shell), info)| {
                info.filter(is_program)
                    .map(|_| ((*path).to_owned(), *shell))
            });
        let user = if user.is_empty() {
            image.user.as_str()
        } else {
            user
        };
        let passwd = match found.content {
            Some(passwd) => passwd,
            None => long_passwd(guest).await,
        };
        let passwd = String::from_utf8_lossy(&passwd);
        let home = home(&passwd, user);
        GuestEnv {
            shell,
            user: user.to_owned(),
            login_shell: login_shell(&passwd, user),
            entrypoint: entrypoint_of(image, entrypoint),
            cwd: if image.working_dir.starts_with('/') {
                image.working_dir.clone()
            } else {
                "/".to_owned()
            },
            env: environment(image, &home),
        }
    }
}

/// One that a set-up does not bring along; empty where the image has none.
async fn long_passwd(guest: &Guest) -> Vec<u8> {
    let mut passwd = Vec::new();
    let file = FileOut {
        path: PASSWD.to_vec(),
        max_bytes: PASSWD_MAX,
    };
    if guest.read_file(file, &mut passwd).await.is_err() {
        passwd.clear();
    }
    passwd
}

/// The job's entrypoint replaces the image's; an empty word clears it.
fn entrypoint_of(image: &RunConfig, wanted: &[String]) -> Vec<String> {
    match wanted {
        [] => image.entrypoint.clone(),
        [only] if only.is_empty() => Vec::new(),
        wanted => wanted.to_vec(),
    }
}

fn environment(image: &RunConfig, home: &str) -> Vec<(String, String)> {
    let pairs = image
        .env
        .iter()
        .take(ENV_MAX)
        .filter_map(|pair| pair.split_once('='));
    let mut env: Vec<_> = pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for (name, value) in [("PATH", PATH), ("HOME", home)] {
        if !env.iter().any(|(have, _)| have == name) {
            env.push((name.to_owned(), value.to_owned()));
        }
    }
    env
}

/// A user's home by `/etc/passwd`; root's where it is not told.
fn home(passwd: &str, user: &str) -> String {
    let name = user.split(':').next().unwrap_or_default();
    let name = if name.is_empty() { "0" } else { name };
    let of = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find_map(|fields| match fields.as_slice() {
            [login, _, uid, _, _, home, ..] if *login == name || *uid == name => {
                Some((*home).to_owned())
            }
            _ => None,
        });
    match of {
        Some(home) if home.starts_with('/') => home,
        _ if matches!(name, "0" | "root") => "/root".to_owned(),
        _ => "/".to_owned(),
    }
}

/// A user's shell, as a shell that asks for the entry of its own number finds it; none where the file
/// has lines that C libraries read in ways of their own.
fn login_shell(passwd: &str, user: &str) -> Option<String> {
    let entry = |line: &str| {
        let first = line.chars().next()?;
        let plain = !(first.is_whitespace() || "#+-".contains(first));
        match line.split(':').collect::<Vec<_>>().as_slice() {
            [login, _, uid, _, _, _, shell] if plain => Some((
                (*login).to_owned(),
                uid.parse::<u32>().ok()?,
                (*shell).to_owned(),
            )),
            _ => None,
        }
    };
    let entries: Vec<_> = passwd.lines().map(entry).collect::<Option<_>>()?;
    let name = user.split(':').next().unwrap_or_default();
    let by_name = || entries.iter().find(|(login, ..)| login == name);
    let uid = match name {
        "" => 0,
        // A name of digits is a name first.
        _ => by_name().map_or_else(|| name.parse().ok(), |(_, uid, _)| Some(*uid))?,
    };
    let (.., shell) = entries.iter().find(|(_, of, _)| *of == uid)?;
    match shell.as_str() {
        "" => Some("/bin/sh".to_owned()),
        shell => Some(shell.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_shell_is_what_passwd_says_of_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/zsh\ntoor:x:0:0:again:/root:/bin/csh\n\
                      build:x:1000:1000::/home/build:\n12:x:77:78::/:/bin/ksh\n";
        for (user, expected) in [
            ("", Some("/bin/zsh")),
            ("root:5", Some("/bin/zsh")),
            ("toor", Some("/bin/zsh")),
            ("0", Some("/bin/zsh")),
            ("build", Some("/bin/sh")),
            ("1000:50", Some("/bin/sh")),
            ("12", Some("/bin/ksh")),
            ("4242", None),
            ("nobody", None),
        ] {
            assert_eq!(login_shell(passwd, user).as_deref(), expected, "{user}");
        }
        for odd in [
            "#root:x:0:0::/:/bin/ksh",
            " a:x:5:5::/:/x",
            "+::::::",
            "a:x:5:5:/:/no",
            "",
        ] {
            assert_eq!(login_shell(&format!("{odd}\n{passwd}"), ""), None, "{odd}");
        }
        assert_eq!(login_shell("", ""), None);
    }

    #[test]
    fn a_users_home_is_what_passwd_says() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbuild:x:1000:1000::/home/build:/bin/sh\nbad\n";
        for (user, expected) in [
            ("", "/root"),
            ("root", "/root"),
            ("0:0", "/root"),
            ("build", "/home/build"),
            ("1000:50", "/home/build"),
            ("4242", "/"),
        ] {
            assert_eq!(home(passwd, user), expected, "{user}");
        }
        assert_eq!(home("", ""), "/root");
    }

    #[test]
    fn a_jobs_entrypoint_replaces_or_clears_the_images() {
        let image = RunConfig {
            entrypoint: vec!["/entry".to_owned()],
            ..RunConfig::default()
        };
        assert_eq!(entrypoint_of(&image, &[]), ["/entry"]);
        assert_eq!(
            entrypoint_of(&image, &[String::new()]),
            Vec::<String>::new()
        );
        assert_eq!(entrypoint_of(&image, &["/mine".to_owned()]), ["/mine"]);
    }

    #[test]
    fn an_image_without_a_path_gets_one() {
        let image = RunConfig {
            env: vec!["A=b=c".to_owned()],
            ..RunConfig::default()
        };
        let env = environment(&image, "/root");
        let get = |name: &str| {
            env.iter()
                .find(|(have, _)| have == name)
                .map(|(_, value)| value)
        };
        assert_eq!(get("A").map(String::as_str), Some("b=c"));
        assert_eq!(get("HOME").map(String::as_str), Some("/root"));
        assert_eq!(get("PATH").map(String::as_str), Some(PATH));
    }
}
