use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Expression, Lookup, Patterns, Wrong};

struct Variables(BTreeMap<&'static str, &'static str>);

impl Lookup for Variables {
    fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).copied()
    }
}

fn variables() -> Variables {
    Variables(BTreeMap::from([
        ("A", "feature/login-2"),
        ("EMPTY", ""),
        ("BLANK", " \t "),
        ("TRUE", "true"),
        ("PATTERN", "/^feature\\//"),
        ("ONE", "/f/"),
        ("LOUD", "/FEATURE/i"),
        ("BROKEN", "/s3cret(/"),
        ("REF", "$A"),
    ]))
}

fn parse(text: &str) -> Result<Expression, Wrong> {
    Expression::parse(text, &mut Patterns::default())
}

fn holds(text: &str) -> Result<bool, String> {
    let expression = parse(text).map_err(|wrong| format!("{wrong:?}"))?;
    expression
        .holds(&variables(), &mut Patterns::default())
        .map_err(|undecided| undecided.0)
}

#[test]
fn a_value_alone_holds_when_it_is_neither_missing_nor_blank() {
    let rows = [
        ("$A", true),
        ("$EMPTY", false),
        ("$BLANK", false),
        ("$NONE", false),
        ("null", false),
        ("'x'", true),
        ("''", false),
        ("($A)", true),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

#[test]
fn equality_tells_missing_from_empty_and_text_from_conditions() {
    let rows = [
        ("$A == 'feature/login-2'", true),
        ("\"feature/login-2\" == $A", true),
        ("$A=='feature/login-2'", true),
        ("$A == 'feature'", false),
        ("$A != 'feature'", true),
        ("$NONE == null", true),
        ("$EMPTY == null", false),
        ("$EMPTY != null", true),
        ("$EMPTY == ''", true),
        ("$NONE == ''", false),
        ("$NONE == $MISSING", true),
        ("$TRUE == 'true'", true),
        ("($A == $A) == 'true'", false),
        ("($A == $A) == ($NONE == null)", true),
        ("$REF == '$A'", true),
        ("$A == \"it's\"", false),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_pattern_is_found_anywhere_unless_it_is_anchored() {
    let rows = [
        ("$A =~ /login/", true),
        ("$A =~ /^login/", false),
        ("$A =~ /^feature\\/.*-[0-9]$/", true),
        ("$A =~ /LOGIN/", false),
        ("$A =~ /LOGIN/i", true),
        ("$A =~ /a.*2/sU", true),
        ("$NONE =~ /.*/", true),
        ("$NONE =~ /.+/", false),
        ("$A !~ /login/", false),
        ("$A !~ /logout/", true),
        ("$NONE !~ /x+/", true),
        ("'line7' =~ /\\d$/", true),
        ("'a/b' =~ /a\\/b/", true),
        ("$A =~ /a b/ || $A =~ /fe/", true),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_variable_may_hold_the_pattern_and_a_text_without_slashes_is_searched_in() {
    let rows = [
        ("$A =~ $PATTERN", true),
        ("'bug/feature' =~ $PATTERN", false),
        ("$A !~ $PATTERN", false),
        ("$A =~ $ONE", true),
        ("$A =~ $LOUD", true),
        ("$A =~ $NONE", false),
        ("$A !~ $NONE", true),
        ("'log' =~ $A", true),
        ("$A =~ 'log'", false),
        ("$A =~ ($NONE || $PATTERN)", true),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_pattern_that_is_none_is_said_without_its_text() {
    let said = holds("$A =~ $BROKEN").unwrap_err();
    assert!(said.contains("the value of $BROKEN"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    assert!(
        holds("$A =~ ($A == $A)")
            .unwrap_err()
            .contains("a condition stands right")
    );
    // Not looked at where it does not matter.
    assert_eq!(holds("$NONE && $A =~ $BROKEN"), Ok(false));
}

#[test]
fn or_is_weaker_than_and_and_both_are_weaker_than_comparisons() {
    let (t, f) = ("$A", "$NONE");
    let rows = [
        (format!("{t} || {f} && {f}"), true),
        (format!("({t} || {f}) && {f}"), false),
        (format!("{f} && {f} || {t}"), true),
        (format!("{f} && ({f} || {t})"), false),
        (format!("{f} || {f} && 'a' == 'a' || {t}"), true),
        (format!("{f} == null && {t} != null"), true),
        ("'a' == ('b' || 'a')".into(), false),
        ("('a' || 'b') == 'a'".into(), true),
        ("'a' == 'b' || 'a'".into(), true),
        ("('x' == ('x' && ('y' || 'x')))".into(), false),
        ("'a' == 'a' == 'a'".into(), false),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(&text), Ok(expected), "{text}");
    }
}

#[test]
fn and_and_or_pass_an_empty_text_on_as_ruby_does() {
    let rows = [
        ("$EMPTY && 'x'", true),
        ("$EMPTY || 'x'", false),
        ("$NONE || $EMPTY", false),
        ("null && 'x'", false),
        ("($EMPTY && $A) == $A", true),
        ("($NONE || $A) == $A", true),
        ("('a' == 'b' || $A) == $A", true),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

#[test]
fn each_fault_of_an_expression_is_named_with_its_place() {
    let rows = [
        ("", None, "ends where a value"),
        ("  ", None, "ends where a value"),
        ("$A ==", None, "ends where a value"),
        ("$A && && $B", Some(7), "an operator stands where"),
        ("$A $B", Some(4), "an operator is missing"),
        ("$A = 'b'", Some(4), "no operator"),
        ("$A == true", Some(7), "`true` is a word without quotes"),
        ("$A == main", Some(7), "`main` stands without quotes"),
        ("!$A", Some(1), "`!` alone"),
        ("$ A", Some(1), "without the name"),
        ("${A} == 'x'", Some(1), "without the name"),
        ("$[[ inputs.a ]] == 'x'", Some(1), "inputs"),
        ("$A == 'x", Some(7), "does not end in its line"),
        ("$A == \"x'", Some(7), "does not end in its line"),
        ("($A", Some(1), "not closed"),
        ("$A)", Some(3), "closes nothing"),
        ("$A =~ /x/", Some(7), "less than two"),
        ("$A =~ /xy", Some(7), "does not end"),
        ("$A =~ /x(/", Some(7), "no regular expression"),
        ("$A =~ /(?=x)y/", Some(7), "looks at nothing after"),
        ("$A =~ /(?<!x)y/", Some(7), "looks at nothing before"),
        ("$A =~ /a\\1/", Some(7), "RE2 has no \\1"),
        ("$A =~ /(?x)y/", Some(7), "RE2 has no flag x"),
        ("$A =~ /[a-/", Some(7), "not closed"),
        ("$A =~ /a{999}{999}/", Some(7), "more than"),
        ("$A == /xy/", Some(4), "elsewhere than right"),
        ("/xy/ == $A", Some(1), "elsewhere than right"),
        ("$A && /xy/", Some(7), "elsewhere than right"),
        ("(/xy/)", Some(2), "elsewhere than right"),
        ("'ä' =~ /xy/ ^", Some(13), "no operator"),
    ];
    for (text, at, what) in rows {
        let wrong = parse(text).unwrap_err();
        assert_eq!(wrong.at, at, "{text}: {wrong:?}");
        assert!(wrong.what.contains(what), "{text}: {wrong:?}");
    }
}

#[test]
fn expressions_are_bounded() {
    let deep = format!("{}$A{}", "(".repeat(65), ")".repeat(65));
    assert!(parse(&deep).unwrap_err().what.contains("in each other"));
    let deep = format!("{}$A{}", "(".repeat(64), ")".repeat(64));
    assert_eq!(holds(&deep), Ok(true));
    let long = vec!["$A"; 501].join("||");
    assert!(parse(&long).unwrap_err().what.contains("parts"));
    let long = format!("'{}'", "x".repeat(17_000));
    assert!(parse(&long).unwrap_err().what.contains("bytes"));
}

#[test]
fn patterns_mean_what_re2_takes_them_for() {
    let rows = [
        ("'٣' =~ /^\\d$/", false),
        ("'3' =~ /^\\d$/", true),
        ("'ä' =~ /^\\w$/", false),
        ("'ä' =~ /^\\W$/", true),
        ("'ä' =~ /^.$/", true),
        ("'x ä' =~ /x\\b/", true),
        ("'xä' =~ /x\\b/", true),
        ("'xa' =~ /x\\B/", true),
        ("'a&b' =~ /^[a&&b]+$/", true),
        ("'a[b' =~ /^[a[b]+$/", true),
        ("'a-9' =~ /^[\\w-]+$/", true),
        ("'-' =~ /^[\\d-.]$/", true),
        ("',' =~ /^[+--]$/", true),
        ("'-' =~ /^[--]$/", true),
        ("']' =~ /^[]a]$/", true),
        ("'x' =~ /^[^]a]$/", true),
        ("'a{b}' =~ /^a{b}$/", true),
        ("'a{,3}' =~ /^a{,3}$/", true),
        ("'aaa' =~ /^a{2,}$/", true),
        ("'aaa' =~ /^a{3}$/", true),
        ("'a.b' =~ /^\\Qa.b\\E$/", true),
        ("'axb' =~ /^\\Qa.b\\E$/", false),
        ("'b' =~ /^[[:alpha:]]$/", true),
        ("'<b>' =~ /^\\<b\\>$/", true),
        ("'a b' =~ /^a\\ b$/", true),
        ("'a@b' =~ /a\\x40b/", true),
        ("'é' =~ /^\\p{L}$/", true),
        ("'B' =~ /^(?i)b$/", true),
        ("'B' =~ /^(?i:b)$/", true),
        ("'ab' =~ /^(?P<x>a)(?:b)$/", true),
        ("'#a' =~ /#a/", true),
        ("'~~' =~ /^[~~]+$/", true),
        ("'aXa' =~ /^a\\Sa\\z/", true),
    ];
    for (text, expected) in rows {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_expression_makes_it_panic(text in "[$A-C =~!&|()'\"/a\\\\\\[\\]{}?:,-]{0,40}") {
        let _ = holds(&text);
    }

    #[test]
    fn no_pattern_makes_it_panic(body in "[ab\\\\\\[\\]{}()?:P<>^&~0-9dDwWQEbBpx,|*+.-]{0,30}") {
        let _ = holds(&format!("$A =~ /{body}/i"));
    }
}
