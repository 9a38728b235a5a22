use super::*;

/// Pattern, path, whether it matches. The cases that decide between dialects; doublestar's own
/// suite has the same answers.
const CASES: &[(&str, &str, bool)] = &[
    ("*", "abc", true),
    ("*", ".hidden", true),
    ("*", "a/b", false),
    ("*c", "abc", true),
    ("a*", "a", true),
    ("a*/b", "abc/b", true),
    ("a*/b", "a/c/b", false),
    ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
    ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false),
    ("a*b?c*x", "abxbbxdbxebxczzx", true),
    ("a*b?c*x", "abxbbxdbxebxczzy", false),
    ("a?b", "a☺b", true),
    ("a???b", "a☺b", false),
    ("a?b", "a/b", false),
    ("ab[b-d]", "abc", true),
    ("ab[^b-d]", "abc", false),
    ("ab[!e-g]", "abc", true),
    ("a[!a]b", "a☺b", true),
    ("[a-ζ]*", "α", true),
    ("*[a-ζ]", "A", false),
    ("[\\]a]", "]", true),
    ("[\\-x]", "-", true),
    ("[x-]", "-", true),
    ("[-x]", "-", true),
    ("[-x]", "a", false),
    ("[a-b-d]", "-", true),
    ("[a-b-d]", "c", false),
    ("a\\*b", "ab", false),
    ("a\\*b", "a*b", true),
    ("**", "a/b/c", true),
    ("**", ".a/.b", true),
    ("a/**", "a", true),
    ("a/**", "a/b/c", true),
    ("a/**", "ab", false),
    ("a/**/", "a", true),
    ("**/c", "c", true),
    ("**/c", "a/b/c", true),
    ("**/c", "a/abc", false),
    ("a/**/b", "a/b", true),
    ("a/**/d", "a/b/c/d", true),
    ("a/**/**/d", "a/d", true),
    ("a/\\**", "a/b/c", false),
    ("a/\\[*\\]", "a/[b]", true),
    ("abc**", "abc/b", false),
    ("abc**", "abcd", true),
    ("**/*.txt", "abc/【test】.txt", true),
    ("ab{c,d}", "abc", true),
    ("ab{c,d,*}", "abcde", true),
    ("a{,bc}", "a", true),
    ("a/{b/c,c/b}", "a/c/b", true),
    ("{a/{b,c},abc}", "a/c", true),
    ("{a/{b,c},abc}", "a/b/c", false),
    ("{a/**,b}", "a/x/y", true),
    ("**/{a,b}", "x/b", true),
    ("e/{\\*,\\?}", "e/?", true),
    ("e/[\\*\\?]", "e/**", false),
    ("e/\\{", "e/{", true),
    ("a}", "a}", true),
    ("a,b", "a,b", true),
    ("[{]", "{", true),
    ("", "", true),
    ("x", "", false),
];

/// GUEST-09
#[test]
fn patterns_match_as_doublestar_matches() {
    for (pattern, path, expected) in CASES {
        let read = Pattern::new(pattern.as_bytes()).unwrap();
        assert_eq!(
            read.matches(path.as_bytes()),
            *expected,
            "{pattern} on {path}"
        );
    }
}

/// GUEST-09
#[test]
fn a_pattern_that_cannot_be_read_is_an_error() {
    for bad in [
        "[", "a[", "[^", "[^bc", "[]a]", "[]", "\\", "a\\", "{a", "ab{c,d}[", "{a,{b}", "[a-\\",
    ] {
        assert_eq!(
            Pattern::new(bad.as_bytes()).err(),
            Some(BadPattern),
            "{bad}"
        );
    }
}

#[test]
fn alternatives_are_bounded() {
    assert!(Pattern::new("{a,b}".repeat(10).as_bytes()).is_ok());
    assert_eq!(
        Pattern::new("{a,b}".repeat(11).as_bytes()).err(),
        Some(BadPattern)
    );
    assert_eq!(
        Pattern::new("{a,b}".repeat(800).as_bytes()).err(),
        Some(BadPattern)
    );
}

#[test]
fn bytes_that_are_no_text_match_themselves_only() {
    let pattern = Pattern::new(b"a\xff?").unwrap();
    assert!(pattern.matches(b"a\xff\xfe"));
    assert!(!pattern.matches(b"a\xfe\xfe"));
    assert!(!pattern.matches("aÿ1".as_bytes()));
}

#[test]
fn a_walk_knows_where_nothing_more_can_match() {
    let pattern = Pattern::new(b"a/*.txt").unwrap();
    let a = pattern.step(&pattern.start(), b"a");
    assert!(!a.accepts() && a.goes_on());
    let file = pattern.step(&a, b"x.txt");
    assert!(file.accepts() && !file.goes_on());
    let b = pattern.step(&pattern.start(), b"b");
    assert!(!b.accepts() && !b.goes_on());
    let deep = Pattern::new(b"**").unwrap();
    assert!(deep.start().accepts() && deep.start().goes_on());
}

/// GUEST-09
#[test]
fn paths_become_relative_or_are_outside() {
    for (path, expected) in [
        ("", Some("")),
        (".", Some("")),
        ("in/the/project", Some("in/the/project")),
        ("./foo//bar/", Some("foo/bar")),
        ("foo/../bar", Some("bar")),
        ("/builds/g/p", Some("")),
        ("/builds/g/p/x", Some("x")),
        ("/builds/g/p/../p/x", Some("x")),
        ("../p", Some("")),
        ("../p/x/**", Some("x/**")),
        ("../nope", None),
        ("..", None),
        ("../*.*", None),
        ("/totally/not", None),
        ("/builds/g/pp", None),
        ("../../../../../../etc", None),
    ] {
        let found = relative(b"/builds/g/p", path.as_bytes());
        assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{path}");
    }
}

#[test]
fn a_pattern_is_split_before_its_first_meta_character() {
    for (pattern, base, rest) in [
        ("foo/**/*.txt", "foo", "**/*.txt"),
        ("*.txt", ".", "*.txt"),
        ("/*.txt", "/", "*.txt"),
        ("a/b", "a", "b"),
        ("../../path/to/meta*/**", "../../path/to", "meta*/**"),
        ("a\\*/b/c?", "a*/b", "c?"),
    ] {
        let found = split_pattern(pattern.as_bytes());
        assert_eq!(
            found,
            (base.as_bytes().to_vec(), rest.as_bytes()),
            "{pattern}"
        );
    }
}
