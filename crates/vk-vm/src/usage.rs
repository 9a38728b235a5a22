//! What a VM's host processes used, from `/proc`.
//!
//! Counted is every process below the VM's root process, itself included: the stages of
//! confinement, the VMM with its vCPUs, the vsock daemon. What the owner does itself (transfers,
//! checkouts) is not (DISP-57, DISP-61).

use std::collections::{HashMap, HashSet};
use std::fs;

/// Clock ticks a second in `/proc/<pid>/stat`: part of the x86-64 interface.
const TICKS_A_SECOND: u64 = 100;
/// No process has more below it than a host has numbers.
const PROCESSES_MAX: usize = 4_194_304;

/// What a VM used on its host until it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostUsage {
    /// Processor time, user and system, in milliseconds; a vCPU's execution is user time (DISP-59).
    pub cpu_ms: u64,
    /// Sum of each process's largest resident set, in bytes (DISP-60).
    pub peak_mem_bytes: u64,
}

/// One process, as `/proc` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Its own ticks, and those of children it has waited for.
    ticks: u64,
    peak_bytes: u64,
}

/// What the processes at and below `root` used; `None` when `root` is not there (DISP-62).
#[must_use]
pub fn of_tree(root: u32) -> Option<HostUsage> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.take(PROCESSES_MAX) {
        let name = entry.ok()?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok())
            && let Some(process) = read(pid)
        {
            all.insert(pid, process);
        }
    }
    sum(root, &all)
}

fn sum(root: u32, all: &HashMap<u32, Process>) -> Option<HostUsage> {
    all.get(&root)?;
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, process) in all {
        children.entry(process.parent).or_default().push(*pid);
    }
    let mut usage = HostUsage::default();
    let mut waiting = vec![root];
    let mut counted = HashSet::new();
    while let Some(pid) = waiting.pop() {
        // Once, whatever the numbers say.
        let Some(process) = all.get(&pid).filter(|_| counted.insert(pid)) else {
            continue;
        };
        let ms = process.ticks.saturating_mul(1000) / TICKS_A_SECOND;
        usage.cpu_ms = usage.cpu_ms.saturating_add(ms);
        usage.peak_mem_bytes = usage.peak_mem_bytes.saturating_add(process.peak_bytes);
        waiting.extend(children.remove(&pid).unwrap_or_default());
    }
    Some(usage)
}

/// A process that has ended meanwhile, or is a zombie without memory, counts as far as it is seen.
fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (parent, ticks) = parse_stat(&stat)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Some(Process {
        parent,
        ticks,
        peak_bytes: parse_peak(&status).unwrap_or(0),
    })
}

/// Parent and ticks; the name in parentheses may hold anything, parentheses and spaces too.
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
    // By the manual's numbers: 4 is the parent, 14 to 17 are utime, stime, cutime and cstime.
    let ticks = (14..=17).map(field).sum::<Option<u64>>()?;
    Some((u32::try_from(field(4)?).ok()?, ticks))
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, ticks: u64, peak_bytes: u64) -> Process {
        Process {
            parent,
            ticks,
            peak_bytes,
        }
    }

    /// DISP-57, DISP-60, DISP-61
    #[test]
    fn the_tree_is_summed_and_what_stands_beside_it_is_not() {
        let all = HashMap::from([
            (10, process(1, 1, 1000)),
            (11, process(10, 20, 200)),
            (12, process(11, 300, 30)),
            (13, process(11, 4000, 4)),
            (20, process(1, 50_000, 500_000)),
            (21, process(20, 50_000, 500_000)),
        ]);
        let usage = sum(10, &all).unwrap();
        assert_eq!(
            usage,
            HostUsage {
                cpu_ms: 43_210,
                peak_mem_bytes: 1234
            }
        );
    }

    /// DISP-62
    #[test]
    fn without_a_live_process_there_is_no_usage() {
        assert_eq!(sum(10, &HashMap::from([(11, process(10, 1, 1))])), None);
        assert_eq!(of_tree(u32::MAX), None);
    }

    #[test]
    fn numbers_that_go_round_in_circles_are_counted_once() {
        let all = HashMap::from([(10, process(11, 1, 1)), (11, process(10, 1, 1))]);
        assert_eq!(sum(10, &all).unwrap().peak_mem_bytes, 2);
    }

    /// DISP-59
    #[test]
    fn time_is_user_and_system_and_that_of_children_waited_for() {
        let stat = "77 (a) b (c)) S 5 77 77 0 -1 4194304 1 0 0 0 1 20 300 4000 20 0 1 0 9 9 9 9";
        assert_eq!(parse_stat(stat), Some((5, 4321)));
        assert_eq!(parse_stat("77 (a) S 5"), None);
        assert_eq!(
            parse_peak("VmPeak:\t  9 kB\nVmHWM:\t    2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(parse_peak("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn this_process_has_a_usage() {
        let usage = of_tree(std::process::id()).unwrap();
        assert!(usage.peak_mem_bytes > 1 << 20, "{usage:?}");
    }
}
