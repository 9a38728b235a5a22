//! Any faults, in any order, with crashes between any two records: the job comes to its right end.

use std::time::Duration;

use proptest::prelude::*;
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::job::FailureClass;

use super::fake_gitlab::{Fault, Status, status};
use super::fake_hub::Fault as HubFault;
use super::world::{World, new_job};
use crate::HubFailure;
use crate::job::{GitLabAnswer, Record};

#[derive(Clone, Debug)]
enum Event {
    Pass(u32),
    Print(u16),
    Accept,
    GitLabAnswers(u16),
    GitLabAnswerLost,
    GitLabLosesTail(u16),
    HubFails(bool),
    HubAnswerLost,
    Crash,
    CrashAtRecord,
    StoreBroken(bool),
    CancelGracefully,
    Finish(Option<FailureClass>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1u32..20_000).prop_map(Event::Pass),
        6 => (1u16..2000).prop_map(Event::Print),
        2 => Just(Event::Accept),
        4 => prop_oneof![Just(500u16), Just(502), Just(429), Just(409), Just(0)]
            .prop_map(Event::GitLabAnswers),
        3 => Just(Event::GitLabAnswerLost),
        1 => (0u16..500).prop_map(Event::GitLabLosesTail),
        3 => any::<bool>().prop_map(Event::HubFails),
        3 => Just(Event::HubAnswerLost),
        2 => Just(Event::Crash),
        3 => Just(Event::CrashAtRecord),
        1 => any::<bool>().prop_map(Event::StoreBroken),
        1 => Just(Event::CancelGracefully),
        1 => prop_oneof![
            Just(None),
            Just(Some(FailureClass::Script)),
            Just(Some(FailureClass::Lost)),
            Just(Some(FailureClass::NoCapacity)),
        ]
        .prop_map(Event::Finish),
    ]
}

fn play(world: &mut World, event: &Event) {
    match event {
        Event::Pass(ms) => world.pass(Duration::from_millis((*ms).into())),
        Event::Print(len) => {
            // Only a running job prints.
            if world.hub.starts == 1 && world.hub.result.is_none() {
                let text: String = (0..*len)
                    .map(|n| char::from(b'a' + (n % 26) as u8))
                    .collect();
                world.print(&text);
            }
        }
        Event::Accept => {
            world.hub.accept();
            world.pump();
        }
        Event::GitLabAnswers(code) => world.gitlab.fault(GitLabAnswer {
            status: Some(*code).filter(|code| *code != 0),
            ..status(0)
        }),
        Event::GitLabAnswerLost => world.gitlab.faults.push_back(Fault::AnswerLost),
        Event::GitLabLosesTail(by) => {
            // Seen by a later patch only, so there is one.
            if !world.gitlab.is_final() && world.hub.starts == 1 && world.hub.result.is_none() {
                let left = world.gitlab.trace.len().saturating_sub((*by).into());
                world.gitlab.trace.truncate(left);
                world.print("more\n");
            }
        }
        Event::HubFails(transport) => world.hub.fail(if *transport {
            HubFailure::transport("cut")
        } else {
            HubFailure::coded(ErrorCode::Unavailable, 503, "busy")
        }),
        Event::HubAnswerLost => world.hub.faults.push_back(HubFault::AnswerLost),
        Event::Crash => {
            world.crash();
            world.pump();
        }
        Event::CrashAtRecord => world.crash_at = Some(world.records.len() + 1),
        Event::StoreBroken(broken) => world.store_broken = *broken,
        Event::CancelGracefully => {
            if world.gitlab.status == Status::Running {
                world.gitlab.status = Status::Canceling;
            }
        }
        Event::Finish(failure) => {
            if world.hub.starts == 1 || *failure == Some(FailureClass::NoCapacity) {
                let failure = failure.filter(|_| {
                    world.hub.output.is_empty() || failure != &Some(FailureClass::NoCapacity)
                });
                if world.hub.state.is_some() {
                    world.finish(failure);
                }
            }
        }
    }
}

/// Whether a step was cut in its middle, which no edge does: then lines may be rendered twice.
fn records_of(world: &World, name: &str) -> usize {
    world
        .records
        .iter()
        .filter(|record| vk_step::Variant::variant(*record) == name)
        .count()
}

fn end_well(world: &mut World) {
    world.crash_at = None;
    world.store_broken = false;
    world.gitlab.faults.clear();
    world.hub.faults.clear();
    world.pass_secs(400);
    world.hub.accept();
    world.pass_secs(5);
    if world.hub.state.is_some() {
        world.finish(None);
    }
    world.pass_secs(9000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// FAIL-27, GL-25, GL-39, GL-72, STATE-04, STATE-26
    #[test]
    fn a_job_comes_to_its_right_end_whatever_happens(
        events in proptest::collection::vec(event(), 0..60),
    ) {
        let mut world = World::with(new_job());
        for event in &events {
            play(&mut world, event);
        }
        end_well(&mut world);
        prop_assert!(world.removed, "{:?}\n{:?}", world.records, world.notes);
        prop_assert_eq!(world.records.last(), Some(&Record::Removed));
        prop_assert!(world.gitlab.is_final(), "{:?}", world.notes);
        prop_assert!(world.hub.settled);
        prop_assert!(world.over >= 1, "its slot is free");
        prop_assert!(world.hub.starts <= 1);
        let abandoned = records_of(&world, "Abandoned") > 0;
        if !abandoned {
            let trace = String::from_utf8_lossy(&world.gitlab.trace).into_owned();
            let whole = String::from_utf8_lossy(&world.whole_trace()).into_owned();
            prop_assert_eq!(trace, whole);
            let output = world.gitlab.output.expect("a checksum");
            prop_assert_eq!(output.crc, super::world::crc(&world.gitlab.trace));
            prop_assert_eq!(output.offset, world.gitlab.trace.len() as u64);
        }
    }
}
