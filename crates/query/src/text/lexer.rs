//! Tokens of the text form.

use std::ops::Range;

use model::Result;

use super::error_at;

/// A token and its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'t> {
    pub(super) kind: TokenKind<'t>,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind<'t> {
    /// A name or a word.
    Name(&'t str),
    /// A name in backticks, which is never a word.
    Quoted(String),
    /// A number without its sign.
    Number(&'t str),
    /// A text.
    Text(String),
    /// A quoted text with a prefix `x`, `d` or `t`.
    Prefixed(char, String),
    /// An identifier of an object, without `@`.
    Reference(&'t str),
    /// `:name`, without the colon.
    Parameter(&'t str),
    /// An operator or a bracket.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// Longer operators precede their prefixes.
const SIGNS: [&str; 24] = [
    "=>", "==", "!=", "<>", "<=", ">=", "&&", "||", "=", "!", "<", ">", "&", "|", "+", "-", "*", "/", "%", "(", ")",
    "[", "]", ",",
];

pub(super) fn starts_name(character: char) -> bool {
    character.is_alphabetic() || matches!(character, '_' | '$')
}

pub(super) fn continues_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$')
}

/// The tokens of a text, the last of which is its end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        let end = token.kind == TokenKind::End;
        tokens.push(token);
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn token(&mut self) -> Result<Token<'t>> {
        self.take_while(char::is_whitespace);
        let start = self.at;
        let kind = self.kind()?;
        Ok(Token { kind, span: start..self.at })
    }

    fn kind(&mut self) -> Result<TokenKind<'t>> {
        let (start, rest) = (self.at, &self.text[self.at..]);
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return Ok(TokenKind::End) };
        match (first, characters.next()) {
            ('"' | '\'', _) => self.read_quoted().map(TokenKind::Text),
            ('`', _) => self.read_quoted().map(TokenKind::Quoted),
            ('x' | 'd' | 't', Some('"' | '\'')) => {
                self.at += 1;
                Ok(TokenKind::Prefixed(first, self.read_quoted()?))
            }
            ('0'..='9', _) => Ok(TokenKind::Number(self.number())),
            ('.', _) => {
                self.at += 1;
                Ok(TokenKind::Sign("."))
            }
            ('@', _) => {
                self.at += 1;
                Ok(TokenKind::Reference(self.oid()))
            }
            (':', Some(next)) if starts_name(next) => {
                self.at += 1;
                Ok(TokenKind::Parameter(self.take_while(continues_name)))
            }
            _ if starts_name(first) => Ok(TokenKind::Name(self.take_while(continues_name))),
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Ok(TokenKind::Sign(sign))
                }
                None => {
                    let place = start..start + first.len_utf8();
                    Err(error_at(self.text, place, format!("{first:?} has no meaning in a query")))
                }
            },
        }
    }

    fn take_while(&mut self, takes: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[self.at..];
        let taken = &rest[..rest.find(|c| !takes(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Up to five parts. A dot after the last part is another token.
    fn oid(&mut self) -> &'t str {
        let start = self.at;
        self.take_while(|c| c == '~');
        for dot in [true, true, true, true, false] {
            self.take_while(|c| c.is_ascii_hexdigit());
            if dot && self.text[self.at..].starts_with('.') {
                self.at += 1;
            }
        }
        &self.text[start..self.at]
    }

    /// Digits, a point with digits, an exponent, and `f` for floating point. A point without digits is another token.
    fn number(&mut self) -> &'t str {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        let digit_at =
            |lexer: &Self, offset| lexer.text.as_bytes().get(lexer.at + offset).is_some_and(u8::is_ascii_digit);
        if self.text[self.at..].starts_with('.') && digit_at(self, 1) {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.text[self.at..].starts_with(['e', 'E']) {
            let sign = usize::from(self.text[self.at + 1..].starts_with(['+', '-']));
            if digit_at(self, 1 + sign) {
                self.at += 1 + sign;
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        if self.text[self.at..].starts_with('f') {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// The content of the quotes that begin here. A backslash escapes.
    fn read_quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut characters = self.text[start..].char_indices().map(|(at, character)| (start + at, character));
        let quote = characters.next().map(|(_, quote)| quote);
        let mut out = String::new();
        let error = |place: Range<usize>, message: &str| Err(error_at(self.text, place, message));
        loop {
            match characters.next() {
                None => return error(start..self.text.len(), "these quotes are not closed"),
                Some((at, character)) if Some(character) == quote => {
                    self.at = at + character.len_utf8();
                    return Ok(out);
                }
                Some((at, '\\')) => {
                    let escaped = characters.next().map(|(_, escaped)| escaped);
                    match escaped {
                        Some('n') => out.push('\n'),
                        Some('t') => out.push('\t'),
                        Some('r') => out.push('\r'),
                        Some(same @ ('\\' | '"' | '\'' | '`')) => out.push(same),
                        Some('u') => {
                            let digits: String =
                                characters.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
                            let code = digits.strip_prefix('{').and_then(|digits| u32::from_str_radix(digits, 16).ok());
                            match code.and_then(char::from_u32) {
                                Some(character) => out.push(character),
                                None => return error(at..at + 2, "a character with a number is written as \\u{e9}"),
                            }
                        }
                        other => {
                            let len = 1 + other.map_or(0, char::len_utf8);
                            return error(at..at + len, "a backslash must be followed by one of \\ \" ' ` n t r u{…}");
                        }
                    }
                }
                Some((_, character)) => out.push(character),
            }
        }
    }
}
