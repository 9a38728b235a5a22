//! What may follow what: the limit and the closing lines, failed masking, secrets that come late.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vk_trace::{
    DEFAULT_LIMIT, Kind, Line, OVERHANG, Origin, ReadTime, Secrets, Section, Settings, Trace,
    TraceError,
};

fn hours(hours: u64) -> ReadTime {
    ReadTime::from_unix(1_609_459_200 + 3600 * hours, 20_010)
}

fn trace(settings: &Settings) -> Trace {
    let mut secrets = Secrets::new();
    secrets.masked_variable("s3cret");
    Trace::new(settings, secrets).unwrap()
}

/// STAGE-28, STAGE-20
#[test]
fn the_closing_line_follows_the_notice() {
    let settings = Settings {
        limit_bytes: 100,
        ..Settings::default()
    };
    let (mut trace, mut out) = (trace(&settings), Vec::new());
    // 32 bytes of stamp, 17 of text and the line break: two such lines are an exact fit.
    trace
        .write(
            Origin::Guest,
            Kind::Stdout,
            hours(1),
            b"seventeen bytes!!\n",
            &mut out,
        )
        .unwrap();
    assert!(!trace.is_full());
    trace
        .write(
            Origin::Guest,
            Kind::Stdout,
            hours(2),
            b"seventeen bytes!!\n",
            &mut out,
        )
        .unwrap();
    assert!(trace.is_full());
    let full = out.len();
    trace
        .write(Origin::Guest, Kind::Stderr, hours(3), b"more\n", &mut out)
        .unwrap();
    trace
        .line(hours(3), Line::Warning("more"), &mut out)
        .unwrap();
    trace.close(Origin::Guest, &mut out).unwrap();
    assert_eq!(out.len(), full);
    let closing = [Line::Error("Job failed: exit code 1 s3cret")];
    trace.finish(hours(4), &closing, &mut out).unwrap();
    let expected = "2021-01-01T01:00:00.020010Z 01O seventeen bytes!!\n\
        2021-01-01T02:00:00.020010Z 01O seventeen bytes!!\n\n\
        \x1b[33;1mJob's log exceeded limit of 100 bytes.\n\
        Job execution will continue but no more output will be collected.\x1b[0;m\n\
        2021-01-01T04:00:00.020010Z 00O \x1b[31;1mERROR: Job failed: exit code 1 [MASKED]\
        \x1b[0;m\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// STAGE-28
#[test]
fn whatever_is_written_the_trace_stays_within_limit_and_overhang() {
    for closing in [
        "x".repeat(1 << 20),
        "\n".repeat(1 << 16),
        "s3cret".repeat(1 << 16),
    ] {
        let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
        for _ in 0..5 {
            trace
                .write(
                    Origin::Guest,
                    Kind::Stdout,
                    hours(1),
                    &[b'\n'; 1 << 16],
                    &mut out,
                )
                .unwrap();
        }
        trace
            .finish(hours(2), &[Line::Error(&closing)], &mut out)
            .unwrap();
        assert!(
            out.len() as u64 <= DEFAULT_LIMIT + OVERHANG as u64,
            "{} bytes",
            out.len()
        );
        assert!(out.ends_with(b"\n"));
        assert!(
            String::from_utf8(out)
                .unwrap()
                .contains("Job's log exceeded")
        );
    }
}

/// STAGE-34
#[test]
fn after_masking_failed_nothing_comes_out() {
    let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
    trace
        .write(Origin::Guest, Kind::Stdout, hours(1), b"held s3c", &mut out)
        .unwrap();
    let mut more = Secrets::new();
    more.masked_variable(&"x".repeat(2 << 20));
    assert!(matches!(
        trace.add_secrets(&more),
        Err(TraceError::PhrasesTooLong { .. })
    ));
    let at = hours(2);
    let stopped = |result| assert!(matches!(result, Err(TraceError::Stopped)));
    stopped(trace.write(Origin::Guest, Kind::Stdout, at, b"x\n", &mut out));
    stopped(trace.line(at, Line::Info("x"), &mut out));
    stopped(trace.section_start(at, &Section::AfterScript, &mut out));
    stopped(trace.close(Origin::Guest, &mut out));
    stopped(trace.add_secrets(&Secrets::new()));
    stopped(trace.finish(at, &[Line::Error("x")], &mut out));
    assert!(out.is_empty());

    let mut secrets = Secrets::new();
    secrets.masked_variable(&"x".repeat(2 << 20));
    assert!(Trace::new(&Settings::default(), secrets).is_err());
}

#[test]
fn nothing_follows_the_closing_line() {
    let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
    trace
        .finish(hours(1), &[Line::Info("Job succeeded")], &mut out)
        .unwrap();
    let len = out.len();
    let late = trace.write(Origin::Guest, Kind::Stdout, hours(2), b"late\n", &mut out);
    assert!(matches!(late, Err(TraceError::Finished)));
    assert!(matches!(
        trace.finish(hours(2), &[], &mut out),
        Err(TraceError::Finished)
    ));
    assert_eq!(out.len(), len);
}

/// STAGE-24
#[test]
fn a_secret_that_comes_late_is_masked_in_every_stream_from_then_on() {
    let settings = Settings {
        timestamps: false,
        ..Settings::default()
    };
    let (mut trace, mut out) = (trace(&settings), Vec::new());
    trace
        .write(Origin::Guest, Kind::Stdout, hours(1), b"late s3", &mut out)
        .unwrap();
    let mut more = Secrets::new();
    more.masked_variable("late");
    more.masked_variable("3x");
    trace.add_secrets(&more).unwrap();
    trace
        .write(Origin::Guest, Kind::Stdout, hours(1), b"x late\n", &mut out)
        .unwrap();
    trace
        .write(
            Origin::Node,
            Kind::Stderr,
            hours(1),
            b"late s3cret\n",
            &mut out,
        )
        .unwrap();
    trace.line(hours(1), Line::Plain("late"), &mut out).unwrap();
    let expected = "late s[MASKED] [MASKED]\n[MASKED] [MASKED]\n\x1b[0K[MASKED]\x1b[0;m\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
