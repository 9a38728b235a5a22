//! What a trace holds of some output, by definition: each rule one pass over all that the rules before
//! it left.

use vk_trace::DEFAULT_TOKEN_PREFIXES;

/// Prefixes of the job's own.
pub(crate) const MORE_PREFIXES: [&str; 2] = ["ab-", "abx-"];

const PARAMETERS: [&str; 6] = [
    "private_token",
    "authenticity_token",
    "rss_token",
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
];

/// A byte, or a mask (`None`), which no rule reads as text.
type Symbols = Vec<Option<u8>>;

pub(crate) fn masked(phrases: &[String], bytes: &[u8]) -> Vec<u8> {
    let mut symbols: Symbols = repaired(bytes).bytes().map(Some).collect();
    for phrase in in_order(phrases.iter().map(|phrase| phrase.trim())) {
        symbols = without(&symbols, phrase.as_bytes());
    }
    symbols = without_parameters(&symbols);
    let prefixes = DEFAULT_TOKEN_PREFIXES.into_iter().chain(MORE_PREFIXES);
    for prefix in in_order(prefixes) {
        symbols = without_tokens(&symbols, prefix.as_bytes());
    }
    let shown = symbols.iter().map(|symbol| match symbol {
        Some(byte) => vec![*byte],
        None => b"[MASKED]".to_vec(),
    });
    shown.collect::<Vec<_>>().concat()
}

/// The longest first, equally long ones backwards by bytes.
fn in_order<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = all.filter(|one| !one.is_empty()).collect();
    all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| b.cmp(a)));
    all.dedup();
    all
}

/// STAGE-29: a byte that begins no valid rune is replaced alone.
fn repaired(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while !bytes.is_empty() {
        let rune = (1..=bytes.len().min(4)).find_map(|len| std::str::from_utf8(&bytes[..len]).ok());
        text.push_str(rune.unwrap_or("\u{FFFD}"));
        bytes = &bytes[rune.map_or(1, str::len)..];
    }
    text
}

fn begins(symbols: &[Option<u8>], text: &[u8]) -> bool {
    symbols.len() >= text.len()
        && symbols
            .iter()
            .zip(text)
            .all(|(one, byte)| *one == Some(*byte))
}

fn without(symbols: &[Option<u8>], phrase: &[u8]) -> Symbols {
    let (mut left, mut at) = (Vec::new(), 0);
    while at < symbols.len() {
        if begins(&symbols[at..], phrase) {
            left.push(None);
            at += phrase.len();
        } else {
            left.push(symbols[at]);
            at += 1;
        }
    }
    left
}

/// A value ends before `?`, `&`, white space and controls; an earlier mask is part of it.
fn without_parameters(symbols: &[Option<u8>]) -> Symbols {
    let (mut left, mut at) = (Vec::new(), 0);
    while at < symbols.len() {
        left.push(symbols[at]);
        at += 1;
        let name = match symbols[at - 1] {
            Some(b'?' | b'&') => parameter(&symbols[at..]),
            _ => None,
        };
        if let Some(name) = name {
            left.extend_from_slice(&symbols[at..at + name]);
            at += name;
            left.push(None);
            at += symbols[at..]
                .iter()
                .enumerate()
                .take_while(|(nth, _)| !ends(&symbols[at + nth..]))
                .count();
        }
    }
    left
}

/// Length of a known name with its `=`.
fn parameter(symbols: &[Option<u8>]) -> Option<usize> {
    let name: Vec<u8> = symbols
        .iter()
        .map_while(|one| *one)
        .take_while(|byte| *byte != b'=')
        .collect();
    let is_known = PARAMETERS
        .iter()
        .any(|known| known.as_bytes().eq_ignore_ascii_case(&name));
    (is_known && symbols.get(name.len()) == Some(&Some(b'='))).then_some(name.len() + 1)
}

/// Whether what follows begins with a character that ends a value.
fn ends(symbols: &[Option<u8>]) -> bool {
    let bytes: Vec<u8> = symbols.iter().map_while(|one| *one).take(4).collect();
    let rune = (1..=bytes.len()).find_map(|len| std::str::from_utf8(&bytes[..len]).ok());
    let rune = rune.and_then(|rune| rune.chars().next());
    rune.is_some_and(|rune| matches!(rune, '?' | '&') || rune.is_whitespace() || rune.is_control())
}

/// One or more token bytes behind the prefix become one mask. Earlier masks stay and end no token.
fn without_tokens(symbols: &[Option<u8>], prefix: &[u8]) -> Symbols {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._=".contains(&byte);
    let (mut left, mut at) = (Vec::new(), 0);
    while at < symbols.len() {
        if !begins(&symbols[at..], prefix) {
            left.push(symbols[at]);
            at += 1;
            continue;
        }
        left.extend_from_slice(&symbols[at..at + prefix.len()]);
        at += prefix.len();
        let mut is_masked = false;
        while let Some(symbol) = symbols.get(at).filter(|one| one.is_none_or(is_token)) {
            match symbol {
                None => left.push(None),
                Some(_) if !is_masked => {
                    is_masked = true;
                    left.push(None);
                }
                Some(_) => {}
            }
            at += 1;
        }
    }
    left
}
