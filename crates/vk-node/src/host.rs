//! What the host is and has: for inventory, heartbeat and the ledger's budgets.

use std::path::Path;

use vk_hub_proto::node_session::{
    Hardware, Heartbeat, Inventory, StorageFree, StorageInfo, StorageRole, Versions,
};

use crate::config::{Config, Schedule};
use crate::job::directory::JobDir;
use crate::state_dir::StateDir;
use vk_node_core::Budgets;

/// Files of jobs that are looked at when the disk they take is measured.
const ENTRIES: usize = 20_000;

/// A value of /proc/meminfo in MiB.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn load1_hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_whitespace().next()?.split_once('.')?;
    let hundredths = part.get(..2)?.parse::<u32>().ok()?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)
}

pub(crate) fn free(path: &Path) -> Option<StorageFree> {
    let of = rustix::fs::statvfs(path).ok()?;
    Some(StorageFree {
        role: StorageRole::Jobs,
        free_bytes: of.f_bavail.saturating_mul(of.f_frsize),
        free_inodes: of.f_favail,
        inodes: of.f_files,
    })
}

/// The host's name.
#[must_use]
pub(crate) fn hostname() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// A sign of life, the ledger aside.
pub(crate) fn heartbeat(state: &StateDir) -> Heartbeat {
    Heartbeat {
        mem_available_mib: meminfo(&read("/proc/meminfo"), "MemAvailable"),
        storage: free(&state.jobs()).into_iter().collect(),
        load1_hundredths: load1_hundredths(&read("/proc/loadavg")),
        ..Heartbeat::default()
    }
}

/// What a node says of itself first.
pub(crate) fn inventory(config: &Config, state: &StateDir, versions: Versions) -> Inventory {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let inventory = Inventory {
        hostname: hostname(),
        hardware: Hardware {
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            cpu_model: model,
            mem_total_mib: meminfo(&read("/proc/meminfo"), "MemTotal"),
            memory_nodes: Vec::new(),
            checks: Vec::new(),
        },
        storage: storage(state).into_iter().collect(),
        versions,
        runner: None,
        labels: config.labels.clone(),
        // As a job's registry token is minted for it (REG-04).
        registry_url: config
            .registry
            .as_ref()
            .and_then(|registry| registry.base_url(&config.insecure_registries)),
    };
    inventory.bounded()
}

fn storage(state: &StateDir) -> Option<StorageInfo> {
    const TMPFS: i64 = 0x0102_1994;
    let path = state.jobs();
    let of = rustix::fs::statvfs(&path).ok()?;
    let device = rustix::fs::stat(&path).ok()?.st_dev;
    let kind = rustix::fs::statfs(&path).ok()?.f_type;
    Some(StorageInfo {
        role: StorageRole::Jobs,
        path: path.display().to_string(),
        device: format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        ),
        size_bytes: of.f_blocks.saturating_mul(of.f_frsize),
        tmpfs: kind == TMPFS,
        speed: None,
    })
}

/// What the ledger may grant: as configured, else by what the host has. Of memory an eighth, at
/// least 512 MiB, stays the host's; of disk, what is free plus what jobs took of theirs.
pub(crate) fn budgets(schedule: &Schedule, state: &StateDir) -> Budgets {
    let measured = || {
        let total = meminfo(&read("/proc/meminfo"), "MemTotal")?;
        Some(total.saturating_sub((total / 8).max(512)))
    };
    let disk = || {
        let free = free(&state.jobs())?.free_bytes;
        Some(free.saturating_add(taken(state)))
    };
    Budgets {
        mem_mib: schedule.mem_mib.or_else(measured),
        disk_bytes: match schedule.disk_admission {
            true => schedule.disk_bytes.or_else(disk),
            false => None,
        },
    }
}

fn taken(state: &StateDir) -> u64 {
    let mut entries = ENTRIES;
    let jobs = state.jobs_on_disk().unwrap_or_default();
    jobs.into_iter()
        .map(|job| JobDir::new(job, state.job(job)).disk_use(&mut entries))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let text = "MemTotal:       16280060 kB\nMemFree:  1 kB\nMemAvailable:   2097152 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(15_898));
        assert_eq!(meminfo(text, "MemAvailable"), Some(2048));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(load1_hundredths("1.05 0.3 0.1 1/2 3\n"), Some(105));
        assert_eq!(load1_hundredths(""), None);
    }

    #[test]
    fn what_jobs_wrote_counts_as_free_for_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(taken(&state), 0);
        let job = vk_hub_proto::JobId::from_bytes([1; 16]);
        let work = state.job(job).join("work");
        std::fs::create_dir_all(&work).unwrap();
        std::fs::write(work.join("disk"), vec![1; 100_000]).unwrap();
        assert!(taken(&state) >= 100_000);
    }
}
