//! What the guest uses, from `/proc`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, sleep};
use std::time::Duration;

use rustix::fd::BorrowedFd;
use vk_guest_proto::Usage;

/// How often memory is sampled.
const SAMPLE: Duration = Duration::from_millis(250);

/// The most memory seen in use, in KiB.
#[derive(Debug, Default)]
pub(crate) struct Peak(AtomicU64);

impl Peak {
    /// Samples for ever, first in a while: what begins now has used nothing yet.
    pub(crate) fn keep_sampling(peak: std::sync::Arc<Self>) {
        // Without the thread, the peak is that of the moments it was asked at.
        let _ = Builder::new()
            .name("memory".into())
            .stack_size(64 * 1024)
            .spawn(move || {
                loop {
                    sleep(SAMPLE);
                    peak.sample();
                }
            });
    }

    /// Memory in use now.
    fn sample(&self) -> Option<u64> {
        let used = memory_in_use(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
        self.0.fetch_max(used, Ordering::Relaxed);
        Some(used)
    }
}

/// The figures of a whole machine, which a process among others does not have.
pub(crate) fn of_machine(peak: &Peak, writable: Option<BorrowedFd<'_>>) -> Usage {
    let memory_kib = peak.sample();
    Usage {
        cpu_ms: std::fs::read_to_string("/proc/stat")
            .ok()
            .and_then(|text| cpu_ms(&text)),
        memory_kib,
        memory_peak_kib: memory_kib.map(|_| peak.0.load(Ordering::Relaxed)),
        disk_bytes: writable.and_then(disk_bytes),
        oom_kills: oom_kills(),
    }
}

/// The figures of a process: only the disk's are its own.
pub(crate) fn of_process(writable: Option<BorrowedFd<'_>>) -> Usage {
    Usage {
        cpu_ms: None,
        memory_kib: None,
        memory_peak_kib: None,
        disk_bytes: writable.and_then(disk_bytes),
        oom_kills: None,
    }
}

/// Processes killed so far for want of memory.
pub(crate) fn oom_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    field(&text, "oom_kill")
}

fn disk_bytes(writable: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(writable).ok()?;
    Some(
        stat.f_blocks
            .saturating_sub(stat.f_bfree)
            .saturating_mul(stat.f_frsize),
    )
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name))
            .then(|| words.next()?.parse().ok())
            .flatten()
    })
}

fn memory_in_use(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal:")?.checked_sub(field(meminfo, "MemAvailable:")?)
}

/// User, nice and system time of all processors. A tick is 10 ms on every Linux.
fn cpu_ms(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = line
        .split_whitespace()
        .take(3)
        .map(|word| word.parse::<u64>().ok());
    Some(ticks.sum::<Option<u64>>()?.saturating_mul(10))
}

/// Memory the kernel has, in KiB: `MemTotal`, without a file of twenty-odd lines made for it.
pub(crate) fn memory_kib() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    info.totalram.saturating_mul(unit) / 1024
}

/// Milliseconds since the kernel started.
pub(crate) fn uptime_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_by_name() {
        let meminfo = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n";
        assert_eq!(memory_in_use(meminfo), Some(600));
        assert_eq!(memory_in_use("MemTotal: 5 kB\n"), None);
        assert_eq!(field("oom_kill_other 9\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(
            cpu_ms("cpu  100 20 3 9999 1 1 1 0 0 0\ncpu0 1 1 1\n"),
            Some(1230)
        );
        assert_eq!(cpu_ms("cpu  1 x 3\n"), None);
    }
}
