//! Values of fields.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use crate::order::{self, Family};
use crate::record::encode_value;
use crate::{Date, Decimal, Oid, Result, Timestamp, ValueRef};

/// A value that owns its data; [`ValueRef`] is a value in an encoded record.
///
/// `==`, `<` and the order of sets and map keys are one total order. Values order by family (null, bool, numbers,
/// string, bytes, date, time stamp, reference, list, set, map). Numbers order by their exact value whatever their
/// types; equal numbers order as int64 < float64 < decimal, -0.0 < 0.0, and 1.0 < 1.00. NaN is one value, equal to
/// itself and above all other numbers. Lists, sets and maps order by their first difference. So two values are equal
/// only if their encodings are equal. Filters use a coarser relation, in which 1 = 1.00.
#[derive(Clone, Debug)]
pub enum Value {
    /// No value.
    Null,
    /// A Boolean value.
    Bool(bool),
    /// An integer.
    Int64(i64),
    /// A floating-point number.
    Float64(f64),
    /// A decimal number with its scale.
    Decimal(Decimal),
    /// Text.
    String(String),
    /// Bytes without a meaning to Mortar.
    Bytes(Bytes),
    /// A day.
    Date(Date),
    /// A point in time.
    Timestamp(Timestamp),
    /// A reference to an object.
    Reference(Oid),
    /// An ordered list.
    List(Vec<Value>),
    /// A set.
    Set(BTreeSet<Value>),
    /// A map.
    Map(BTreeMap<Value, Value>),
}

impl Value {
    /// The value as a [`ValueRef`], unless it is a list, set or map.
    #[must_use]
    pub fn as_scalar(&self) -> Option<ValueRef<'_>> {
        Some(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::Int64(value) => ValueRef::Int64(*value),
            Self::Float64(value) => ValueRef::Float64(*value),
            Self::Decimal(value) => ValueRef::Decimal(value.as_ref()),
            Self::String(value) => ValueRef::String(value),
            Self::Bytes(value) => ValueRef::Bytes(value),
            Self::Date(value) => ValueRef::Date(*value),
            Self::Timestamp(value) => ValueRef::Timestamp(*value),
            Self::Reference(value) => ValueRef::Reference(*value),
            Self::List(_) | Self::Set(_) | Self::Map(_) => return None,
        })
    }

    /// The encoding of the value, as in records.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) past [`limits::RECORD`](crate::limits::RECORD) or
    /// [`limits::NESTING`](crate::limits::NESTING).
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        encode_value(self)
    }

    /// Decodes and validates a value from any source.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if [`to_bytes`](Self::to_bytes) does not write these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        ValueRef::from_bytes(bytes)?.to_value()
    }

    fn family(&self) -> Family {
        match self {
            Self::List(_) => Family::List,
            Self::Set(_) => Family::Set,
            Self::Map(_) => Family::Map,
            scalar => scalar.as_scalar().map_or(Family::Null, ValueRef::family),
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a.cmp(b),
            (Self::Set(a), Self::Set(b)) => a.cmp(b),
            (Self::Map(a), Self::Map(b)) => a.cmp(b),
            _ => match (self.as_scalar(), other.as_scalar()) {
                (Some(a), Some(b)) => order::total_cmp(a, b),
                _ => self.family().cmp(&other.family()),
            },
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// The form for people: `null`, `true`, `42`, `1.5`, `12.50`, `"text"`, `x'0aff'`, `2026-07-01`, `@1.0.0.2a.3` for a
/// reference, `[1, 2]`, `{1, 2}`, `{"a": 1}`. Long bytes are shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Int64(value) => value.fmt(f),
            // Debug writes 1.0, and 1e300 instead of three hundred zeros.
            Self::Float64(value) => fmt::Debug::fmt(value, f),
            Self::Decimal(value) => value.fmt(f),
            Self::String(value) => fmt::Debug::fmt(value, f),
            Self::Bytes(value) => display_bytes(value, f),
            Self::Date(value) => value.fmt(f),
            Self::Timestamp(value) => value.fmt(f),
            Self::Reference(value) => write!(f, "@{value}"),
            Self::List(values) => display_all(values, ('[', ']'), f),
            Self::Set(values) => display_all(values, ('{', '}'), f),
            Self::Map(entries) if entries.is_empty() => f.write_str("{:}"),
            Self::Map(entries) => {
                display_all(entries.iter().map(|(key, value)| format!("{key}: {value}")), ('{', '}'), f)
            }
        }
    }
}

fn display_all<T: fmt::Display>(
    items: impl IntoIterator<Item = T>,
    (open, close): (char, char),
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "{open}")?;
    for (index, item) in items.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{item}")?;
    }
    write!(f, "{close}")
}

fn display_bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHOWN: usize = 32;
    f.write_str("x'")?;
    for byte in bytes.iter().take(SHOWN) {
        write!(f, "{byte:02x}")?;
    }
    match bytes.len() {
        0..=SHOWN => f.write_str("'"),
        len => write!(f, "…' ({len} bytes)"),
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

value_from! {
    bool => Bool,
    i64 => Int64,
    f64 => Float64,
    Decimal => Decimal,
    &str => String,
    String => String,
    Bytes => Bytes,
    Vec<u8> => Bytes,
    Date => Date,
    Timestamp => Timestamp,
    Oid => Reference,
    Vec<Value> => List,
    BTreeSet<Value> => Set,
    BTreeMap<Value, Value> => Map,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests;
