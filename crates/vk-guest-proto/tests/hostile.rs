//! What a hostile or broken peer may send: never a panic, never more memory than the bound.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail loudly"
)]

use proptest::prelude::*;
use vk_fuzz::inputs;
use vk_guest_proto::limits::{LENGTH_FIELD, MAX_CHUNK, MAX_FRAME, MAX_REQUEST};
use vk_guest_proto::*;

/// Feeds `wire` in pieces of `step` bytes and gives all frames, or the first error.
fn decode_all<F: Frame>(wire: &[u8], step: usize) -> (Vec<F>, Result<(), DecodeError>) {
    let mut decoder = Decoder::<F>::new();
    let mut frames = Vec::new();
    for mut piece in wire.chunks(step.max(1)) {
        while !piece.is_empty() {
            assert!(decoder.space().len() <= LENGTH_FIELD + MAX_FRAME);
            let took = decoder.feed(piece);
            assert!(took > 0, "a decoder without frames must have room");
            piece = &piece[took..];
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.next().err(), Some(error.clone()), "errors stay");
                        return (frames, Err(error));
                    }
                }
            }
        }
    }
    (frames, decoder.end())
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut wire = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    wire.extend_from_slice(body);
    wire
}

#[test]
fn a_length_over_the_bound_is_refused_before_any_byte_of_it_is_read() {
    let mut decoder = Decoder::<StreamToHost>::new();
    decoder.feed(&u32::MAX.to_le_bytes());
    assert!(matches!(
        decoder.next(),
        Err(DecodeError::FrameTooLong { .. })
    ));
    let over = u32::try_from(MAX_FRAME).unwrap() + 1;
    let mut decoder = Decoder::<StreamToHost>::new();
    decoder.feed(&over.to_le_bytes());
    assert!(matches!(
        decoder.next(),
        Err(DecodeError::FrameTooLong { .. })
    ));
}

#[test]
fn a_frame_of_no_bytes_is_refused() {
    let (_, end) = decode_all::<ControlToHost>(&[0; 4], 1);
    assert_eq!(end, Err(DecodeError::EmptyFrame));
}

#[test]
fn a_list_that_says_more_than_it_has_allocates_nothing_for_it() {
    // Stat with the most paths the count may say, and none there.
    let body = [vec![0, 7, 0, 0, 0, 6], 16_u32.to_le_bytes().to_vec()].concat();
    let (_, end) = decode_all::<ControlToAgent>(&framed(&body), 3);
    assert!(matches!(end, Err(DecodeError::Truncated { .. })), "{end:?}");
    let body = [vec![0, 7, 0, 0, 0, 6], 17_u32.to_le_bytes().to_vec()].concat();
    let (_, end) = decode_all::<ControlToAgent>(&framed(&body), 3);
    assert!(
        matches!(
            end,
            Err(DecodeError::TooLong {
                len: 17,
                max: 16,
                ..
            })
        ),
        "{end:?}"
    );
}

#[test]
fn bytes_after_the_last_field_are_refused() {
    let (_, end) = decode_all::<ControlToHost>(&framed(&[3, 0]), 64);
    assert_eq!(
        end,
        Err(DecodeError::Trailing {
            what: "ControlToHost",
            count: 1
        })
    );
}

#[test]
fn a_stream_that_stops_without_its_last_frame_is_an_error() {
    let mut wire = Vec::new();
    let data = StreamToHost::Data {
        channel: Channel::Stdout,
        bytes: vec![1; 100].into(),
    };
    encode(&data, &mut wire).unwrap();
    let whole = wire.len();
    encode(
        &StreamToHost::Done {
            end: TransferEnd {
                entries: 1,
                bytes: 2,
            },
        },
        &mut wire,
    )
    .unwrap();
    for cut in 0..wire.len() {
        let (frames, end) = decode_all::<StreamToHost>(&wire[..cut], 7);
        assert_eq!(frames.len(), usize::from(cut >= whole));
        let pending = if cut >= whole { cut - whole } else { cut };
        assert_eq!(end, Err(DecodeError::EndedEarly { pending }));
    }
    let (frames, end) = decode_all::<StreamToHost>(&wire, 7);
    assert_eq!((frames.len(), end), (2, Ok(())));
}

#[test]
fn nothing_may_follow_the_last_frame() {
    let mut wire = Vec::new();
    encode(&StreamToAgent::End, &mut wire).unwrap();
    wire.push(0);
    for step in [1, 64] {
        let (frames, end) = decode_all::<StreamToAgent>(&wire, step);
        assert_eq!((frames.len(), end), (1, Err(DecodeError::AfterEnd)));
    }
}

#[test]
fn a_sender_is_told_what_the_peer_would_refuse() {
    let mut out = b"kept".to_vec();
    let data = StreamToAgent::Data {
        bytes: vec![0; MAX_CHUNK + 1].into(),
    };
    assert!(matches!(
        encode(&data, &mut out),
        Err(EncodeError::TooLong { .. })
    ));
    assert_eq!(out, b"kept");
    let data = StreamToAgent::Data {
        bytes: vec![0; MAX_CHUNK].into(),
    };
    assert_eq!(encode(&data, &mut out), Ok(()));
}

fn exec_with(value: Vec<u8>) -> Request {
    let env = vec![EnvVar {
        name: b"BIG".to_vec(),
        value: value.into(),
    }];
    Request::Exec {
        exec: Exec {
            argv: vec![Opaque::from(&b"true"[..])],
            env,
            cwd: b"/".to_vec(),
            directories: vec![],
            user: vec![],
            umask: 0o22,
            stdin: Stdin::Null,
            merge_output: false,
            kill_leftovers: true,
            drain_ms: 0,
        },
    }
}

/// STAGE-35
#[test]
fn a_request_larger_than_a_frame_travels_in_parts() {
    let request = exec_with((0..400 * 1024_u32).map(|i| i.to_le_bytes()[0]).collect());
    let mut wire = Vec::new();
    for frame in request.to_frames().unwrap() {
        encode(&frame, &mut wire).unwrap();
    }
    let mut assembly = Assembly::new();
    let (frames, _) = decode_all::<StreamToAgent>(&wire, 1000);
    let mut got = None;
    for frame in frames {
        assert_eq!(got, None, "the last part comes last");
        let StreamToAgent::Request { last, part } = frame else {
            panic!("{frame:?}")
        };
        got = assembly.push(last, &part).unwrap();
    }
    assert_eq!(got, Some(request));
}

#[test]
fn a_request_over_its_bound_is_refused_on_both_sides() {
    let request = exec_with(vec![1; MAX_REQUEST]);
    assert!(matches!(
        request.to_frames(),
        Err(EncodeError::TooLong {
            what: "Request",
            ..
        })
    ));
    let mut assembly = Assembly::new();
    let part = vec![0; MAX_CHUNK];
    for _ in 0..MAX_REQUEST / MAX_CHUNK {
        assert_eq!(assembly.push(false, &part), Ok(None));
    }
    assert!(matches!(
        assembly.push(false, &[0]),
        Err(DecodeError::TooLong { .. })
    ));
}

#[test]
fn nothing_that_may_be_secret_is_printed() {
    let shown = format!("{:?}", exec_with(b"hunter2".to_vec()));
    assert!(
        !shown.contains("hunter2") && shown.contains("[7 bytes]"),
        "{shown}"
    );
    let data = StreamToAgent::Data {
        bytes: b"hunter2".to_vec().into(),
    };
    assert_eq!(format!("{data:?}"), "Data { bytes: [7 bytes] }");
}

/// Re-encoding what was decoded gives the same bytes: every value has one spelling.
fn canonical<F: Frame + std::fmt::Debug>(wire: &[u8], step: usize) {
    let (frames, _) = decode_all::<F>(wire, step);
    let mut again = Vec::new();
    for frame in &frames {
        encode(frame, &mut again).unwrap();
    }
    assert!(again.len() <= wire.len());
}

#[test]
fn random_bytes_never_panic() {
    inputs(
        512,
        (prop::collection::vec(any::<u8>(), 0..300), 1..40_usize),
        |(wire, step)| {
            canonical::<ControlToAgent>(&wire, step);
            canonical::<ControlToHost>(&wire, step);
            canonical::<StreamToAgent>(&wire, step);
            canonical::<StreamToHost>(&wire, step);
            let _ = Assembly::new().push(true, &wire);
            Ok(())
        },
    );
}

#[test]
fn random_bodies_never_panic() {
    inputs(
        512,
        (
            prop::collection::vec(
                (
                    0..16_u8,
                    prop::collection::vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..64),
                ),
                0..8,
            ),
            1..40_usize,
        ),
        |(bodies, step)| {
            let mut wire = Vec::new();
            for (kind, body) in bodies {
                wire.extend(framed(&[vec![kind], body].concat()));
            }
            canonical::<ControlToAgent>(&wire, step);
            canonical::<ControlToHost>(&wire, step);
            canonical::<StreamToAgent>(&wire, step);
            canonical::<StreamToHost>(&wire, step);
            Ok(())
        },
    );
}

#[test]
fn a_bent_request_never_panics() {
    inputs(
        512,
        (0..200_usize, any::<u8>(), 0..300_usize),
        |(at, to, cut)| {
            let frames = exec_with(vec![7; 100]).to_frames().unwrap();
            let StreamToAgent::Request { part, .. } = &frames[0] else {
                panic!()
            };
            let mut part = part.to_vec();
            if let Some(byte) = part.get_mut(at) {
                *byte = to;
            }
            part.truncate(cut);
            let _ = Assembly::new().push(true, &part);
            Ok(())
        },
    );
}
