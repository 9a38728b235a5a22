//! The cases of gitlab-runner's own tests of its masks, and those it fails, through the whole
//! chain. A `|` in an input separates two reads.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use proptest::prelude::*;
use vk_trace::{Kind, Line, Origin, ReadTime, Secrets, Settings, Trace};

const M: &str = "[MASKED]";

/// What the trace holds of `reads`, without stamps.
fn plain(values: &[&str], prefixes: &[&str], reads: &[&[u8]]) -> String {
    let mut secrets = Secrets::new();
    values
        .iter()
        .for_each(|value| secrets.masked_variable(value));
    let settings = Settings {
        timestamps: false,
        token_prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
        ..Settings::default()
    };
    let mut trace = Trace::new(&settings, secrets).unwrap();
    let mut out = Vec::new();
    for bytes in reads {
        trace
            .write(
                Origin::Guest,
                Kind::Stdout,
                ReadTime::default(),
                bytes,
                &mut out,
            )
            .unwrap();
    }
    trace.finish(ReadTime::default(), &[], &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Checks a case as it stands, in one read, and byte by byte. `M` in `expected` is a mask.
fn check(values: &[&str], prefixes: &[&str], input: &str, expected: &str) {
    let whole = input.replace('|', "");
    let reads: Vec<&[u8]> = input.split('|').map(str::as_bytes).collect();
    assert_eq!(plain(values, prefixes, &reads), expected, "{input}");
    assert_eq!(
        plain(values, prefixes, &[whole.as_bytes()]),
        expected,
        "{input} in one read"
    );
    let bytes: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
    assert_eq!(
        plain(values, prefixes, &bytes),
        expected,
        "{input} byte by byte"
    );
}

/// PORT-36, STAGE-25
#[test]
fn phrases() {
    let underscores = "_".repeat(8000);
    let large = format!("large secret: {underscores}|{underscores}");
    for (input, values, expected) in [
        (
            "empty secrets have no affect",
            &[""][..],
            "empty secrets have no affect",
        ),
        ("no escaping at all", &[], "no escaping at all"),
        ("secrets", &["secrets"], "M"),
        ("secret|s", &["secrets"], "M"),
        ("s|ecrets", &["secrets"], "M"),
        ("secretssecrets", &["secrets"], "MM"),
        ("ssecrets", &["secrets"], "sM"),
        ("s|secrets", &["secrets"], "sM"),
        (
            "at the start of the buffer",
            &["at"],
            "M the start of the buffer",
        ),
        (
            "in the middle of the buffer",
            &["middle"],
            "in the M of the buffer",
        ),
        (
            "at the end of the buffer",
            &["buffer"],
            "at the end of the M",
        ),
        (
            "all values are masked",
            &["all", "values", "are", "masked"],
            "M M M M",
        ),
        (
            "prefixed and suffixed: xfoox ybary ffoo barr ffooo bbarr",
            &["foo", "bar"],
            "prefixed and suffixed: xMx yMy fM Mr fMo bMr",
        ),
        (
            "prefix|ed, su|ffi|xed |and split|:| xfo|ox y|bary ffo|o ba|rr ffooo b|barr",
            &["foo", "bar"],
            "prefixed, suffixed and split: xMx yMy fM Mr fMo bMr",
        ),
        (
            "sp|lit al|l val|ues ar|e |mask|ed",
            &["split", "all", "values", "are", "masked"],
            "M M M M M",
        ),
        (
            "prefix_mask mask prefix_|mask prefix_ma|sk mas|k",
            &["mask", "prefix_mask"],
            "M M M M M",
        ),
        (&large, &[&"_".repeat(16_000)], "large secret: M"),
        (
            "overlap: this is the en| foobar",
            &["this is the end", "en foobar", "en"],
            "overlap: this is the M",
        ),
        // Those that gitlab-runner fails.
        ("aa|ab", &["aab"], "aM"),
        ("ab|ab|ac", &["abac"], "abM"),
        ("pre_s3cret x gs3cret", &["s3cret"], "pre_M x Mg"),
        ("l1\n|l2", &["l1\nl2"], "M"),
        ("a x b", &[" x "], "a M b"),
        ("open secr", &["secret"], "open secr"),
        ("aab", &["aa", "ab"], "aM"),
    ] {
        // The last of "gs3cret": what may be a prefix's first letter must not change places.
        let expected = expected.replace("Mg", "gM").replace('M', M);
        check(values, &[], input, &expected);
    }
}

/// PORT-36, STAGE-25, STAGE-26
#[test]
fn tokens() {
    for (input, prefixes, expected) in [
        (
            "ex ea commodo glpat-imperdiet in velit",
            &[][..],
            "ex ea commodo glpat-M in velit",
        ),
        ("velit esseglpat-imperdiet", &[], "velit esseglpat-M"),
        ("glpat-imperdiet Lorem", &[], "glpat-M Lorem"),
        ("esseglpat-imperdiet=_-. end", &[], "esseglpat-M end"),
        ("glpat-impglpat-erdiet x", &[], "glpat-M x"),
        (
            "glpat|-imperdiet a gl|pat-imperdiet b",
            &[],
            "glpat-M a glpat-M b",
        ),
        ("glpat| -imperdiet x", &[], "glpat -imperdiet x"),
        (
            "Lorglpat- ipsu amglpat-t, c",
            &[],
            "Lorglpat- ipsu amglpat-M, c",
        ),
        (
            "amglp|at-t, sglpat-|d laborglpat-=_ g",
            &[],
            "amglpat-M, sglpat-M laborglpat-M g",
        ),
        ("token-imperdiet x", &["token-"], "token-M x"),
        (
            "amt|ok-t, ctg|lpat-tur stok-|d gltok-test t|tok-mpor",
            &["tok-"],
            "amtok-M, ctglpat-M stok-M gltok-M ttok-M",
        ),
        (
            "Lormask1-ipsu mm|ask2-t, lpat mask5-lit, smask11-|d do mask7-iusmod t|glpat-mpor \
             labormask10-=_ mask9-t",
            &[
                "mask1-", "mask2-", "mask3-", "mask4-", "mask5-", "mask6-", "mask7-", "mask8-",
                "mask9-", "mask10-", "mask11-",
            ],
            "Lormask1-M mmask2-M, lpat mask5-M, smask11-M do mask7-M tglpat-M labormask10-M mask9-M",
        ),
        // One that gitlab-runner fails.
        ("x glpat-", &[], "x glpat-"),
    ] {
        check(&[], prefixes, input, &expected.replace('M', M));
    }
}

/// PORT-36, STAGE-25
#[test]
fn url_parameters() {
    let long = format!("?x-amz-credential={} that", "0".repeat(8192));
    for (input, expected) in [
        (
            "http://example.org/?test=foobar",
            "http://example.org/?test=foobar",
        ),
        (
            "&private_token=hello &?x-amz-security-token=hello &?x-amz-security-token=hello \
             ?x-amz-security?x-amz-security-token=hello",
            "&private_token=M &?x-amz-security-token=M &?x-amz-security-token=M \
             ?x-amz-security?x-amz-security-token=M",
        ),
        (
            "?this-is-a-really-really-long-key-name=foobar",
            "?this-is-a-really-really-long-key-name=foobar",
        ),
        (
            "/?private_token=deadbeef sensitive",
            "/?private_token=M sensitive",
        ),
        ("/?authenticity_token=deadbeef", "/?authenticity_token=M"),
        ("/?rss_token=deadbeef in", "/?rss_token=M in"),
        (
            "/?X-AMZ-sigNATure=deadbeef with",
            "/?X-AMZ-sigNATure=M with",
        ),
        (
            "?param=second&x-amz-credential=deadbeef s",
            "?param=second&x-amz-credential=M s",
        ),
        (
            "?rss_token=hide&x-amz-credential=deadbeef b",
            "?rss_token=M&x-amz-credential=M b",
        ),
        (&long, "?x-amz-credential=M that"),
        (
            "spl|it sensit|ive /?x-amz-cred|ential=abcdefghij|klmnopqrst",
            "split sensitive /?x-amz-credential=M",
        ),
        (
            "?x-amz-credential=abc\nhttp://e/?x-amz-credential=abc",
            "?x-amz-credential=M\nhttp://e/?x-amz-credential=M",
        ),
        (
            "?x-amz-credential=abc\x08http://e/?x-amz-credential=abc",
            "?x-amz-credential=M\x08http://e/?x-amz-credential=M",
        ),
        (
            "rss_token=notmasked http://e/?rss_token=!@#$A&x-amz-credential=abc&test=test",
            "rss_token=notmasked http://e/?rss_token=M&x-amz-credential=M&test=test",
        ),
        (
            "?x-amz-credential=&private_token=gitlab",
            "?x-amz-credential=M&private_token=M",
        ),
        (
            "?x-amz-credential=abc&&private_token=gitlab",
            "?x-amz-credential=M&&private_token=M",
        ),
        (
            "?x-amz-credential=abc??private_token=gitlab",
            "?x-amz-credential=M??private_token=M",
        ),
        ("/|&|x-amz-cre|dential=abc", "/&x-amz-credential=M"),
        ("/|?|x-amz-cre|dential=abc", "/?x-amz-credential=M"),
        ("/|?||x-amz-cre|dential=abc", "/?x-amz-credential=M"),
        (
            "?|one ?x-amz-credential=abc two=three ?|one=two &token &x-amz-credential=abc =token ?=",
            "?one ?x-amz-credential=M two=three ?one=two &token &x-amz-credential=M =token ?=",
        ),
        ("?x", "?x"),
        ("?x|-", "?x-"),
        ("?x-|", "?x-"),
        ("?x-amz-credential=", "?x-amz-credential=M"),
        ("?x-amz-credential=|", "?x-amz-credential=M"),
        // One that gitlab-runner fails.
        ("?x-amz-security-token|=abc d", "?x-amz-security-token=M d"),
    ] {
        let expected = expected.replace('M', M).replace("X-A[MASKED]Z", "X-AMZ");
        check(&[], &[], input, &expected);
    }
}

/// STAGE-25
#[test]
fn the_masks_come_in_order_phrases_then_parameters_then_tokens() {
    let values = ["hunter2", "glpat-whole-token"];
    for (input, expected) in [
        ("?private_token=hunter2&x=hunter2", "?private_token=M&x=M"),
        ("?private_token=glpat-abc d", "?private_token=M d"),
        ("glpat-whole-token", "M"),
        ("glpat-whole", "glpat-M"),
        ("glpat-xhunter2y z", "glpat-MM z"),
        ("?rss_token=a hunter2", "?rss_token=M M"),
    ] {
        check(&values, &[], input, &expected.replace('M', M));
    }
}

/// STAGE-29
#[test]
fn repair_comes_before_the_masks() {
    let reads: [&[u8]; 3] = [
        b"?rss_token=\xe2\x82",
        b"\xac\xff x caf\xc3",
        b"\xa9 caf\xc3",
    ];
    let out = plain(&["café"], &[], &reads);
    assert_eq!(out, format!("?rss_token={M} x {M} caf\u{FFFD}"));
}

/// STAGE-15
#[test]
fn a_secret_on_two_streams_is_none() {
    let mut secrets = Secrets::new();
    secrets.masked_variable("secret");
    let settings = Settings {
        timestamps: false,
        ..Settings::default()
    };
    let mut trace = Trace::new(&settings, secrets).unwrap();
    let (at, mut out) = (ReadTime::default(), Vec::new());
    trace
        .write(Origin::Guest, Kind::Stdout, at, b"1 sec", &mut out)
        .unwrap();
    trace
        .write(Origin::Guest, Kind::Stderr, at, b"ret sec", &mut out)
        .unwrap();
    trace
        .write(Origin::Guest, Kind::Stdout, at, b"ret 2", &mut out)
        .unwrap();
    trace.close(Origin::Guest, &mut out).unwrap();
    assert_eq!(out, b"1 ret [MASKED] 2sec");
}

/// GL-60, STAGE-24
#[test]
fn tokens_and_registry_passwords_do_not_reach_the_trace() {
    let mut secrets = Secrets::new();
    secrets.token("job0token0");
    secrets.token("dep-token");
    secrets.registry("password");
    secrets.registry("short");
    let settings = Settings {
        timestamps: false,
        ..Settings::default()
    };
    let mut trace = Trace::new(&settings, secrets).unwrap();
    let (at, mut out) = (ReadTime::default(), Vec::new());
    let text = b"job0token0 dep-token password short glcbt-other";
    trace
        .write(Origin::Guest, Kind::Stdout, at, text, &mut out)
        .unwrap();
    trace.finish(at, &[], &mut out).unwrap();
    assert_eq!(out, b"[MASKED] [MASKED] [MASKED] short glcbt-[MASKED]");
}

/// STAGE-14
#[test]
fn the_nodes_own_lines_are_masked_each_for_itself() {
    let mut secrets = Secrets::new();
    secrets.masked_variable("Kelvin");
    secrets.token("glcbt-64_x");
    let settings = Settings {
        timestamps: false,
        ..Settings::default()
    };
    let mut trace = Trace::new(&settings, secrets).unwrap();
    let (at, mut out) = (ReadTime::default(), Vec::new());
    let url = "Get http://localhost/?id=123&X-Amz-Signature=abcd1234&private_token=abcd1234";
    trace.line(at, Line::Error(url), &mut out).unwrap();
    trace
        .line(at, Line::Plain("token glcbt-64_x by Kelvin"), &mut out)
        .unwrap();
    trace
        .finish(at, &[Line::Error("Job failed: Kelvin")], &mut out)
        .unwrap();
    let expected = "\x1b[31;1mERROR: Get http://localhost/?id=123&X-Amz-Signature=[MASKED]\
        &private_token=[MASKED]\x1b[0;m\n\x1b[0Ktoken [MASKED] by [MASKED]\x1b[0;m\n\
        \x1b[31;1mERROR: Job failed: [MASKED]\x1b[0;m\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

proptest! {
    /// STAGE-25, STAGE-29
    #[test]
    fn any_split_into_reads_gives_the_same_bytes(
        values in proptest::collection::vec("[ab]{1,4}|glp|at-x|=a|é|l1\nl2", 0..4),
        pieces in proptest::collection::vec(prop_oneof![
            "[ab]{0,5}", "(ab|aab){1,4}", "gl(pat|rt|rtr|tok)-", "[?&](rss_token|private_token|a)=",
            "[a-z. ]{0,40}", "é|€|🐤|\u{85}", "l1\nl2", "x|tok:",
        ].prop_map(String::into_bytes).boxed().prop_union(
            proptest::collection::vec(0x80_u8..=0xff, 0..4).boxed()), 0..20),
        splits in proptest::collection::vec(0_usize..300, 0..12),
    ) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let bytes = pieces.concat();
        let mut at: Vec<usize> = splits.into_iter().map(|at| at.min(bytes.len())).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let reads: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let prefixes = ["tok:", "pat-abc:"];
        prop_assert_eq!(plain(&values, &prefixes, &reads), plain(&values, &prefixes, &[&bytes]));
    }
}
