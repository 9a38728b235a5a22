//! Whatever may be sent arrives as it was, however the bytes are cut.

use proptest::collection::vec;
use proptest::prelude::*;
use vk_fuzz::inputs;
use vk_guest_proto::*;

use crate::kinds::{
    control_end, control_to_host, op, request, stream_end, stream_to_agent, stream_to_host,
};

/// Sends frames as bytes in pieces of `step`, and takes them out again.
fn arrives<F>(frames: &[F], step: usize) -> Result<(), TestCaseError>
where
    F: Frame + std::fmt::Debug + PartialEq,
{
    let mut wire = Vec::new();
    for frame in frames {
        encode(frame, &mut wire).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
    let mut decoder = Decoder::<F>::new();
    let mut got = Vec::new();
    for mut piece in wire.chunks(step) {
        while !piece.is_empty() {
            let took = decoder.feed(piece);
            piece = piece.get(took..).unwrap_or_default();
            while let Some(frame) = decoder
                .next()
                .map_err(|error| TestCaseError::fail(error.to_string()))?
            {
                got.push(frame);
            }
        }
    }
    prop_assert_eq!(got.as_slice(), frames);
    prop_assert_eq!(
        decoder.end().is_ok(),
        frames.last().is_some_and(Frame::is_final)
    );
    Ok(())
}

#[test]
fn control_frames_arrive() {
    inputs(
        128,
        (
            vec((any::<u32>(), op()), 0..8),
            vec(control_to_host(), 0..8),
            control_end(),
            1..5000_usize,
        ),
        |(ops, answers, end, step)| {
            let requests: Vec<_> = ops
                .into_iter()
                .map(|(id, op)| ControlToAgent::Request { id, op })
                .collect();
            arrives(&requests, step)?;
            arrives(&[answers, vec![end]].concat(), step)?;
            Ok(())
        },
    );
}

#[test]
fn stream_frames_arrive() {
    inputs(
        128,
        (
            vec(stream_to_agent(), 0..8),
            vec(stream_to_host(), 0..8),
            stream_end(),
            1..5000_usize,
        ),
        |(sent, heard, end, step)| {
            arrives(&[sent, vec![StreamToAgent::End]].concat(), step)?;
            arrives(&[heard, vec![end]].concat(), step)?;
            Ok(())
        },
    );
}

#[test]
fn requests_arrive() {
    inputs(128, request(), |request| {
        let frames = request
            .to_frames()
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut assembly = Assembly::new();
        let mut got = None;
        for frame in &frames {
            prop_assert!(got.is_none());
            if let StreamToAgent::Request { last, part } = frame {
                got = assembly
                    .push(*last, part)
                    .map_err(|e| TestCaseError::fail(e.to_string()))?;
            }
        }
        prop_assert_eq!(got, Some(request));
        Ok(())
    });
}
