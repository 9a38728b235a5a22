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
    /// Processes that had been ended for want of memory when it began.
    oom_kills: Option<u64>,
}

impl Began {
    /// Of this process.
    pub(crate) fn now() -> Began {
        let cgroup = fs::read_to_string("/proc/self/cgroup");
        let cgroup = cgroup.ok().and_then(|text| own_cgroup(&text));
        Began {
            boot: boot_id(),
            oom_kills: oom_kills(Path::new("/"), cgroup.as_deref()),
            cgroup,
        }
    }

    /// What is known of the process's death, where this is how it began and `exit` what its parent
    /// saw, if that was here.
    pub(crate) fn died(&self, exit: Option<ExitStatus>) -> Death {
        let by = match exit {
            Some(status) => by(status),
            None if is_other_boot(&self.boot, &boot_id()) => By::Reboot,
            None => By::Unseen,
        };
        let after = oom_kills(Path::new("/"), self.cgroup.as_deref());
        let oom_kills = match (self.oom_kills, after, by) {
            // Counters begin anew with the host.
            (_, _, By::Reboot) => 0,
            (Some(before), Some(after), _) => after.saturating_sub(before),
            _ => 0,
        };
        Death { by, oom_kills }
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

fn boot_id() -> String {
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

/// Processes that the kernel ended for want of memory: of a control group, else of the whole host.
fn oom_kills(root: &Path, cgroup: Option<&str>) -> Option<u64> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let count = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    };
    let of_group = cgroup.and_then(|group| {
        let path = Path::new(CGROUPS).join(group).join("memory.events");
        count(&inside(&path))
    });
    of_group.or_else(|| count(&inside(Path::new("/proc/vmstat"))))
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
    fn kills_for_want_of_memory_are_the_groups_where_it_counts_them() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/a/b");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        assert_eq!(oom_kills(root.path(), Some("a/b")), None);
        let vmstat = root.path().join("proc/vmstat");
        fs::write(vmstat, "pgfault 3\noom_kill 12\n").unwrap();
        assert_eq!(oom_kills(root.path(), Some("a/b")), Some(12));
        let events = "low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n";
        fs::write(group.join("memory.events"), events).unwrap();
        assert_eq!(oom_kills(root.path(), Some("a/b")), Some(1));
        assert_eq!(oom_kills(root.path(), None), Some(12));
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
