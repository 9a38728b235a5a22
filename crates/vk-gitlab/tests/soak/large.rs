//! One large log.

use std::fs;

use crate::Size;
use crate::bench::Bench;
use crate::hub::State;
use crate::modes::{assert_trace, becomes, settled, submitted};

const KIB: usize = 1024;
/// A log that is nearly as large as GitLab takes one.
const WHOLE: usize = 60 * KIB * KIB;
/// One that costs less of everybody's time.
const SHORT: usize = 16 * KIB * KIB;
/// What a log may cost, in KiB: the piece that was read, of 1 MiB, in the few places that it passes
/// through.
const MOST: usize = 12 * KIB;

/// Has a job say this; what the daemon took at most until it was over, in KiB.
fn said(bench: &Bench, output: &str) -> usize {
    let pipeline = submitted(bench);
    bench.hub.change(State::accept_all);
    becomes(bench, pipeline, "running");
    bench.hub.change(|state| state.finish_all(output));
    let ended = becomes(bench, pipeline, "success");
    assert_trace(&ended, output.as_bytes());
    settled(bench);
    let status = fs::read_to_string(format!("/proc/{}/status", bench.daemon.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.unwrap().split_whitespace().next().unwrap();
    most.parse().unwrap()
}

#[test]
fn a_large_log_costs_the_daemon_a_few_of_its_pieces_and_no_more() {
    let Some(root) = crate::root() else { return };
    let size = match std::env::var_os("VK_LONG") {
        Some(_) => WHOLE,
        None => SHORT,
    };
    let bench = Bench::of(&root, Size::one_runner(), crate::hub::queueing(8));
    let before = said(&bench, "a line\n");
    let line = "a line of a log that is as large as a log may get\n";
    let after = said(&bench, &line.repeat(size / line.len()));
    let grown = after - before;
    crate::say(&format!(
        "soak: a log of {} KiB: the daemon took {before} KiB at most before and {after} since",
        size / KIB
    ));
    assert!(grown <= MOST, "{grown} KiB");
}
