//! Writes queries so that parsing the text gives the same query.

use std::fmt::{self, Display, Write};
use std::ops::Range;

use model::{Comparison, Value};

use super::parser::power;
use super::{is_plain, is_reserved};
use crate::{Expr, Function, Query};

/// The text of a query, and the range of a part of it in the text.
///
/// `part` is found by its address: it is the very one in the tree, not one that equals it.
pub(crate) fn locate(query: &Query, part: &Expr) -> (String, Range<usize>) {
    let mut printer = Printer { out: String::new(), part: Some(part), found: 0..0 };
    // Writing to a string does not fail.
    let _ = printer.query(query);
    (printer.out, printer.found)
}

impl Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { out: String::new(), part: None, found: 0..0 };
        printer.query(self)?;
        f.write_str(&printer.out)
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { out: String::new(), part: None, found: 0..0 };
        printer.expr(self, power::NONE)?;
        f.write_str(&printer.out)
    }
}

struct Printer<'e> {
    out: String,
    /// The part to locate.
    part: Option<&'e Expr>,
    found: Range<usize>,
}

impl Printer<'_> {
    fn query(&mut self, query: &Query) -> fmt::Result {
        if !query.select.is_empty() {
            self.out.push_str("select ");
            self.write_separated(&query.select, |printer, item| {
                printer.expr(&item.expr, power::NONE)?;
                if let Some(name) = &item.name {
                    printer.out.push_str(" as ");
                    printer.name(name, false);
                }
                Ok(())
            })?;
            self.out.push(' ');
        }
        self.out.push_str(if query.only { "from only " } else { "from " });
        self.class(&query.class);
        if let Some(condition) = &query.condition {
            self.out.push_str(" where ");
            self.expr(condition, power::NONE)?;
        }
        if !query.group.is_empty() {
            self.out.push_str(" group by ");
            self.write_separated(&query.group, |printer, key| printer.expr(key, power::NONE))?;
        }
        if !query.order.is_empty() {
            self.out.push_str(" order by ");
            self.write_separated(&query.order, |printer, key| {
                printer.expr(&key.expr, power::NONE)?;
                printer.out.push_str(if key.descending { " desc" } else { "" });
                printer.out.push_str(match key.nulls_first {
                    None => "",
                    Some(true) => " nulls first",
                    Some(false) => " nulls last",
                });
                Ok(())
            })?;
        }
        if query.skip > 0 {
            write!(self.out, " skip {}", query.skip)?;
        }
        if let Some(limit) = query.limit {
            write!(self.out, " limit {limit}")?;
        }
        Ok(())
    }

    fn class(&mut self, class: &str) {
        if class.split('.').all(is_plain) && !class.split('.').next().is_some_and(is_reserved) {
            self.out.push_str(class);
        } else {
            self.write_escaped(class, '`');
        }
    }

    fn name(&mut self, name: &str, first: bool) {
        if is_plain(name) && !(first && is_reserved(name)) {
            self.out.push_str(name);
        } else {
            self.write_escaped(name, '`');
        }
    }

    fn write_escaped(&mut self, text: &str, quote: char) {
        self.out.push(quote);
        for character in text.chars() {
            match character {
                '\n' => self.out.push_str("\\n"),
                '\\' => self.out.push_str("\\\\"),
                same if same == quote => self.out.extend(['\\', same]),
                control if control.is_control() => self.out.push_str(&format!("\\u{{{:x}}}", u32::from(control))),
                plain => self.out.push(plain),
            }
        }
        self.out.push(quote);
    }

    /// A part, in brackets unless it binds at least as tightly as `least`.
    fn expr(&mut self, expr: &Expr, least: u8) -> fmt::Result {
        let start = self.out.len();
        let brackets = power_of(expr) < least;
        self.out.push_str(if brackets { "(" } else { "" });
        self.write_bare(expr)?;
        self.out.push_str(if brackets { ")" } else { "" });
        if self.part.is_some_and(|part| std::ptr::eq(part, expr)) {
            self.found = start..self.out.len();
        }
        Ok(())
    }

    fn write_bare(&mut self, expr: &Expr) -> fmt::Result {
        match expr {
            Expr::Literal(value) => self.value(value)?,
            Expr::Parameter(name) => write!(self.out, ":{name}")?,
            Expr::Path(names) if names.is_empty() => self.out.push_str("this"),
            Expr::Path(names) => {
                for (index, name) in names.iter().enumerate() {
                    self.out.push_str(if index > 0 { "." } else { "" });
                    self.name(name, index == 0);
                }
            }
            Expr::List(parts) => self.list('[', parts, ']')?,
            Expr::And(parts) => self.junction(parts, " && ", power::AND, "true")?,
            Expr::Or(parts) => self.junction(parts, " || ", power::OR, "false")?,
            Expr::Not(part) => {
                self.out.push('!');
                self.expr(part, power::POSTFIX)?;
            }
            Expr::Negate(part) => {
                self.out.push('-');
                // A sign before a number would become part of it.
                let number = matches!(&**part, Expr::Literal(_));
                self.expr(part, if number { u8::MAX } else { power::POSTFIX })?;
            }
            Expr::Compare(comparison, a, b) => {
                self.expr(a, power::SUM)?;
                let sign = if *comparison == Comparison::Equal { "==".to_owned() } else { comparison.to_string() };
                write!(self.out, " {sign} ")?;
                self.expr(b, power::SUM)?;
            }
            Expr::Arithmetic(operation, a, b) => {
                let own = power_of(expr);
                self.expr(a, own)?;
                write!(self.out, " {} ", operation.sign())?;
                self.expr(b, own + 1)?;
            }
            Expr::Call(function, of, arguments) => match (is_choice(expr), &**arguments) {
                (true, [element]) => {
                    self.expr(element, power::SUM)?;
                    self.out.push_str(" in ");
                    self.expr(of, power::SUM)?;
                }
                _ => {
                    self.expr(of, power::POSTFIX)?;
                    write!(self.out, ".{}", function.name())?;
                    self.list('(', arguments, ')')?;
                }
            },
            Expr::Any { collection, variable, condition } => {
                self.expr(collection, power::POSTFIX)?;
                self.out.push_str(".any(");
                self.name(variable, true);
                self.out.push_str(" => ");
                self.expr(condition, power::NONE)?;
                self.out.push(')');
            }
            Expr::Aggregate(aggregate, of) => {
                write!(self.out, "{}(", aggregate.name())?;
                match of {
                    Some(of) => self.expr(of, power::NONE)?,
                    None => self.out.push('*'),
                }
                self.out.push(')');
            }
        }
        Ok(())
    }

    fn junction(&mut self, parts: &[Expr], sign: &str, power: u8, empty: &str) -> fmt::Result {
        self.out.push_str(if parts.is_empty() { empty } else { "" });
        for (index, part) in parts.iter().enumerate() {
            self.out.push_str(if index > 0 { sign } else { "" });
            self.expr(part, power + 1)?;
        }
        Ok(())
    }

    fn list(&mut self, open: char, parts: &[Expr], close: char) -> fmt::Result {
        self.out.push(open);
        self.write_separated(parts, |printer, part| printer.expr(part, power::NONE))?;
        self.out.push(close);
        Ok(())
    }

    fn write_separated<T>(&mut self, items: &[T], mut one: impl FnMut(&mut Self, &T) -> fmt::Result) -> fmt::Result {
        for (index, item) in items.iter().enumerate() {
            self.out.push_str(if index > 0 { ", " } else { "" });
            one(self, item)?;
        }
        Ok(())
    }

    fn value(&mut self, value: &Value) -> fmt::Result {
        match value {
            Value::Float64(number) if number.is_nan() => self.out.push_str("NaN"),
            Value::Float64(number) if number.is_infinite() => {
                self.out.push_str(if *number > 0.0 { "Infinity" } else { "-Infinity" });
            }
            Value::Float64(number) => write!(self.out, "{number:?}f")?,
            Value::Decimal(number) => {
                // With a decimal point, if that is short, to preserve its scale.
                let scale = number.as_ref().scale();
                let (digits, _) = number.to_big().into_bigint_and_exponent();
                if (1..=20).contains(&scale) {
                    write!(self.out, "{number:.*}", scale as usize)?;
                } else {
                    write!(self.out, "{digits}e{}", -i64::from(scale))?;
                }
            }
            Value::String(text) => self.write_escaped(text, '"'),
            Value::Bytes(bytes) => {
                self.out.push_str("x'");
                bytes.iter().try_for_each(|byte| write!(self.out, "{byte:02x}"))?;
                self.out.push('\'');
            }
            Value::Date(date) => write!(self.out, "d'{date}'")?,
            Value::Timestamp(moment) => write!(self.out, "t'{moment}'")?,
            Value::List(values) => {
                self.out.push('[');
                self.write_separated(values, Self::value)?;
                self.out.push(']');
            }
            other => write!(self.out, "{other}")?,
        }
        Ok(())
    }
}

/// Whether the part is written as `x in [1, 2]`.
fn is_choice(expr: &Expr) -> bool {
    let Expr::Call(Function::Contains, of, arguments) = expr else { return false };
    matches!(**of, Expr::List(_) | Expr::Parameter(_) | Expr::Literal(_)) && arguments.len() == 1
}

/// The binding power of the outermost operator of a part.
fn power_of(expr: &Expr) -> u8 {
    use crate::Arithmetic::{Add, Subtract};
    match expr {
        Expr::Or(parts) if parts.len() > 1 => power::OR,
        Expr::And(parts) if parts.len() > 1 => power::AND,
        Expr::Or(parts) | Expr::And(parts) => parts.first().map_or(power::WHOLE, power_of),
        Expr::Compare(..) => power::COMPARE,
        Expr::Arithmetic(Add | Subtract, ..) => power::SUM,
        Expr::Arithmetic(..) => power::PRODUCT,
        Expr::Not(_) | Expr::Negate(_) => power::PREFIX,
        Expr::Literal(value) if is_negative(value) => power::PREFIX,
        Expr::Call(..) if is_choice(expr) => power::COMPARE,
        _ => power::WHOLE,
    }
}

fn is_negative(value: &Value) -> bool {
    match value {
        Value::Int64(number) => *number < 0,
        Value::Float64(number) => number.is_sign_negative() && !number.is_nan(),
        Value::Decimal(number) => number.as_ref().unscaled_value().first().is_some_and(|byte| *byte >= 0x80),
        _ => false,
    }
}
