//! What a job has on its host: the processes below its own, the namespaces they made, their control
//! groups. What was seen of it must be gone with the job.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The namespaces that a job's programs make.
const NAMESPACES: [&str; 4] = ["net", "mnt", "pid", "user"];

/// A process: its number, and when it started, since numbers are given again.
type Process = (u32, u64);

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Census {
    processes: BTreeMap<Process, String>,
    namespaces: BTreeMap<String, fs::File>,
    groups: BTreeSet<String>,
}

/// A line of `/proc/<pid>/stat`, as far as it is wanted here.
struct Stat {
    state: char,
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A program's name may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, started })
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The command line of a process.
pub(super) fn command(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Whether a process and all its threads stand still.
pub(super) fn stands_still(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let mut ids = tasks
        .flatten()
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.all(|id| stat(id).is_none_or(|stat| stat.state == 'T'))
}

/// Whether a process is over; one that only waits to be asked how it ended is.
pub(super) fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|stat| stat.state == 'Z')
}

/// A process and all below it. A child that is begun meanwhile may be missed.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        let tasks = fs::read_dir(format!("/proc/{parent}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            tree.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        next += 1;
    }
    tree
}

fn namespace(process: impl AsRef<Path>, kind: &str) -> Option<String> {
    let link = fs::read_link(process.as_ref().join("ns").join(kind)).ok()?;
    Some(link.to_string_lossy().into_owned())
}

fn namespaces(process: &str) -> impl Iterator<Item = String> + use<> {
    let of = format!("/proc/{process}");
    { NAMESPACES.into_iter() }.filter_map(move |kind| namespace(&of, kind))
}

/// The control group of a process; one that dies is in none, which is told as the root.
fn group(process: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let (_, path) = text.trim_end().rsplit_once(':')?;
    let path = path.trim_start_matches('/');
    (!path.is_empty()).then(|| path.to_owned())
}

impl Census {
    /// Counts what lives below these processes now.
    pub(super) fn take(&mut self, roots: impl IntoIterator<Item = u32>) {
        let own: BTreeSet<String> = namespaces("self").collect();
        let own_group = group("self");
        for pid in roots.into_iter().flat_map(tree) {
            let Some(stat) = stat(pid) else { continue };
            self.processes.insert((pid, stat.started), command(pid));
            for kind in NAMESPACES {
                let of = format!("/proc/{pid}");
                // Held open, so that its number is given to no other meanwhile.
                let held = fs::File::open(format!("{of}/ns/{kind}")).ok();
                let made = namespace(&of, kind).filter(|name| !own.contains(name));
                if let (Some(held), Some(made)) = (held, made) {
                    self.namespaces.entry(made).or_insert(held);
                }
            }
            let group = group(&pid.to_string());
            let other = group.filter(|group| own_group.as_ref() != Some(group));
            self.groups.extend(other);
        }
    }

    /// How many processes were seen.
    pub(super) fn len(&self) -> usize {
        self.processes.len()
    }

    /// What is still there.
    pub(super) fn left(&self) -> Vec<String> {
        let lives = |((pid, started), _): &(&Process, &String)| {
            stat(*pid).is_some_and(|stat| stat.started == *started && stat.state != 'Z')
        };
        let processes = self.processes.iter().filter(lives);
        let mut left: Vec<String> = processes
            .map(|((pid, _), line)| format!("the process {pid}: {line}"))
            .collect();
        if !self.namespaces.is_empty() {
            // One that is over keeps its user namespace until its parent asks how it ended, which is its
            // parent's affair: the host's init, mostly, and some ask late or never.
            for pid in all().into_iter().filter(|pid| !is_gone(*pid)) {
                let here =
                    namespaces(&pid.to_string()).find(|name| self.namespaces.contains_key(name));
                left.extend(here.map(|name| format!("{name} with {pid}: {}", command(pid))));
            }
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let held = |name: &&String| mounts.contains(name.as_str());
            let pinned = self.namespaces.keys().filter(held);
            left.extend(pinned.map(|name| format!("{name}, mounted")));
        }
        for group in &self.groups {
            let folder = Path::new("/sys/fs/cgroup").join(group);
            if folder.exists() {
                left.push(format!("the control group {}", folder.display()));
            }
        }
        left
    }
}
