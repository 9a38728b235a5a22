use std::os::unix::fs::PermissionsExt as _;

use super::*;

const PATH: &str = "/etc/vk-gitlab/config.toml";

fn parsed(text: &str) -> Result<(Config, Warnings), ConfigError> {
    parse(text, Path::new(PATH))
}

fn with_runner(keys: &str) -> Result<(Config, Warnings), ConfigError> {
    parsed(&format!(
        "[gitlab]\nurl = 'https://gitlab.example.com'\n[[runners]]\ntoken = 'glrt-t1_abcdefghijkl'\n{keys}"
    ))
}

fn runner(keys: &str) -> Runner {
    with_runner(keys).unwrap().0.runners.remove(0)
}

fn error(keys: &str) -> String {
    with_runner(keys).unwrap_err().to_string()
}

/// CFG-01, CFG-02, CFG-04
#[test]
fn the_contracts_example_parses() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("runner-ci.token"), "glrt-abcdefghijkl\n").unwrap();
    let text = r#"
[gitlab]
url = "https://gitlab.example.com"
[[runners]]
name = "ci"
token_file = "runner-ci.token" # glrt-…
pool = "ci"
labels = ["large-memory"]
envelope = { mem = "16G", cpus = 8, disk = "16G" }
request_concurrency = 1
"#;
    let (config, warnings) = parse(text, &dir.path().join("config.toml")).unwrap();
    let runner = &config.runners[0];
    assert_eq!(
        (config.url.as_str(), runner.name.as_str()),
        ("https://gitlab.example.com", "ci")
    );
    assert_eq!(runner.token.expose(), "glrt-abcdefghijkl");
    let envelope = Envelope {
        mem_mib: 16 << 10,
        cpus: 8,
        disk_bytes: 16 << 30,
    };
    assert_eq!(runner.placement.envelope, envelope);
    assert_eq!(runner.placement.pool.as_str(), "ci");
    assert_eq!(runner.placement.labels[0].as_str(), "large-memory");
    assert!(warnings[0].contains("chmod 0600"), "{warnings:?}");
}

/// CFG-03, CFG-05, CFG-06, CFG-07, CFG-12, CFG-20, ADM-10
#[test]
fn what_is_not_said_has_the_contracts_default() {
    let (config, _) = with_runner("").unwrap();
    let runner = &config.runners[0];
    assert_eq!(
        (config.concurrent, config.shutdown_timeout.as_secs()),
        (1, 30)
    );
    assert_eq!(config.state_dir, Path::new("/var/lib/vk-gitlab"));
    assert_eq!((runner.name.as_str(), runner.limit), ("abcdefghi", 0));
    assert_eq!(
        (runner.request_concurrency, runner.check_interval.as_secs()),
        (1, 3)
    );
    assert_eq!((runner.output_limit, runner.lease_secs), (4 << 20, 90));
    assert_eq!(runner.placement.pool.as_str(), "default");
    let envelope = Envelope {
        mem_mib: 4096,
        cpus: 2,
        disk_bytes: 16 << 30,
    };
    assert_eq!(runner.placement.envelope, envelope);
}

/// CFG-13
#[test]
fn unknown_keys_and_bad_names_are_refused() {
    assert!(error("pol = 'x'").contains("pol"));
    assert!(error("name = '.hidden'").contains("name"));
    assert!(error("name = 'a/b'").contains("name"));
    assert!(error("pool = 'a b'").contains("letter or digit"));
    let twice = "name = 'ci'\n[[runners]]\nname = 'ci'\ntoken = 'glrt-t1_mnopqrstuvwx'";
    assert!(error(twice).contains("share a file"));
    assert!(
        parsed("[gitlab]\nurl = 'https://x'")
            .unwrap_err()
            .to_string()
            .contains("[[runners]]")
    );
    assert!(parsed("concurrent = 0\n[gitlab]\nurl = 'https://x'").is_err());
}

/// CFG-14
#[test]
fn a_runner_has_exactly_one_token() {
    assert!(error("token_file = 'x'").contains("not both"));
    let none = "[gitlab]\nurl = 'https://x'\n[[runners]]\nname = 'ci'";
    assert!(parsed(none).unwrap_err().to_string().contains("token_file"));
    let missing = "[gitlab]\nurl = 'https://x'\n[[runners]]\ntoken_file = 'no-such.token'";
    assert!(
        parsed(missing)
            .unwrap_err()
            .to_string()
            .contains("/etc/vk-gitlab/no-such.token")
    );
}

/// CFG-15
#[test]
fn tls_keys_have_upstreams_spelling_too() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
    write("ca.pem", key.cert.pem());
    write("c", key.cert.pem());
    write("k", key.signing_key.serialize_pem());
    std::fs::set_permissions(dir.path().join("k"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = "[gitlab]\nurl = 'https://x'\n[[runners]]\ntoken = 'glrt-t1_abcdefghijkl'\n\
                tls-ca-file = 'ca.pem'\ntls_cert_file = 'c'\ntls-key-file = 'k'";
    let (config, _) = parse(text, &dir.path().join("config.toml")).unwrap();
    let tls = &config.runners[0];
    assert_eq!(tls.tls_ca_file, Some(dir.path().join("ca.pem")));
    assert_eq!(tls.tls_client.as_ref().unwrap().1, dir.path().join("k"));
    assert!(error("tls_cert_file = 'c'").contains("tls_key_file"));
}

/// CFG-18, CFG-21
#[test]
fn the_output_limit_is_in_kib_or_a_size_and_stays_below_gitlabs() {
    assert_eq!(runner("output_limit = 4096").output_limit, 4 << 20);
    assert_eq!(runner("output_limit = '8M'").output_limit, 8 << 20);
    assert!(error("output_limit = '64M'").contains("100 MiB"));
    assert!(error("output_limit = 0").contains("output_limit"));
}

/// CFG-20
#[test]
fn a_lease_covers_a_job_request() {
    assert_eq!(runner("lease_secs = 75").lease_secs, 75);
    assert!(error("lease_secs = 74").contains("75 to 600"));
    assert!(error("lease_secs = 601").contains("75 to 600"));
}

/// CRED-01
#[test]
fn no_error_repeats_a_token() {
    let bad = "[gitlab]\nurl = 'https://x'\n[[runners]]\ntoken = 'glrt-s3cret' 'x'";
    let error = parsed(bad).unwrap_err().to_string();
    assert!(
        !error.contains("s3cret") && error.contains("line"),
        "{error}"
    );
}
