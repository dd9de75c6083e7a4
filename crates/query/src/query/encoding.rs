//! The encoding of queries: a version byte, then the parts, with trees in prefix order. docs/queries.md describes it.
//!
//! Numbers have seven bits a byte, least significant first, with the top bit set in all but the last byte. Strings and
//! values are preceded by their length; values are encoded as in records.

use std::collections::BTreeMap;

use model::{Comparison, Error, ErrorKind, Result, Value};

use super::{Aggregate, Arithmetic, Expr, Function, Item, OrderKey, Query};
use crate::limits;

const VERSION: u8 = 1;

/// The first byte of each node. Codes are for ever; a new kind of node takes a new one.
mod code {
    pub(super) const LITERAL: u8 = 0x01;
    pub(super) const PARAMETER: u8 = 0x02;
    pub(super) const PATH: u8 = 0x03;
    pub(super) const LIST: u8 = 0x04;
    pub(super) const AND: u8 = 0x05;
    pub(super) const OR: u8 = 0x06;
    pub(super) const NOT: u8 = 0x07;
    pub(super) const NEGATE: u8 = 0x08;
    pub(super) const ANY: u8 = 0x09;
    /// Plus the comparison's, operation's, function's or aggregate's own code.
    pub(super) const COMPARE: u8 = 0x10;
    pub(super) const ARITHMETIC: u8 = 0x20;
    pub(super) const CALL: u8 = 0x30;
    pub(super) const AGGREGATE: u8 = 0x50;
    pub(super) const COUNT_ALL: u8 = 0x5f;
}

/// The flags in the byte after the class.
mod flag {
    pub(super) const ONLY: u8 = 1;
    pub(super) const CONDITION: u8 = 2;
    pub(super) const LIMIT: u8 = 4;
    pub(super) const ALL: u8 = 7;
}

/// The flags in the byte before the tree of a key.
mod key {
    pub(super) const DESCENDING: u8 = 1;
    pub(super) const NULLS: u8 = 2;
    pub(super) const NULLS_FIRST: u8 = 4;
}

impl Query {
    /// The query's encoding; equal queries have equal ones.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] past one of [`limits`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = Writer { out: vec![VERSION], nodes: limits::NODES };
        writer.text(&self.class)?;
        let set = |condition, flag| if condition { flag } else { 0 };
        writer.out.push(
            set(self.only, flag::ONLY)
                | set(self.condition.is_some(), flag::CONDITION)
                | set(self.limit.is_some(), flag::LIMIT),
        );
        if let Some(condition) = &self.condition {
            writer.expr(condition, limits::NESTING)?;
        }
        writer.len(self.select.len(), limits::COLUMNS, "columns")?;
        for item in &self.select {
            writer.expr(&item.expr, limits::NESTING)?;
            // A name is never empty.
            writer.text(item.name.as_deref().unwrap_or_default())?;
        }
        writer.len(self.group.len(), limits::COLUMNS, "keys to group by")?;
        self.group.iter().try_for_each(|key| writer.expr(key, limits::NESTING))?;
        writer.len(self.order.len(), limits::ORDER, "keys to order by")?;
        for order in &self.order {
            writer.out.push(
                set(order.descending, key::DESCENDING)
                    | set(order.nulls_first.is_some(), key::NULLS)
                    | set(order.nulls_first == Some(true), key::NULLS_FIRST),
            );
            writer.expr(&order.expr, limits::NESTING)?;
        }
        writer.number(self.skip);
        if let Some(limit) = self.limit {
            writer.number(limit);
        }
        writer.len(self.parameters.len(), limits::PARAMETERS, "parameters")?;
        for (name, value) in &self.parameters {
            writer.text(name)?;
            writer.value(value)?;
        }
        writer.check_len()?;
        Ok(writer.out)
    }

    /// The query of an encoding from anywhere.
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`] if it is not what [`Query::encode`] writes,
    /// - [`ErrorKind::TooLarge`] past one of [`limits`],
    /// - [`ErrorKind::Unsupported`] if it is of a newer version or asks what this program cannot answer.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > limits::QUERY {
            return Err(too_large(bytes.len(), limits::QUERY, "bytes"));
        }
        let mut reader = Reader { rest: bytes, nodes: limits::NODES };
        match reader.byte()? {
            VERSION => {}
            version => {
                return Err(unsupported_error(format!("its version is {version}, and this program reads {VERSION}")));
            }
        }
        let class = reader.text()?;
        let flags = reader.byte()?;
        if flags & !flag::ALL != 0 {
            return Err(unsupported_error(format!("it has the unknown flags {flags:#04x}")));
        }
        let condition = if flags & flag::CONDITION == 0 { None } else { Some(reader.expr(limits::NESTING)?) };
        let select = reader.many(limits::COLUMNS, "columns", |reader| {
            let expr = reader.expr(limits::NESTING)?;
            Ok(Item { expr, name: Some(reader.text()?).filter(|name| !name.is_empty()) })
        })?;
        let group = reader.many(limits::COLUMNS, "keys to group by", |reader| reader.expr(limits::NESTING))?;
        let order = reader.many(limits::ORDER, "keys to order by", Reader::order_key)?;
        let skip = reader.number()?;
        let limit = if flags & flag::LIMIT == 0 { None } else { Some(reader.number()?) };
        let parameters: Vec<(String, Value)> =
            reader.many(limits::PARAMETERS, "parameters", |reader| Ok((reader.text()?, reader.value()?)))?;
        if !reader.rest.is_empty() {
            return Err(invalid("bytes are left over behind it"));
        }
        if !parameters.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(invalid("its parameters are out of order"));
        }
        let parameters = BTreeMap::from_iter(parameters);
        Ok(Self { class, only: flags & flag::ONLY != 0, condition, select, group, order, skip, limit, parameters })
    }
}

struct Writer {
    out: Vec<u8>,
    /// How many more nodes there may be.
    nodes: usize,
}

impl Writer {
    fn expr(&mut self, expr: &Expr, levels: usize) -> Result<()> {
        self.nodes = count_node(self.nodes)?;
        let below = descend(levels)?;
        self.check_len()?;
        match expr {
            Expr::Literal(value) => {
                self.out.push(code::LITERAL);
                self.value(value)
            }
            Expr::Parameter(name) => {
                self.out.push(code::PARAMETER);
                self.text(name)
            }
            Expr::Path(names) => {
                self.out.push(code::PATH);
                self.len(names.len(), limits::PATH, "names in a path")?;
                names.iter().try_for_each(|name| self.text(name))
            }
            Expr::List(parts) => self.parts(code::LIST, parts, below),
            Expr::And(parts) => self.parts(code::AND, parts, below),
            Expr::Or(parts) => self.parts(code::OR, parts, below),
            Expr::Not(part) => self.node(code::NOT, [&**part], below),
            Expr::Negate(part) => self.node(code::NEGATE, [&**part], below),
            Expr::Compare(comparison, a, b) => self.node(code::COMPARE + *comparison as u8, [&**a, b], below),
            Expr::Arithmetic(operation, a, b) => self.node(code::ARITHMETIC + *operation as u8, [&**a, b], below),
            Expr::Call(function, of, arguments) => {
                self.node(code::CALL + *function as u8, [&**of], below)?;
                self.len(arguments.len(), limits::COLUMNS, "arguments")?;
                arguments.iter().try_for_each(|argument| self.expr(argument, below))
            }
            Expr::Any { collection, variable, condition } => {
                self.out.push(code::ANY);
                self.text(variable)?;
                self.expr(collection, below)?;
                self.expr(condition, below)
            }
            Expr::Aggregate(aggregate, Some(of)) => self.node(code::AGGREGATE + *aggregate as u8, [&**of], below),
            Expr::Aggregate(Aggregate::Count, None) => self.node(code::COUNT_ALL, [], below),
            Expr::Aggregate(other, None) => Err(invalid(format!("{} needs something to be of", other.name()))),
        }
    }

    fn node<'e>(&mut self, code: u8, parts: impl IntoIterator<Item = &'e Expr>, levels: usize) -> Result<()> {
        self.out.push(code);
        parts.into_iter().try_for_each(|part| self.expr(part, levels))
    }

    fn parts(&mut self, code: u8, parts: &[Expr], levels: usize) -> Result<()> {
        self.out.push(code);
        self.len(parts.len(), limits::NODES, "nodes")?;
        parts.iter().try_for_each(|part| self.expr(part, levels))
    }

    fn value(&mut self, value: &Value) -> Result<()> {
        let bytes = value.to_bytes()?;
        self.len(bytes.len(), limits::QUERY, "bytes")?;
        self.out.extend_from_slice(&bytes);
        self.check_len()
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.len(text.len(), limits::NAME, "bytes in a name")?;
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn len(&mut self, len: usize, most: usize, what: &str) -> Result<()> {
        if len > most {
            return Err(too_large(len, most, what));
        }
        self.number(len as u64);
        Ok(())
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    fn check_len(&self) -> Result<()> {
        match self.out.len() {
            0..=limits::QUERY => Ok(()),
            len => Err(too_large(len, limits::QUERY, "bytes")),
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// How many more nodes there may be.
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn expr(&mut self, levels: usize) -> Result<Expr> {
        self.nodes = count_node(self.nodes)?;
        let below = descend(levels)?;
        let code = self.byte()?;
        let at = |base: u8| usize::from(code.wrapping_sub(base));
        Ok(match code {
            code::LITERAL => Expr::Literal(self.value()?),
            code::PARAMETER => Expr::Parameter(self.text()?),
            code::PATH => Expr::Path(self.many(limits::PATH, "names in a path", Self::text)?),
            code::LIST => Expr::List(self.parts(below)?),
            code::AND => Expr::And(self.parts(below)?),
            code::OR => Expr::Or(self.parts(below)?),
            code::NOT => Expr::Not(self.boxed_expr(below)?),
            code::NEGATE => Expr::Negate(self.boxed_expr(below)?),
            code::ANY => {
                let variable = self.text()?;
                let collection = self.boxed_expr(below)?;
                Expr::Any { collection, variable, condition: self.boxed_expr(below)? }
            }
            code::COUNT_ALL => Expr::Aggregate(Aggregate::Count, None),
            _ => {
                if let Some(comparison) = Comparison::ALL.get(at(code::COMPARE)) {
                    Expr::Compare(*comparison, self.boxed_expr(below)?, self.boxed_expr(below)?)
                } else if let Some(operation) = Arithmetic::ALL.get(at(code::ARITHMETIC)) {
                    Expr::Arithmetic(*operation, self.boxed_expr(below)?, self.boxed_expr(below)?)
                } else if let Some(function) = Function::ALL.get(at(code::CALL)) {
                    let of = self.boxed_expr(below)?;
                    Expr::Call(*function, of, self.many(limits::COLUMNS, "arguments", |reader| reader.expr(below))?)
                } else if let Some(aggregate) = Aggregate::ALL.get(at(code::AGGREGATE)) {
                    Expr::Aggregate(*aggregate, Some(self.boxed_expr(below)?))
                } else {
                    return Err(unsupported_error(format!("it has a node of the unknown kind {code:#04x}")));
                }
            }
        })
    }

    fn boxed_expr(&mut self, levels: usize) -> Result<Box<Expr>> {
        self.expr(levels).map(Box::new)
    }

    fn parts(&mut self, levels: usize) -> Result<Vec<Expr>> {
        self.many(limits::NODES, "nodes", |reader| reader.expr(levels))
    }

    fn order_key(&mut self) -> Result<OrderKey> {
        let flags = self.byte()?;
        let nulls_first = match flags & !key::DESCENDING {
            0 => None,
            key::NULLS => Some(false),
            nulls if nulls == key::NULLS | key::NULLS_FIRST => Some(true),
            _ => return Err(unsupported_error(format!("it has an order with the unknown flags {flags:#04x}"))),
        };
        Ok(OrderKey { expr: self.expr(limits::NESTING)?, descending: flags & key::DESCENDING != 0, nulls_first })
    }

    fn many<T>(&mut self, most: usize, what: &str, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.number()?;
        if count > most as u64 {
            return Err(too_large(usize::try_from(count).unwrap_or(usize::MAX), most, what));
        }
        // The count is not trusted: memory is allocated as parts are decoded.
        (0..count).map(|_| one(self)).collect()
    }

    fn value(&mut self) -> Result<Value> {
        let bytes = self.bytes()?;
        Value::from_bytes(bytes).map_err(|error| invalid("a value in it is not well formed").with_source(error))
    }

    fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        if bytes.len() > limits::NAME {
            return Err(too_large(bytes.len(), limits::NAME, "bytes in a name"));
        }
        Ok(std::str::from_utf8(bytes).map_err(|_| invalid("a name in it is not UTF-8"))?.to_owned())
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.number()?;
        let cut = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (bytes, rest) = cut.ok_or_else(|| invalid("it is cut off"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(invalid("a number in it is over 64 bits or longer than it needs to be"))
    }

    fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(|| invalid("it is cut off"))?;
        self.rest = rest;
        Ok(byte)
    }
}

fn count_node(nodes: usize) -> Result<usize> {
    nodes.checked_sub(1).ok_or_else(|| too_large(limits::NODES + 1, limits::NODES, "nodes"))
}

fn descend(levels: usize) -> Result<usize> {
    levels.checked_sub(1).ok_or_else(|| too_large(limits::NESTING + 1, limits::NESTING, "levels"))
}

fn too_large(has: usize, most: usize, what: &str) -> Error {
    Error::new(ErrorKind::TooLarge, format!("a query is too large: it may have {most} {what}, and has {has}"))
}

fn unsupported_error(why: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("a query cannot be read: {why}"))
}

fn invalid(why: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::Invalid, format!("a query is not well formed: {}", why.as_ref()))
}
