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
mod ends;
mod example;
mod fleet;
#[path = "../fleet/program.rs"]
#[allow(dead_code, reason = "another test's, of which a part is used")]
mod program;
mod recorded;
mod refused;
mod registry;
mod sources;

use std::path::PathBuf;

use align::{Hunk, commands, differences, lines};
use differences::Rest;
use fleet::{Fleet, Ran};
use recorded::{
    EXAMPLE, EXAMPLE_ENDS, PIPELINES, REFUSED, REFUSED_ENDS, Recorded, SOURCES, SOURCES_ENDS, STEPS,
};

/// The job with `CI_DEBUG_TRACE`.
const DEBUGGED: &str = "script:debug";
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
        wrong.extend(compare_all(jobs, &fleet.run(pipeline)));
    }
    fleet.assert_honest();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// STAGE-02, STAGE-13, STAGE-33, STAGE-36, STAGE-37: the example's jobs, one for each thing that
/// gitlab-runner does, in processes instead of VMs.
#[test]
fn the_examples_jobs_differ_from_gitlab_runners_by_what_is_listed_and_by_nothing_else() {
    let Some(root) = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from) else {
        println!("example: needs the built programs: VK_TEST_ROOT is not set");
        return;
    };
    let fleet = Fleet::of_example(&root);
    fleet.let_read();
    let of_sources: usize = SOURCES.iter().map(|(_, jobs)| jobs.len()).sum();
    fleet.plan_faults(EXAMPLE.len() + STEPS.1.len() + of_sources);
    // All at once, in the order in which they were recorded: jobs are numbered by it.
    let example = fleet.trigger(&fleet.example());
    let steps = fleet.trigger(STEPS.0);
    let sources = SOURCES.map(|(pipeline, jobs)| (fleet.trigger(pipeline), jobs));
    let refused = fleet.trigger(REFUSED.0);
    let mut ran = fleet.end(example);
    let mut wrong = compare_all(EXAMPLE, &ran);
    let steps = fleet.end(steps);
    wrong.extend(compare_all(STEPS.1, &steps));
    ran.extend(steps);
    wrong.extend(ends::compare(EXAMPLE_ENDS, &ran));
    let mut of_sources = Vec::new();
    for (pipeline, jobs) in sources {
        let ran = fleet.end(pipeline);
        wrong.extend(compare_all(jobs, &ran));
        of_sources.extend(ran);
    }
    wrong.extend(ends::compare(SOURCES_ENDS, &of_sources));
    let refused = fleet.end(refused);
    wrong.extend(compare_all(REFUSED.1, &refused));
    wrong.extend(ends::compare(REFUSED_ENDS, &refused));
    fleet.assert_honest();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn compare_all(jobs: &[Recorded], ran: &[Ran]) -> Vec<String> {
    assert_eq!(ran.len(), jobs.len());
    let mut wrong = Vec::new();
    for (job, ours) in jobs.iter().zip(ran) {
        assert_eq!(ours.name, job.name);
        let found = compare(job, &ours.trace);
        if !found.is_empty() {
            println!("{}:\n{}", ours.name, ours.trace);
        }
        wrong.extend(found);
    }
    wrong
}

/// Every recorded job.
fn all() -> impl Iterator<Item = &'static Recorded> {
    let first = PIPELINES.iter().flat_map(|(_, jobs)| *jobs);
    let sources = SOURCES.iter().flat_map(|(_, jobs)| *jobs);
    let later = sources.chain(REFUSED.1);
    first.chain(EXAMPLE).chain(STEPS.1).chain(later)
}

/// What is not as it is listed, in words. Several differences may stand side by side in a hunk.
fn compare(job: &Recorded, ours: &str) -> Vec<String> {
    let expected = differences::of(job.name);
    let mut expected = expected.iter();
    let mut wrong = Vec::new();
    let (mut stock, mut ours) = (lines(job.trace), lines(ours));
    if job.name == DEBUGGED {
        (stock, ours) = (commands(&stock), commands(&ours));
    }
    for hunk in &differences(&stock, &ours) {
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
    let listed = all().flat_map(|job| differences::of(job.name));
    let mut reasons: Vec<_> = listed.map(|difference| difference.reason).collect();
    headings.sort_unstable();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, headings);
}

/// A trace that differs less than listed is told, too: beside itself, every difference is gone.
#[test]
fn a_difference_that_is_no_more_is_told() {
    for job in all() {
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
