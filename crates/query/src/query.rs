//! The tree of a query, with classes and fields by name.
//!
//! A client can write a query without knowing the schema; the peer server resolves the names.
//! [`Display`](std::fmt::Display) writes the text that [`Query::parse`] reads.
//!
//! Nulls: a comparison or other test with a null operand is false, `!=` included; `!` turns false into true. Only a
//! comparison with a null literal or a null parameter tests for null. So `age != 3` excludes objects without an age,
//! and `!(age == 3)` includes them (docs/decisions/filter-nulls.md).

mod encoding;

use std::collections::BTreeMap;

use model::{Comparison, Value};

/// A question about the objects of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// The class asked for.
    pub class: String,
    /// Only objects of that very class, none of classes that extend it.
    pub only: bool,
    /// What holds of the objects asked for; all of them without.
    pub condition: Option<Expr>,
    /// The columns; empty for whole objects.
    pub select: Vec<Item>,
    /// The keys that are equal within a group; without them, aggregates cover all objects.
    pub group: Vec<Expr>,
    /// The order, the first key first. Objects with equal keys are ordered by identifier.
    pub order: Vec<OrderKey>,
    /// The number of results to skip.
    pub skip: u64,
    /// The maximum number of results.
    pub limit: Option<u64>,
    /// The values of `:name`s.
    pub parameters: BTreeMap<String, Value>,
}

/// A column of a projection.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its value.
    pub expr: Expr,
    /// Its name; without one, it is called by its text.
    pub name: Option<String>,
}

/// A key to order by.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey {
    /// Its value.
    pub expr: Expr,
    /// The largest first.
    pub descending: bool,
    /// Where nulls come. Without an answer they count as less than everything: first if ascending, last if descending.
    pub nulls_first: Option<bool>,
}

/// A condition or a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A constant.
    Literal(Value),
    /// The value of a parameter.
    Parameter(String),
    /// A field, through references: `["boss", "name"]` is the name of the boss. The first name may be a variable's. Nothing
    /// for the object itself.
    Path(Vec<String>),
    /// A list of values.
    List(Vec<Expr>),
    /// All of them hold.
    And(Vec<Expr>),
    /// One of them holds.
    Or(Vec<Expr>),
    /// It does not hold.
    Not(Box<Expr>),
    /// The two compare so.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// A number of two.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// A number times -1.
    Negate(Box<Expr>),
    /// A function of a value, with its arguments: `name.startsWith("a")`.
    Call(Function, Box<Expr>, Vec<Expr>),
    /// The condition holds of one of a collection's elements, or of a map's keys: `friends.any(f => f.age > 30)`.
    Any {
        /// The collection.
        collection: Box<Expr>,
        /// What the condition calls the element.
        variable: String,
        /// What holds of it.
        condition: Box<Expr>,
    },
    /// A value of many objects. Only as a whole column or order key. Counts objects without an operand.
    Aggregate(Aggregate, Option<Box<Expr>>),
}

/// An operation on two numbers.
///
/// Of two integers: the integer, exactly; a result of more than 64 bits is an error, as is division by zero; `/` drops
/// the fraction, and the sign of `%` is the dividend's. With a float64: float64, as processors do it. Else decimal,
/// exactly, but for quotients, which have 34 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arithmetic {
    /// `+`
    Add = 0,
    /// `-`
    Subtract = 1,
    /// `*`
    Multiply = 2,
    /// `/`
    Divide = 3,
    /// `%`
    Remainder = 4,
}

/// A function of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Function {
    /// Whether a text begins so.
    StartsWith = 0,
    /// Whether a text ends so.
    EndsWith = 1,
    /// Whether a text has this somewhere, a list or set this element, a map this key.
    Contains = 2,
    /// A text in lower case.
    Lower = 3,
    /// A text in upper case.
    Upper = 4,
    /// The number of a text's characters, of bytes, of a collection's elements.
    Length = 5,
    /// A number without its sign.
    Abs = 6,
}

/// A value of many. Nulls do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Aggregate {
    /// How many there are.
    Count = 0,
    /// Their sum; null of none.
    Sum = 1,
    /// The least; null of none.
    Min = 2,
    /// The largest; null of none.
    Max = 3,
    /// Their mean: decimal of decimals, else float64; null of none.
    Average = 4,
}

impl Query {
    /// All objects of a class and of those that extend it.
    pub fn of(class: impl Into<String>) -> Self {
        Self { class: class.into(), ..Self::default() }
    }

    /// The query with a condition more.
    #[must_use]
    pub fn filter(mut self, condition: Expr) -> Self {
        self.condition = Some(match self.condition {
            Some(before) => before.and(condition),
            None => condition,
        });
        self
    }

    /// The query with a key more to order by, the least first.
    #[must_use]
    pub fn order_by(mut self, expr: Expr) -> Self {
        self.order.push(OrderKey { expr, descending: false, nulls_first: None });
        self
    }

    /// The query with a key more to order by, the largest first.
    #[must_use]
    pub fn order_by_descending(mut self, expr: Expr) -> Self {
        self.order.push(OrderKey { expr, descending: true, nulls_first: None });
        self
    }

    /// The query without its first `count` results.
    #[must_use]
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// The query with at most this many results.
    #[must_use]
    pub fn limit(mut self, count: u64) -> Self {
        self.limit = Some(count);
        self
    }

    /// The query for a column, or for one more.
    #[must_use]
    pub fn select(mut self, expr: Expr) -> Self {
        self.select.push(Item { expr, name: None });
        self
    }

    /// The query with a parameter's value.
    #[must_use]
    pub fn with(mut self, parameter: impl Into<String>, value: impl Into<Value>) -> Self {
        self.parameters.insert(parameter.into(), value.into());
        self
    }

    /// Everything in the query that has a place in its text, but for the parts of parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Expr> {
        let select = self.select.iter().map(|item| &item.expr);
        let order = self.order.iter().map(|key| &key.expr);
        select.chain(&self.condition).chain(&self.group).chain(order)
    }
}

impl OrderKey {
    /// Whether nulls come first.
    #[must_use]
    pub fn nulls_come_first(&self) -> bool {
        self.nulls_first.unwrap_or(!self.descending)
    }
}

impl Expr {
    /// A value.
    pub fn value(value: impl Into<Value>) -> Self {
        Self::Literal(value.into())
    }

    /// A field, or a path through references with dots: `boss.name`.
    #[must_use]
    pub fn path(path: &str) -> Self {
        Self::Path(path.split('.').map(str::to_owned).collect())
    }

    /// The object itself.
    #[must_use]
    pub fn this() -> Self {
        Self::Path(vec![])
    }

    /// The value of a parameter.
    pub fn parameter(name: impl Into<String>) -> Self {
        Self::Parameter(name.into())
    }

    /// Whether the two compare so.
    #[must_use]
    pub fn compare(self, comparison: Comparison, other: Expr) -> Self {
        Self::Compare(comparison, Box::new(self), Box::new(other))
    }

    /// Whether the value equals another.
    #[must_use]
    pub fn equals(self, other: impl Into<Value>) -> Self {
        self.compare(Comparison::Equal, Self::value(other))
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_null(self) -> Self {
        self.equals(Value::Null)
    }

    /// Both hold.
    #[must_use]
    pub fn and(self, other: Expr) -> Self {
        match self {
            Self::And(mut parts) => {
                parts.push(other);
                Self::And(parts)
            }
            one => Self::And(vec![one, other]),
        }
    }

    /// One of them holds.
    #[must_use]
    pub fn or(self, other: Expr) -> Self {
        match self {
            Self::Or(mut parts) => {
                parts.push(other);
                Self::Or(parts)
            }
            one => Self::Or(vec![one, other]),
        }
    }

    /// It does not hold.
    #[must_use]
    pub fn negate(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// A function of the value.
    #[must_use]
    pub fn call(self, function: Function, arguments: impl IntoIterator<Item = Expr>) -> Self {
        Self::Call(function, Box::new(self), arguments.into_iter().collect())
    }
}

impl Arithmetic {
    /// Every operation.
    pub const ALL: [Self; 5] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide, Self::Remainder];

    /// The operation's sign.
    #[must_use]
    pub const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
            Self::Remainder => '%',
        }
    }
}

impl Function {
    /// Every function.
    pub const ALL: [Self; 7] =
        [Self::StartsWith, Self::EndsWith, Self::Contains, Self::Lower, Self::Upper, Self::Length, Self::Abs];

    /// The function's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Contains => "contains",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::Length => "length",
            Self::Abs => "abs",
        }
    }

    /// The function of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name)
    }

    /// How many arguments the function takes.
    #[must_use]
    pub const fn arguments(self) -> usize {
        match self {
            Self::StartsWith | Self::EndsWith | Self::Contains => 1,
            Self::Lower | Self::Upper | Self::Length | Self::Abs => 0,
        }
    }
}

impl Aggregate {
    /// Every aggregate.
    pub const ALL: [Self; 5] = [Self::Count, Self::Sum, Self::Min, Self::Max, Self::Average];

    /// The aggregate's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Average => "avg",
        }
    }

    /// The aggregate of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|aggregate| aggregate.name() == name)
    }
}

#[cfg(test)]
mod tests;
