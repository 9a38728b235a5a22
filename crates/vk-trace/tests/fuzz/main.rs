//! Output that nobody writes on purpose, against the rules by their definition: slow, one pass after
//! another, over all of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may"
)]

mod model;

use proptest::prelude::*;
use vk_fuzz::inputs;
use vk_trace::{Kind, Origin, ReadTime, Secrets, Settings, Trace};

/// A secret: short and like itself, or a word.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab]{1,6}",
        2 => "[abc]{1,4}",
        2 => "(ab|aab){1,6}c?",
        1 => "[a-zé]{6,12}",
        1 => "a\nb|ab\nab",
        1 => "glpat-[ab]{1,3}|b=|[?]a",
    ]
}

/// A piece of output: what means something to a mask, part of it, or bytes of any kind.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "a",
        "b",
        "ab",
        "aab",
        "c",
        ".",
        " ",
        "\n",
        "\r",
        "\r\n",
        "é",
        "€",
        "\u{2028}",
        "\u{85}",
        "?",
        "&",
        "=",
        "_",
        "-",
        "[MASKED]",
        "\x1b[0K",
        "section_start:1:x\r\x1b[0K",
        "?private_token=",
        "&RSS_token=",
        "&x-amz-signature=",
        "?x-amz-sig",
        "authenticity_token=",
        "glpat-",
        "glrt-",
        "glrtr-",
        "_gitlab_session=",
        "glpat",
        "abx-",
        "ab-",
    ]);
    let many = (word.clone(), 1_usize..40);
    prop_oneof![
        6 => word.prop_map(|word| word.as_bytes().to_vec()),
        2 => many.prop_map(|(word, times)| word.repeat(times).into_bytes()),
        2 => prop::collection::vec(prop::sample::select(vec![b'a', b'b']), 1..90),
        1 => prop::collection::vec(any::<u8>(), 1..6),
        1 => prop::sample::select(vec![&b"\xf0\x9f"[..], b"\xe2", b"\x98\x83", b"\xed\xa0\x80", b"\xc3"])
            .prop_map(<[u8]>::to_vec),
    ]
}

/// Output as one stream, and how it is cut into reads.
fn output() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let bytes = prop::collection::vec(piece(), 0..20).prop_map(|pieces| pieces.concat());
    let cut = prop_oneof![1_usize..4, 1_usize..60, Just(100_000_usize)];
    (bytes, prop::collection::vec(cut, 1..12))
}

fn trace(phrases: &[String], bytes: &[u8], cuts: &[usize], timestamps: bool) -> Vec<u8> {
    let mut secrets = Secrets::new();
    phrases
        .iter()
        .for_each(|phrase| secrets.masked_variable(phrase));
    let settings = Settings {
        timestamps,
        token_prefixes: model::MORE_PREFIXES.map(str::to_owned).to_vec(),
        ..Settings::default()
    };
    let (mut trace, mut out) = (Trace::new(&settings, secrets).unwrap(), Vec::new());
    let (mut rest, mut cuts) = (bytes, (1..).zip(cuts.iter().cycle()));
    while let (false, Some((nth, cut))) = (rest.is_empty(), cuts.next()) {
        let (read, behind) = rest.split_at((*cut).min(rest.len()));
        let at = ReadTime::from_unix(1_700_000_000, nth);
        trace
            .write(Origin::Guest, Kind::Stdout, at, read, &mut out)
            .unwrap();
        rest = behind;
    }
    trace.close(Origin::Guest, &mut out).unwrap();
    out
}

/// The text of a stamped trace, and whether each line has a stamp as it should be.
fn unstamped(stamped: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::new();
    let lines = stamped.strip_suffix(b"\n").unwrap_or(stamped);
    for line in lines
        .split(|byte| *byte == b'\n')
        .filter(|_| !stamped.is_empty())
    {
        let (stamp, rest) = line
            .split_at_checked(32)
            .unwrap_or_else(|| panic!("{line:?}"));
        assert!(
            stamp.starts_with(b"2023-11-14T22:13:20.") && stamp[26..31] == *b"Z 01O",
            "{}",
            String::from_utf8_lossy(stamp)
        );
        match stamp[31] {
            b'+' => assert_eq!(text.pop(), Some(b'\n')),
            flag => assert_eq!(flag, b' '),
        }
        text.extend_from_slice(rest);
        text.push(b'\n');
    }
    text
}

/// STAGE-24, STAGE-25, STAGE-26, STAGE-27, STAGE-29
#[test]
fn any_output_in_any_reads_is_what_one_pass_after_another_makes_of_it() {
    inputs(
        300,
        (prop::collection::vec(secret(), 0..7), output()),
        |(mut phrases, (bytes, cuts))| {
            phrases.sort();
            let expected = model::masked(&phrases, &bytes);
            let plain = trace(&phrases, &bytes, &cuts, false);
            prop_assert_eq!(
                String::from_utf8_lossy(&plain),
                String::from_utf8_lossy(&expected),
                "{:?} {:?} {:?}",
                phrases,
                String::from_utf8_lossy(&bytes),
                cuts
            );
            // A line that the stream's end leaves unfinished is ended.
            let mut expected = expected;
            if expected.last().is_some_and(|last| *last != b'\n') {
                expected.push(b'\n');
            }
            let stamped = unstamped(&trace(&phrases, &bytes, &cuts, true));
            prop_assert_eq!(
                String::from_utf8_lossy(&stamped),
                String::from_utf8_lossy(&expected),
                "{:?} {:?} {:?}",
                phrases,
                String::from_utf8_lossy(&bytes),
                cuts
            );
            Ok(())
        },
    );
}
