//! Traces of our own chain (hub, node, daemon, real VMs, a GitLab stand-in) beside those that the
//! stock gitlab-runner wrote for the same pipelines, line by line.
//!
//! What differs is listed in `differences.rs`, each with the heading of its reason in
//! `docs/gitlab-runner-differences.md`; anything else, and anything of the list that is not found,
//! fails. The programs lie in `VK_TEST_ROOT`; without it the test says so and returns.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]
#![forbid(unsafe_code)]

mod align;
mod differences;
mod fleet;
#[path = "../fleet/program.rs"]
#[allow(dead_code, reason = "another test's, of which a part is used")]
mod program;
mod recorded;

use std::path::PathBuf;

use align::{Hunk, differences, lines};
use differences::Rest;
use fleet::Fleet;
use recorded::{PIPELINES, Recorded};

/// What operators read about the differences.
const PAGE: &str = include_str!("../../../../docs/gitlab-runner-differences.md");

/// STAGE-13: the trace has gitlab-runner's form.
#[test]
fn a_trace_differs_from_gitlab_runners_by_what_is_listed_and_by_nothing_else() {
    let Some(root) = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from) else {
        println!("golden traces: needs the built programs: VK_TEST_ROOT is not set");
        return;
    };
    let fleet = Fleet::start(&root);
    let mut wrong = Vec::new();
    for (pipeline, jobs) in PIPELINES {
        let traces = fleet.run(pipeline);
        assert_eq!(traces.len(), jobs.len());
        for (job, (name, ours)) in jobs.iter().zip(traces) {
            println!("{name}:\n{ours}");
            assert_eq!(name, job.name);
            wrong.extend(compare(job, &ours));
        }
    }
    fleet.assert_honest();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is not as it is listed, in words. Several differences may stand side by side in a hunk.
fn compare(job: &Recorded, ours: &str) -> Vec<String> {
    let expected = differences::of(job.name);
    let mut expected = expected.iter();
    let mut wrong = Vec::new();
    for hunk in &differences(&lines(job.trace), &lines(ours)) {
        let mut rest = Rest::of(hunk);
        while !rest.is_empty() {
            let next = expected.next();
            let explained = next.and_then(|difference| difference.explain(rest));
            let Some(left) = explained else {
                wrong.push(format!("{}: expected {next:?}, found\n{hunk}", job.name));
                break;
            };
            rest = left;
        }
    }
    for difference in expected {
        wrong.push(format!("{}: gone: {difference:?}", job.name));
    }
    wrong
}

/// Each reason of the list is explained, and nothing else is.
#[test]
fn every_difference_of_the_list_is_explained_to_operators() {
    let (_, part) = PAGE.split_once("\n## Lines of the log\n").unwrap();
    let part = part.split_once("\n## ").map_or(part, |(part, _)| part);
    let mut headings: Vec<_> = part
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let jobs = PIPELINES.iter().flat_map(|(_, jobs)| *jobs);
    let listed = jobs.flat_map(|job| differences::of(job.name));
    let mut reasons: Vec<_> = listed.map(|difference| difference.reason).collect();
    headings.sort_unstable();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, headings);
}

/// A trace that differs less than listed is told, too: beside itself, every difference is gone.
#[test]
fn a_difference_that_is_no_more_is_told() {
    for job in PIPELINES.iter().flat_map(|(_, jobs)| *jobs) {
        let wrong = compare(job, job.trace);
        assert_eq!(wrong.len(), differences::of(job.name).len());
        assert!(wrong.iter().all(|one| one.contains("gone")), "{wrong:?}");
    }
}

/// A trace beside itself with a line changed, added and left out.
#[test]
fn a_changed_an_added_and_a_missing_line_are_each_found() {
    let stamp = "2026-01-02T03:04:05.000000Z";
    let one = format!("{stamp} 00O a\n{stamp} 01O b\n{stamp} 00O+c\n{stamp} 01E d\n");
    let two =
        format!("{stamp} 00O a\n{stamp} 01E b\n{stamp} 00O+c\n{stamp} 01O e\n{stamp} 01E d\n");
    let found = differences(&lines(&one), &lines(&two));
    let hunk = |stock: &[&str], ours: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|line| (*line).to_owned()).collect();
        Hunk {
            stock: owned(stock),
            ours: owned(ours),
        }
    };
    let added = hunk(&[], &["01O e"]);
    assert_eq!(found, [hunk(&["01O b"], &["01E b"]), added]);
    let found = differences(&lines(&two), &lines(&one));
    assert_eq!(found[1], hunk(&["01O e"], &[]));
    assert_eq!(differences(&lines(&one), &lines(&one)), []);
    // Which of the two streams is read first is nobody's to say; which comes first in one is.
    let mixed = |a: &str, b: &str| lines(&format!("{stamp} {a}\n{stamp} {b}\n"));
    assert_eq!(mixed("01O a", "01E b"), mixed("01E b", "01O a"));
    assert_ne!(mixed("01O a", "01O b"), mixed("01O b", "01O a"));
    assert_ne!(mixed("00O a", "01O b"), mixed("01O b", "00O a"));
}
