//! `{a,b}` written out: one pattern becomes a few without braces.

use super::BadPattern;

/// Most alternatives of one pattern.
const MAX_ALTERNATIVES: usize = 1024;

/// All alternatives. Braces nest and may hold slashes.
pub(super) fn expand(pattern: &[u8]) -> Result<Vec<Vec<u8>>, BadPattern> {
    let mut done = Vec::new();
    let mut todo = vec![pattern.to_vec()];
    while let Some(one) = todo.pop() {
        match first_brace(&one)? {
            None => done.push(one),
            Some((before, inner, after)) => {
                let written = alternatives(inner)
                    .into_iter()
                    .map(|alt| [before, alt, after].concat());
                todo.extend(written.rev());
            }
        }
        if done.len() + todo.len() > MAX_ALTERNATIVES {
            return Err(BadPattern);
        }
    }
    Ok(done)
}

type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// What stands before, in and after the first brace that is one: not escaped, not in a class.
fn first_brace(pattern: &[u8]) -> Result<Option<Parts<'_>>, BadPattern> {
    let mut at = 0;
    while let Some(byte) = pattern.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' => at = end_of_class(pattern, at)?,
            b'{' => {
                let (before, rest) = pattern.split_at_checked(at).ok_or(BadPattern)?;
                let rest = rest.get(1..).ok_or(BadPattern)?;
                let close = closing(rest).ok_or(BadPattern)?;
                let (inner, after) = rest.split_at_checked(close).ok_or(BadPattern)?;
                return Ok(Some((before, inner, after.get(1..).unwrap_or_default())));
            }
            _ => {}
        }
        at += 1;
    }
    Ok(None)
}

/// Where the class that begins at `at` ends.
fn end_of_class(pattern: &[u8], at: usize) -> Result<usize, BadPattern> {
    let mut at = at + 1;
    while let Some(byte) = pattern.get(at) {
        match byte {
            b'\\' => at += 1,
            b']' => return Ok(at),
            _ => {}
        }
        at += 1;
    }
    Err(BadPattern)
}

/// Where the brace that was opened before `rest` closes.
fn closing(rest: &[u8]) -> Option<usize> {
    walk(rest)
        .find(|(_, byte, depth)| *byte == b'}' && *depth == 0)
        .map(|(at, _, _)| at)
}

/// The parts between the commas that are not in a nested brace.
fn alternatives(inner: &[u8]) -> Vec<&[u8]> {
    let commas = walk(inner).filter(|(_, byte, depth)| *byte == b',' && *depth == 0);
    let mut parts = Vec::new();
    let mut from = 0;
    for at in commas.map(|(at, _, _)| at).chain([inner.len()]) {
        parts.extend(inner.get(from..at));
        from = at + 1;
    }
    parts
}

/// Each byte that is not escaped, its place, and how many braces are open around it.
fn walk(text: &[u8]) -> impl Iterator<Item = (usize, u8, usize)> {
    let mut depth = 0_usize;
    let mut escaped = false;
    text.iter()
        .copied()
        .enumerate()
        .filter_map(move |(at, byte)| {
            if std::mem::take(&mut escaped) {
                return None;
            }
            match byte {
                b'\\' => {
                    escaped = true;
                    return None;
                }
                b'{' => depth += 1,
                b'}' if depth > 0 => {
                    depth -= 1;
                    return None;
                }
                _ => {}
            }
            Some((at, byte, depth))
        })
}
