//! Parses queries by binding power over the tokens.

use std::ops::Range;

use bytes::Bytes;
use model::{Comparison, Decimal, Error, ErrorKind, Oid, Result, Value};

use super::lexer::{Token, TokenKind, tokens};
use super::{error_at, is_reserved, is_word, too_long};
use crate::{Aggregate, Arithmetic, Expr, Function, Item, OrderKey, Query, limits};

pub(super) struct Parser<'t> {
    text: &'t str,
    /// Never empty: the last is the end.
    tokens: Vec<Token<'t>>,
    at: usize,
}

/// Binding powers of operators; a higher one binds more tightly.
pub(super) mod power {
    pub(in crate::text) const NONE: u8 = 0;
    pub(in crate::text) const OR: u8 = 1;
    pub(in crate::text) const AND: u8 = 2;
    pub(in crate::text) const NOT: u8 = 3;
    pub(in crate::text) const COMPARE: u8 = 4;
    pub(in crate::text) const SUM: u8 = 5;
    pub(in crate::text) const PRODUCT: u8 = 6;
    pub(in crate::text) const PREFIX: u8 = 7;
    pub(in crate::text) const POSTFIX: u8 = 8;
    pub(in crate::text) const WHOLE: u8 = 9;
}

/// An operator between two operands.
enum Infix {
    Or,
    And,
    Compare(Comparison),
    In,
    Arithmetic(Arithmetic),
}

impl Infix {
    fn power(&self) -> u8 {
        match self {
            Self::Or => power::OR,
            Self::And => power::AND,
            Self::Compare(_) | Self::In => power::COMPARE,
            Self::Arithmetic(Arithmetic::Add | Arithmetic::Subtract) => power::SUM,
            Self::Arithmetic(_) => power::PRODUCT,
        }
    }
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self> {
        if text.len() > limits::QUERY {
            return Err(too_long(text.len()));
        }
        Ok(Self { text, tokens: tokens(text)?, at: 0 })
    }

    /// A whole query. With `class` the text has no `from`.
    pub(super) fn query(&mut self, class: Option<&str>) -> Result<Query> {
        let mut query = Query::of(class.unwrap_or_default());
        if self.eat_word("select") {
            query.select = self.list(limits::COLUMNS, Self::item)?;
        }
        if class.is_none() {
            if !self.eat_word("from") {
                return Err(self.expected_error("`from` and a class"));
            }
            query.only = self.eat_word("only");
            query.class = self.class()?;
        } else if self.is_at("from") {
            let class = &query.class;
            return Err(
                self.error(format!("the class {class} is given apart from the text: leave `from` and the class out"))
            );
        }
        // Without `from`, `where` may be omitted.
        let bare = class.is_some() && query.select.is_empty() && !self.is_at_clause();
        if self.eat_word("where") || bare {
            query.condition = Some(self.expr()?);
        }
        self.clauses(&mut query)?;
        self.expect_end("an operator, `group by`, `order by`, `skip`, `limit` or the end")?;
        Ok(query)
    }

    /// A text that is a single condition or value.
    pub(super) fn whole_expr(&mut self) -> Result<Expr> {
        let expr = self.expr()?;
        self.expect_end("an operator or the end")?;
        Ok(expr)
    }

    fn clauses(&mut self, query: &mut Query) -> Result<()> {
        if self.eat_word("group") {
            self.expect_word("by")?;
            query.group = self.list(limits::COLUMNS, Self::expr)?;
        }
        if self.eat_word("order") {
            self.expect_word("by")?;
            query.order = self.list(limits::ORDER, Self::order_key)?;
        }
        if self.eat_word("skip") || self.eat_word("offset") {
            query.skip = self.count()?;
        }
        if self.eat_word("limit") {
            query.limit = Some(self.count()?);
        }
        Ok(())
    }

    fn item(&mut self) -> Result<Item> {
        let expr = self.expr()?;
        let name = if self.eat_word("as") { Some(self.name("a name for the column")?) } else { None };
        Ok(Item { expr, name })
    }

    fn order_key(&mut self) -> Result<OrderKey> {
        let expr = self.expr()?;
        let descending = self.eat_word("desc");
        if !descending {
            self.eat_word("asc");
        }
        let nulls_first = if !self.eat_word("nulls") {
            None
        } else if self.eat_word("first") {
            Some(true)
        } else {
            self.expect_word("last").map_err(|_| self.expected_error("`first` or `last`"))?;
            Some(false)
        };
        Ok(OrderKey { expr, descending, nulls_first })
    }

    fn class(&mut self) -> Result<String> {
        let mut class = self.name("the name of a class")?;
        while self.eat(".") {
            class.push('.');
            class += &self.name("the rest of the class's name")?;
        }
        Ok(class)
    }

    fn count(&mut self) -> Result<u64> {
        let number = match self.kind() {
            TokenKind::Number(digits) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected_error("a number of objects"))?;
        self.at += 1;
        Ok(number)
    }

    fn list<T>(&mut self, most: usize, one: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![one(self)?];
        while self.eat(",") {
            if items.len() == most {
                return Err(self.error(format!("at most {most} are allowed here")));
            }
            items.push(one(self)?);
        }
        Ok(items)
    }

    fn expr(&mut self) -> Result<Expr> {
        self.parse_binary(power::NONE, limits::NESTING)
    }

    /// An operand and all following operators that bind more tightly than `least`.
    fn parse_binary(&mut self, least: u8, levels: usize) -> Result<Expr> {
        let Some(below) = levels.checked_sub(1) else { return Err(self.depth_error()) };
        let mut left = self.prefix(below)?;
        // Each operator makes the tree deeper, as in 1 + 1 + 1.
        for _ in 0..=limits::NESTING {
            let start = self.span();
            let Some(infix) = self.infix().filter(|infix| infix.power() > least) else { return Ok(left) };
            self.at += 1;
            let right = self.parse_binary(infix.power(), below)?;
            left = match infix {
                Infix::Or => self.chain(left, right, power::OR, below).map(Expr::Or)?,
                Infix::And => self.chain(left, right, power::AND, below).map(Expr::And)?,
                Infix::Compare(comparison) => left.compare(comparison, right),
                Infix::In => right.call(Function::Contains, [left]),
                Infix::Arithmetic(operation) => Expr::Arithmetic(operation, Box::new(left), Box::new(right)),
            };
            if infix.power() == power::COMPARE && self.infix().is_some_and(|next| next.power() == power::COMPARE) {
                let message = "comparisons do not chain: join two of them with &&";
                return Err(error_at(self.text, start.start..self.span().end, message));
            }
        }
        Err(self.depth_error())
    }

    fn depth_error(&self) -> Error {
        let error = self.error(format!("this is nested more than {} deep", limits::NESTING));
        Error::new(ErrorKind::TooLarge, error.message())
    }

    /// All operands of a chain of one operator.
    fn chain(&mut self, first: Expr, second: Expr, power: u8, levels: usize) -> Result<Vec<Expr>> {
        let mut parts = vec![first, second];
        while self.infix().is_some_and(|infix| infix.power() == power) {
            self.at += 1;
            parts.push(self.parse_binary(power, levels)?);
        }
        Ok(parts)
    }

    fn infix(&self) -> Option<Infix> {
        Some(match self.kind() {
            TokenKind::Sign(sign) => match *sign {
                "||" | "|" => Infix::Or,
                "&&" | "&" => Infix::And,
                "==" | "=" => Infix::Compare(Comparison::Equal),
                "!=" | "<>" => Infix::Compare(Comparison::NotEqual),
                "<" => Infix::Compare(Comparison::Less),
                "<=" => Infix::Compare(Comparison::LessOrEqual),
                ">" => Infix::Compare(Comparison::Greater),
                ">=" => Infix::Compare(Comparison::GreaterOrEqual),
                "+" => Infix::Arithmetic(Arithmetic::Add),
                "-" => Infix::Arithmetic(Arithmetic::Subtract),
                "*" => Infix::Arithmetic(Arithmetic::Multiply),
                "/" => Infix::Arithmetic(Arithmetic::Divide),
                "%" => Infix::Arithmetic(Arithmetic::Remainder),
                _ => return None,
            },
            TokenKind::Name(name) if is_word(name, "or") => Infix::Or,
            TokenKind::Name(name) if is_word(name, "and") => Infix::And,
            TokenKind::Name(name) if is_word(name, "in") => Infix::In,
            _ => return None,
        })
    }

    fn prefix(&mut self, levels: usize) -> Result<Expr> {
        if self.eat("!") {
            return Ok(self.parse_binary(power::PREFIX, levels)?.negate());
        }
        if self.eat_word("not") {
            return Ok(self.parse_binary(power::NOT, levels)?.negate());
        }
        if self.eat("-") {
            // A sign belongs to the number that follows it, unless a function of the number follows.
            let method = self.tokens.get(self.at + 1).is_some_and(|token| token.kind == TokenKind::Sign("."));
            return match self.kind() {
                TokenKind::Number(digits) if !method => {
                    let literal = self.number(true, digits);
                    self.at += 1;
                    literal
                }
                TokenKind::Name("Infinity") => {
                    self.at += 1;
                    Ok(Expr::value(f64::NEG_INFINITY))
                }
                _ => Ok(Expr::Negate(Box::new(self.parse_binary(power::PREFIX, levels)?))),
            };
        }
        let mut expr = self.operand(levels)?;
        for _ in 0..=limits::PATH + limits::NESTING {
            if !self.eat(".") {
                return Ok(expr);
            }
            expr = self.parse_postfix(expr, levels)?;
        }
        Err(self.depth_error())
    }

    /// What follows a dot: a function of the expression before it, or the next name of a path.
    fn parse_postfix(&mut self, before: Expr, levels: usize) -> Result<Expr> {
        let place = self.span();
        let name = self.name("the name of a field or function")?;
        if !self.eat("(") {
            return match before {
                Expr::Path(mut names) if names.len() < limits::PATH => {
                    names.push(name);
                    Ok(Expr::Path(names))
                }
                Expr::Path(_) => Err(error_at(self.text, place, format!("a path has {} names at most", limits::PATH))),
                _ => Err(error_at(self.text, place, "only paths have fields; a function is written with ( )")),
            };
        }
        if name == "any" {
            let variable = self.name("a name for the element, as in any(x => x.age > 3)")?;
            self.expect_sign("=>")?;
            let condition = Box::new(self.parse_binary(power::NONE, levels)?);
            self.expect_sign(")")?;
            return Ok(Expr::Any { collection: Box::new(before), variable, condition });
        }
        let Some(function) = Function::from_name(&name) else {
            let names = Function::ALL.map(Function::name).join(", ");
            return Err(error_at(self.text, place, format!("there is no function {name}; there are {names} and any")));
        };
        Ok(before.call(function, self.arguments(")", levels)?))
    }

    fn operand(&mut self, levels: usize) -> Result<Expr> {
        let Token { kind, span: place } = self.token().clone();
        self.at += 1;
        let literal = |value: Result<Value>| {
            value.map(Expr::Literal).map_err(|error| error_at(self.text, place.clone(), error.message()))
        };
        match kind {
            TokenKind::Sign("(") => {
                let expr = self.parse_binary(power::NONE, levels)?;
                self.expect_sign(")")?;
                Ok(expr)
            }
            TokenKind::Sign("[") => Ok(Expr::List(self.arguments("]", levels)?)),
            TokenKind::Number(digits) => {
                self.at -= 1;
                let number = self.number(false, digits);
                self.at += 1;
                number
            }
            TokenKind::Text(text) => Ok(Expr::value(text)),
            TokenKind::Prefixed('d', text) => literal(text.parse().map(Value::Date)),
            TokenKind::Prefixed('t', text) => literal(text.parse().map(Value::Timestamp)),
            TokenKind::Prefixed(_, text) => match bytes(&text) {
                Some(bytes) => Ok(Expr::Literal(Value::Bytes(bytes))),
                None => Err(error_at(self.text, place, "bytes are written as pairs of hexadecimal digits: x'0aff'")),
            },
            TokenKind::Reference(oid) => match oid.parse::<Oid>() {
                Ok(oid) => Ok(Expr::value(oid)),
                Err(error) => Err(error_at(self.text, place, error.to_string())),
            },
            TokenKind::Parameter(name) => Ok(Expr::parameter(name)),
            TokenKind::Quoted(name) => Ok(Expr::Path(vec![name])),
            TokenKind::Name(name) => self.word_or_path(name, &place, levels),
            TokenKind::Sign(_) | TokenKind::End => {
                self.at -= 1;
                Err(self.expected_error("a field, a value, a parameter or ( )"))
            }
        }
    }

    fn word_or_path(&mut self, name: &str, place: &Range<usize>, levels: usize) -> Result<Expr> {
        if self.eat("(") {
            return self.call(name, place, levels);
        }
        Ok(match name {
            "NaN" => Expr::value(f64::NAN),
            "Infinity" => Expr::value(f64::INFINITY),
            _ if is_word(name, "null") => Expr::Literal(Value::Null),
            _ if is_word(name, "true") => Expr::value(true),
            _ if is_word(name, "false") => Expr::value(false),
            _ if is_word(name, "this") => Expr::this(),
            _ if is_reserved(name) => {
                let message = format!("`{name}` is a word of the language: write a field of that name in backticks");
                return Err(error_at(self.text, place.clone(), message));
            }
            _ => Expr::Path(vec![name.to_owned()]),
        })
    }

    /// `count(*)`, `sum(age)`, and functions that are written before their argument: `lower(name)`.
    fn call(&mut self, name: &str, place: &Range<usize>, levels: usize) -> Result<Expr> {
        let lower = name.to_ascii_lowercase();
        if let Some(aggregate) = Aggregate::from_name(&lower) {
            if aggregate == Aggregate::Count && self.eat("*") {
                self.expect_sign(")")?;
                return Ok(Expr::Aggregate(aggregate, None));
            }
            if self.eat(")") {
                let message = format!("{lower} needs an argument, as in {lower}(age); objects are counted by count(*)");
                return Err(error_at(self.text, place.clone(), message));
            }
            let of = self.parse_binary(power::NONE, levels)?;
            self.expect_sign(")")?;
            return Ok(Expr::Aggregate(aggregate, Some(Box::new(of))));
        }
        let Some(function) = Function::from_name(name) else {
            let names = Function::ALL.map(Function::name).join(", ");
            let aggregates = Aggregate::ALL.map(Aggregate::name).join(", ");
            let message = format!("there is no function {name}; there are {names}, {aggregates}");
            return Err(error_at(self.text, place.clone(), message));
        };
        let mut arguments = self.arguments(")", levels)?;
        if arguments.is_empty() {
            return Err(error_at(self.text, place.clone(), format!("{name} needs an argument")));
        }
        let of = arguments.remove(0);
        Ok(of.call(function, arguments))
    }

    /// Values with commas between them, up to a closing bracket.
    fn arguments(&mut self, close: &'static str, levels: usize) -> Result<Vec<Expr>> {
        let mut arguments = Vec::new();
        if self.eat(close) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.parse_binary(power::NONE, levels)?);
            if !self.eat(",") {
                self.expect_sign(close)?;
                return Ok(arguments);
            }
        }
    }

    /// A number: with a point or an exponent a decimal, with `f` behind it a floating-point number, else an integer.
    fn number(&self, negative: bool, digits: &str) -> Result<Expr> {
        let sign = if negative { "-" } else { "" };
        if let Some(digits) = digits.strip_suffix('f')
            && let Ok(number) = format!("{sign}{digits}").parse::<f64>()
        {
            return Ok(Expr::value(number));
        }
        let signed = format!("{sign}{digits}");
        if let Ok(number) = signed.parse::<i64>() {
            return Ok(Expr::value(number));
        }
        let decimal: Result<Decimal> = signed.parse();
        decimal.map(Expr::value).map_err(|error| self.error(error.message()))
    }

    fn name(&mut self, what: &str) -> Result<String> {
        let name = match self.kind() {
            TokenKind::Name(name) => (*name).to_owned(),
            TokenKind::Quoted(name) => name.clone(),
            _ => return Err(self.expected_error(what)),
        };
        if name.is_empty() || name.len() > limits::NAME {
            return Err(self.error(format!("a name has 1 to {} bytes", limits::NAME)));
        }
        self.at += 1;
        Ok(name)
    }

    fn token(&self) -> &Token<'t> {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn kind(&self) -> &TokenKind<'t> {
        &self.token().kind
    }

    fn span(&self) -> Range<usize> {
        self.token().span.clone()
    }

    /// Whether the next token begins a clause after the condition, or is the end.
    fn is_at_clause(&self) -> bool {
        match self.kind() {
            TokenKind::End => true,
            TokenKind::Name(name) => {
                ["where", "group", "order", "skip", "offset", "limit"].iter().any(|word| is_word(name, word))
            }
            _ => false,
        }
    }

    fn eat(&mut self, sign: &str) -> bool {
        let takes = matches!(self.kind(), TokenKind::Sign(here) if *here == sign);
        self.at += usize::from(takes);
        takes
    }

    fn is_at(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Name(name) if is_word(name, word))
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let takes = self.is_at(word);
        self.at += usize::from(takes);
        takes
    }

    fn expect_sign(&mut self, sign: &str) -> Result<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.expected_error(&format!("`{sign}`"))) }
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected_error(&format!("`{word}`"))) }
    }

    fn expect_end(&mut self, what: &str) -> Result<()> {
        if *self.kind() == TokenKind::End { Ok(()) } else { Err(self.expected_error(what)) }
    }

    fn expected_error(&self, what: &str) -> model::Error {
        let found = match self.kind() {
            TokenKind::End => "the text ends".to_owned(),
            _ => format!("`{}` is found", self.text[self.span()].chars().take(40).collect::<String>()),
        };
        self.error(format!("{found} where {what} should be"))
    }

    fn error(&self, message: impl AsRef<str>) -> model::Error {
        error_at(self.text, self.span(), message)
    }
}

fn bytes(text: &str) -> Option<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}
