//! What the daemon takes of its host: memory and descriptors, as the jobs go by.

use std::fs;
use std::time::Instant;

use crate::program::eventually;
use crate::{Size, say};

/// Lines of the table.
const ROWS: usize = 20;
/// How much more memory than at a quarter there may be at the end.
const FLAT: f64 = 0.10;

/// At one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    over: usize,
    rss_kib: u64,
    anonymous_kib: u64,
    descriptors: usize,
    threads: u64,
}

/// As time goes by.
pub(crate) struct Usage {
    process: u32,
    size: Size,
    begun: Instant,
    samples: Vec<Taken>,
    rows: usize,
}

impl Usage {
    pub(crate) fn of(process: u32, size: Size) -> Usage {
        say("soak:   jobs     s  jobs/s  RSS KiB  anon KiB  descriptors  threads     calls  hit");
        Usage {
            process,
            size,
            begun: Instant::now(),
            samples: Vec::new(),
            rows: 0,
        }
    }

    pub(crate) fn now(&self) -> Taken {
        let of = format!("/proc/{}", self.process);
        let status = fs::read_to_string(format!("{of}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.unwrap().split_whitespace().next();
            number.unwrap().parse().unwrap()
        };
        Taken {
            over: 0,
            rss_kib: number("VmRSS:"),
            anonymous_kib: number("RssAnon:"),
            descriptors: fs::read_dir(format!("{of}/fd")).unwrap().count(),
            threads: number("Threads:"),
        }
    }

    /// Looks once, when so many jobs are over; a row of the table where it is time for one.
    pub(crate) fn sample(&mut self, over: usize, faults: impl FnOnce() -> (u64, Vec<u64>)) {
        let taken = Taken { over, ..self.now() };
        self.samples.push(taken);
        let rows = over * ROWS / self.size.all();
        if rows == self.rows {
            return;
        }
        self.rows = rows;
        let (calls, hit) = faults();
        let seconds = self.begun.elapsed().as_secs_f64();
        say(&format!(
            "soak: {over:6} {seconds:5.0} {:7.1} {:8} {:9} {:12} {:8} {calls:9} {:4}",
            over as f64 / seconds,
            taken.rss_kib,
            taken.anonymous_kib,
            taken.descriptors,
            taken.threads,
            hit.iter().sum::<u64>(),
        ));
    }

    /// What was seen between two shares of the jobs, in order of size.
    fn within(&self, (from, to): (f64, f64), what: impl Fn(&Taken) -> u64) -> Vec<u64> {
        let all = self.size.all() as f64;
        let within = |taken: &&Taken| (from..=to).contains(&(taken.over as f64 / all));
        let mut values: Vec<u64> = self.samples.iter().filter(within).map(what).collect();
        values.sort_unstable();
        assert!(!values.is_empty(), "no sample between {from} and {to}");
        values
    }

    /// The daemon is as large at the end as at a quarter, and has no more descriptors.
    pub(crate) fn judge(&self) {
        let rss = |range| {
            let values = self.within(range, |taken| taken.rss_kib);
            values.get(values.len() / 2).copied().unwrap()
        };
        // How many connections are open at a moment is up to how busy the host is. One that is never
        // closed is there at the least busy moments too.
        let descriptors = |range| {
            let values = self.within(range, |taken| taken.descriptors as u64);
            values.first().copied().unwrap()
        };
        // A small run is over before all has been used that will be used.
        let (quarter, end, flat) = match self.size.warms_up {
            true => ((0.20, 0.30), (0.90, 1.00), FLAT),
            false => ((0.0, 0.5), (0.5, 1.0), 1.0),
        };
        let (before, after) = (rss(quarter), rss(end));
        let (few, many) = (descriptors(quarter), descriptors(end));
        let grown = after as f64 / before as f64 - 1.0;
        say(&format!(
            "soak: from a quarter to the end RSS {before} to {after} KiB ({:+.1} %), descriptors at \
             least {few} to {many}",
            grown * 100.0
        ));
        assert!(grown <= flat, "RSS {before} to {after} KiB");
        // Connections are kept for a while: a runner has its most only after some time.
        let most = match self.size.warms_up {
            true => few + few / 10 + 4,
            false => few + few / 2 + 8,
        };
        assert!(many <= most, "descriptors: {few} to {many}");
    }

    /// Once nothing is to be done, the daemon has no more descriptors than before the first job.
    pub(crate) fn falls_to(&self, before: &Taken) {
        // Requests come and go.
        let most = before.descriptors + before.descriptors / 10 + 4;
        let now = || self.now().descriptors;
        eventually("idle connections are closed", || {
            (now() <= most).then_some(())
        });
        say(&format!(
            "soak: idle, {} descriptors before the first job and {} after the last",
            before.descriptors,
            now()
        ));
    }
}
