//! One segment of a pattern against one name.

use super::BadPattern;

/// A character, or a byte that is part of none (above all characters, so that it equals itself
/// only).
type Unit = u32;

const FIRST_BYTE_UNIT: Unit = 0x11_0000;

#[derive(Clone, Debug)]
pub(super) struct Segment(Vec<Token>);

#[derive(Clone, Debug)]
enum Token {
    /// Any characters, none too.
    Star,
    /// Any one character.
    Any,
    One(Unit),
    Class {
        negated: bool,
        ranges: Vec<(Unit, Unit)>,
    },
}

impl Segment {
    pub(super) fn new(text: &[u8]) -> Result<Self, BadPattern> {
        let units = units(text);
        let mut rest = units.as_slice();
        let mut tokens = Vec::new();
        while let Some((first, tail)) = rest.split_first() {
            rest = tail;
            tokens.push(match char::from_u32(*first) {
                Some('*') => Token::Star,
                Some('?') => Token::Any,
                Some('[') => class(&mut rest)?,
                Some('\\') => Token::One(next(&mut rest)?),
                _ => Token::One(*first),
            });
        }
        Ok(Self(tokens))
    }

    /// Whether the whole name matches. One star back is enough: what an earlier star could take
    /// more, the last one can.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let name = units(name);
        let (mut token, mut unit) = (0, 0);
        let mut star = None;
        while let Some(one) = name.get(unit) {
            match self.0.get(token) {
                Some(Token::Star) => {
                    star = Some((token, unit));
                    token += 1;
                }
                Some(other) if other.takes(*one) => {
                    token += 1;
                    unit += 1;
                }
                _ => {
                    let Some((at, taken)) = star else {
                        return false;
                    };
                    star = Some((at, taken + 1));
                    (token, unit) = (at + 1, taken + 1);
                }
            }
        }
        self.0
            .iter()
            .skip(token)
            .all(|token| matches!(token, Token::Star))
    }
}

impl Token {
    fn takes(&self, unit: Unit) -> bool {
        match self {
            Token::Star => false,
            Token::Any => true,
            Token::One(one) => *one == unit,
            Token::Class { negated, ranges } => {
                ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&unit))
                    != *negated
            }
        }
    }
}

/// A class, its `[` taken already.
fn class(rest: &mut &[Unit]) -> Result<Token, BadPattern> {
    let is = |unit: Option<&Unit>, c: char| unit.copied() == Some(u32::from(c));
    let negated = is(rest.first(), '!') || is(rest.first(), '^');
    if negated {
        next(rest)?;
    }
    let mut ranges = Vec::new();
    while !is(rest.first(), ']') {
        let low = class_unit(rest)?;
        // A `-` before the end is one itself.
        let high = match rest {
            [dash, after, ..] if is(Some(dash), '-') && !is(Some(after), ']') => {
                next(rest)?;
                class_unit(rest)?
            }
            _ => low,
        };
        ranges.push((low, high));
    }
    next(rest)?;
    if ranges.is_empty() {
        Err(BadPattern)
    } else {
        Ok(Token::Class { negated, ranges })
    }
}

fn class_unit(rest: &mut &[Unit]) -> Result<Unit, BadPattern> {
    match next(rest)? {
        escape if escape == u32::from('\\') => next(rest),
        unit => Ok(unit),
    }
}

fn next(rest: &mut &[Unit]) -> Result<Unit, BadPattern> {
    let (first, tail) = rest.split_first().ok_or(BadPattern)?;
    *rest = tail;
    Ok(*first)
}

fn units(text: &[u8]) -> Vec<Unit> {
    text.utf8_chunks()
        .flat_map(|chunk| {
            let bytes = chunk
                .invalid()
                .iter()
                .map(|b| FIRST_BYTE_UNIT + u32::from(*b));
            chunk.valid().chars().map(u32::from).chain(bytes)
        })
        .collect()
}
