//! Killed at every record, before and after each of its effects: every job reaches one end.

use proptest::prelude::*;
use vk_hub_proto::job::FailureClass;
use vk_step::Variant;

use super::world::{At, Fault, Plan, World};
use super::*;

const PLAIN: Plan = Plan {
    mem: (4096, 4096),
    cancel: None,
    dies: false,
};

/// What each job lives through, and how it ends where nothing else happens to it.
fn scenarios() -> Vec<Vec<(Plan, Option<FailureClass>)>> {
    let cancelled = |mode| Plan {
        cancel: Some(mode),
        ..PLAIN
    };
    let wants = |has, asks| Plan {
        mem: (has, asks),
        ..PLAIN
    };
    let dies = Plan {
        dies: true,
        ..PLAIN
    };
    vec![
        vec![(PLAIN, None), (PLAIN, None)],
        // The second waits for the first.
        vec![(wants(12000, 12000), None), (wants(4000, 8000), None)],
        // Nobody could ever give it what it wants.
        vec![
            (wants(4096, 32768), Some(FailureClass::System)),
            (PLAIN, None),
        ],
        vec![
            (
                cancelled(CancelMode::Graceful),
                Some(FailureClass::Canceled),
            ),
            (
                cancelled(CancelMode::Immediate),
                Some(FailureClass::Canceled),
            ),
        ],
        vec![(dies, Some(FailureClass::Interrupted)), (PLAIN, None)],
    ]
}

/// Runs one scenario without and with a fault at every record, and gives the records it wrote.
fn run_with(fault: Fault) -> Vec<Record> {
    let mut all = Vec::new();
    for scenario in scenarios() {
        let plans: Vec<_> = scenario.iter().map(|(plan, _)| *plan).collect();
        let mut calm = World::new(&plans, None);
        calm.run();
        for (n, (_, failure)) in (1..).zip(&scenario) {
            let result = calm.hub[&id(n)].result.clone().unwrap();
            assert_eq!(result.failure, *failure);
        }
        for records in 0..=calm.node.kept.len() {
            for effects in [0, 1, 2, 3, usize::MAX] {
                let at = At {
                    fault,
                    records,
                    effects,
                };
                let mut world = World::new(&plans, Some(at));
                world.run();
                for (n, (_, failure)) in (1..).zip(&scenario) {
                    let ended = world.hub[&id(n)].result.clone().unwrap();
                    let interrupted = Some(FailureClass::Interrupted);
                    let expected = ended.failure == *failure
                        || fault == Fault::HostCrash && ended.failure == interrupted;
                    assert!(expected, "{scenario:?} {at:?} {ended:?}");
                }
            }
        }
        all.extend(calm.node.kept);
    }
    all
}

/// DISP-41, DISP-49, DISP-53, DISP-77, FAIL-34
#[test]
fn a_node_killed_at_any_record_brings_every_job_to_its_end_once() {
    let kept = run_with(Fault::Kill);
    let operators = ["Desired", "Commanded"];
    for variant in Record::ALL.iter().filter(|v| !operators.contains(v)) {
        let reached = kept.iter().any(|record| record.variant() == *variant);
        assert!(reached, "no scenario writes {variant}");
    }
}

#[test]
fn a_host_that_crashed_at_any_record_brings_every_job_to_its_end_once() {
    run_with(Fault::HostCrash);
}

#[test]
fn a_compacted_journal_says_the_same() {
    run_with(Fault::KillCompacted);
}

/// DISP-49, DISP-77, FAIL-22
#[test]
fn a_connection_cut_at_any_record_loses_nothing() {
    run_with(Fault::Cut);
}

fn fault() -> impl Strategy<Value = (usize, Fault)> {
    let kinds = [
        Fault::Kill,
        Fault::HostCrash,
        Fault::KillCompacted,
        Fault::Cut,
    ];
    (0..12usize, proptest::sample::select(kinds.to_vec()))
}

proptest! {
    /// DISP-41, DISP-49, DISP-53, DISP-77
    #[test]
    fn any_number_of_faults_brings_every_job_to_its_end_once(
        faults in proptest::collection::vec(fault(), 0..12),
        scenario in 0..5usize,
    ) {
        let plans: Vec<_> = scenarios()[scenario].iter().map(|(plan, _)| *plan).collect();
        World::with_faults(&plans, faults).run();
    }
}
