//! Path patterns as doublestar v4 reads them, which is what GitLab's users write (GUEST-09).
//!
//! `*` and `?` do not cross `/`; `**` as a whole segment matches any number of segments, none too,
//! so that `a/**` matches `a`; `{a,b}` is either; `[a-z]`, `[!a]` and `[^a]` are classes; `\` takes
//! the next character as it is. Names that begin with a dot are like any other.

mod braces;
mod path;
mod segment;

pub(crate) use path::{has_meta, relative, split_pattern, unescaped};

use segment::Segment;

/// A pattern that cannot be read: a class or a brace without its end, a class of nothing, a `\` at
/// the end, or more alternatives than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPattern;

/// A pattern over paths without `.`, `..`, empty segments and a slash at either end.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    alternatives: Vec<Vec<Part>>,
}

#[derive(Clone, Debug)]
enum Part {
    /// Any number of segments.
    Any,
    One(Segment),
}

/// How far a path has come along a pattern: for each alternative, the parts that may come next.
#[derive(Clone, Debug)]
pub(crate) struct State(Vec<Vec<bool>>);

impl Pattern {
    /// Reads a pattern.
    pub(crate) fn new(pattern: &[u8]) -> Result<Self, BadPattern> {
        let alternatives = braces::expand(pattern)?;
        let alternatives = alternatives.iter().map(|one| parts(one));
        Ok(Self {
            alternatives: alternatives.collect::<Result<_, _>>()?,
        })
    }

    /// Before the first segment.
    pub(crate) fn start(&self) -> State {
        let first = |parts: &Vec<Part>| {
            let mut places = vec![false; parts.len() + 1];
            reach(parts, &mut places, 0);
            places
        };
        State(self.alternatives.iter().map(first).collect())
    }

    /// After one more segment.
    pub(crate) fn step(&self, state: &State, name: &[u8]) -> State {
        let both = self.alternatives.iter().zip(&state.0);
        State(
            both.map(|(parts, places)| step(parts, places, name))
                .collect(),
        )
    }

    /// Whether the whole path matches.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        names
            .fold(self.start(), |state, name| self.step(&state, name))
            .accepts()
    }
}

impl State {
    /// Whether the path so far matches.
    pub(crate) fn accepts(&self) -> bool {
        self.0.iter().any(|places| places.last() == Some(&true))
    }

    /// Whether a longer path may match.
    pub(crate) fn goes_on(&self) -> bool {
        self.0
            .iter()
            .any(|places| places.iter().rev().skip(1).any(|place| *place))
    }
}

fn parts(pattern: &[u8]) -> Result<Vec<Part>, BadPattern> {
    path::segments(pattern)
        .map(|text| {
            if text == b"**" {
                Ok(Part::Any)
            } else {
                Segment::new(text).map(Part::One)
            }
        })
        .collect()
}

/// Marks a place, and those after it that need no segment.
fn reach(parts: &[Part], places: &mut [bool], at: usize) {
    for (place, part) in places
        .iter_mut()
        .zip(parts.iter().map(Some).chain([None]))
        .skip(at)
    {
        *place = true;
        if !matches!(part, Some(Part::Any)) {
            return;
        }
    }
}

fn step(parts: &[Part], places: &[bool], name: &[u8]) -> Vec<bool> {
    let mut next = vec![false; places.len()];
    for (at, part) in parts
        .iter()
        .enumerate()
        .filter(|(at, _)| places.get(*at) == Some(&true))
    {
        match part {
            Part::Any => reach(parts, &mut next, at),
            Part::One(segment) if segment.matches(name) => reach(parts, &mut next, at + 1),
            Part::One(_) => {}
        }
    }
    next
}

#[cfg(test)]
mod tests;
