//! Frames that a hostile peer sends: valid ones, bent where their structure is.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use vk_fuzz::inputs;
use vk_guest_proto::limits::{LENGTH_FIELD, MAX_FRAME};
use vk_guest_proto::*;

use crate::kinds::{
    control_end, control_to_host, op, request, stream_end, stream_to_agent, stream_to_host,
};

/// What is done to a message of whole frames.
#[derive(Clone, Debug)]
enum Bend {
    /// A byte of one frame, counted from its length field's first, becomes another.
    Byte(usize, usize, u8),
    /// Four bytes of one frame become a number: a length, a count.
    Number(usize, usize, u32),
    /// A frame is sent twice, is left out, or changes places with the next.
    Twice(usize),
    Without(usize),
    Swapped(usize),
    /// Bytes are put into a frame, its length field with or without them.
    Longer(usize, usize, Vec<u8>, bool),
    /// A frame ends early, its length field with or without what is gone.
    Shorter(usize, usize, bool),
    /// Everything ends early.
    Cut(usize),
}

fn bend() -> impl Strategy<Value = Bend> {
    let number = prop_oneof![
        0..9_u32,
        Just(u32::MAX),
        Just(1 << 31),
        Just(u32::try_from(MAX_FRAME).unwrap()),
        Just(u32::try_from(MAX_FRAME).unwrap() + 1),
        60_u32..70_000,
        any::<u32>(),
    ];
    let byte = prop_oneof![0..20_u8, any::<u8>()];
    let (nth, at) = (0..10_usize, 0..80_usize);
    prop_oneof![
        4 => (nth.clone(), at.clone(), byte).prop_map(|(nth, at, to)| Bend::Byte(nth, at, to)),
        4 => (nth.clone(), at.clone(), number).prop_map(|(nth, at, to)| Bend::Number(nth, at, to)),
        1 => nth.clone().prop_map(Bend::Twice),
        1 => nth.clone().prop_map(Bend::Without),
        1 => nth.clone().prop_map(Bend::Swapped),
        2 => (nth.clone(), at.clone(), vec(any::<u8>(), 1..9), any::<bool>())
            .prop_map(|(nth, at, more, told)| Bend::Longer(nth, at, more, told)),
        2 => (nth, at, any::<bool>()).prop_map(|(nth, at, told)| Bend::Shorter(nth, at, told)),
        1 => (0..400_usize).prop_map(Bend::Cut),
    ]
}

/// The bytes of frames, each for itself, after all bends.
fn bent(mut frames: Vec<Vec<u8>>, bends: &[Bend]) -> Vec<u8> {
    let mut cut = usize::MAX;
    for bend in bends {
        let count = frames.len().max(1);
        match bend {
            Bend::Byte(nth, at, to) => {
                let byte = frames
                    .get_mut(nth % count)
                    .and_then(|frame| frame.get_mut(*at));
                byte.into_iter().for_each(|byte| *byte = *to);
            }
            Bend::Number(nth, at, to) => {
                let field = frames
                    .get_mut(nth % count)
                    .and_then(|frame| frame.get_mut(*at..at + 4));
                field
                    .into_iter()
                    .for_each(|field| field.copy_from_slice(&to.to_le_bytes()));
            }
            Bend::Twice(nth) => {
                let again = frames.get(nth % count).cloned();
                frames.extend(again);
            }
            Bend::Without(nth) if !frames.is_empty() => {
                frames.remove(nth % count);
            }
            Bend::Swapped(nth) if frames.len() > 1 => {
                frames.swap(nth % count, (nth + 1) % count);
            }
            Bend::Longer(nth, at, more, told) => {
                if let Some(frame) = frames.get_mut(nth % count) {
                    let at = (*at).clamp(LENGTH_FIELD.min(frame.len()), frame.len());
                    frame.splice(at..at, more.iter().copied());
                    told.then(|| tell_length(frame));
                }
            }
            Bend::Shorter(nth, at, told) => {
                if let Some(frame) = frames.get_mut(nth % count) {
                    frame.truncate(LENGTH_FIELD + at);
                    told.then(|| tell_length(frame));
                }
            }
            Bend::Cut(at) => cut = *at,
            Bend::Without(_) | Bend::Swapped(_) => {}
        }
    }
    let mut wire = frames.concat();
    wire.truncate(cut);
    wire
}

fn tell_length(frame: &mut [u8]) {
    let len = u32::try_from(frame.len().saturating_sub(LENGTH_FIELD)).unwrap();
    if let Some(field) = frame.get_mut(..LENGTH_FIELD) {
        field.copy_from_slice(&len.to_le_bytes());
    }
}

fn encoded<F: Frame>(frames: &[F]) -> Vec<Vec<u8>> {
    let one = |frame| {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).unwrap();
        bytes
    };
    frames.iter().map(one).collect()
}

/// Reads bytes in pieces of `step`. What was read, told again, is read as the same, and is as long: no
/// value has two spellings, but for what is not known here and read as `Other`. No more memory is taken
/// than one frame needs, and nothing is read after an error or the last frame.
fn reads<F: Frame + Debug + PartialEq>(wire: &[u8], step: usize) -> Result<(), TestCaseError> {
    let frames = read(&mut Decoder::<F>::new(), wire, step)?;
    let told = encoded(&frames).concat();
    let mut at = 0;
    for frame in encoded(&frames) {
        prop_assert_eq!(frame.get(..LENGTH_FIELD), wire.get(at..at + LENGTH_FIELD));
        at += frame.len();
    }
    prop_assert!(at <= wire.len());
    let again = read(&mut Decoder::<F>::new(), &told, wire.len().max(1))?;
    prop_assert_eq!(again, frames);
    Ok(())
}

/// All frames up to the first error, or the end.
fn read<F: Frame + Debug>(
    decoder: &mut Decoder<F>,
    wire: &[u8],
    step: usize,
) -> Result<Vec<F>, TestCaseError> {
    let mut frames = Vec::new();
    for mut piece in wire.chunks(step) {
        while !piece.is_empty() {
            prop_assert!(decoder.space().len() <= LENGTH_FIELD + MAX_FRAME);
            let took = decoder.feed(piece);
            prop_assert!(took > 0);
            piece = &piece[took..];
            loop {
                let was_over = decoder.is_finished();
                match decoder.next() {
                    Ok(Some(frame)) => {
                        prop_assert!(!was_over, "{frame:?} after the last");
                        frames.push(frame);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        prop_assert_eq!(decoder.next().err(), Some(error.clone()));
                        prop_assert_eq!(decoder.end(), Err(error));
                        return Ok(frames);
                    }
                }
            }
        }
    }
    prop_assert_eq!(decoder.end().is_ok(), decoder.is_finished());
    Ok(frames)
}

#[test]
fn bent_frames_are_read_as_they_are_spelled_or_refused() {
    inputs(
        200,
        (
            (vec(control_to_host(), 0..5), control_end()),
            (vec(stream_to_host(), 0..5), stream_end()),
            (
                vec((any::<u32>(), op()), 0..3),
                vec(stream_to_agent(), 0..3),
            ),
            vec(bend(), 1..5),
            1..300_usize,
        ),
        |(control, stream, asked, bends, step)| {
            let control = [control.0, vec![control.1]].concat();
            let stream = [stream.0, vec![stream.1]].concat();
            let ops = asked
                .0
                .into_iter()
                .map(|(id, op)| ControlToAgent::Request { id, op });
            let ops: Vec<_> = ops.collect();
            let control = bent(encoded(&control), &bends);
            let stream = bent(encoded(&stream), &bends);
            reads::<ControlToHost>(&control, step)?;
            reads::<StreamToHost>(&stream, step)?;
            // And what one kind of stream says on another.
            reads::<StreamToHost>(&control, step)?;
            reads::<ControlToHost>(&stream, step)?;
            reads::<ControlToAgent>(&bent(encoded(&ops), &bends), step)?;
            reads::<StreamToAgent>(&bent(encoded(&asked.1), &bends), step)?;
            Ok(())
        },
    );
}

#[test]
fn a_bent_request_is_read_as_it_is_spelled_or_refused() {
    inputs(
        200,
        (request(), vec(bend(), 1..4), 1..200_usize),
        |(request, bends, parts)| {
            let frames = request.to_frames().unwrap();
            let mut bytes = Vec::new();
            for frame in &frames {
                if let StreamToAgent::Request { part, .. } = frame {
                    bytes.extend_from_slice(part);
                }
            }
            let bytes = bent(vec![bytes], &bends);
            let (mut assembly, count) = (Assembly::new(), bytes.len().div_ceil(parts).max(1));
            for (nth, part) in bytes.chunks(parts).enumerate() {
                match assembly.push(nth + 1 == count, part) {
                    Ok(None) => prop_assert!(nth + 1 < count),
                    Ok(Some(request)) => {
                        let again = request.to_frames().unwrap();
                        let again = again.iter().flat_map(|frame| match frame {
                            StreamToAgent::Request { part, .. } => part.to_vec(),
                            _ => Vec::new(),
                        });
                        prop_assert_eq!(again.collect::<Vec<u8>>(), bytes.clone());
                        break;
                    }
                    Err(_) => break,
                }
            }
            Ok(())
        },
    );
}

#[test]
fn a_bent_opening_is_an_agents_or_none() {
    inputs(
        200,
        (
            any::<[u8; SECRET_LEN]>(),
            any::<u32>(),
            vec((0..OPENING_LEN, any::<u8>()), 0..3),
        ),
        |(mut secret, stream, bends)| {
            let opening = Opening::new(Secret::take(&mut secret), Purpose::Exec, stream);
            let mut bytes = opening.encode();
            for (at, to) in bends {
                bytes[at] = to;
            }
            if let Ok(read) = Opening::decode(&bytes) {
                prop_assert_eq!(read.encode(), bytes);
                prop_assert!(read.choose() <= HIGHEST_VERSION);
            }
            Ok(())
        },
    );
}
