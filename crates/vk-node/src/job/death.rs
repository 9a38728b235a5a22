//! How a job's process began, kept for the case that it ends without a result, and what can be told
//! of its end then.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};
use vk_node_core::{By, Death};

/// Which start of the host this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// What says it in its place, in builds with kill points.
pub(super) const TEST_BOOT_ID: &str = "VK_TEST_BOOT_ID";
/// Where control groups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What is durable of a job's process before it does anything. Files of before it was kept have
/// nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Began {
    /// The host's start; empty where it cannot be told.
    boot: String,
    /// The process's control group, from the root of all.
    cgroup: Option<String>,
    /// Processes of the group that had been ended for want of memory when it began; none where it
    /// counts none.
    group_oom_kills: Option<u64>,
    /// Of the whole host.
    host_oom_kills: Option<u64>,
}

impl Began {
    /// Of this process.
    pub(crate) fn now() -> Began {
        let cgroup = fs::read_to_string("/proc/self/cgroup");
        let cgroup = cgroup.ok().and_then(|text| own_cgroup(&text));
        Self::with(Path::new("/"), cgroup)
    }

    /// Of a process in a control group, with counters below a root.
    fn with(root: &Path, cgroup: Option<String>) -> Began {
        Began {
            boot: boot_id(),
            group_oom_kills: oom_kills_of_group(root, cgroup.as_deref()),
            host_oom_kills: oom_kills_of_host(root),
            cgroup,
        }
    }

    /// What is known of the process's death, where this is how it began and `exit` what its parent
    /// saw, if that was here.
    pub(crate) fn died(&self, exit: Option<ExitStatus>) -> Death {
        self.died_with(Path::new("/"), exit)
    }

    fn died_with(&self, root: &Path, exit: Option<ExitStatus>) -> Death {
        let by = match exit {
            Some(status) => by(status),
            None if is_other_boot(&self.boot, &boot_id()) => By::Reboot,
            None => By::Unseen,
        };
        // Counters begin anew with the host.
        if by == By::Reboot {
            return Death {
                by,
                ..Death::default()
            };
        }
        let group = oom_kills_of_group(root, self.cgroup.as_deref());
        let since = |before: Option<u64>, after: Option<u64>| match (before, after) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        // The host's counter is asked where the group has none: it may be of anybody.
        let (oom_kills, host_oom_kills) = match since(self.group_oom_kills, group) {
            Some(kills) => (kills, 0),
            None => {
                let of_host = since(self.host_oom_kills, oom_kills_of_host(root));
                (0, of_host.unwrap_or(0))
            }
        };
        Death {
            by,
            oom_kills,
            host_oom_kills,
        }
    }
}

fn by(status: ExitStatus) -> By {
    match (status.signal(), status.code()) {
        (Some(signal), _) => By::Signal { signal },
        (None, Some(code)) => By::Exit { code },
        (None, None) => By::Unseen,
    }
}

fn is_other_boot(then: &str, now: &str) -> bool {
    !then.is_empty() && !now.is_empty() && then != now
}

/// Which start of the host this is; empty where it cannot be told.
pub(super) fn boot_id() -> String {
    if cfg!(feature = "kill-points")
        && let Ok(id) = std::env::var(TEST_BOOT_ID)
    {
        return id;
    }
    let id = fs::read_to_string(BOOT_ID).unwrap_or_default();
    id.trim().to_owned()
}

/// The control group of `/proc/<pid>/cgroup`; none where that is the root, which counts nothing, or
/// where the host has groups of version 1 alone.
fn own_cgroup(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_plain = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    is_plain.then(|| path.to_owned())
}

/// Processes that the kernel ended for want of memory: of a control group.
fn oom_kills_of_group(root: &Path, cgroup: Option<&str>) -> Option<u64> {
    let groups = CGROUPS.strip_prefix('/').unwrap_or(CGROUPS);
    let group = root.join(groups).join(cgroup?);
    oom_kills(&group.join("memory.events"))
}

/// The same of the whole host.
fn oom_kills_of_host(root: &Path) -> Option<u64> {
    oom_kills(&root.join("proc/vmstat"))
}

fn oom_kills(counters: &Path) -> Option<u64> {
    let text = fs::read_to_string(counters).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_is_found_where_there_is_one_of_version_2() {
        for (text, expected) in [
            (
                "0::/system.slice/vk-node.service\n",
                Some("system.slice/vk-node.service"),
            ),
            ("5:memory:/a\n0::/b\n", Some("b")),
            ("0::/\n", None),
            ("5:memory:/a\n", None),
            ("0::/../elsewhere\n", None),
            ("", None),
        ] {
            assert_eq!(own_cgroup(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn kills_for_want_of_memory_are_the_groups_or_the_hosts_and_never_mixed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let group = root.join("sys/fs/cgroup/a/b");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::write(root.join("proc/vmstat"), "pgfault 3\noom_kill 12\n").unwrap();
        assert_eq!(oom_kills_of_group(root, Some("a/b")), None);
        assert_eq!(oom_kills_of_group(root, None), None);
        assert_eq!(oom_kills_of_host(root), Some(12));
        let events = "low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n";
        fs::write(group.join("memory.events"), events).unwrap();
        assert_eq!(oom_kills_of_group(root, Some("a/b")), Some(1));
    }

    /// FAIL-34: a group that counts is believed, and the host's counter is nobody's in particular.
    #[test]
    fn where_no_group_counts_the_hosts_counter_is_told_as_the_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let (proc, group) = (root.join("proc"), root.join("sys/fs/cgroup/a"));
        fs::create_dir_all(&proc).unwrap();
        fs::create_dir_all(&group).unwrap();
        let host = |kills: u64| fs::write(proc.join("vmstat"), format!("oom_kill {kills}\n"));
        host(12).unwrap();
        let began = Began::with(root, Some("a".to_owned()));
        let told = |began: &Began| {
            let death = began.died_with(root, None);
            (death.oom_kills, death.host_oom_kills)
        };
        assert_eq!(told(&began), (0, 0));
        host(14).unwrap();
        assert_eq!(told(&began), (0, 2));
        // A group that counts from now on says nothing of before.
        let events = group.join("memory.events");
        fs::write(&events, "oom_kill 7\n").unwrap();
        assert_eq!(told(&began), (0, 2));
        let began = Began::with(root, Some("a".to_owned()));
        host(20).unwrap();
        assert_eq!(told(&began), (0, 0));
        fs::write(&events, "oom_kill 8\n").unwrap();
        assert_eq!(told(&began), (1, 0));
    }

    /// FAIL-34
    #[test]
    fn a_death_is_told_by_what_its_parent_saw_and_else_by_the_hosts_start() {
        let now = Began::now();
        let other = Began {
            boot: "another".to_owned(),
            ..now.clone()
        };
        // Whoever saw its end was there all the time.
        let killed = ExitStatus::from_raw(9);
        assert_eq!(other.died(Some(killed)).by, By::Signal { signal: 9 });
        let failed = ExitStatus::from_raw(101 << 8);
        assert_eq!(other.died(Some(failed)).by, By::Exit { code: 101 });
        assert_eq!(other.died(None).by, By::Reboot);
        assert_eq!(now.died(None).by, By::Unseen);
        assert_eq!(Began::default().died(None).by, By::Unseen);
    }
}
