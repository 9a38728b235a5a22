use std::path::Path;

use crate::config::{Config, ConfigError};

const GOOD: &str = "url = 'https://r.example.com:5000'\nservice = 'r'\nkey_file = 'r.key'\n\
                    certificate_file = '/etc/r.pem'\n";

fn parse(tables: &str) -> Result<Config, ConfigError> {
    let text = format!("data_dir = '/d'\n{tables}");
    Config::parse(&text, Path::new("/etc/vk-hub/hub.toml"))
}

/// One registry as it is good, a line of it replaced.
fn with(key: &str, line: &str) -> String {
    let kept = GOOD.lines().filter(|kept| !kept.starts_with(key));
    let kept: Vec<_> = kept.collect();
    format!("[[registries]]\n{}\n{line}\n", kept.join("\n"))
}

/// REG-05, REG-16
#[test]
fn a_registry_has_a_url_a_service_and_a_key_and_the_rest_is_as_usual() {
    let config = parse(&with("x", "")).unwrap();
    let [one] = &config.registries[..] else {
        panic!("{:?}", config.registries)
    };
    assert_eq!((one.issuer.as_str(), one.service.as_str()), ("vk-hub", "r"));
    assert_eq!(one.key_file, Path::new("/etc/vk-hub/r.key"));
    assert_eq!(one.certificate_file, Path::new("/etc/r.pem"));
    assert_eq!(config.settings.registries, [one.rule()]);
    let rule = one.rule();
    assert_eq!(rule.url, "https://r.example.com:5000");
    assert_eq!(rule.cache_prefix, "ci-cache");
    assert!(rule.read.is_empty());
    assert!(parse("").unwrap().registries.is_empty());
}

/// REG-22
#[test]
fn a_url_is_spelled_as_nodes_report_it() {
    for good in [
        "https://r.example.com",
        "http://127.0.0.1:5000",
        "http://[::1]:5000",
    ] {
        let config = parse(&with("url", &format!("url = '{good}'")));
        assert_eq!(config.unwrap().settings.registries[0].url, good);
    }
    for (bad, what) in [
        ("r.example.com", "no URL"),
        ("ftp://r.example.com", "neither https nor http"),
        ("https://r.example.com/", "nothing after it"),
        ("https://r.example.com/v2/", "nothing after it"),
        ("https://me@r.example.com", "nothing after it"),
        (
            "https://R.example.com",
            "as https://r.example.com: write that",
        ),
        (
            "https://r.example.com:443",
            "as https://r.example.com: write that",
        ),
        (
            "https://localhost:5000",
            "as http://localhost:5000: write that",
        ),
        ("https://", "nothing after it"),
        (
            "http://r.example.com:5000",
            "and write https://r.example.com:5000",
        ),
    ] {
        let error = parse(&with("url", &format!("url = '{bad}'"))).unwrap_err();
        let error = error.to_string();
        let begins = "/etc/vk-hub/hub.toml: registries[0].url: ";
        assert!(error.starts_with(begins) && error.contains(what), "{error}");
    }
    let twice = format!("{}{}", with("x", ""), with("x", ""));
    let error = parse(&twice).unwrap_err().to_string();
    assert!(
        error.contains("registries[1].url") && error.contains("twice"),
        "{error}"
    );
    let many: String = (0..17)
        .map(|n| with("url", &format!("url = 'https://r{n}.example.com'")))
        .collect();
    let error = parse(&many).unwrap_err().to_string();
    assert!(error.contains("16 registries"), "{error}");
}

/// REG-16: tokens name repositories one by one.
#[test]
fn what_jobs_may_read_is_named_repository_by_repository_and_is_no_cache() {
    let config = parse(&with("x", "read = ['images/base', 'ci-cache2/x', 'tools']")).unwrap();
    assert_eq!(config.registries[0].read.len(), 3);
    for bad in [
        "images/", "images/*", "*", "/images", "Images", "a:1", "", "a//b", "ä",
    ] {
        let error = parse(&with("x", &format!("read = ['{bad}']"))).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("registries[0].read: ") && error.contains("no patterns"),
            "{error}"
        );
        if !bad.is_empty() {
            let error = parse(&with("x", &format!("cache_prefix = '{bad}'"))).unwrap_err();
            assert!(
                error.to_string().contains("registries[0].cache_prefix"),
                "{error}"
            );
        }
    }
    for cache in ["ci-cache", "ci-cache/gitlab.example.com/3/protected"] {
        let error = parse(&with("x", &format!("read = ['{cache}']"))).unwrap_err();
        assert!(error.to_string().contains("protected refs"), "{error}");
    }
    let many: Vec<_> = (0..65).map(|n| format!("'r{n}'")).collect();
    let error = parse(&with("x", &format!("read = [{}]", many.join(",")))).unwrap_err();
    assert!(error.to_string().contains("64 are taken"), "{error}");
}

#[test]
fn words_are_words_and_keys_are_known() {
    let long = "x".repeat(256);
    for (key, value) in [("service", ""), ("service", &long), ("issuer", "a\\nb")] {
        let error = parse(&with(key, &format!("{key} = \"{value}\""))).unwrap_err();
        assert!(
            error.to_string().contains(&format!("registries[0].{key}")),
            "{error}"
        );
    }
    assert!(parse(&with("service", "")).is_err());
    assert!(parse(&with("x", "password = 'x'")).is_err());
}
