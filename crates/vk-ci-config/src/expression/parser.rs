//! From tokens to a tree. `==`, `!=`, `=~` and `!~` bind strongest, then `&&`, then `||`; all from
//! left to right.

use super::Wrong;
use super::lexer::{Token, tokens};
use super::pattern::{Pattern, Patterns};
use crate::limit::{MAX_EXPRESSION, MAX_EXPRESSION_DEPTH};

/// An expression.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    /// `null`.
    Null,
    /// A text.
    Text(String),
    /// A variable.
    Variable(String),
    /// A regular expression; stands right of `=~` and `!~` only.
    Pattern(Pattern),
    /// Two parts and what joins them.
    Joined(Box<Expression>, Join, Box<Expression>),
}

/// What joins two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
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
}

/// From the weakest to the strongest.
const LEVELS: [&[(Token, Join)]; 3] = [
    &[(Token::Or, Join::Or)],
    &[(Token::And, Join::And)],
    &[
        (Token::Equals, Join::Equals),
        (Token::NotEquals, Join::NotEquals),
        (Token::Matches, Join::Matches),
        (Token::NotMatches, Join::NotMatches),
    ],
];

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with it.
    pub(crate) fn parse(text: &str, patterns: &mut Patterns) -> Result<Self, Wrong> {
        if text.len() > MAX_EXPRESSION {
            return Err(Wrong {
                at: None,
                what: format!("it has more than {MAX_EXPRESSION} bytes"),
                hint: "split it into several rules",
            });
        }
        let mut parser = Parser {
            tokens: tokens(text, patterns)?.into_iter().peekable(),
            depth: 0,
        };
        let expression = parser.level(&LEVELS)?;
        match parser.tokens.next() {
            None => Ok(expression),
            Some((at, Token::Close)) => Err(Wrong {
                at: Some(at),
                what: "a ) closes nothing".into(),
                hint: "remove it, or open it before",
            }),
            Some((at, _)) => Err(Wrong {
                at: Some(at),
                what: "an operator is missing before this".into(),
                hint: "join two conditions by && or ||",
            }),
        }
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<(usize, Token)>>,
    depth: usize,
}

impl Parser {
    fn level(&mut self, levels: &[&[(Token, Join)]]) -> Result<Expression, Wrong> {
        let Some((joins, stronger)) = levels.split_first() else {
            return self.value();
        };
        let begin = self.tokens.peek().map(|(at, _)| *at);
        let mut left = self.level(stronger)?;
        if let Expression::Pattern(_) = left {
            return Err(stray_pattern(begin));
        }
        while let Some((at, join)) = self.join(joins) {
            let right = self.level(stronger)?;
            let takes_pattern = matches!(join, Join::Matches | Join::NotMatches);
            if matches!(right, Expression::Pattern(_)) && !takes_pattern {
                return Err(stray_pattern(Some(at)));
            }
            left = Expression::Joined(Box::new(left), join, Box::new(right));
        }
        Ok(left)
    }

    fn join(&mut self, joins: &[(Token, Join)]) -> Option<(usize, Join)> {
        let (at, next) = self.tokens.peek()?;
        let same = |token: &Token| std::mem::discriminant(token) == std::mem::discriminant(next);
        let join = joins.iter().find(|(token, _)| same(token))?.1;
        let at = *at;
        self.tokens.next();
        Some((at, join))
    }

    fn value(&mut self) -> Result<Expression, Wrong> {
        match self.tokens.next() {
            Some((_, Token::Null)) => Ok(Expression::Null),
            Some((_, Token::Text(text))) => Ok(Expression::Text(text)),
            Some((_, Token::Variable(name))) => Ok(Expression::Variable(name)),
            Some((_, Token::Pattern(pattern))) => Ok(Expression::Pattern(pattern)),
            Some((at, Token::Open)) => self.group(at),
            Some((at, _)) => Err(Wrong {
                at: Some(at),
                what: "an operator stands where a value must stand".into(),
                hint: "give it a variable, a text or `null` on both sides",
            }),
            None => Err(Wrong {
                at: None,
                what: "it ends where a value must stand".into(),
                hint: "give a variable, a text or `null`",
            }),
        }
    }

    fn group(&mut self, at: usize) -> Result<Expression, Wrong> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_EXPRESSION_DEPTH {
            return Err(Wrong {
                at: Some(at),
                what: format!("it has more than {MAX_EXPRESSION_DEPTH} ( in each other"),
                hint: "split it into several rules",
            });
        }
        let inner = self.level(&LEVELS)?;
        self.depth = self.depth.saturating_sub(1);
        match self.tokens.next() {
            Some((_, Token::Close)) => Ok(inner),
            _ => Err(Wrong {
                at: Some(at),
                what: "a ( is not closed".into(),
                hint: "add the ) that is missing",
            }),
        }
    }
}

fn stray_pattern(at: Option<usize>) -> Wrong {
    Wrong {
        at,
        what: "a regular expression stands elsewhere than right of =~ or !~".into(),
        hint: "write `$NAME =~ /pattern/`",
    }
}
