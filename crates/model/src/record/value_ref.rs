//! Values in an encoded record, read in place.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::layout::{EncodingError, Table};
use crate::order::{self, Family};
use crate::{Date, Decimal, DecimalRef, Oid, Result, Timestamp, Value, limits};

/// The first byte of an encoded value. Codes never change; a new kind of value gets a new one.
pub(super) mod tag {
    pub(in crate::record) const NULL: u8 = 0x00;
    pub(in crate::record) const FALSE: u8 = 0x01;
    pub(in crate::record) const TRUE: u8 = 0x02;
    pub(in crate::record) const INT64: u8 = 0x03;
    pub(in crate::record) const FLOAT64: u8 = 0x04;
    pub(in crate::record) const DECIMAL: u8 = 0x05;
    pub(in crate::record) const STRING: u8 = 0x06;
    pub(in crate::record) const BYTES: u8 = 0x07;
    pub(in crate::record) const DATE: u8 = 0x08;
    pub(in crate::record) const TIMESTAMP: u8 = 0x09;
    pub(in crate::record) const REFERENCE: u8 = 0x0a;
    pub(in crate::record) const LIST: u8 = 0x0b;
    pub(in crate::record) const SET: u8 = 0x0c;
    pub(in crate::record) const MAP: u8 = 0x0d;
}

/// The only encoded NaN: that of Java's `Double.doubleToLongBits`.
pub(super) const NAN: u64 = 0x7ff8_0000_0000_0000;

/// A value that borrows from its record. Scalars are decoded; lists, sets and maps are decoded on access.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// No value.
    Null,
    /// A Boolean value.
    Bool(bool),
    /// An integer.
    Int64(i64),
    /// A floating-point number.
    Float64(f64),
    /// A decimal number.
    Decimal(DecimalRef<'a>),
    /// Text.
    String(&'a str),
    /// Bytes without a meaning to Mortar.
    Bytes(&'a [u8]),
    /// A day.
    Date(Date),
    /// A point in time.
    Timestamp(Timestamp),
    /// A reference to an object.
    Reference(Oid),
    /// An ordered list.
    List(Elements<'a>),
    /// A set, in order.
    Set(Elements<'a>),
    /// A map, in key order.
    Map(Entries<'a>),
}

/// The elements of an encoded list or set.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a>(Table<'a>);

/// The keys and values of an encoded map.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a>(Table<'a>);

impl<'a> Elements<'a> {
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.0.bytes()
    }

    /// The bytes of their encoding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.bytes().len()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`; `None` after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the element is damaged.
    pub fn get(&self, index: usize) -> Result<Option<ValueRef<'a>>> {
        (index < self.len()).then(|| self.0.value(index)).transpose().map_err(EncodingError::into_corrupt)
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<ValueRef<'a>>> + use<'a> {
        let table = self.0;
        (0..table.len()).map(move |index| table.value(index).map_err(EncodingError::into_corrupt))
    }
}

impl<'a> Entries<'a> {
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.0.bytes()
    }

    /// The bytes of their encoding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.bytes().len()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at `index` in key order; `None` after the last.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the entry is damaged.
    pub fn get(&self, index: usize) -> Result<Option<(ValueRef<'a>, ValueRef<'a>)>> {
        (index < self.len()).then(|| entry(&self.0, index)).transpose().map_err(EncodingError::into_corrupt)
    }

    /// The entries, in key order.
    pub fn iter(&self) -> impl Iterator<Item = Result<(ValueRef<'a>, ValueRef<'a>)>> + use<'a> {
        let table = self.0;
        (0..table.len() / 2).map(move |index| entry(&table, index).map_err(EncodingError::into_corrupt))
    }
}

fn entry<'a>(table: &Table<'a>, index: usize) -> Result<(ValueRef<'a>, ValueRef<'a>), EncodingError> {
    Ok((table.value(2 * index)?, table.value(2 * index + 1)?))
}

impl<'a> ValueRef<'a> {
    /// Reads a value that takes exactly these bytes.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, EncodingError> {
        let (&tag, body) = bytes.split_first().ok_or(EncodingError::Offsets)?;
        let wrong = EncodingError::Value(tag);
        Ok(match tag {
            tag::NULL if body.is_empty() => Self::Null,
            tag::FALSE if body.is_empty() => Self::Bool(false),
            tag::TRUE if body.is_empty() => Self::Bool(true),
            tag::NULL | tag::FALSE | tag::TRUE => return Err(wrong),
            tag::INT64 => Self::Int64(read_i64(body).ok_or(wrong)?),
            tag::FLOAT64 => Self::Float64(read_f64(body).ok_or(wrong)?),
            tag::DECIMAL => Self::Decimal(read_decimal(body).ok_or(wrong)?),
            tag::STRING => Self::String(std::str::from_utf8(body).map_err(|_| EncodingError::Utf8)?),
            tag::BYTES => Self::Bytes(body),
            tag::DATE => Self::Date(Date { days: read_i64(body).ok_or(wrong)? }),
            tag::TIMESTAMP => Self::Timestamp(read_i128(body).and_then(Timestamp::from_nanos).ok_or(wrong)?),
            tag::REFERENCE => Self::Reference(Oid::from_bytes(body.try_into().map_err(|_| wrong)?)),
            tag::LIST => Self::List(Elements(Table::parse(body, false)?)),
            tag::SET => Self::Set(Elements(Table::parse(body, false)?)),
            tag::MAP => Self::Map(Entries(Table::parse(body, false)?)),
            unknown => return Err(EncodingError::Tag(unknown)),
        })
    }

    /// The decoded value.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a part of it is damaged.
    pub fn to_value(self) -> Result<Value> {
        self.decode(limits::NESTING).map_err(EncodingError::into_corrupt)
    }

    /// The order of two values as [`Value`]s; decodes only what is needed.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a part that is read is damaged.
    pub fn compare(self, other: ValueRef<'_>) -> Result<Ordering> {
        self.order(other, limits::NESTING).map_err(EncodingError::into_corrupt)
    }

    /// The order of two values as in filters; `None` if they are of different families, or lists, sets or maps.
    ///
    /// Numbers order by their exact value whatever their types: 1 = 1.0 = 1.00. NaN equals itself and is above all
    /// others.
    #[must_use]
    pub fn compare_as_filters(self, other: ValueRef<'_>) -> Option<Ordering> {
        order::compare(self, other)
    }

    /// Whether this list or set contains an element, or this map a key, that equals the scalar as in filters.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a part that is read is damaged.
    pub fn contains(self, scalar: ValueRef<'_>) -> Result<bool> {
        self.has(scalar).map_err(EncodingError::into_corrupt)
    }

    /// As [`contains`](Self::contains), with a small error type for loops.
    pub(crate) fn has(self, scalar: ValueRef<'_>) -> Result<bool, EncodingError> {
        let Some(table) = self.table() else { return Ok(false) };
        match self {
            Self::List(_) => {
                for index in 0..table.len() {
                    if order::compare(table.value(index)?, scalar) == Some(Ordering::Equal) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Map(_) => search(table.len() / 2, scalar, |index| table.value(2 * index)),
            _ => search(table.len(), scalar, |index| table.value(index)),
        }
    }

    /// The encoding of the value, as in records.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        super::encode_ref(self, &mut out);
        out
    }

    /// Decodes and validates a value from any source.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if [`to_bytes`](Self::to_bytes) does not write these bytes.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self> {
        let value = Self::parse(bytes).and_then(|value| value.check(limits::NESTING).map(|()| value));
        value.map_err(EncodingError::into_invalid)
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Null => Family::Null,
            Self::Bool(_) => Family::Bool,
            Self::Int64(_) | Self::Float64(_) | Self::Decimal(_) => Family::Number,
            Self::String(_) => Family::String,
            Self::Bytes(_) => Family::Bytes,
            Self::Date(_) => Family::Date,
            Self::Timestamp(_) => Family::Timestamp,
            Self::Reference(_) => Family::Reference,
            Self::List(_) => Family::List,
            Self::Set(_) => Family::Set,
            Self::Map(_) => Family::Map,
        }
    }

    /// The table of a list, set or map.
    pub(crate) fn table(self) -> Option<Table<'a>> {
        match self {
            Self::List(Elements(table)) | Self::Set(Elements(table)) | Self::Map(Entries(table)) => Some(table),
            _ => None,
        }
    }

    /// Whether this is the only encoding of the value at every level, with at most `levels` levels below.
    pub(super) fn check(self, levels: usize) -> Result<(), EncodingError> {
        let Some(table) = self.table() else { return Ok(()) };
        let below = levels.checked_sub(1).ok_or(EncodingError::Nesting)?;
        table.check()?;
        let step = match self {
            Self::Map(_) if table.len() % 2 == 1 => return Err(EncodingError::OddMap),
            Self::Map(_) => 2,
            _ => 1,
        };
        let sorted = !matches!(self, Self::List(_));
        let mut previous = None;
        for index in 0..table.len() {
            let item = table.value(index)?;
            item.check(below)?;
            if sorted && index % step == 0 {
                match previous.replace(item) {
                    Some(previous) if previous.order(item, below)?.is_ge() => return Err(EncodingError::Order),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn order(self, other: ValueRef<'_>, levels: usize) -> Result<Ordering, EncodingError> {
        let (a, b) = match (self.table(), other.table()) {
            (Some(a), Some(b)) if self.family() == other.family() => (a, b),
            _ => return Ok(order::total_cmp(self, other)),
        };
        let below = levels.checked_sub(1).ok_or(EncodingError::Nesting)?;
        for index in 0..a.len().min(b.len()) {
            let order = a.value(index)?.order(b.value(index)?, below)?;
            if order.is_ne() {
                return Ok(order);
            }
        }
        Ok(a.len().cmp(&b.len()))
    }

    pub(crate) fn decode(self, levels: usize) -> Result<Value, EncodingError> {
        let below = levels.checked_sub(1).ok_or(EncodingError::Nesting);
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int64(value) => Value::Int64(value),
            Self::Float64(value) => Value::Float64(value),
            Self::Decimal(value) => Value::Decimal(value.to_decimal()),
            Self::String(value) => Value::String(value.to_owned()),
            Self::Bytes(value) => Value::Bytes(Bytes::copy_from_slice(value)),
            Self::Date(value) => Value::Date(value),
            Self::Timestamp(value) => Value::Timestamp(value),
            Self::Reference(value) => Value::Reference(value),
            Self::List(Elements(table)) => {
                let below = below?;
                let items = (0..table.len()).map(|index| table.value(index)?.decode(below));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Self::Set(Elements(table)) => {
                let (below, mut set) = (below?, BTreeSet::new());
                for index in 0..table.len() {
                    let item = table.value(index)?.decode(below)?;
                    if set.last().is_some_and(|last| *last >= item) {
                        return Err(EncodingError::Order);
                    }
                    set.insert(item);
                }
                Value::Set(set)
            }
            Self::Map(Entries(table)) => {
                let (below, mut map) = (below?, BTreeMap::new());
                if table.len() % 2 == 1 {
                    return Err(EncodingError::OddMap);
                }
                for index in 0..table.len() / 2 {
                    let (key, value) = entry(&table, index)?;
                    let key = key.decode(below)?;
                    if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                        return Err(EncodingError::Order);
                    }
                    map.insert(key, value.decode(below)?);
                }
                Value::Map(map)
            }
        })
    }
}

/// Searches values in total order for one that equals the scalar as in filters.
fn search<'a>(
    len: usize,
    scalar: ValueRef<'_>,
    value: impl Fn(usize) -> Result<ValueRef<'a>, EncodingError>,
) -> Result<bool, EncodingError> {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        match order::compare_for_search(value(middle)?, scalar) {
            Ordering::Equal => return Ok(true),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    Ok(false)
}

/// A two's complement integer in the fewest bytes, none for 0.
#[inline]
fn read_i64(body: &[u8]) -> Option<i64> {
    if body.len() > 8 || !is_minimal(body) {
        return None;
    }
    let sign = if body.first().is_some_and(|&byte| byte >= 0x80) { -1 } else { 0 };
    Some(body.iter().fold(sign, |number, &byte| number << 8 | i64::from(byte)))
}

fn read_i128(body: &[u8]) -> Option<i128> {
    if body.len() > 16 || !is_minimal(body) {
        return None;
    }
    let sign = if body.first().is_some_and(|&byte| byte >= 0x80) { -1 } else { 0 };
    Some(body.iter().fold(sign, |number, &byte| number << 8 | i128::from(byte)))
}

#[inline]
fn is_minimal(body: &[u8]) -> bool {
    !matches!(body, [0] | [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..])
}

#[inline]
fn read_f64(body: &[u8]) -> Option<f64> {
    let bits = u64::from_be_bytes(body.try_into().ok()?);
    let number = f64::from_bits(bits);
    (!number.is_nan() || bits == NAN).then_some(number)
}

/// The length of the scale in one byte, the scale, the unscaled number.
fn read_decimal(body: &[u8]) -> Option<DecimalRef<'_>> {
    let (&len, rest) = body.split_first()?;
    let (scale, unscaled) = rest.split_at_checked(usize::from(len))?;
    DecimalRef::from_encoded(unscaled, i32::try_from(read_i64(scale)?).ok()?)
}

macro_rules! value_ref_from {
    ($($from:ty => |$value:ident| $to:expr),* $(,)?) => {
        $(impl<'a> From<$from> for ValueRef<'a> {
            fn from($value: $from) -> Self {
                $to
            }
        })*
    };
}

value_ref_from! {
    bool => |value| Self::Bool(value),
    i64 => |value| Self::Int64(value),
    f64 => |value| Self::Float64(value),
    &'a Decimal => |value| Self::Decimal(value.as_ref()),
    DecimalRef<'a> => |value| Self::Decimal(value),
    &'a str => |value| Self::String(value),
    &'a [u8] => |value| Self::Bytes(value),
    Date => |value| Self::Date(value),
    Timestamp => |value| Self::Timestamp(value),
    Oid => |value| Self::Reference(value),
}
