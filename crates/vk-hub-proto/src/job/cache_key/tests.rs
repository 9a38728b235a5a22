use proptest::prelude::*;

use super::*;

fn made(key: &str) -> Option<String> {
    match sanitize(key) {
        Sanitized::Same => Some(key.to_owned()),
        Sanitized::Changed(clean) => Some(clean),
        Sanitized::Nothing => None,
    }
}

/// Keys and what upstream makes of them; none where nothing is left.
const UPSTREAM: [(&str, Option<&str>); 66] = [
    ("", Some("")),
    ("fallback_key", Some("fallback_key")),
    ("some-job/some-ref", Some("some-job/some-ref")),
    (".../....", Some(".../....")),
    ("...", Some("...")),
    ("fallback_key/", Some("fallback_key")),
    ("fallback_key ", Some("fallback_key")),
    (r"fallback_key\", Some("fallback_key")),
    (r"fallback_key/ \", Some("fallback_key")),
    (r"fallback_key/ / \  \", Some("fallback_key")),
    ("fallback_key/o", Some("fallback_key/o")),
    (r"fallback_key / \o", Some("fallback_key / /o")),
    ("\t foo bar \t\r", Some("\t foo bar")),
    (" foo / bar ", Some(" foo / bar")),
    ("foo\r", Some("foo")),
    ("foo\t", Some("foo")),
    ("foo \t \r ", Some("foo")),
    (r"\", None),
    (r"\.", None),
    ("/", None),
    (" ", None),
    (".", None),
    ("..", None),
    (" / ", None),
    ("//", None),
    (r"//\", None),
    ("../.", None),
    (r"foo\bar\..\..", None),
    ("foo/bar/../..", None),
    (" \t\r\n", None),
    ("something %2F something", Some("something / something")),
    ("something %2f something", Some("something / something")),
    ("some%2f../job/some/ref/.", Some("job/some/ref")),
    ("%2E", None),
    ("%2E%2E", None),
    ("%2E%2E%2E", Some("...")),
    ("%2e", None),
    ("%2e%2E", None),
    (".%2E", None),
    ("%2e.", None),
    ("%2E%2e%2E", Some("...")),
    ("%5C", Some("%5C")),
    ("%5c", Some("%5c")),
    ("foo/./bar", Some("foo/bar")),
    ("foo/blipp/../bar", Some("foo/bar")),
    ("/foo/bar", Some("foo/bar")),
    ("//foo/bar", Some("foo/bar")),
    ("./foo/bar", Some("foo/bar")),
    ("../foo/bar", Some("foo/bar")),
    (".../foo/bar", Some(".../foo/bar")),
    ("foo/bar/..", Some("foo")),
    ("foo/bar/../../../.././blerp", Some("blerp")),
    ("a/b/c/../../d", Some("a/d")),
    (r"job\name/git\ref", Some("job/name/git/ref")),
    (r"foo\.\bar", Some("foo/bar")),
    (r"foo\blipp\..\bar", Some("foo/bar")),
    (r"\foo\bar", Some("foo/bar")),
    (r"\\foo\bar", Some("foo/bar")),
    (r".\foo\bar", Some("foo/bar")),
    (r"..\foo\bar", Some("foo/bar")),
    (r"...\foo\bar", Some(".../foo/bar")),
    (r"foo\bar\..", Some("foo")),
    (r"foo\bar\..\..\..\..\.\blerp", Some("blerp")),
    ("foo/ /bar", Some("foo/ /bar")),
    ("foo/ /", Some("foo")),
    ("foo/ / /", Some("foo")),
];

/// Keys that upstream's other tests name and that its rules speak of.
const NAMED_ELSEWHERE: [(&str, Option<&str>); 10] = [
    ("%252f", Some("%252f")),
    ("some%2fuser%2Fkey", Some("some/user/key")),
    ("hello.%2e..there  ", Some("hello....there")),
    (r"looks\like\a\win\path", Some("looks/like/a/win/path")),
    (
        r"this/../key/will/be\sanitized\  ",
        Some("key/will/be/sanitized"),
    ),
    (
        r"some\job\name/some/git/ref",
        Some("some/job/name/some/git/ref"),
    ),
    (
        "0_project/foo/../dependencies-x",
        Some("0_project/dependencies-x"),
    ),
    (" /  ", None),
    ("a/b/c/../../d/e", Some("a/d/e")),
    ("%2e%2e/%2f", None),
];

/// Where white space hides what the last segment is: upstream leaves it, and breaks its own
/// invariants.
const OURS: [(&str, Option<&str>); 3] =
    [("a/b/.. ", Some("a")), ("a/. ", Some("a")), (".. ", None)];

/// PORT-34, SPEC-03
#[test]
fn keys_are_cleaned_as_upstream_cleans_them() {
    let rows = UPSTREAM.iter().chain(&NAMED_ELSEWHERE).chain(&OURS);
    for (key, expected) in rows {
        assert_eq!(made(key).as_deref(), *expected, "{key:?}");
        let same = sanitize(key) == Sanitized::Same;
        assert_eq!(same, *expected == Some(*key), "{key:?}: what is said of it");
    }
}

/// The invariants that upstream demands of every result.
fn assert_clean(key: &str, clean: &str) {
    assert!(
        !clean.starts_with('/') && !clean.ends_with('/'),
        "{key:?}: {clean:?}"
    );
    let relative = |part: &str| part == "." || part == "..";
    assert!(!clean.split('/').any(relative), "{key:?}: {clean:?}");
    assert!(!clean.contains('\\'), "{key:?}: {clean:?}");
    assert_eq!(clean.trim_end(), clean, "{key:?}");
}

/// PORT-34
#[test]
fn what_is_left_of_a_key_is_a_clean_relative_path() {
    let invariants = [
        "a",
        "a/b",
        "../a",
        "a/../b",
        "a/./b",
        r"a\b",
        r"a\..\\b",
        "/a/b/",
        " a ",
        "...",
        "%2e%2e/%2f",
        "a/b/c/../../d/e",
    ];
    let table = UPSTREAM.iter().chain(&NAMED_ELSEWHERE).chain(&OURS);
    for key in table.map(|(key, _)| *key).chain(invariants) {
        if let Some(clean) = made(key).filter(|clean| !clean.is_empty()) {
            assert_clean(key, &clean);
            assert_eq!(sanitize(&clean), Sanitized::Same, "{key:?}: cleaned twice");
        }
    }
}

/// PORT-34
#[test]
fn clean_keys_stay_as_they_are() {
    for key in [
        "fallback_key",
        "some-job/some-ref",
        "a/b/c",
        "...",
        ".../foo/bar",
    ] {
        assert_eq!(sanitize(key), Sanitized::Same, "{key:?}");
    }
}

proptest! {
    #[test]
    fn a_clean_key_stays_below_its_root_and_is_clean(key in r"[a-c/\\. %2fFeE]{0,30}") {
        if let Some(clean) = made(&key).filter(|clean| !clean.is_empty()) {
            assert_clean(&key, &clean);
        }
    }
}
