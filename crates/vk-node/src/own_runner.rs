//! Whether the host has a gitlab-runner of its own. Such a host takes no job of the hub's, unless
//! its operator says that the runner there is nothing to it (PLACE-13, PLACE-20).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// The program's name, and its unit's.
const NAME: &str = "gitlab-runner";

/// Where systemd looks for units.
const UNITS: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/etc/init.d",
];

/// Where its packages and its manual put the program, whatever this process's PATH.
const PROGRAMS: [&str; 5] = [
    "/usr/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/local/sbin",
    "/opt/gitlab-runner/bin",
];

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    units: Vec<PathBuf>,
    programs: Vec<PathBuf>,
}

impl Places {
    /// The host's.
    pub(crate) fn of_host() -> Places {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // An empty part means the working directory, which is nobody's place for programs here.
        let searched = std::env::split_paths(&path).filter(|part| part.is_absolute());
        Places {
            units: UNITS.iter().map(PathBuf::from).collect(),
            programs: PROGRAMS.iter().map(PathBuf::from).chain(searched).collect(),
        }
    }

    /// The first trace of a runner.
    fn look(&self) -> Option<PathBuf> {
        let unit = self.units.iter().find_map(|dir| unit_in(dir));
        unit.or_else(|| {
            let mut programs = self.programs.iter().map(|dir| dir.join(NAME));
            programs.find(|program| is_program(program))
        })
    }
}

/// As [`found`] on this host, for whoever asks before a node runs.
#[must_use]
pub fn of_host(config: &Config) -> Option<String> {
    found(config, &Places::of_host())
}

/// What keeps this host from taking the hub's jobs, in words for its operators; none where the
/// configuration says that nothing does, or nothing was found.
pub(crate) fn found(config: &Config, places: &Places) -> Option<String> {
    if config.no_runner {
        return None;
    }
    let found = places.look()?;
    Some(format!(
        "{} is on this host: a host runs jobs of its own gitlab-runner or of the hub, never both; \
         remove it, or set [node] runner = \"none\" where it takes no jobs",
        found.display()
    ))
}

/// A unit called like the runner: as its package calls it, or with more behind it, as hosts with
/// several call theirs. One that is masked cannot be started.
fn unit_in(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?;
    let mut units: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let stem = name.strip_suffix(".service").unwrap_or(&name);
            let rest = stem.strip_prefix(NAME);
            // `gitlab-runner.service.d` holds what is changed of a unit, not one.
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', '_']))
        })
        .map(|entry| entry.path())
        .filter(|path| fs::metadata(path).is_ok_and(|file| file.is_file()))
        .collect();
    units.sort();
    units.into_iter().next()
}

/// A file that may be run; a link that leads nowhere may not.
fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Host {
        dir: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Host {
            let dir = tempfile::tempdir().unwrap();
            for part in ["units", "more-units", "bin"] {
                fs::create_dir(dir.path().join(part)).unwrap();
            }
            Host { dir }
        }

        fn put(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.dir.path().join(name);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn found(&self, config: &str) -> Option<String> {
            let at = |name: &str| self.dir.path().join(name);
            let places = Places {
                units: vec![at("units"), at("none"), at("more-units")],
                programs: vec![at("bin")],
            };
            let file = at("vk.toml");
            fs::write(&file, config).unwrap();
            found(&Config::read(Some(&file)).unwrap(), &places)
        }
    }

    /// PLACE-20
    #[test]
    fn a_unit_or_a_program_of_that_name_is_an_own_runner_unless_the_setting_says_none() {
        for (name, mode) in [
            ("units/gitlab-runner.service", 0o644),
            ("more-units/gitlab-runner@.service", 0o644),
            ("more-units/gitlab-runner-fast.service", 0o644),
            ("units/gitlab-runner", 0o755),
            ("bin/gitlab-runner", 0o755),
        ] {
            let host = Host::new();
            assert_eq!(host.found(""), None);
            let path = host.put(name, mode);
            let says = host.found("").unwrap();
            assert!(says.contains(path.to_str().unwrap()), "{says}");
            assert!(says.contains("[node] runner = \"none\""), "{says}");
            assert_eq!(host.found("[node]\nrunner = \"none\"\n"), None);
            fs::remove_file(path).unwrap();
            assert_eq!(host.found(""), None);
        }
    }

    /// PLACE-20
    #[test]
    fn what_only_looks_like_one_is_none() {
        let host = Host::new();
        host.put("bin/gitlab-runner", 0o644);
        host.put("bin/gitlab-runner-helper", 0o755);
        host.put("units/gitlab-runners-of-others.service", 0o644);
        host.put("units/my-gitlab-runner.service", 0o644);
        let at = |name: &str| host.dir.path().join(name);
        // Masked, of a package that is gone, and a folder of changes.
        std::os::unix::fs::symlink("/dev/null", at("more-units/gitlab-runner.service")).unwrap();
        std::os::unix::fs::symlink("/no/such", at("units/gitlab-runner.service")).unwrap();
        fs::create_dir(at("units/gitlab-runner.service.d")).unwrap();
        assert_eq!(host.found(""), None);
    }
}
