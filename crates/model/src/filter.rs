//! Filters: questions about a record that a brick answers by field number, without class metadata.
//!
//! A [`Filter`] is a typed tree that the client builds; no text is parsed on the way. [`Filter::matches`] reads only the
//! fields that it names, in place. It travels in a compact encoding of its own ([`Filter::encode`], docs/format.md).
//!
//! 1. **Two values.** A filter is true or false of a record, never unknown. A test of a field is false when the field is
//!    absent, null, or of another family than the operand; so `a != 3` says that there is an `a` and that it is not 3.
//!    Only [`Filter::IsNull`] is true of an absent or null field. `not` turns true into false and false into true, so
//!    `not (a = 3)` is true without an `a`. Both query languages compile to this exactly, and docs/decisions/filter-nulls.md
//!    says how.
//! 2. **Numbers compare by value,** exactly, whatever their types, as a field's type may have been widened since the
//!    record was written. Null compares with nothing; NaN equals itself and is above all other numbers; -0.0 = 0.0.
//! 3. A filter has at most [`limits::FILTER`] bytes and [`limits::FILTER_NESTING`] levels. One that comes from a peer is
//!    checked when it is decoded; evaluating it never panics, whatever the record's bytes.

mod encoding;

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error as ThisError;

use crate::record::EncodingError;
use crate::{Error, ErrorKind, FieldNumber, RecordRef, Result, Value, ValueRef, limits, order};

/// A question about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All of them are true; true if there are none.
    And(Vec<Filter>),
    /// One of them is true; false if there are none.
    Or(Vec<Filter>),
    /// It is false.
    Not(Box<Filter>),
    /// The field is absent or null.
    IsNull(FieldNumber),
    /// The field compares so with the operand.
    Compare(FieldNumber, Comparison, Operand),
    /// The field is a text that begins so.
    StartsWith(FieldNumber, String),
    /// The field is a text that has this somewhere.
    ContainsText(FieldNumber, String),
    /// The field equals one of the operands.
    OneOf(FieldNumber, Operands),
    /// The field is a list or set with an element that equals the operand, or a map with such a key.
    Contains(FieldNumber, Operand),
}

/// How a field compares with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Comparison {
    /// `=`
    Equal = 0,
    /// `!=`
    NotEqual = 1,
    /// `<`
    Less = 2,
    /// `<=`
    LessOrEqual = 3,
    /// `>`
    Greater = 4,
    /// `>=`
    GreaterOrEqual = 5,
}

/// What a field is compared with: a value that is neither null nor a list, set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operand(Value);

/// Different operands, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands(Vec<Operand>);

impl Comparison {
    /// Every comparison.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// Whether the comparison holds between a field and an operand that order so.
    #[must_use]
    pub const fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Operand {
    /// The value as an operand.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for null, which nothing compares with (ask [`Filter::IsNull`]), and for lists, sets, maps.
    pub fn new(value: Value) -> Result<Self> {
        match value {
            Value::Null => {
                Err(Error::new(ErrorKind::Invalid, "nothing compares with null: ask whether the field is null"))
            }
            Value::List(_) | Value::Set(_) | Value::Map(_) => {
                Err(Error::new(ErrorKind::Invalid, "a field cannot be compared with a whole list, set or map"))
            }
            scalar => Ok(Self(scalar)),
        }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Orders a field and the operand; `None` if they do not compare.
    #[inline]
    fn order(&self, field: ValueRef<'_>) -> Option<Ordering> {
        order::compare(field, self.0.as_scalar()?)
    }

    /// Where a value stands among values in total order: before those that equal the operand, among, or behind them.
    fn compare_for_search(&self, value: ValueRef<'_>) -> Ordering {
        self.0.as_scalar().map_or(Ordering::Less, |operand| order::compare_for_search(value, operand))
    }
}

impl Operands {
    /// The operands, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Operand] {
        &self.0
    }

    /// Whether one of the operands equals the field.
    #[must_use]
    pub fn contains(&self, field: ValueRef<'_>) -> bool {
        self.0.binary_search_by(|operand| operand.compare_for_search(field).reverse()).is_ok()
    }
}

impl FromIterator<Operand> for Operands {
    fn from_iter<T: IntoIterator<Item = Operand>>(operands: T) -> Self {
        let mut operands: Vec<_> = operands.into_iter().collect();
        operands.sort_unstable();
        operands.dedup();
        Self(operands)
    }
}

impl Filter {
    /// The field compares so with the operand: `Filter::compare(FieldNumber(1), Comparison::Less, 1960)`.
    pub fn compare(field: FieldNumber, comparison: Comparison, operand: impl Into<Operand>) -> Self {
        Self::Compare(field, comparison, operand.into())
    }

    /// The field equals one of the operands.
    pub fn one_of<T: Into<Operand>>(field: FieldNumber, operands: impl IntoIterator<Item = T>) -> Self {
        Self::OneOf(field, operands.into_iter().map(Into::into).collect())
    }

    /// The field is a list, set or map that has the operand as an element or key.
    pub fn contains(field: FieldNumber, operand: impl Into<Operand>) -> Self {
        Self::Contains(field, operand.into())
    }

    /// The opposite.
    #[must_use]
    pub fn negate(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Whether the record is one that the filter asks for.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a field that is looked at is damaged, [`ErrorKind::TooLarge`] if the filter is nested
    /// deeper than [`limits::FILTER_NESTING`].
    pub fn matches(&self, record: &RecordRef<'_>) -> Result<bool> {
        Ok(self.evaluate(record, limits::FILTER_NESTING)?)
    }

    fn evaluate(&self, record: &RecordRef<'_>, levels: usize) -> Result<bool, FilterError> {
        match self {
            Self::And(parts) => {
                let below = levels_below(levels)?;
                for part in parts {
                    if !part.evaluate(record, below)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(parts) => {
                let below = levels_below(levels)?;
                for part in parts {
                    if part.evaluate(record, below)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(part) => Ok(!part.evaluate(record, levels_below(levels)?)?),
            Self::IsNull(field) => {
                let value = record.look_up(*field).map_err(FilterError::Record)?;
                Ok(matches!(value, None | Some(ValueRef::Null)))
            }
            test => test.test(record).map_err(FilterError::Record),
        }
    }

    /// Evaluates a test of a field: false if the field is absent or of another family.
    fn test(&self, record: &RecordRef<'_>) -> Result<bool, EncodingError> {
        let (Self::Compare(field, ..)
        | Self::StartsWith(field, _)
        | Self::ContainsText(field, _)
        | Self::OneOf(field, _)
        | Self::Contains(field, _)) = self
        else {
            return Ok(false);
        };
        let Some(value) = record.look_up(*field)? else { return Ok(false) };
        Ok(match (self, value) {
            (Self::Compare(_, comparison, operand), value) => {
                operand.order(value).is_some_and(|order| comparison.holds(order))
            }
            (Self::StartsWith(_, prefix), ValueRef::String(text)) => text.starts_with(prefix.as_str()),
            (Self::ContainsText(_, part), ValueRef::String(text)) => text.contains(part.as_str()),
            (Self::OneOf(_, operands), value) => operands.contains(value),
            (Self::Contains(_, operand), value) => match operand.0.as_scalar() {
                Some(operand) => value.has(operand)?,
                None => false,
            },
            _ => false,
        })
    }
}

/// How many levels there may be below one that may have `levels`.
fn levels_below(levels: usize) -> Result<usize, FilterError> {
    levels.checked_sub(1).ok_or(FilterError::Nesting)
}

/// What keeps a filter from being read, written or answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
enum FilterError {
    #[error("it is cut off")]
    CutOff,
    #[error("bytes are left over behind it")]
    LeftOver,
    #[error("its version {0} is not known here; this program reads version {VERSION}", VERSION = encoding::VERSION)]
    Version(u8),
    #[error("it has {0} bytes; {limit} are allowed", limit = limits::FILTER)]
    Size(usize),
    #[error("it is nested deeper than {limit}", limit = limits::FILTER_NESTING)]
    Nesting,
    #[error("it has more than {limit} nodes", limit = limits::FILTER_NODES)]
    Nodes,
    #[error("it has a node of the unknown kind {0:#04x}")]
    Code(u8),
    #[error("a number is over 32 bits or longer than it needs to be")]
    Number,
    #[error("a text is not UTF-8")]
    Utf8,
    #[error("an operand is null, a list, a set or a map")]
    Operand,
    #[error("an operand is not well formed: {0}")]
    Value(EncodingError),
    #[error("the operands of a choice are out of order")]
    Order,
    /// Nothing is wrong with the filter.
    #[error(transparent)]
    Record(EncodingError),
}

impl From<FilterError> for Error {
    #[cold]
    fn from(flaw: FilterError) -> Self {
        let kind = match flaw {
            FilterError::Record(malformed) => return malformed.into_corrupt(),
            FilterError::Version(_) | FilterError::Code(_) => ErrorKind::Unsupported,
            FilterError::Size(_) | FilterError::Nesting | FilterError::Nodes => ErrorKind::TooLarge,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, format!("a filter is not well formed: {flaw}"))
    }
}

macro_rules! operand_from {
    ($($from:ty),* $(,)?) => {
        $(impl From<$from> for Operand {
            fn from(value: $from) -> Self {
                Self(value.into())
            }
        })*
    };
}

operand_from!(bool, i64, f64, &str, String, bytes::Bytes, crate::Decimal, crate::Date, crate::Timestamp, crate::Oid);

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

#[cfg(test)]
mod tests;
