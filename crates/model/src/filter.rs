//! Filters: conditions on a record that a brick evaluates by field number, without class metadata.
//!
//! A [`Filter`] is a typed tree that the client builds; no text is parsed on the way. [`Filter::matches`] reads only
//! the fields that it names, in place. On the wire a filter has a compact encoding ([`Filter::encode`],
//! docs/format.md).
//!
//! 1. **Two values.** A filter is true or false of a record, never unknown. A test of a field is false if the field is
//!    absent, null, or of another family than the operand. So `a != 3` means that `a` exists and is not 3. Only
//!    [`Filter::IsNull`] is true of an absent or null field. `not` negates the result, so `not (a = 3)` is true without
//!    an `a`. docs/decisions/filter-nulls.md describes how both query languages compile to this.
//! 2. **Numbers compare by value,** exactly, whatever their types, because the type of a field may have been widened
//!    since the record was written. Null compares with nothing; NaN equals itself and is above all other numbers; -0.0
//!    = 0.0.
//! 3. A filter has at most [`limits::FILTER`] bytes and [`limits::FILTER_NESTING`] levels. A filter from a peer is
//!    checked when it is decoded. Evaluation never panics, whatever the bytes of the record.

mod encoding;

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error as ThisError;

use crate::record::EncodingError;
use crate::{Error, ErrorKind, FieldNumber, RecordRef, Result, Value, ValueRef, limits, order};

/// A condition on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// True if all are true, or if there are none.
    And(Vec<Filter>),
    /// True if at least one is true.
    Or(Vec<Filter>),
    /// True if the filter is false.
    Not(Box<Filter>),
    /// True if the field is absent or null.
    IsNull(FieldNumber),
    /// True if the comparison of the field with the operand holds.
    Compare(FieldNumber, Comparison, Operand),
    /// True if the field is a text that begins with this.
    StartsWith(FieldNumber, String),
    /// True if the field is a text that contains this.
    ContainsText(FieldNumber, String),
    /// True if the field equals one of the operands.
    OneOf(FieldNumber, Operands),
    /// True if the field is a list or set that contains the operand, or a map with this key.
    Contains(FieldNumber, Operand),
}

/// A comparison of a field with an operand.
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

/// An operand of a comparison: a value other than null, a list, a set or a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operand(Value);

/// Distinct operands, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operands(Vec<Operand>);

impl Comparison {
    /// Every comparison.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    /// Whether the comparison holds for this order of field and operand.
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
    /// [`ErrorKind::Invalid`] for null (use [`Filter::IsNull`]), lists, sets and maps.
    pub fn new(value: Value) -> Result<Self> {
        match value {
            Value::Null => {
                Err(Error::new(ErrorKind::Invalid, "a field cannot be compared with null: test whether it is null"))
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

    /// The order of a field and the operand; `None` if they are not comparable.
    #[inline]
    fn order(&self, field: ValueRef<'_>) -> Option<Ordering> {
        order::compare(field, self.0.as_scalar()?)
    }

    /// The position of a value in total order: below the values that equal the operand, equal, or above them.
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
    /// A comparison, such as `Filter::compare(FieldNumber(1), Comparison::Less, 1960)`.
    pub fn compare(field: FieldNumber, comparison: Comparison, operand: impl Into<Operand>) -> Self {
        Self::Compare(field, comparison, operand.into())
    }

    /// The field equals one of the operands.
    pub fn one_of<T: Into<Operand>>(field: FieldNumber, operands: impl IntoIterator<Item = T>) -> Self {
        Self::OneOf(field, operands.into_iter().map(Into::into).collect())
    }

    /// The field is a list, set or map that contains the operand as an element or key.
    pub fn contains(field: FieldNumber, operand: impl Into<Operand>) -> Self {
        Self::Contains(field, operand.into())
    }

    /// The negation.
    #[must_use]
    pub fn negate(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Whether the filter is true of a record.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a field that the filter reads is damaged, [`ErrorKind::TooLarge`] if the filter is
    /// nested deeper than [`limits::FILTER_NESTING`].
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

/// The number of levels allowed below a node that may have `levels`.
fn levels_below(levels: usize) -> Result<usize, FilterError> {
    levels.checked_sub(1).ok_or(FilterError::Nesting)
}

/// Why a filter cannot be decoded, encoded or evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
enum FilterError {
    #[error("it is incomplete")]
    CutOff,
    #[error("bytes follow after its end")]
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
    #[error("a number is over 32 bits or not minimally encoded")]
    Number,
    #[error("a text is not UTF-8")]
    Utf8,
    #[error("an operand is null, a list, a set or a map")]
    Operand,
    #[error("an operand is malformed: {0}")]
    Value(EncodingError),
    #[error("the operands of a choice are out of order")]
    Order,
    /// The filter is valid.
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
        Self::new(kind, format!("a filter is malformed: {flaw}"))
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
