//! Files: who may read and write them, and what they are.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::desk::{Desk, TOKEN};

/// Whether every file can be read by whoever runs this.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn desk() -> Desk {
    let desk = Desk::new();
    desk.configure_runner("name = \"ci\"\ntoken_file = \"ci.token\"");
    desk
}

#[test]
fn a_configuration_that_others_write_or_that_is_none_is_refused() {
    let desk = desk();
    let config = desk.shown("config.toml");
    let or_else = ", or name another with --config";
    for mode in [0o602, 0o666, 0o642] {
        desk.mode("config.toml", mode);
        let told = format!(
            "the configuration {config} can be written by everybody (mode {mode:o}): chmod o-w {config}{or_else}"
        );
        desk.refuses(&["run"], &told);
    }
    if !is_root() {
        desk.mode("config.toml", 0o000);
        let told = format!(
            "the configuration {config} cannot be read by this user: let vk-gitlab's user own it, mode 0600{or_else}"
        );
        desk.refuses(&["run"], &told);
    }
    fs::remove_file(desk.path("config.toml")).unwrap();
    desk.refuses(
        &["run"],
        &format!("the configuration {config} does not exist: create it{or_else}"),
    );
    desk.file("config.toml", vec![b'#'; (1 << 20) + 1], 0o600);
    desk.refuses(
        &["run"],
        &format!(
            "the configuration {config} is larger than 1048576 bytes: it is no such file{or_else}"
        ),
    );
    fs::remove_file(desk.path("config.toml")).unwrap();
    fs::create_dir(desk.path("config.toml")).unwrap();
    desk.refuses(
        &["run"],
        &format!("the configuration {config} is no regular file{or_else}"),
    );
}

/// CFG-14
#[test]
fn a_token_file_that_others_write_or_that_is_none_is_refused() {
    let desk = desk();
    let (config, file) = (desk.shown("config.toml"), desk.shown("ci.token"));
    let told = |why: &str| format!("{config}:6: runners[0].token_file: {file} {why}");
    for mode in [0o602, 0o666, 0o622] {
        desk.mode("ci.token", mode);
        let why = format!("can be written by everybody (mode {mode:o}): chmod o-w {file}");
        desk.refuses(&["run"], &told(&why));
    }
    if !is_root() {
        desk.mode("ci.token", 0o000);
        desk.refuses(
            &["run"],
            &told("cannot be read by this user: let vk-gitlab's user own it, mode 0600"),
        );
    }
    fs::remove_file(desk.path("ci.token")).unwrap();
    desk.refuses(&["run"], &told("does not exist: create it"));
    symlink("nowhere", desk.path("ci.token")).unwrap();
    desk.refuses(&["run"], &told("does not exist: create it"));
    fs::remove_file(desk.path("ci.token")).unwrap();
    fs::create_dir(desk.path("ci.token")).unwrap();
    desk.refuses(&["run"], &told("is no regular file"));
    fs::remove_dir(desk.path("ci.token")).unwrap();
    // Nobody writes into it: whoever waited for that would wait for ever.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        desk.path("ci.token"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    desk.refuses(&["run"], &told("is no regular file"));
    fs::remove_file(desk.path("ci.token")).unwrap();
    desk.file("ci.token", vec![b'x'; 5000], 0o600);
    desk.refuses(
        &["run"],
        &told("is larger than 4096 bytes: it is no such file"),
    );
}

/// CFG-14
#[test]
fn a_token_that_others_read_is_warned_about_and_a_link_to_one_is_followed() {
    let desk = desk();
    let (config, file) = (desk.shown("config.toml"), desk.shown("ci.token"));
    desk.mode("ci.token", 0o644);
    let said = desk.run(&["config", "check"]);
    let warning = format!("warning: {file} can be read by others (mode 644): chmod 0600 {file}");
    assert_eq!((said.code, said.first_line()), (Some(0), warning.as_str()));
    desk.mode("ci.token", 0o600);
    fs::rename(desk.path("ci.token"), desk.path("secret")).unwrap();
    symlink("secret", desk.path("ci.token")).unwrap();
    let said = desk.run(&["config", "check"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    desk.mode("secret", 0o606);
    let told = format!(
        "{config}:6: runners[0].token_file: {file} can be written by everybody (mode 606): chmod o-w {file}"
    );
    desk.refuses(&["config", "check"], &told);
    desk.configure_runner(&format!("token = \"{TOKEN}\""));
    desk.mode("config.toml", 0o640);
    let said = desk.run(&["config", "check"]);
    let warning = format!(
        "warning: {config} holds a token and can be read by others (mode 640): chmod 0600 {config}"
    );
    assert_eq!((said.code, said.first_line()), (Some(0), warning.as_str()));
}

/// CFG-15
#[test]
fn files_of_tls_that_cannot_be_used_are_refused_where_they_are_named() {
    let desk = desk();
    let config = desk.shown("config.toml");
    let pair = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (ours, others) = (pair("a.example.com"), pair("b.example.com"));
    desk.file("cert.pem", ours.cert.pem(), 0o644);
    desk.file("ca.pem", ours.cert.pem(), 0o600);
    desk.file("key.pem", ours.signing_key.serialize_pem(), 0o640);
    desk.file("other.pem", others.signing_key.serialize_pem(), 0o600);
    desk.file("text", "hello", 0o600);
    desk.file(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        0o644,
    );
    let with = |lines: &str| desk.configure_runner(&format!("token_file = \"ci.token\"\n{lines}"));
    with("tls_ca_file = \"cert.pem\"\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"");
    let said = desk.run(&["config", "check"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let text = desk.shown("text");
    let rows = [
        (
            "tls_ca_file = \"none\"",
            6,
            "tls_ca_file",
            format!("{} does not exist: create it", desk.shown("none")),
        ),
        (
            "tls_ca_file = \"text\"",
            6,
            "tls_ca_file",
            format!("{text} holds no certificate in PEM"),
        ),
        (
            "tls_cert_file = \"text\"\ntls_key_file = \"key.pem\"",
            6,
            "tls_cert_file",
            format!("{text} holds no certificate in PEM"),
        ),
        (
            "tls_cert_file = \"cert.pem\"\ntls_key_file = \"text\"",
            7,
            "tls_key_file",
            format!("{text} holds no private key in PEM"),
        ),
        (
            "tls_cert_file = \"cert.pem\"\ntls_key_file = \"ca.pem\"",
            7,
            "tls_key_file",
            format!("{} holds no private key in PEM", desk.shown("ca.pem")),
        ),
    ];
    for (lines, line, key, why) in rows {
        with(lines);
        desk.refuses(
            &["run"],
            &format!("{config}:{line}: runners[0].{key}: {why}"),
        );
    }
    with("tls_ca_file = \"broken.pem\"");
    let said = desk.run(&["run"]);
    let told = format!("vk-gitlab: {config}:6: runners[0].tls_ca_file: ");
    assert!(
        said.first_line().starts_with(&told) && said.code == Some(1),
        "{said:?}"
    );
    with("tls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"");
    desk.mode("key.pem", 0o644);
    let key = desk.shown("key.pem");
    desk.refuses(&["run"], &format!("{config}:7: runners[0].tls_key_file: {key} is a key that everybody can read (mode 644): chmod o-r {key}, or, in a container whose platform mounts secrets so, set mounted_secrets = true"));
    let text = fs::read_to_string(desk.path("config.toml")).unwrap();
    desk.configure(&format!("mounted_secrets = true\n{text}"));
    for name in ["key.pem", "ci.token", "config.toml"] {
        desk.mode(name, 0o444);
    }
    desk.refuses(&["run"], &format!("{config}:8: runners[0].tls_key_file: {key} is a key that everybody can read (mode 444): chmod o-r {key}, or mount it read-only: mounted_secrets is about such mounts alone"));
    desk.mode("key.pem", 0o440);
    let said = desk.run(&["config", "check"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    desk.mode("key.pem", 0o442);
    desk.refuses(
        &["run"],
        &format!("{config}:8: runners[0].tls_key_file: {key} can be written by everybody (mode 442): chmod o-w {key}"),
    );
}

/// STATE-06, STATE-07, STATE-08
#[test]
fn a_state_directory_that_others_use_or_that_cannot_be_is_refused() {
    let desk = desk();
    let state = desk.shown("state");
    fs::create_dir(desk.path("state")).unwrap();
    for mode in [0o710, 0o701, 0o770, 0o777, 0o750] {
        desk.mode("state", mode);
        let told = format!("{state} can be used by others (mode {mode:o}): chmod 0700 {state}");
        desk.refuses(&["run"], &told);
        desk.refuses(&["join", "https://127.0.0.1:1", "--token", "-"], &told);
    }
    fs::remove_dir(desk.path("state")).unwrap();
    fs::write(desk.path("state"), "").unwrap();
    let said = desk.run(&["run"]);
    assert!(
        said.code == Some(1) && said.first_line().contains(&state),
        "{said:?}"
    );
    fs::remove_file(desk.path("state")).unwrap();
    if !is_root() {
        desk.configure("state_dir = \"/proc/state\"\n[gitlab]\nurl = \"https://gitlab.invalid\"\n[[runners]]\ntoken_file = \"ci.token\"\n");
        let said = desk.run(&["run"]);
        let told = "vk-gitlab: cannot create /proc/state: create it for this user first: install -d -m 0700 -o <user> -g <group> /proc/state";
        assert!(
            said.code == Some(1) && said.first_line().starts_with(told),
            "{said:?}"
        );
    }
}

/// STATE-07, STATE-14, STATE-15
#[test]
fn jobs_are_listed_before_joining_too_and_a_damaged_state_file_is_named() {
    let desk = desk();
    let none = "RUNNER                     GITLAB HUB JOB                            PHASE\n";
    let lists_none = || {
        let said = desk.run(&["jobs"]);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (Some(0), none, "")
        );
        let said = desk.run(&["jobs", "--json"]);
        assert_eq!((said.code, said.out.as_str()), (Some(0), "[]\n"));
    };
    lists_none();
    fs::create_dir(desk.path("state")).unwrap();
    desk.mode("state", 0o700);
    let relay = "ab".repeat(16);
    desk.file(
        "state/ci.json",
        format!("{{\"relay\":\"{relay}\",\"jobs\":[]}}"),
        0o600,
    );
    lists_none();
    let file = desk.shown("state/ci.json");
    for (text, why) in [
        ("", "cannot be read as JSON of the expected shape"),
        ("{\"relay\":\"x\",\"jobs\":[]}", "cannot be read as JSON"),
        ("{\"jobs\":[{\"s3cret\":1}]}", "cannot be read as JSON"),
    ] {
        desk.file("state/ci.json", text, 0o600);
        let said = desk.run(&["jobs"]);
        let told = format!("vk-gitlab: {file} cannot be used: ");
        assert!(
            said.code == Some(1) && said.first_line().starts_with(&told),
            "{said:?}"
        );
        assert!(
            said.first_line().contains(why) && !said.err.contains("s3cret"),
            "{said:?}"
        );
    }
}

/// ENR-05, ENR-16, CRED-03
#[test]
fn an_enrolment_that_others_read_is_refused_and_without_one_nothing_runs() {
    let desk = desk();
    desk.refuses_enrolled(
        false,
        "this daemon is enrolled with no hub: vk-gitlab join <hub-url> --token -",
    );
    fs::create_dir(desk.path("state/hub")).unwrap();
    desk.mode("state/hub", 0o700);
    desk.file("state/hub/key.pk8", "x", 0o640);
    let key = desk.shown("state/hub/key.pk8");
    desk.refuses_enrolled(
        true,
        &format!("{key} can be used by others (mode 640): chmod 0600 {key}"),
    );
    desk.mode("state/hub", 0o755);
    let hub = desk.shown("state/hub");
    desk.refuses_enrolled(
        true,
        &format!("{hub} can be used by others (mode 755): chmod 0700 {hub}"),
    );
}

impl Desk {
    /// As `refuses`, where the directory of an enrolment may be there.
    fn refuses_enrolled(&self, enrolled: bool, line: &str) {
        let said = self.run(&["run"]);
        assert_eq!(
            (said.code, said.first_line()),
            (Some(1), format!("vk-gitlab: {line}").as_str())
        );
        assert_eq!(self.path("state/hub").exists(), enrolled);
        let mode = fs::metadata(self.path("state"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

/// GL-59, GL-70
#[test]
fn a_job_whose_end_gitlab_will_never_have_is_listed_so() {
    let desk = desk();
    fs::create_dir(desk.path("state")).unwrap();
    desk.mode("state", 0o700);
    let entry = |number: u64, delivered: bool| {
        serde_json::json!({ "gitlab_job": number, "job_token": "glcbt-secret",
            "request_id": "02".repeat(16), "hub_job": "03".repeat(16), "phase": "reported",
            "place_within_secs": 300, "timestamps": true, "committed": true, "delivered": delivered,
            "ended": { "success": false, "failure_reason": "script_failure" }, "placement": {
                "pool": "default", "envelope": { "mem_mib": 1, "cpus": 1, "disk_bytes": 1 } } })
    };
    let jobs = [entry(4, false), entry(5, true)];
    let state = serde_json::json!({ "relay": "ab".repeat(16), "jobs": jobs });
    desk.file("state/ci.json", state.to_string(), 0o600);
    let said = desk.run(&["jobs"]);
    let ends = |line: &str| {
        line.rsplit_once("03  ")
            .map(|(_, end)| end.trim().to_owned())
    };
    let ends: Vec<_> = said.out.lines().filter_map(ends).collect();
    assert_eq!(ends, ["reported, undelivered", "reported"], "{said:?}");
    let left: Vec<_> = said.out.lines().skip(3).collect();
    assert_eq!(left.len(), 1, "{said:?}");
    assert!(left[0].starts_with("reported: GitLab has the end, and the hub is to settle"));
    assert!(left[0].contains("`vk-hub status`") && left[0].contains("`vk-hub gitlab approve`"));
    let said = desk.run(&["jobs", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    for (row, delivered) in [(&rows[0], false), (&rows[1], true)] {
        assert_eq!(row["delivered"], delivered);
        assert_eq!(
            (&row["state"], &row["failure_reason"]),
            (&"failed".into(), &"script_failure".into())
        );
    }
    assert!(!said.out.contains("secret"));
}

/// Each line of the log is an object where that is asked for, from the first one on.
#[test]
fn the_program_logs_json_where_it_is_told_to() {
    let desk = desk();
    desk.mode("ci.token", 0o644);
    let said = desk.run(&["--log-format", "json", "run"]);
    let line: serde_json::Value = serde_json::from_str(said.first_line()).unwrap();
    assert_eq!(line["level"], "WARN");
    assert!(line.to_string().contains("can be read by others"), "{line}");
}
