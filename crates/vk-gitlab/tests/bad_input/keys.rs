//! The configuration, key by key.

use std::collections::BTreeSet;

use crate::desk::{COMMANDS, Desk, TOKEN};

/// The manual, which names every key.
const MANUAL: &str = include_str!("../../../../docs/vk-gitlab.md");

/// A key, with its table before it; a line that sets it wrongly; what is said of it.
type Row = (&'static str, &'static str, &'static str);

const SIZE: &str = "is no size: write it as 512M, 16G or 1T";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("concurrent", "concurrent = 0", "it must be 1 to 10000: 0 would take no job at all"),
    ("concurrent", "concurrent = -1", "it must be 1 to 10000: 0 would take no job at all"),
    ("concurrent", "concurrent = 10001", "it must be 1 to 10000: 0 would take no job at all"),
    ("concurrent", "concurrent = 0xffff_ffff", "it must be 1 to 10000: 0 would take no job at all"),
    ("concurrent", "concurrent = 9223372036854775807", "it must be 1 to 10000: 0 would take no job at all"),
    ("concurrent", "concurrent = 1.5", "it must be a whole number, 1 to 10000, and is a number with a point"),
    ("concurrent", "concurrent = \"4\"", "it must be a whole number, 1 to 10000, and is a text"),
    ("concurrent", "concurrent = [4]", "it must be a whole number, 1 to 10000, and is a list"),
    ("concurrent", "concurrent = true", "it must be a whole number, 1 to 10000, and is true or false"),
    ("concurrent", "concurrent = 2026-11-30", "it must be a whole number, 1 to 10000, and is a date"),
    ("check_interval", "check_interval = 0", "it must be 1 to 3600: 0 would ask without a pause"),
    ("check_interval", "check_interval = 3601", "it must be 1 to 3600: 0 would ask without a pause"),
    ("check_interval", "check_interval = \"3s\"", "it must be a whole number, 1 to 3600, and is a text"),
    ("shutdown_timeout", "shutdown_timeout = 604801", "it must be 0 to 604800"),
    ("shutdown_timeout", "shutdown_timeout = -1", "it must be 0 to 604800"),
    ("shutdown_timeout", "shutdown_timeout = \"30s\"", "it must be a whole number, 0 to 604800, and is a text"),
    ("place_within_secs", "place_within_secs = 9", "it must be 10 to 86400"),
    ("place_within_secs", "place_within_secs = 86401", "it must be 10 to 86400"),
    ("place_within_secs", "place_within_secs = false", "it must be a whole number, 10 to 86400, and is true or false"),
    ("state_dir", "state_dir = \"\"", "it is empty: give it a value, or take the key away"),
    ("state_dir", "state_dir = 7", "it must be a text in quotes, and is a whole number"),
    ("state_dir", "state_dir = \"a\\u0000b\"", "it holds a NUL, which no path can"),
    ("system_id_file", "system_id_file = \"\"", "it is empty: give it a value, or take the key away"),
    ("system_id_file", "system_id_file = {}", "it must be a text in quotes, and is a table"),
    ("gitlab.url", "url = 7", "it must be a text in quotes, and is a whole number"),
    ("gitlab.url", "url = \"\"", "it is empty: give it a value, or take the key away"),
    ("metrics.listen", "listen = 9252", "it must be a text in quotes, and is a whole number"),
    ("metrics.listen", "listen = \"0.0.0.0:9252\"", "0.0.0.0:9252 can be reached from elsewhere: use a loopback address, or unix: with a path"),
    ("metrics.listen", "listen = \":9252\"", "\":9252\" is neither an address like 127.0.0.1:9252 nor unix: with an absolute path"),
    ("metrics.listen", "listen = \"unix:relative\"", "\"unix:relative\" is neither an address like 127.0.0.1:9252 nor unix: with an absolute path"),
    ("metrics.listen", "listen = \"unix:/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"", "a Unix socket's path has at most 107 bytes"),
    ("mounted_secrets", "mounted_secrets = \"yes\"", "it must be true or false, without quotes, and is a text"),
    ("metrics.project_labels", "project_labels = \"true\"", "it must be true or false, without quotes, and is a text"),
    ("metrics.project_labels", "project_labels = 1", "it must be true or false, without quotes, and is a whole number"),
    ("runners.name", "name = \"\"", "it is empty: give it a value, or take the key away"),
    ("runners.name", "name = 7", "it must be a text in quotes, and is a whole number"),
    ("runners.name", "name = \".ci\"", "\".ci\" must be 1 to 128 of A-Z a-z 0-9 . _ - and not begin with a dot"),
    ("runners.name", "name = \"a/b\"", "\"a/b\" must be 1 to 128 of A-Z a-z 0-9 . _ - and not begin with a dot"),
    ("runners.name", "name = \"a b\"", "\"a b\" must be 1 to 128 of A-Z a-z 0-9 . _ - and not begin with a dot"),
    ("runners.name", "name = \"glrt-t1_mnopqrstuvwx\"", "it looks like a token: names are seen by many"),
    ("runners.token_file", "token_file = \"\"", "it is empty: give it a value, or take the key away"),
    ("runners.token_file", "token_file = [\"ci.token\"]", "it must be a text in quotes, and is a list"),
    ("runners.token", "token = 7", "it must be a text in quotes, and is a whole number"),
    ("runners.token", "token = \"glrt-t1_mnopqrstuvwx\"", "set either token or token_file, not both"),
    ("runners.tls_ca_file", "tls_ca_file = true", "it must be a text in quotes, and is true or false"),
    ("runners.tls_ca_file", "tls-ca-file = \"\"", "it is empty: give it a value, or take the key away"),
    ("runners.tls_cert_file", "tls_cert_file = \"c.pem\"", "set it together with tls_key_file"),
    ("runners.tls_cert_file", "tls_cert_file = 1", "it must be a text in quotes, and is a whole number"),
    ("runners.tls_key_file", "tls_key_file = \"k.pem\"", "set it together with tls_cert_file"),
    ("runners.tls_key_file", "tls_key_file = 1", "it must be a text in quotes, and is a whole number"),
    ("runners.check_interval", "check_interval = 0", "it must be 1 to 3600: 0 would ask without a pause"),
    ("runners.check_interval", "check_interval = \"3\"", "it must be a whole number, 1 to 3600, and is a text"),
    ("runners.strict_check_interval", "strict_check_interval = 1", "it must be true or false, without quotes, and is a whole number"),
    ("runners.pool", "pool = \"\"", "it is empty: give it a value, or take the key away"),
    ("runners.pool", "pool = \"a b\"", "a name has 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"),
    ("runners.pool", "pool = \"-a\"", "a name has 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"),
    ("runners.pool", "pool = 1", "it must be a text in quotes, and is a whole number"),
    ("runners.labels", "labels = \"large\"", "it must be a list of texts such as [\"large\"], and is a text"),
    ("runners.labels", "labels = [1]", "it must be a list of texts such as [\"large\"], and holds a whole number"),
    ("runners.labels", "labels = [\"\"]", "a name has 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"),
    ("runners.labels", "labels = [\"a\", \"b\", \"a\"]", "a label stands there twice: keep one"),
    ("runners.envelope", "envelope = \"16G\"", "it must be a table, [envelope], and is a text"),
    ("runners.envelope.mem", "envelope = { mem = \"0\" }", "it must be 1M to 1024T"),
    ("runners.envelope.mem", "envelope = { mem = \"1023K\" }", "it must be 1M to 1024T"),
    ("runners.envelope.mem", "envelope = { mem = \"1025T\" }", "it must be 1M to 1024T"),
    ("runners.envelope.mem", "envelope = { mem = true }", "it must be a size such as \"512M\" or \"16G\", and is true or false"),
    ("runners.envelope.cpus", "envelope = { cpus = 0 }", "it must be 1 to 4096"),
    ("runners.envelope.cpus", "envelope = { cpus = \"2\" }", "it must be a whole number, 1 to 4096, and is a text"),
    ("runners.envelope.disk", "envelope = { disk = 0 }", "it must be 1M to 1024T"),
    ("runners.limit", "limit = -1", "it must be 0 to 10000"),
    ("runners.limit", "limit = \"4\"", "it must be a whole number, 0 to 10000, and is a text"),
    ("runners.request_concurrency", "request_concurrency = 0", "it must be 1 to 64"),
    ("runners.request_concurrency", "request_concurrency = 65", "it must be 1 to 64"),
    ("runners.request_concurrency", "request_concurrency = [1]", "it must be a whole number, 1 to 64, and is a list"),
    ("runners.output_limit", "output_limit = 0", "it must be 1 to 63M: GitLab drops a job at 100 MiB"),
    ("runners.output_limit", "output_limit = \"64M\"", "it must be 1 to 63M: GitLab drops a job at 100 MiB"),
    ("runners.output_limit", "output_limit = 64513", "it must be 1 to 63M: GitLab drops a job at 100 MiB"),
    ("runners.output_limit", "output_limit = 4.5", "it must be a size such as \"512M\" or \"16G\", and is a number with a point"),
    ("runners.lease_secs", "lease_secs = 74", "it must be 75 to 600: a lease covers a job request of 60 s"),
    ("runners.lease_secs", "lease_secs = 601", "it must be 75 to 600: a lease covers a job request of 60 s"),
    ("runners.lease_secs", "lease_secs = \"90\"", "it must be a whole number, 75 to 600, and is a text"),
    ("runners.unhealthy_requests_limit", "unhealthy_requests_limit = 0", "it must be 1 to 1000"),
    ("runners.unhealthy_requests_limit", "unhealthy_requests_limit = \"3\"", "it must be a whole number, 1 to 1000, and is a text"),
    ("runners.unhealthy_interval", "unhealthy_interval = 0", "it must be 1 to 86400"),
    ("runners.unhealthy_interval", "unhealthy_interval = \"1h\"", "it must be a whole number, 1 to 86400, and is a text"),
];

/// Keys that are none.
#[rustfmt::skip]
const UNKNOWN: &[Row] = &[
    ("concurent", "concurent = 4", "there is no such key: did you mean concurrent?"),
    ("Concurrent", "Concurrent = 4", "there is no such key: did you mean concurrent?"),
    ("limit", "limit = 4", "there is no such key here: it belongs in [[runners]]"),
    ("gitlab.uri", "uri = \"https://gitlab.invalid\"", "there is no such key: did you mean url?"),
    ("gitlab.token", "token = \"glrt-t1_abcdefghijkl\"", "there is no such key here: it belongs in [[runners]]"),
    ("metrics.project-labels", "project-labels = true", "there is no such key: did you mean project_labels?"),
    ("runners.pol", "pol = \"x\"", "there is no such key: did you mean pool?"),
    ("runners.token-file", "token-file = \"ci.token\"", "there is no such key: did you mean token_file?"),
    ("runners.concurrent", "concurrent = 4", "there is no such key here: it belongs at the top of the file, before all tables"),
    ("runners.url", "url = \"https://gitlab.invalid\"", "there is no such key here: it belongs in [gitlab]"),
    ("runners.envelope.memory", "envelope = { memory = \"4G\" }", "there is no such key: there are mem, cpus, disk"),
    ("runners.envelope.cpu", "envelope = { cpu = 2 }", "there is no such key: did you mean cpus?"),
    ("runners.a token", "glrt-t1_abcdefghijkl = 1", "there is no such key: there are name, token_file, token, tls_ca_file, tls_cert_file, tls_key_file, check_interval, strict_check_interval, pool, labels, envelope, limit, request_concurrency, output_limit, lease_secs, unhealthy_requests_limit, unhealthy_interval"),
];

/// A good configuration in which one key is set so; the line where it stands.
fn with(key: &str, line: &str) -> (String, usize) {
    let set = line.split(['=', ' ']).next().unwrap();
    let plain = set.replace('-', "_");
    let mut text = Vec::new();
    let mut put = |table: &str, header: &str, lines: &[&str]| {
        let here = key == table
            || key
                .strip_prefix(table)
                .is_some_and(|rest| table.is_empty() || rest.starts_with('.'));
        let here = here
            && (!table.is_empty()
                || !["gitlab.", "metrics.", "runners."]
                    .iter()
                    .any(|one| key.starts_with(one)));
        if !header.is_empty() {
            text.push(header.to_owned());
        }
        let kept = lines
            .iter()
            .filter(|one| !(here && one.split(' ').next() == Some(&plain)));
        text.extend(kept.map(|one| (*one).to_owned()));
        if here {
            text.push(line.to_owned());
        }
    };
    put("", "", &["# a comment", "state_dir = \"state\""]);
    put("gitlab", "[gitlab]", &["url = \"https://gitlab.invalid\""]);
    put("metrics", "[metrics]", &["listen = \"127.0.0.1:1\""]);
    put(
        "runners",
        "\n[[runners]]",
        &["name = \"ci\"", "token_file = \"ci.token\""],
    );
    let text = text.join("\n") + "\n";
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().rposition(|one| *one == line).unwrap() + 1;
    (text, at)
}

/// A key as messages have it.
fn named(key: &str) -> String {
    match key.strip_prefix("runners.") {
        Some(rest) => format!("runners[0].{rest}"),
        None => key.to_owned(),
    }
}

fn all_refused(rows: &[Row]) {
    let desk = Desk::new();
    for (index, (key, line, why)) in rows.iter().enumerate() {
        let (text, at) = with(key, line);
        desk.configure(&text);
        let config = desk.shown("config.toml");
        let told = format!("{config}:{at}: {}: {why}", named(key));
        desk.refuses(COMMANDS[index % COMMANDS.len()], &told);
    }
}

/// CFG-12, CFG-13
#[test]
fn every_wrong_value_is_refused_with_its_file_line_and_remedy() {
    all_refused(ROWS);
}

/// CFG-13
#[test]
fn a_key_that_is_none_is_refused_with_what_was_meant() {
    all_refused(UNKNOWN);
}

/// CFG-04, CFG-21
#[test]
fn what_is_no_size_is_refused_with_what_one_looks_like() {
    let desk = Desk::new();
    for bad in [
        "",
        "G",
        "1.5G",
        "16GB",
        "-1G",
        "16 G",
        "4Gi",
        "99999999999T",
        "ten",
    ] {
        for key in ["mem", "disk"] {
            let line = format!("envelope = {{ {key} = \"{bad}\" }}");
            let (text, at) = with(&format!("runners.envelope.{key}"), &line);
            desk.configure(&text);
            let config = desk.shown("config.toml");
            let told = format!("{config}:{at}: runners[0].envelope.{key}: {bad:?} {SIZE}");
            desk.refuses(&["config", "check"], &told);
        }
    }
}

/// Every command reads the configuration first, and none does anything where it is wrong.
#[test]
fn every_command_refuses_alike() {
    let desk = Desk::new();
    let (text, at) = with("runners.limit", "limit = -1");
    desk.configure(&text);
    let told = format!(
        "{}:{at}: runners[0].limit: it must be 0 to 10000",
        desk.shown("config.toml")
    );
    for command in COMMANDS {
        desk.refuses(command, &told);
    }
    assert!(!desk.path("state").exists());
}

/// The good configuration of these tests is good: only the one line makes it bad.
#[test]
fn without_the_wrong_line_there_is_no_fault() {
    let desk = Desk::new();
    let good = [
        ("concurrent", "concurrent = 0x10"),
        ("runners.limit", "limit = 0"),
        (
            "runners.envelope.mem",
            "envelope = { mem = 1048576, disk = \"1T\" }",
        ),
        ("runners.output_limit", "output_limit = 64_512"),
    ];
    for (key, line) in good {
        desk.configure(&with(key, line).0);
        let said = desk.run(&["config", "check"]);
        let told = format!(
            "{}: 1 runner(s), no fault found\n",
            desk.shown("config.toml")
        );
        assert_eq!(
            (said.code, said.out, said.err.as_str()),
            (Some(0), told, ""),
            "{line}"
        );
    }
}

/// The keys that the manual lists.
fn documented() -> BTreeSet<String> {
    let section = MANUAL
        .split("\n## ")
        .find(|part| part.starts_with("config.toml"))
        .unwrap();
    let mut keys = BTreeSet::new();
    let mut table = "";
    for line in section.lines() {
        if line.starts_with("A `[[runners]]` table") {
            table = "runners.";
        }
        let Some(cell) = line
            .strip_prefix("| `")
            .and_then(|_| line.split('|').nth(1))
        else {
            continue;
        };
        for name in cell.split('`').skip(1).step_by(2) {
            let name = match name.split_once("] ") {
                Some((within, key)) => format!("{}.{key}", within.trim_start_matches('[')),
                None => name.to_owned(),
            };
            keys.insert(format!("{table}{name}"));
        }
    }
    keys
}

/// A key as the manual lists it: the envelope's three stand in one row.
fn in_manual(key: &str) -> &str {
    let envelope = "runners.envelope";
    if key.starts_with(envelope) {
        envelope
    } else {
        key
    }
}

#[test]
fn every_documented_key_has_a_row_and_every_row_a_documented_key() {
    let rows: BTreeSet<String> = ROWS
        .iter()
        .map(|(key, ..)| in_manual(key).to_owned())
        .collect();
    assert_eq!(rows, documented());
    for part in ["mem", "cpus", "disk"] {
        let key = format!("runners.envelope.{part}");
        assert!(ROWS.iter().any(|(one, ..)| *one == key), "{key}");
    }
}

/// What the program itself lists, where a key is like none, is what the manual has.
#[test]
fn the_manual_lists_the_keys_that_there_are() {
    let desk = Desk::new();
    let mut there = BTreeSet::new();
    for (table, prefix) in [
        ("zzzzzzzz", ""),
        ("gitlab.zzzzzzzz", "gitlab."),
        ("metrics.zzzzzzzz", "metrics."),
        ("runners.zzzzzzzz", "runners."),
    ] {
        desk.configure(&with(table, "zzzzzzzz = 1").0);
        let said = desk.run(&["config", "check"]);
        let (_, list) = said.first_line().split_once("there are ").unwrap();
        there.extend(list.split(", ").map(|key| format!("{prefix}{key}")));
    }
    for table in ["gitlab", "metrics", "runners"] {
        assert!(there.remove(table), "{table}");
    }
    assert_eq!(there, documented());
}

/// CFG-13, CRED-01
#[test]
fn what_does_not_parse_is_refused_with_its_line_and_nothing_of_it() {
    let desk = Desk::new();
    let config = desk.shown("config.toml");
    let rows: &[(&[u8], String)] = &[
        (b"concurrent = \n", format!("{config}:1: ")),
        (b"\n\n[gitlab\nurl = 1\n", format!("{config}:3: ")),
        (
            b"[gitlab]\nurl = \"https://x\"\nurl = \"https://y\"\n",
            format!("{config}:3: "),
        ),
        (
            b"[gitlab]\nurl = 'x\n[[runners]]\ntoken = 'glrt-s3cret\n",
            format!("{config}:2: "),
        ),
        (
            b"[[runners]]\ntoken = glrt-s3cret\n",
            format!("{config}:2: "),
        ),
        (b"[[runners]]\nglrt-s3cret\n", format!("{config}:2: ")),
        (
            b"# \xff\n",
            format!("{config}:1: here stands what is not UTF-8: write it again"),
        ),
        (
            b"\n\nconcurrent = 1\xc3\n",
            format!("{config}:3: here stands what is not UTF-8: write it again"),
        ),
    ];
    for (text, told) in rows {
        desk.file("config.toml", text, 0o600);
        let said = desk.run(&["config", "check"]);
        let line = said.first_line().to_owned();
        assert!(line.starts_with(&format!("vk-gitlab: {told}")), "{said:?}");
        assert!(
            line.len() > format!("vk-gitlab: {told}").len() || told.ends_with("again"),
            "{said:?}"
        );
        assert_eq!(
            (said.code, said.err.lines().count()),
            (Some(1), 1),
            "{said:?}"
        );
        assert!(!said.err.contains("s3cret"), "{said:?}");
    }
}

/// CFG-13
#[test]
fn what_is_missing_or_twice_is_refused_where_it_should_stand() {
    let desk = Desk::new();
    desk.file("large.token", "glrt-t1_mnopqrstuvwx", 0o600);
    let config = desk.shown("config.toml");
    let gitlab = "[gitlab]\nurl = \"https://gitlab.invalid\"\n";
    let rows = [
        (String::new(), "1: gitlab: it is missing: add a [gitlab] table with url = \"https://gitlab.example.com\"".to_owned()),
        ("[gitlab]\n".to_owned(), "1: gitlab.url: it is missing: url = \"https://gitlab.example.com\"".to_owned()),
        ("gitlab = 1\n".to_owned(), "1: gitlab: it must be a table, [gitlab], and is a whole number".to_owned()),
        ("[[gitlab]]\nurl = \"x\"\n".to_owned(), "1: gitlab: it must be a table, [gitlab], and is a list".to_owned()),
        (gitlab.to_owned(), "1: runners: there is none: add a [[runners]] table".to_owned()),
        (format!("runners = []\n{gitlab}"), "1: runners: there is none: add a [[runners]] table".to_owned()),
        (format!("{gitlab}[runners]\nname = \"ci\"\n"), "3: runners: it must be tables, [[runners]], and is a table".to_owned()),
        (format!("runners = [1]\n{gitlab}"), "1: runners: it must be tables, [[runners]], and is a whole number".to_owned()),
        (format!("{gitlab}[[runners]]\nname = \"ci\"\n"), "3: runners[0].token_file: it is missing: name a file, mode 0600".to_owned()),
        (format!("{gitlab}[metrics]\n"), "3: metrics.listen: it is missing: name an address, or take [metrics] away".to_owned()),
        (
            format!("{gitlab}[[runners]]\ntoken_file = \"ci.token\"\ntls_ca_file = \"a\"\ntls-ca-file = \"b\"\n"),
            "6: runners[0].tls_ca_file: it stands there in both spellings: keep one".to_owned(),
        ),
        (
            format!("{gitlab}[[runners]]\nname = \"ci\"\ntoken_file = \"ci.token\"\n[[runners]]\nname = \"ci\"\ntoken_file = \"large.token\"\n"),
            "7: runners[1].name: \"ci\" names two runners, runners[0] too: their state would share a file".to_owned(),
        ),
        (
            format!("{gitlab}[[runners]]\nname = \"ci\"\ntoken_file = \"ci.token\"\n[[runners]]\nname = \"large\"\ntoken_file = \"ci.token\"\n"),
            "8: runners[1].token_file: runners[0] goes by this file too: each runner has a token of its own".to_owned(),
        ),
        (
            format!("{gitlab}[[runners]]\nname = \"ci\"\ntoken_file = \"ci.token\"\n[[runners]]\nname = \"large\"\ntoken = \"{TOKEN}\"\n"),
            "8: runners[1].token: runners[0] has the same token: each runner has one of its own".to_owned(),
        ),
    ];
    for (text, told) in rows {
        desk.configure(&text);
        desk.refuses(&["config", "check"], &format!("{config}:{told}"));
    }
}
