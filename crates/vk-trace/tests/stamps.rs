//! Stamps, sections and streams as a reader of the trace sees them, by the byte.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use proptest::prelude::*;
use vk_trace::{Kind, Line, Origin, ReadTime, Secrets, Section, Settings, Trace};

const NEW_YEAR_2021: u64 = 1_609_459_200;

fn hours(hours: u64) -> ReadTime {
    ReadTime::from_unix(NEW_YEAR_2021 + 3600 * hours, 20_010)
}

fn trace(settings: &Settings) -> Trace {
    let mut secrets = Secrets::new();
    secrets.masked_variable("s3cret");
    Trace::new(settings, secrets).unwrap()
}

/// What the guest's standard error leaves in the trace when it is read an hour apart each.
fn hourly(writes: &[&str]) -> String {
    let (mut trace, mut out, mut hour) = (trace(&Settings::default()), Vec::new(), 0);
    for write in writes {
        hour += 1;
        let bytes = write.as_bytes();
        trace
            .write(Origin::Guest, Kind::Stderr, hours(hour), bytes, &mut out)
            .unwrap();
    }
    trace.close(Origin::Guest, &mut out).unwrap();
    let closed = out.len();
    trace.close(Origin::Guest, &mut out).unwrap();
    assert_eq!(out.len(), closed, "closing twice adds nothing");
    String::from_utf8(out).unwrap()
}

/// `(hour, flag, text)` as lines of the guest's standard error.
fn lines(lines: &[(u64, char, &str)]) -> String {
    let line = |(hour, flag, text): &(u64, char, &str)| {
        let (day, hour) = (1 + hour / 24, hour % 24);
        format!("2021-01-{day:02}T{hour:02}:00:00.020010Z 01E{flag}{text}\n")
    };
    lines.iter().map(line).collect()
}

/// STAGE-27, DISP-46
#[test]
fn lines_are_stamped_with_when_their_first_bytes_were_read() {
    let mut writes = vec![
        "PREFIX This is the beginning of a new line\n",
        "PREFIX This is a split ",
        "up ",
        "line\n",
        "PREFIX Progress bar: ",
    ];
    writes.extend([".\r"; 10]);
    writes.extend([
        "Done.\r\n",
        "PREFIX Another windows new-line\r\n",
        "PREFIX multiple\nnew\nlines\nin\none\n",
        "\nstart",
        "\nend\n",
        "PREFIX Eat carriages\r\r\r\r\r\r\r\n",
        "PREFIX This is across\ntwo lines\n",
        "PREFIX The end",
    ]);
    let mut expected = vec![
        (1, ' ', "PREFIX This is the beginning of a new line"),
        (2, ' ', "PREFIX This is a split up line"),
        (5, ' ', "PREFIX Progress bar: .\r"),
    ];
    expected.extend((7..16).map(|hour| (hour, '+', ".\r")));
    expected.extend([
        (16, '+', "Done.\r"),
        (17, ' ', "PREFIX Another windows new-line\r"),
        (18, ' ', "PREFIX multiple"),
        (18, ' ', "new"),
        (18, ' ', "lines"),
        (18, ' ', "in"),
        (18, ' ', "one"),
        (19, ' ', ""),
        (19, ' ', "start"),
        (20, ' ', "end"),
        (21, ' ', "PREFIX Eat carriages\r\r\r\r\r\r\r"),
        (22, ' ', "PREFIX This is across"),
        (22, ' ', "two lines"),
        (23, ' ', "PREFIX The end"),
    ]);
    assert_eq!(hourly(&writes), lines(&expected));
}

/// STAGE-27
#[test]
fn an_unfinished_line_is_let_out_when_it_grows_too_long() {
    let (fits, exceeds) = (".".repeat(8192), ".".repeat(8193));
    let writes = [
        "PREFIX This is the beginning of a new line\n",
        "We have no new line character in this write",
        "... The line is now flushed.\n",
        "large continuous write incoming",
        &fits,
        &exceeds,
        "ended\n",
    ];
    let joined = "We have no new line character in this write... The line is now flushed.";
    let large = format!("large continuous write incoming{fits}");
    let expected = [
        (1, ' ', "PREFIX This is the beginning of a new line"),
        (2, ' ', joined),
        (4, ' ', &large),
        (6, '+', &exceeds),
        (7, '+', "ended"),
    ];
    assert_eq!(hourly(&writes), lines(&expected));
}

/// STAGE-27
#[test]
fn the_length_of_a_held_line_counts_its_stamp_but_for_the_write_that_begins_it() {
    let line = |len: usize| "a".repeat(len);
    let held = |first: usize| hourly(&[&line(first), "b", "c\n"]);
    let whole = |len: usize| lines(&[(1, ' ', &(line(len) + "bc"))]);
    let cut = |len: usize| lines(&[(1, ' ', &(line(len) + "b")), (3, '+', "c")]);
    assert_eq!(held(8159), whole(8159));
    assert_eq!(held(8160), cut(8160));
    assert_eq!(held(8192), cut(8192));
    assert_eq!(held(8193), lines(&[(1, ' ', &line(8193)), (2, '+', "bc")]));
}

/// STAGE-27
#[test]
fn a_write_with_a_carriage_return_and_no_line_break_goes_out_whole() {
    let start = "section_start:123:foo\r\x1b[0K";
    let end = "section_end:123:foo\r\x1b[0K";
    assert_eq!(
        hourly(&[start, end]),
        lines(&[(1, ' ', start), (2, '+', end)])
    );
    for (writes, expected) in [
        (&["a\nb\n"][..], &[(1, ' ', "a"), (1, ' ', "b")][..]),
        (&["ab", "c\nd"], &[(1, ' ', "abc"), (2, ' ', "d")]),
        (
            &["10%\r", "20%\r", "done\n"],
            &[(1, ' ', "10%\r"), (2, '+', "20%\r"), (3, '+', "done")],
        ),
        (&["x\r\n"], &[(1, ' ', "x\r")]),
        (
            &["x\r", "\ny\n"],
            &[(1, ' ', "x\r"), (2, '+', ""), (2, ' ', "y")],
        ),
        (
            &["pre", "50%\r", "z\n"],
            &[(1, ' ', "pre50%\r"), (3, '+', "z")],
        ),
        (&["a\rb\n"], &[(1, ' ', "a\rb")]),
        // A mask does not cut a write in two.
        (
            &["1\r s3cret 2", "3\n"],
            &[(1, ' ', "1\r [MASKED] 2"), (2, '+', "3")],
        ),
    ] {
        assert_eq!(hourly(writes), lines(expected), "{writes:?}");
    }
}

/// STAGE-27
#[test]
fn a_new_process_goes_on_with_no_line_of_the_one_before() {
    let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
    for text in ["50%\r", "y"] {
        trace
            .write(
                Origin::Guest,
                Kind::Stderr,
                hours(1),
                text.as_bytes(),
                &mut out,
            )
            .unwrap();
        trace.close(Origin::Guest, &mut out).unwrap();
    }
    assert_eq!(
        String::from_utf8(out).unwrap(),
        lines(&[(1, ' ', "50%\r"), (1, ' ', "y")])
    );
}

/// STAGE-27
#[test]
fn microseconds_have_six_digits_whatever_the_second() {
    let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
    let base = 1_623_760_496;
    for (secs, micros) in [(0, 0), (0, 1), (0, 123), (1, 0), (1, 7)] {
        let at = ReadTime::from_unix(base + secs, micros);
        trace
            .write(Origin::Guest, Kind::Stderr, at, b"line\n", &mut out)
            .unwrap();
    }
    let expected = "2021-06-15T12:34:56.000000Z 01E line\n\
        2021-06-15T12:34:56.000001Z 01E line\n\
        2021-06-15T12:34:56.000123Z 01E line\n\
        2021-06-15T12:34:57.000000Z 01E line\n\
        2021-06-15T12:34:57.000007Z 01E line\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// STAGE-15, STAGE-16, STAGE-17, STAGE-18, STAGE-39
#[test]
fn each_stream_has_its_label_and_its_own_unfinished_line() {
    let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
    let at = hours(0);
    for (origin, kind, text) in [
        (Origin::Node, Kind::Stdout, "a"),
        (Origin::Node, Kind::Stderr, "b"),
        (Origin::Guest, Kind::Stdout, "c"),
        (Origin::Guest, Kind::Stderr, "d"),
        (Origin::Guest, Kind::Stderr, "D\n"),
        (Origin::Guest, Kind::Stdout, "C\n"),
        (Origin::Node, Kind::Stderr, "B\n"),
        (Origin::Node, Kind::Stdout, "A\n"),
    ] {
        trace
            .write(origin, kind, at, text.as_bytes(), &mut out)
            .unwrap();
    }
    trace.line(at, Line::Info("e"), &mut out).unwrap();
    let expected = [
        "01E dD",
        "01O cC",
        "00E bB",
        "00O aA",
        "00O \x1b[32;1me\x1b[0;m",
    ];
    let expected: String = expected
        .iter()
        .map(|line| format!("2021-01-01T00:00:00.020010Z {line}\n"))
        .collect();
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// DISP-46
#[test]
fn bytes_held_as_a_possible_secret_keep_their_time() {
    assert_eq!(hourly(&["s3c", "ond\n"]), lines(&[(1, ' ', "s3cond")]));
    assert_eq!(
        hourly(&["x\ns3c", "\n", "y\n"]),
        lines(&[(1, ' ', "x"), (1, ' ', "s3c"), (3, ' ', "y"),])
    );
}

/// DISP-45
#[test]
fn without_stamps_bytes_are_passed_on_as_they_are() {
    let settings = Settings {
        timestamps: false,
        sections: true,
        ..Settings::default()
    };
    let (mut trace, mut out) = (trace(&settings), Vec::new());
    let (at, section) = (hours(0), Section::PrepareScript);
    trace.section_start(at, &section, &mut out).unwrap();
    trace
        .write(Origin::Guest, Kind::Stdout, at, b"10%\r20% s3cr", &mut out)
        .unwrap();
    trace.section_end(at, &section, &mut out).unwrap();
    trace
        .finish(at, &[Line::Info("Job succeeded")], &mut out)
        .unwrap();
    let expected = "section_start:1609459200:prepare_script\r\x1b[0K10%\r20% \
        section_end:1609459200:prepare_script\r\x1b[0Ks3cr\x1b[32;1mJob succeeded\x1b[0;m\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// STAGE-30
#[test]
fn sections_are_marked_only_where_gitlab_asks() {
    let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
    trace
        .section_start(hours(0), &Section::GetSources, &mut out)
        .unwrap();
    trace
        .section_end(hours(0), &Section::GetSources, &mut out)
        .unwrap();
    assert!(out.is_empty());
}

/// STAGE-30
#[test]
fn a_marker_is_whole_even_where_its_end_could_begin_a_secret() {
    let mut secrets = Secrets::new();
    secrets.masked_variable("Kelvin");
    let settings = Settings {
        sections: true,
        ..Settings::default()
    };
    let mut trace = Trace::new(&settings, secrets).unwrap();
    let mut out = Vec::new();
    trace
        .section_start(hours(1), &Section::AfterScript, &mut out)
        .unwrap();
    trace
        .section_end(hours(2), &Section::AfterScript, &mut out)
        .unwrap();
    let expected = "2021-01-01T01:00:00.020010Z 00O section_start:1609462800:after_script\r\x1b[0K\n\
        2021-01-01T02:00:00.020010Z 00O+section_end:1609466400:after_script\r\x1b[0K\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// STAGE-14, STAGE-16, STAGE-17, STAGE-18, STAGE-19, STAGE-27, STAGE-30, DISP-44
#[test]
fn a_whole_job_gives_the_bytes_of_gitlab_runner() {
    let settings = Settings {
        sections: true,
        ..Settings::default()
    };
    let (mut trace, mut out, mut micros) = (trace(&settings), Vec::new(), 0);
    let mut tick = || {
        micros += 1;
        ReadTime::from_unix(1_767_323_045, micros - 1)
    };
    // The recorded vector's clock moved with each stamp; its section ends said one second more.
    let end = |at: ReadTime| ReadTime::from_unix(at.unix_seconds() + 1, 0);
    let out = &mut out;
    let step = Section::Step("script".into());
    trace
        .line(
            tick(),
            Line::Plain("Running with gitlab-runner 19.5.0 (abcd1234)"),
            out,
        )
        .unwrap();
    let on = "  on r1 t9Wkyj-HG, system ID: s_0123456789ab";
    trace.line(tick(), Line::Plain(on), out).unwrap();
    trace
        .section_start(tick(), &Section::PrepareExecutor, out)
        .unwrap();
    trace
        .line(
            tick(),
            Line::Title(&Section::PrepareExecutor.title("vk")),
            out,
        )
        .unwrap();
    trace
        .line(tick(), Line::Plain("Using image x"), out)
        .unwrap();
    trace
        .section_end(end(tick()), &Section::PrepareExecutor, out)
        .unwrap();
    trace
        .section_start(tick(), &Section::PrepareScript, out)
        .unwrap();
    trace
        .line(
            tick(),
            Line::Title(&Section::PrepareScript.title("vk")),
            out,
        )
        .unwrap();
    let running = b"Running on host via vk...\n";
    trace
        .write(Origin::Guest, Kind::Stdout, tick(), running, out)
        .unwrap();
    trace.close(Origin::Guest, out).unwrap();
    trace
        .section_end(end(tick()), &Section::PrepareScript, out)
        .unwrap();
    trace.section_start(tick(), &step, out).unwrap();
    trace
        .line(tick(), Line::Title(&step.title("vk")), out)
        .unwrap();
    let (stdout, stderr) = (Kind::Stdout, Kind::Stderr);
    let echo = b"\x1b[32;1m$ echo hi s3cret\x1b[0;m\n";
    trace
        .write(Origin::Guest, stdout, tick(), echo, out)
        .unwrap();
    trace
        .write(Origin::Guest, stdout, tick(), b"hi s3c", out)
        .unwrap();
    trace
        .write(Origin::Guest, stderr, tick(), b"warn\n", out)
        .unwrap();
    trace
        .write(Origin::Guest, stdout, tick(), b"ret\n50%\r", out)
        .unwrap();
    trace
        .write(Origin::Guest, stdout, tick(), b"100%\ndone", out)
        .unwrap();
    trace.close(Origin::Guest, out).unwrap();
    trace.section_end(end(tick()), &step, out).unwrap();
    trace
        .finish(tick(), &[Line::Info("Job succeeded")], out)
        .unwrap();

    let expected = "\
        05.000000Z 00O \x1b[0KRunning with gitlab-runner 19.5.0 (abcd1234)\x1b[0;m
        05.000001Z 00O \x1b[0K  on r1 t9Wkyj-HG, system ID: s_0123456789ab\x1b[0;m
        05.000002Z 00O section_start:1767323045:prepare_executor\r\x1b[0K
        05.000003Z 00O+\x1b[0K\x1b[36;1mPreparing the \"vk\" executor\x1b[0;m\x1b[0;m
        05.000004Z 00O \x1b[0KUsing image x\x1b[0;m
        06.000000Z 00O section_end:1767323046:prepare_executor\r\x1b[0K
        05.000006Z 00O+section_start:1767323045:prepare_script\r\x1b[0K
        05.000007Z 00O+\x1b[0K\x1b[36;1mPreparing environment\x1b[0;m\x1b[0;m
        05.000008Z 01O Running on host via vk...
        06.000000Z 00O section_end:1767323046:prepare_script\r\x1b[0K
        05.000010Z 00O+section_start:1767323045:step_script\r\x1b[0K
        05.000011Z 00O+\x1b[0K\x1b[36;1mExecuting \"step_script\" stage of the job script\
        \x1b[0;m\x1b[0;m
        05.000012Z 01O \x1b[32;1m$ echo hi [MASKED]\x1b[0;m
        05.000014Z 01E warn
        05.000013Z 01O hi [MASKED]
        05.000015Z 01O 50%\r
        05.000016Z 01O+100%
        05.000016Z 01O done
        06.000000Z 00O section_end:1767323046:step_script\r\x1b[0K
        05.000018Z 00O \x1b[32;1mJob succeeded\x1b[0;m
    ";
    let expected: String = expected
        .split('\n')
        .map(|line| line.trim_start_matches(' '))
        .filter(|line| !line.is_empty())
        .map(|line| format!("2026-01-02T03:04:{line}\n"))
        .collect();
    let trace = String::from_utf8(std::mem::take(out)).unwrap();
    assert_eq!(trace, expected);

    // The recorded vector, but for when: its clock moved with each stamp, not with each read, and
    // its section ends took their seconds from another clock than their stamps.
    let mut recorded = trace;
    for (ours, theirs) in [
        (
            "06.000000Z 00O section_end:1767323046:prepare_ex",
            "05.000005Z 00O section_end:1767323046:prepare_ex",
        ),
        (
            "06.000000Z 00O section_end:1767323046:prepare_sc",
            "05.000009Z 00O section_end:1767323046:prepare_sc",
        ),
        (
            "06.000000Z 00O section_end:1767323046:step",
            "05.000018Z 00O section_end:1767323046:step",
        ),
        ("05.000016Z 01O done", "05.000017Z 01O done"),
        (
            "05.000018Z 00O \x1b[32;1mJob",
            "05.000019Z 00O \x1b[32;1mJob",
        ),
    ] {
        assert!(recorded.contains(ours), "{ours}");
        recorded = recorded.replace(ours, theirs);
    }
    assert_eq!(
        (recorded.len(), crc32fast::hash(recorded.as_bytes())),
        (1309, 0xcdf7_06ee)
    );
}

/// The text behind stamps: lines that go on joined to those they go on with.
fn unstamped(trace: &str) -> String {
    let mut text = String::new();
    for line in trace.split_inclusive('\n') {
        if line.as_bytes()[31] == b'+' {
            text.pop();
        }
        text.push_str(&line[32..]);
    }
    text
}

proptest! {
    /// STAGE-27
    #[test]
    fn however_output_is_read_its_text_is_the_same_behind_the_stamps(
        pieces in proptest::collection::vec(
            "[a-c]{0,8}|\r|\n|\r\n|s3cret|s3c|é|x{4000,9000}", 0..12),
        splits in proptest::collection::vec(0_usize..30_000, 0..12),
    ) {
        let bytes = pieces.concat().into_bytes();
        let mut at: Vec<usize> = splits.into_iter().map(|at| at.min(bytes.len())).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let (mut trace, mut out) = (trace(&Settings::default()), Vec::new());
        for (hour, pair) in (0..).zip(at.windows(2)) {
            let read = &bytes[pair[0]..pair[1]];
            trace.write(Origin::Guest, Kind::Stdout, hours(hour), read, &mut out).unwrap();
        }
        trace.close(Origin::Guest, &mut out).unwrap();
        let mut expected = String::from_utf8(bytes).unwrap().replace("s3cret", "[MASKED]");
        if !expected.is_empty() && !expected.ends_with('\n') {
            expected.push('\n');
        }
        prop_assert_eq!(unstamped(&String::from_utf8(out).unwrap()), expected);
    }
}
