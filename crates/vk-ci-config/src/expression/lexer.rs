//! From an expression's text to its tokens.

use super::Wrong;
use super::pattern::{Pattern, Patterns};

/// Most tokens of one expression.
pub(crate) const MAX_TOKENS: usize = 1_000;

/// A token.
#[derive(Debug, Clone)]
pub(crate) enum Token {
    /// `$NAME`.
    Variable(String),
    /// `"text"` or `'text'`.
    Text(String),
    /// `/pattern/flags`.
    Pattern(Pattern),
    /// `null`.
    Null,
    /// `==`.
    Equals,
    /// `!=`.
    NotEquals,
    /// `=~`.
    Matches,
    /// `!~`.
    NotMatches,
    /// `&&`.
    And,
    /// `||`.
    Or,
    /// `(`.
    Open,
    /// `)`.
    Close,
}

/// Reads all tokens, each with the place of its first character, from 1.
pub(crate) fn tokens(text: &str, patterns: &mut Patterns) -> Result<Vec<(usize, Token)>, Wrong> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let at = place(text, rest);
        if tokens.len() == MAX_TOKENS {
            let what = format!("it has more than {MAX_TOKENS} parts");
            return Err(wrong(at, what, "split it into several rules"));
        }
        let (token, after) = token(at, rest, patterns)?;
        tokens.push((at, token));
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// The number of the character with which `rest`, the end of `text`, begins.
fn place(text: &str, rest: &str) -> usize {
    let before = text.len().saturating_sub(rest.len());
    let chars = text.char_indices().take_while(|(at, _)| *at < before);
    chars.count().saturating_add(1)
}

fn wrong(at: usize, what: impl Into<String>, hint: &'static str) -> Wrong {
    Wrong {
        at: Some(at),
        what: what.into(),
        hint,
    }
}

const OPERATORS: [(&str, Token); 9] = [
    ("==", Token::Equals),
    ("=~", Token::Matches),
    ("!=", Token::NotEquals),
    ("!~", Token::NotMatches),
    ("&&", Token::And),
    ("||", Token::Or),
    ("(", Token::Open),
    (")", Token::Close),
    ("null", Token::Null),
];

/// The first token of `rest`, which is not empty, and what follows.
fn token<'a>(at: usize, rest: &'a str, patterns: &mut Patterns) -> Result<(Token, &'a str), Wrong> {
    for (sign, token) in OPERATORS {
        if let Some(after) = rest.strip_prefix(sign) {
            return Ok((token, after));
        }
    }
    if let Some(after) = rest.strip_prefix('$') {
        return variable(at, after);
    }
    if let Some(after) = rest.strip_prefix('/') {
        return pattern(at, after, patterns);
    }
    for quote in ['"', '\''] {
        if let Some(after) = rest.strip_prefix(quote) {
            return text(at, after, quote);
        }
    }
    Err(unknown(at, rest))
}

fn variable(at: usize, after: &str) -> Result<(Token, &str), Wrong> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
    match after.split_at_checked(end) {
        Some((name, rest)) if !name.is_empty() => Ok((Token::Variable(name.into()), rest)),
        _ if after.starts_with("[[") => {
            let what = "inputs (`$[[ … ]]`) are not supported here";
            Err(wrong(at, what, "use a variable"))
        }
        _ => {
            let what = "a `$` stands without the name of a variable after it";
            Err(wrong(at, what, "write `$NAME`, without braces"))
        }
    }
}

fn text(at: usize, after: &str, quote: char) -> Result<(Token, &str), Wrong> {
    match after.split_once(quote) {
        Some((text, rest)) if !text.contains('\n') => Ok((Token::Text(text.into()), rest)),
        _ => {
            let what = format!("a text begins with {quote} and does not end in its line");
            Err(wrong(at, what, "close it; there is no escape for a quote"))
        }
    }
}

/// A pattern ends at the first `/` without a `\` before it; GitLab wants two characters or more.
fn pattern<'a>(
    at: usize,
    after: &'a str,
    patterns: &mut Patterns,
) -> Result<(Token, &'a str), Wrong> {
    let mut before = '/';
    let end = after.char_indices().find_map(|(index, c)| {
        let ends = c == '/' && before != '\\';
        before = c;
        ends.then_some(index)
    });
    let Some((body, rest)) = end.and_then(|end| after.split_at_checked(end)) else {
        let what = "a regular expression begins with / and does not end";
        return Err(wrong(at, what, "close it with /; inside it, write \\/"));
    };
    if body.chars().nth(1).is_none() {
        let what = "GitLab takes no regular expression of less than two characters";
        return Err(wrong(
            at,
            what,
            "compare with == or write it longer, as in /[a]/",
        ));
    }
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let is_flag = |c: char| matches!(c, 'i' | 's' | 'm' | 'U');
    let flags = rest.find(|c: char| !is_flag(c)).unwrap_or(rest.len());
    let (flags, rest) = rest.split_at_checked(flags).unwrap_or((rest, ""));
    let pattern = patterns.pattern(body, flags).map_err(|what| {
        let hint = "GitLab's regular expressions are those of RE2";
        wrong(at, format!("this is no regular expression: {what}"), hint)
    })?;
    Ok((Token::Pattern(pattern), rest))
}

fn unknown(at: usize, rest: &str) -> Wrong {
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    match word.as_str() {
        "true" | "false" => {
            let what = format!("`{word}` is a word without quotes; a variable is always text");
            wrong(at, what, "put it into quotes")
        }
        "" if rest.starts_with('!') => {
            let what = "`!` alone is no operator";
            wrong(at, what, "use != or !~, or turn the condition around")
        }
        "" => {
            let sign: String = rest.chars().take(1).collect();
            let what = format!("`{sign}` is no operator and begins no value");
            wrong(at, what, "the operators are == != =~ !~ && || and ( )")
        }
        _ => {
            let what = format!("`{word}` stands without quotes");
            wrong(
                at,
                what,
                "put a text into quotes, write a variable as `$NAME`",
            )
        }
    }
}
