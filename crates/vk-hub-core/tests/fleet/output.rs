//! Output: stored, acked, read.

use vk_hub_core::{Answer, Effect, OutputAnswer};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::dispatch::RunState;
use vk_hub_proto::limit::{CHUNK_BYTES, DEFAULT_TRACE_BYTES, TRACE_SLACK_BYTES};
use vk_hub_proto::node_session::RefusedCode;

use crate::bench::{Bench, ack, answer, code, job, result};

fn store(n: u8, offset: u64, skip: u32, len: u32) -> Effect {
    Effect::StoreOutput {
        job: job(n),
        offset,
        skip,
        len,
    }
}

fn bytes(n: u8, offset: u64, len: u64, length: u64, complete: bool) -> Option<Answer> {
    Some(Answer::Output(OutputAnswer {
        job: job(n),
        offset,
        len,
        length,
        complete,
    }))
}

fn is_violation(effects: &[Effect]) -> bool {
    let close = effects.iter().find_map(|effect| match effect {
        Effect::Close { code, .. } => Some(*code),
        _ => None,
    });
    close == Some(RefusedCode::Protocol)
}

/// FLOW-19, DISP-50, DISP-82
#[test]
fn a_chunk_is_acked_only_once_it_is_durable() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    assert_eq!(bench.writes(session, 1, 0, 100), [store(1, 0, 0, 100)]);
    assert_eq!(bench.writes(session, 1, 100, 50), [store(1, 100, 0, 50)]);
    assert_eq!(bench.view(1).output_len, 0);
    assert_eq!(bench.synced(1, 150), [ack(session, 1, 150)]);
    assert_eq!(bench.synced(1, 150), []);
    assert_eq!(bench.view(1).output_len, 150);
}

/// DISP-51
#[test]
fn an_overlap_is_trimmed_and_what_is_known_acked_again() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 100);
    bench.synced(1, 100);
    assert_eq!(bench.writes(session, 1, 60, 100), [store(1, 100, 40, 60)]);
    assert_eq!(bench.writes(session, 1, 0, 100), [ack(session, 1, 100)]);
}

/// DISP-52
#[test]
fn a_gap_ends_the_session() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 100);
    assert!(is_violation(&bench.writes(session, 1, 101, 1)));
    assert_eq!(bench.writes(session, 1, 100, 1), [], "it is closed");
}

#[test]
fn a_chunk_larger_than_the_wire_allows_ends_the_session() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let most = u32::try_from(CHUNK_BYTES).unwrap();
    assert!(!is_violation(&bench.writes(session, 1, 0, most)));
    assert!(is_violation(&bench.writes(
        session,
        1,
        u64::from(most),
        most + 1
    )));
}

/// DISP-79
#[test]
fn past_the_cap_output_is_acked_and_dropped() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let most = u32::try_from(CHUNK_BYTES).unwrap();
    let cap = DEFAULT_TRACE_BYTES + TRACE_SLACK_BYTES;
    let mut offset = 0;
    let mut stored = 0;
    while offset < cap + 3 * u64::from(most) {
        for effect in bench.writes(session, 1, offset, most) {
            match effect {
                Effect::StoreOutput { len, .. } => stored += u64::from(len),
                other => assert_eq!(other, ack(session, 1, 0), "not durable yet"),
            }
        }
        offset += u64::from(most);
    }
    assert_eq!(stored, cap);
    assert_eq!(bench.synced(1, cap), [ack(session, 1, offset)]);
    assert_eq!(
        bench.writes(session, 1, offset, 10),
        [ack(session, 1, offset + 10)]
    );
    bench.ends(session, 1, result());
    assert_eq!(bench.view(1).result.unwrap().output_len, cap, "our count");
}

/// DISP-78
#[test]
fn output_of_unknown_jobs_and_of_other_nodes_jobs_is_acked_and_dropped() {
    let (mut bench, session) = Bench::with_node(2);
    bench.add_node(2);
    let other = bench.connect(2, 0);
    bench.running(session, 1);
    assert_eq!(bench.writes(session, 9, 5, 10), [ack(session, 9, 15)]);
    assert_eq!(bench.writes(other, 1, 0, 10), [ack(other, 1, 10)]);
    bench.ends(session, 1, result());
    assert_eq!(bench.writes(session, 1, 0, 10), [ack(session, 1, 10)]);
    assert_eq!(bench.view(1).output_len, 0);
}

/// API-15, API-38, API-69
#[test]
fn a_reader_wakes_when_there_are_bytes_or_none_will_come() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let (first, effects) = bench.read(1, 0, 60);
    assert_eq!(effects, []);
    assert_eq!(answer(&bench.writes(session, 1, 0, 10), first), None);
    let effects = bench.synced(1, 10);
    assert_eq!(answer(&effects, first), bytes(1, 0, 10, 10, false));
    let (second, effects) = bench.read(1, 10, 60);
    assert_eq!(effects, []);
    let effects = bench.ends(session, 1, result());
    assert_eq!(answer(&effects, second), bytes(1, 10, 0, 10, true));
    let (to, effects) = bench.read(1, 3, 60);
    assert_eq!(answer(&effects, to), bytes(1, 3, 7, 10, true));
}

/// API-12, API-16
#[test]
fn a_reader_whose_time_is_over_gets_what_there_is() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let (to, _) = bench.read(1, 0, 90);
    assert_eq!(answer(&bench.stay(session, 59), to), None);
    let effects = bench.stay(session, 1);
    assert_eq!(answer(&effects, to), bytes(1, 0, 0, 0, false));
}

/// API-36, API-38, API-40
#[test]
fn any_offset_can_be_read_any_number_of_times_a_mebibyte_at_most() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    let most = u32::try_from(CHUNK_BYTES).unwrap();
    for n in 0..5 {
        bench.writes(session, 1, n * u64::from(most), most);
    }
    let length = 5 * u64::from(most);
    bench.synced(1, length);
    bench.ends(session, 1, result());
    for _ in 0..2 {
        let (to, effects) = bench.read(1, 7, 0);
        assert_eq!(answer(&effects, to), bytes(1, 7, 1_048_576, length, false));
        let (to, effects) = bench.read(1, length - 1, 0);
        assert_eq!(answer(&effects, to), bytes(1, length - 1, 1, length, true));
    }
}

/// API-39
#[test]
fn an_offset_past_the_end_is_refused_with_the_length() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 10);
    bench.synced(1, 10);
    let (to, effects) = bench.read(1, 11, 60);
    assert_eq!(answer(&effects, to), Some(Answer::PastEnd { length: 10 }));
}

/// API-63, API-44
#[test]
fn output_of_a_settled_job_is_not_found() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.ends(session, 1, result());
    bench.settle(1);
    let (to, effects) = bench.read(1, 0, 60);
    let refused = answer(&effects, to).expect("an answer");
    assert_eq!(code(&refused), (404, ErrorCode::NotFound));
}

#[test]
fn output_that_is_not_durable_when_the_job_ends_does_not_count() {
    let (mut bench, session) = Bench::with_node(2);
    bench.running(session, 1);
    bench.writes(session, 1, 0, 10);
    bench.synced(1, 4);
    bench.ends(session, 1, result());
    assert_eq!(bench.synced(1, 10), []);
    let (to, effects) = bench.read(1, 0, 0);
    assert_eq!(answer(&effects, to), bytes(1, 0, 4, 4, true));
}

#[test]
fn output_before_the_acceptance_arrived_is_one() {
    let (mut bench, session) = Bench::with_node(2);
    bench.submit(1, None);
    bench.writes(session, 1, 0, 10);
    assert_eq!(bench.view(1).state, vk_hub_proto::client::JobState::Running);
    assert_eq!(bench.job_is(session, 1, RunState::Accepted), []);
}
