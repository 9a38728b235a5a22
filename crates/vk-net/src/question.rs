//! Which of the guest's messages go on to the host's resolvers: one plain question of the Internet,
//! and nothing else. What a resolver tells its own host alone (whole zones, itself) is not the
//! guest's to ask for.

/// A message's header.
pub(crate) const HEADER: usize = 12;
/// A question is rarely longer than a few hundred bytes.
pub(crate) const QUESTION_MAX: usize = 4096;
/// The bit of the third byte that says that it is an answer.
pub(crate) const IS_ANSWER: u8 = 0x80;
/// The operation, in the third byte; 0 is a question.
const OPERATION: u8 = 0x78;
/// "The server failed", in the fourth byte.
const SERVER_FAILED: u8 = 2;
/// "Refused", there.
const REFUSED: u8 = 5;
/// The class of the Internet; the others ask the resolver for itself (`version.bind`), or for
/// records of any class.
const INTERNET: u16 = 1;
/// Types that are no records: keys and signatures of transactions, transfers of zones and of their
/// changes, mailboxes. "Any" (255), the last, is a question as others are.
const NO_RECORDS: std::ops::RangeInclusive<u16> = 249..=254;
/// A name is at most so long on the wire.
const NAME_MAX: usize = 255;
/// A label is; what begins with more is a pointer, and nothing stands before a question to point at.
const LABEL_MAX: u8 = 63;

/// What is done with a message of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Ask,
    /// It is a question, and it is answered with a refusal here.
    Refuse,
    /// It is none.
    Ignore,
}

/// Looks at a message as far as its first question.
pub(crate) fn judge(message: &[u8]) -> Verdict {
    let is_question = message.len() <= QUESTION_MAX
        && message.len() >= HEADER
        && message
            .get(2)
            .is_some_and(|flags| flags & (IS_ANSWER | OPERATION) == 0);
    if !is_question {
        return Verdict::Ignore;
    }
    match only_question(message) {
        Some((kind, INTERNET)) if !NO_RECORDS.contains(&kind) => Verdict::Ask,
        _ => Verdict::Refuse,
    }
}

/// Type and class of the one question; `None` where there is another number of them, or it cannot be
/// read.
fn only_question(message: &[u8]) -> Option<(u16, u16)> {
    let number = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
    if number(4)? != 1 {
        return None;
    }
    let mut at = HEADER;
    loop {
        let length = *message.get(at)?;
        at += 1 + usize::from(length);
        if length > LABEL_MAX || at > HEADER + NAME_MAX {
            return None;
        }
        if length == 0 {
            return Some((number(at)?, number(at + 2)?));
        }
    }
}

/// Whether it is an answer to this question: the same number at least.
pub(crate) fn answers(question: &[u8], answer: &[u8]) -> bool {
    answer.len() >= HEADER
        && answer.get(..2) == question.get(..2)
        && answer.get(2).is_some_and(|flags| flags & IS_ANSWER != 0)
}

/// The question as an answer that says that the server failed.
pub(crate) fn failed(question: &[u8]) -> Vec<u8> {
    saying(question, SERVER_FAILED)
}

/// The question as an answer that refuses it.
pub(crate) fn refused(question: &[u8]) -> Vec<u8> {
    saying(question, REFUSED)
}

fn saying(question: &[u8], code: u8) -> Vec<u8> {
    let mut answer = question.to_vec();
    if let Some(flags) = answer.get_mut(2) {
        *flags |= IS_ANSWER;
    }
    if let Some(byte) = answer.get_mut(3) {
        *byte = *byte & 0xf0 | code;
    }
    answer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(kind: u16, class: u16) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        out.extend(b"\x06mirror\x07example\0");
        out.extend(kind.to_be_bytes());
        out.extend(class.to_be_bytes());
        out
    }

    #[test]
    fn only_questions_go_on_and_only_their_answers_come_back() {
        let question = question(1, 1);
        assert_eq!(judge(&question), Verdict::Ask);
        let answer = failed(&question);
        assert_eq!(judge(&answer), Verdict::Ignore);
        assert_eq!(judge(&question[..HEADER - 1]), Verdict::Ignore);
        assert!(answers(&question, &answer));
        assert_eq!(answer[3] & 0xf, SERVER_FAILED);
        let mut update = question.clone();
        update[2] = 0x28;
        assert_eq!(judge(&update), Verdict::Ignore);
        let mut other = answer.clone();
        other[0] ^= 1;
        assert!(!answers(&question, &other) && !answers(&question, &question));
    }

    #[test]
    fn transfers_other_classes_and_what_cannot_be_read_are_refused() {
        for kind in [1, 2, 6, 15, 16, 28, 33, 41, 65, 255, 257] {
            assert_eq!(judge(&question(kind, 1)), Verdict::Ask, "type {kind}");
        }
        // IXFR, AXFR, and the rest of what is no record.
        for kind in [251, 252, 249, 250, 253, 254] {
            assert_eq!(judge(&question(kind, 1)), Verdict::Refuse, "type {kind}");
        }
        // CHAOS, Hesiod, none, any.
        for class in [0, 3, 4, 254, 255] {
            assert_eq!(judge(&question(16, class)), Verdict::Refuse, "{class}");
        }
        let whole = question(1, 1);
        for length in HEADER..whole.len() {
            assert_eq!(judge(&whole[..length]), Verdict::Refuse, "{length} bytes");
        }
        for number in [0, 2] {
            let mut other = whole.clone();
            other[5] = number;
            assert_eq!(judge(&other), Verdict::Refuse, "{number} questions");
        }
        let mut pointer = whole.clone();
        pointer[HEADER] = 0xc0;
        assert_eq!(judge(&pointer), Verdict::Refuse);
        let mut long = whole[..HEADER].to_vec();
        for _ in 0..5 {
            long.push(63);
            long.extend([b'a'; 63]);
        }
        long.extend([0, 0, 1, 0, 1]);
        assert_eq!(judge(&long), Verdict::Refuse);
        let refusal = refused(&question(252, 1));
        assert!(answers(&question(252, 1), &refusal));
        assert_eq!(refusal[3] & 0xf, REFUSED);
    }

    proptest! {
        #[test]
        fn whatever_a_guest_sends_is_judged(
            message in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let verdict = judge(&message);
            prop_assert!(message.len() >= HEADER || verdict == Verdict::Ignore);
        }
    }
}
