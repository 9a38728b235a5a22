//! What is struck from outside at a boundary: whoever comes to it holds still meanwhile.

use std::fs;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::census::{command, is_gone, stands_still, tree};
use super::point::Victim;
use super::story::House;
use super::tell::{PATIENCE, TICK, Tale};
use crate::program::kill;

/// Where a job of a real VM ends its guest's agent, and what it says just before.
pub(super) const LAST_WORDS: &str = "the agent dies now";

/// The agent is the guest's process 1, which no signal of its guest's ends: zeros in the place of its
/// program do.
const END_THE_AGENT: &str = "at=$(grep r-xp /proc/1/maps | head -n 1 | cut -d- -f1); \
                             dd if=/dev/zero of=/proc/1/mem bs=4096 seek=$((0x$at / 4096)) \
                             count=400 conv=notrunc";

/// A line of a script that ends its guest's agent.
pub(super) fn end_the_agent() -> String {
    // The line itself is told too.
    let (first, rest) = LAST_WORDS.split_at(3);
    format!("echo '{first}''{rest}'; {END_THE_AGENT}")
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

impl Tale<'_> {
    /// Whether the victim is killed by what runs beside it in its guest: nobody else reaches it.
    pub(super) fn is_inside(&self) -> bool {
        self.house == House::Machines && self.point.victim == Victim::Agent
    }

    /// Strikes where the party that counts holds still, and lets it go on.
    pub(super) fn strike(&mut self) -> bool {
        if self.is_inside() {
            return self.has_said(LAST_WORDS);
        }
        let file = self.fleet.kill_file(self.point.victim.counts());
        let held = file.with_extension("held");
        let text = fs::read_to_string(&held).ok();
        let Some(pid) = text.and_then(|text| text.parse().ok()) else {
            return false;
        };
        self.wait_for("it holds still", || stands_still(pid));
        self.count();
        match self.point.victim {
            Victim::Session => self.fleet.cut_the_session(),
            Victim::Job => kill(pid),
            _ => {
                let victim = self.victim_below(pid);
                kill(victim);
                self.wait_for("it is dead", || is_gone(victim));
            }
        }
        fs::remove_file(&held).unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        // It may be the one that was killed.
        let _ = kill_process(pid, Signal::CONT);
        true
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{}: not: {what}", self.point);
            std::thread::sleep(TICK);
        }
    }

    /// The process of a job's VM that is to die. A VM that is a process is its holder, with whom
    /// everything of it ends.
    fn victim_below(&self, job: u32) -> u32 {
        let is_victim = |pid: &u32| match (self.point.victim, self.house) {
            (Victim::Machine, House::Machines) => name(*pid).starts_with("qemu-system"),
            (Victim::Machine, _) => command(*pid).contains("guest confine hold"),
            _ => command(*pid).contains("vk-agent process"),
        };
        let below = tree(job);
        let lines: Vec<_> = below.iter().map(|pid| command(*pid)).collect();
        let found = below.into_iter().find(is_victim);
        found.unwrap_or_else(|| panic!("{}: nothing to kill: {lines:#?}", self.point))
    }

    /// Counts what the job has on its host now.
    pub(super) fn count(&mut self) {
        let jobs = self.fleet.job_processes();
        self.census.take(jobs.into_iter().map(|(pid, _)| pid));
    }
}
