//! The built daemon through many jobs of many runners, between the real GitLab stand-in, which is made
//! to fail, and a hub that ends each job at once.
//!
//! The programs lie in `VK_TEST_ROOT`; without it the test says so and returns. With `VK_LONG` it has
//! its whole size; `VK_SOAK=<runners>x<jobs of each>` gives it another.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::result_large_err,
    reason = "a test may"
)]

mod account;
mod bench;
mod door;
mod feed;
#[allow(dead_code, reason = "the daemon's own tests use the rest of it")]
#[path = "../daemon/hub.rs"]
mod hub;
mod lab;
mod large;
mod modes;
mod program;
#[allow(dead_code, reason = "the daemon's own tests use the rest of it")]
#[path = "../daemon/server.rs"]
mod server;
#[allow(dead_code, reason = "the session's own tests use the rest of it")]
#[path = "../session/hub.rs"]
mod session_hub;
mod usage;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bench::Bench;
use feed::Feed;
use usage::Usage;

/// Whatever the session's hub waits for comes within this.
const SOON: Duration = Duration::from_secs(60);

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) runners: usize,
    /// Of each runner.
    pub(crate) jobs: usize,
    /// Whether the daemon has run long enough by a quarter of it to be as large as it gets.
    pub(crate) warms_up: bool,
}

impl Size {
    fn asked_for() -> Size {
        let asked = std::env::var("VK_SOAK").unwrap_or_default();
        let (runners, jobs) = match asked.split_once('x') {
            Some((runners, jobs)) => (runners.parse().unwrap(), jobs.parse().unwrap()),
            None if std::env::var_os("VK_LONG").is_some() => (50, 2_000),
            None => (8, 25),
        };
        let warms_up = runners * jobs >= 10_000;
        Size {
            runners,
            jobs,
            warms_up,
        }
    }

    /// One runner, and jobs as the test has them.
    const fn one_runner() -> Size {
        Size {
            runners: 1,
            jobs: 0,
            warms_up: false,
        }
    }

    pub(crate) const fn all(self) -> usize {
        self.runners * self.jobs
    }
}

/// Says something while the test runs: what a test prints is shown at its end.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Where the built programs are, if they are.
fn root() -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("soak: needs the built programs: VK_TEST_ROOT is not set");
    }
    root
}

#[test]
fn through_a_gitlab_that_fails_each_job_ends_once_and_the_daemon_does_not_grow() {
    let Some(root) = root() else { return };
    let size = Size::asked_for();
    let mut bench = Bench::start(&root, size);
    let mut usage = Usage::of(bench.daemon.id(), size);
    let idle = usage.now();
    bench.inject();
    let mut feed = Feed::new(size);
    while !feed.is_over() {
        feed.go_on(&bench.lab);
        usage.sample(feed.over(), || bench.faults());
        bench.daemon.runs();
        std::thread::sleep(Duration::from_millis(if size.warms_up {
            1_000
        } else {
            100
        }));
    }
    account::check(&mut bench, &feed);
    usage.judge();
    if size.warms_up {
        usage.falls_to(&idle);
    }
    account::check_stopped(&mut bench);
}
