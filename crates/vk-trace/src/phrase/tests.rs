use proptest::prelude::*;

use super::*;
use crate::sink::Kept;

fn set(phrases: &[&str]) -> Arc<PatternSet> {
    Arc::new(PatternSet::new(phrases).unwrap())
}

fn mask(phrases: &[&str], writes: &[&str]) -> String {
    let set = set(phrases);
    let (mut masker, mut kept) = (PhraseMasker::new(&set), Kept::default());
    for text in writes {
        masker.feed(&set, ReadTime::default(), text.as_bytes(), &mut kept);
    }
    masker.flush(&set, &mut kept);
    kept.string()
}

/// The rule by its definition: one pass for each phrase, over what earlier passes left.
fn by_passes(phrases: &[&str], text: &str) -> String {
    let mut phrases = phrases.to_vec();
    phrases.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| b.cmp(a)));
    let mut pieces = vec![text.to_owned()];
    for phrase in phrases.iter().filter(|phrase| !phrase.is_empty()) {
        // A mask stands between any two pieces.
        pieces = pieces
            .iter()
            .flat_map(|piece| piece.split(phrase).map(str::to_owned))
            .collect();
    }
    pieces.join("[MASKED]")
}

/// STAGE-25
#[test]
fn a_failed_match_falls_back_to_the_next_possible_one() {
    assert_eq!(mask(&["aab"], &["aa", "ab"]), "a[MASKED]");
    assert_eq!(mask(&["abac"], &["ab", "ab", "ac"]), "ab[MASKED]");
    assert_eq!(
        mask(&["aab"], &["a", "a", "a", "a", "a", "b"]),
        "aaa[MASKED]"
    );
}

/// STAGE-24
#[test]
fn a_phrase_with_line_breaks_is_masked_whole() {
    assert_eq!(mask(&["l1\nl2"], &["x l1\n", "l2 y"]), "x [MASKED] y");
    assert_eq!(mask(&["l1\nl2"], &["l1\r\nl2"]), "l1\r\nl2");
}

/// STAGE-25
#[test]
fn a_possible_secret_at_the_end_is_let_out_as_it_is() {
    assert_eq!(mask(&["secrets"], &["x secr"]), "x secr");
}

/// STAGE-25
#[test]
fn the_longest_phrase_goes_first_wherever_it_begins() {
    assert_eq!(mask(&["abcd", "xab"], &["xabcd"]), "x[MASKED]");
    assert_eq!(mask(&["abcd", "xab"], &["xab", "c"]), "[MASKED]c");
    assert_eq!(
        mask(&["abcd", "xab", "ab"], &["xa", "b", "ce"]),
        "[MASKED]ce"
    );
    // Longer ones to both sides leave room for the shortest only.
    assert_eq!(
        mask(&["bcdefg", "ab", "abc", "hij", "gh"], &["abcdefghij"]),
        "a[MASKED][MASKED]"
    );
}

/// STAGE-25
#[test]
fn text_without_a_possible_secret_does_not_wait() {
    let set = set(&["secret"]);
    let (mut masker, mut kept) = (PhraseMasker::new(&set), Kept::default());
    masker.feed(&set, ReadTime::default(), b"progress 10%", &mut kept);
    assert_eq!(kept.string(), "progress 10%");
    masker.feed(&set, ReadTime::default(), b" secret", &mut kept);
    assert_eq!(kept.string(), "progress 10% [MASKED]");
    masker.feed(&set, ReadTime::default(), b" sec", &mut kept);
    assert_eq!(kept.string(), "progress 10% [MASKED] ");
}

/// STAGE-24
#[test]
fn a_secret_that_comes_late_is_found_in_what_was_held() {
    let (old, new) = (set(&["hunter2"]), set(&["hunter2", "untold"]));
    let (mut masker, mut kept) = (PhraseMasker::new(&old), Kept::default());
    masker.feed(&old, ReadTime::default(), b"x hunt", &mut kept);
    masker.feed(&new, ReadTime::default(), b"er2 untold", &mut kept);
    masker.flush(&new, &mut kept);
    assert_eq!(kept.string(), "x [MASKED] [MASKED]");
    let (old, new) = (set(&["hunter2"]), set(&["unt", "hunter2"]));
    let (mut masker, mut kept) = (PhraseMasker::new(&old), Kept::default());
    masker.feed(&old, ReadTime::default(), b"x hunt", &mut kept);
    masker.flush(&new, &mut kept);
    assert_eq!(kept.string(), "x h[MASKED]");
}

/// DISP-46
#[test]
fn bytes_that_were_held_keep_their_time() {
    let set = set(&["secret"]);
    let (first, second) = (ReadTime::from_unix(1, 0), ReadTime::from_unix(2, 0));
    let (mut masker, mut kept) = (PhraseMasker::new(&set), Kept::default());
    masker.feed(&set, first, b"sec", &mut kept);
    masker.feed(&set, second, b"tion", &mut kept);
    assert_eq!(kept.string(), "section");
    assert_eq!(
        kept.times,
        [first, first, first, second, second, second, second]
    );
}

/// STAGE-25
#[test]
fn held_bytes_are_bounded_by_the_phrases() {
    let long = "ab".repeat(50) + "c";
    let phrases = ["aa", "ab", "ba", "bb", "abb", &long];
    let set = set(&phrases);
    let (mut masker, mut kept) = (PhraseMasker::new(&set), Kept::default());
    let text: String = (0..5_000_u32)
        .map(|n| if n % 103 == 0 { 'a' } else { 'b' })
        .collect();
    let text = "ab".repeat(2_000) + &text + &"a".repeat(2_000);
    let sum: usize = phrases.iter().map(|phrase| phrase.len()).sum();
    for (read, byte) in (1..).zip(text.bytes()) {
        masker.feed(&set, ReadTime::default(), &[byte], &mut kept);
        let held = read - masker.held.base();
        assert!(held <= sum as u64, "{held} bytes held after {read}");
    }
    masker.flush(&set, &mut kept);
    assert_eq!(kept.string(), by_passes(&phrases, &text));
}

/// STAGE-25
#[test]
fn long_text_full_of_overlaps_is_decided_on_the_way() {
    let phrases = ["aba", "ab", "ba", "bab", "aabb", "b"];
    let text: String = "abaabbabab".repeat(3_000);
    assert_eq!(mask(&phrases, &[&text]), by_passes(&phrases, &text));
    let text = "a".repeat(5_000);
    for phrases in [
        &["aa"][..],
        &["aa", "aaa"],
        &["a", "aa", "aaaaaaa"],
        &["aab", "aa", "baa"],
    ] {
        assert_eq!(mask(phrases, &[&text]), by_passes(phrases, &text));
    }
}

proptest! {
    /// STAGE-25
    #[test]
    fn any_split_masks_what_the_passes_mask(
        phrases in proptest::collection::vec("[ab]{0,6}|[abc]{1,4}|(ab){1,5}c?", 0..7),
        text in "([abc]|ab|aab|\n|é){0,80}",
        pad in 0_usize..60,
        splits in proptest::collection::vec(0_usize..200, 0..10),
    ) {
        let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
        // Padding makes some writes long enough for the vectorized search.
        let text = format!("{}{text}{}{text}", ".".repeat(pad), ".".repeat(pad));
        let mut at: Vec<usize> = splits.iter().map(|at| text.floor_char_boundary(*at)).collect();
        at.extend([0, text.len()]);
        at.sort_unstable();
        let writes: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(mask(&phrases, &writes), by_passes(&phrases, &text));
    }
}
