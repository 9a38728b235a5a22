use super::*;
use crate::sink::Kept;

fn mask_with(more: &[&str], writes: &[&str]) -> String {
    let more: Vec<String> = more.iter().map(|prefix| (*prefix).to_owned()).collect();
    let set = prefixes(&more).unwrap();
    let (mut masker, mut kept) = (TokenMasker::default(), Kept::default());
    for text in writes {
        let mut link = TokenLink {
            masker: &mut masker,
            set: &set,
            next: &mut kept,
        };
        for part in text.split_inclusive("{M}") {
            link.text(ReadTime::default(), part.trim_end_matches("{M}").as_bytes());
            if part.ends_with("{M}") {
                link.mask(ReadTime::default());
            }
        }
    }
    kept.string()
}

/// STAGE-26
#[test]
fn every_default_prefix_is_looked_for_and_all_given_ones() {
    for prefix in DEFAULT_TOKEN_PREFIXES {
        let text = format!("a {prefix}x9.-_=Z, b");
        assert_eq!(mask_with(&[], &[&text]), format!("a {prefix}[MASKED], b"));
    }
    let many: Vec<String> = (0..500).map(|n| format!("mask{n}-")).collect();
    let more: Vec<&str> = many.iter().map(String::as_str).collect();
    let (text, masked) = (many.join("x "), many.join("[MASKED] "));
    assert_eq!(mask_with(&more, &[&text, "x"]), format!("{masked}[MASKED]"));
    assert_eq!(mask_with(&[" tok: ", ""], &["tok:abc d"]), "tok:[MASKED] d");
}

#[test]
fn prefixes_are_bounded_in_number_and_length() {
    let many: Vec<String> = (0..5000).map(|n| format!("{n}-")).collect();
    assert!(matches!(
        prefixes(&many),
        Err(TraceError::TooManyPrefixes { .. })
    ));
    let long = ["x".repeat(1 << 16)];
    assert!(matches!(
        prefixes(&long),
        Err(TraceError::TooManyPrefixes { .. })
    ));
}

/// STAGE-25
#[test]
fn a_prefix_without_a_token_stays_and_is_not_repeated() {
    assert_eq!(mask_with(&[], &["x glpat-"]), "x glpat-");
    assert_eq!(mask_with(&[], &["glpat", " -x"]), "glpat -x");
}

/// STAGE-25
#[test]
fn the_order_is_one_pass_for_each_prefix_longest_first() {
    // A longer prefix counts inside a shorter one's token, a shorter one does not.
    assert_eq!(
        mask_with(&["longer-one:"], &["glpat-alonger-one:b c"]),
        "glpat-[MASKED]:[MASKED] c"
    );
    assert_eq!(
        mask_with(&["tok:"], &["glpat-atok:b c"]),
        "glpat-[MASKED]:b c"
    );
    assert_eq!(
        mask_with(&["tok-", "tok-x-"], &["tok-x-abc d"]),
        "tok-[MASKED][MASKED] d"
    );
    assert_eq!(mask_with(&["tok-"], &["gltok-abc d"]), "gltok-[MASKED] d");
    assert_eq!(mask_with(&[], &["glpat-glrt-x y"]), "glpat-[MASKED] y");
    assert_eq!(mask_with(&["aa-"], &["aaa-x y"]), "aaa-[MASKED] y");
}

/// STAGE-25
#[test]
fn an_earlier_mask_ends_no_token_and_joins_no_prefix() {
    assert_eq!(
        mask_with(&[], &["glpat-a{M}b c"]),
        "glpat-[MASKED][MASKED] c"
    );
    assert_eq!(
        mask_with(&[], &["glpat-{M}b c"]),
        "glpat-[MASKED][MASKED] c"
    );
    assert_eq!(mask_with(&[], &["glpat-{M} c"]), "glpat-[MASKED] c");
    assert_eq!(mask_with(&[], &["gl{M}pat-b c"]), "gl[MASKED]pat-b c");
    assert_eq!(
        mask_with(&[], &["pre_{M} x {M}g"]),
        "pre_[MASKED] x [MASKED]g"
    );
}
