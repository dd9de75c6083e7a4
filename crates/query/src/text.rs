//! The text form of queries, for command lines and messages.
//!
//! ```text
//! [select ITEM [as NAME], ...] from [only] CLASS [where CONDITION]
//!     [group by KEY, ...] [order by KEY [asc|desc] [nulls first|last], ...] [skip N] [limit N]
//! ```
//!
//! A tokenizer and a parser by binding power (Pratt) read it; docs/decisions/query.md compares them with libraries.
//! [`Display`](std::fmt::Display) writes it, and parsing that text gives the same query. Errors of [`Query::parse`] and
//! [`Query::check`] show the text with carets under the wrong part. For errors of the check the text is written from
//! the tree, so a query that was never a text has a place to point at.

mod lexer;
mod parser;
mod print;

use std::fmt::Write;

use model::{Error, ErrorKind, Result};

use crate::{Expr, Query, limits};
use parser::Parser;

pub(crate) use print::locate;

impl Query {
    /// Parses a query: `from Person where age > 30 order by name limit 10`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with the place if the text is not a query, [`ErrorKind::TooLarge`] past one of [`limits`].
    pub fn parse(text: &str) -> Result<Self> {
        check_size(Parser::new(text)?.query(None)?)
    }

    /// Parses the part of a query after its class, where the class is known: `age > 30 order by name limit 10`, or
    /// `select max(age) where name.startsWith("A")`, or nothing.
    ///
    /// # Errors
    /// As [`Query::parse`].
    pub fn parse_of(class: &str, text: &str) -> Result<Self> {
        check_size(Parser::new(text)?.query(Some(class))?)
    }
}

impl Expr {
    /// Parses a condition or a value: `boss.age + 1 > 30`.
    ///
    /// # Errors
    /// As [`Query::parse`].
    pub fn parse(text: &str) -> Result<Self> {
        let query = check_size(Query::of("").filter(Parser::new(text)?.whole_expr()?))?;
        query.condition.ok_or_else(|| Error::new(ErrorKind::Internal, "the parser returned no condition"))
    }
}

/// An error at a place of a text: the message, the line, and a caret under the place.
pub(crate) fn error_at(text: &str, place: std::ops::Range<usize>, message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::Invalid, format!("{}\n{}", message.as_ref(), quote(text, place)))
}

/// The line of a text that a place is in, with carets under the place. Long lines are cut on both sides.
fn quote(text: &str, place: std::ops::Range<usize>) -> String {
    /// Characters that are shown before and after the place.
    const AROUND: usize = 60;
    let start = text[..place.start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[place.start..].find('\n').map_or(text.len(), |newline| place.start + newline);
    let (before, from_place) = (&text[start..place.start], &text[place.start..end]);
    let skipped = before.chars().count().saturating_sub(AROUND);
    let mut line = if skipped > 0 { "…".to_owned() } else { String::new() };
    line.extend(before.chars().skip(skipped).map(visible));
    let indent = line.chars().count();
    let marked = text[place.start..place.end.clamp(place.start, end)].chars().count().clamp(1, AROUND);
    line.extend(from_place.chars().take(marked + AROUND).map(visible));
    if from_place.chars().nth(marked + AROUND).is_some() {
        line.push('…');
    }
    let mut out = format!("  {line}\n  ");
    // Writing to a string does not fail.
    let _ = write!(out, "{:indent$}{:^<marked$}", "", "");
    out
}

/// The replacement of a character in a line of a message.
fn visible(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// Whether a text can stand as a name without quotes.
fn is_plain(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(lexer::starts_name) && characters.all(lexer::continues_name)
}

/// Words that cannot stand as the first name of a path, in lower or upper case.
const RESERVED: [&str; 24] = [
    "select", "from", "only", "where", "group", "order", "by", "asc", "desc", "nulls", "skip", "offset", "limit", "as",
    "and", "or", "not", "in", "null", "true", "false", "this", "nan", "infinity",
];

/// Whether a plain name is a word with a meaning of its own.
fn is_reserved(name: &str) -> bool {
    matches!(name, "NaN" | "Infinity") || RESERVED.iter().any(|word| is_word(name, word))
}

/// Whether a name is this word, in lower or upper case.
fn is_word(name: &str, word: &str) -> bool {
    name == word
        || (name.len() == word.len() && name.bytes().zip(word.bytes()).all(|(a, b)| a == b.to_ascii_uppercase()))
}

/// A query that is not too large; a long sum is deep, although its text is not.
fn check_size(query: Query) -> Result<Query> {
    query.encode().map(|_| query)
}

fn too_long(len: usize) -> Error {
    let most = limits::QUERY;
    Error::new(ErrorKind::TooLarge, format!("the text of a query may have {most} bytes; this one has {len}"))
}

#[cfg(test)]
mod tests;
