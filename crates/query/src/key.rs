//! Keys of indexes: bytes that order as the values of fields do.
//!
//! A key is a sequence of components, one for each field. Components are self-delimiting, so no key is a prefix of
//! another. They order by family (null, bool, numbers, strings, bytes, dates, time stamps, references), and within a
//! family as filters compare: 1, 1.0 and 1.00 have the same bytes, whatever type a record was written with. All lists,
//! sets and maps have the same component.
//!
//! 1. A key has at most [`limits::KEY`] bytes. A value that is too long for its share is truncated and marked. It
//!    orders after the value that ends at that place, and before all larger ones. No component follows, so the order is
//!    preserved, but values with a long common prefix have the same components. The bounds of ranges take this into
//!    account: a range contains all entries that it should, and possibly others; the reader must check the objects.
//! 2. A key with a truncated component ends with a checksum of all values, so that two entries have the same key only
//!    if their values are equal. A unique index therefore compares keys only.
//! 3. An entry with a null is never a duplicate ([`IndexEntry::has_null`]).
//!
//! A component is a tag, followed by
//! - strings and bytes: their bytes, with each zero byte as `00 ff`; the end is `00 00`, or `00 01` if truncated;
//! - numbers: `0.d₁d₂… × 100^e`, with e in one byte if it is within ±100, then each pair of digits plus 2; the end is `00`, or
//!   `01` if truncated. In negative numbers all bytes but the tag are inverted;
//! - dates, time stamps: counts, big-endian, with the top bit inverted; references: their 16 bytes.

mod number;

use model::checksum::crc64;
use model::{Comparison, FieldNumber, RecordRef, Result, ValueRef};

use crate::limits;
use crate::plant::{Bug, planted};

/// The entry of an object in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The key; at most [`limits::KEY`] bytes.
    pub key: Vec<u8>,
    /// Whether one of the values is null. Then the entry is never a duplicate.
    pub has_null: bool,
}

/// A half-open range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower bound, inclusive.
    pub from: Vec<u8>,
    /// The upper bound, exclusive.
    pub to: Vec<u8>,
}

/// The tags of components, which are stored on disk and never change. Those of numbers are consecutive, negative ones first.
mod tag {
    pub(super) const NULL: u8 = 0x05;
    pub(super) const FALSE: u8 = 0x10;
    pub(super) const TRUE: u8 = 0x11;
    pub(super) const MINUS_INFINITY: u8 = 0x20;
    pub(super) const NEGATIVE: u8 = 0x21;
    pub(super) const ZERO: u8 = 0x22;
    pub(super) const POSITIVE: u8 = 0x23;
    pub(super) const INFINITY: u8 = 0x24;
    pub(super) const NAN: u8 = 0x25;
    pub(super) const STRING: u8 = 0x30;
    pub(super) const BYTES: u8 = 0x31;
    pub(super) const DATE: u8 = 0x40;
    pub(super) const TIMESTAMP: u8 = 0x41;
    pub(super) const REFERENCE: u8 = 0x50;
    pub(super) const COLLECTION: u8 = 0x60;
    /// Above every component.
    pub(super) const END: u8 = 0xff;
}

/// Bytes of the checksum of a key with a truncated component.
const CHECKSUM: usize = 8;

impl IndexEntry {
    /// The entry of these values, one for each field of the index.
    ///
    /// # Panics
    /// If there are more than [`limits::KEY_FIELDS`].
    #[must_use]
    pub fn new(values: &[ValueRef<'_>]) -> Self {
        assert!(values.len() <= limits::KEY_FIELDS, "an index of {} fields", values.len());
        let mut prefix = KeyPrefix::new(values.len());
        values.iter().for_each(|value| prefix.push(*value));
        let KeyPrefix { mut key, cut, .. } = prefix;
        if cut && !planted(Bug::CutKeysCollide) {
            key.extend_from_slice(&crc64(&full_key(values)).to_be_bytes());
        }
        let has_null = values.iter().any(|value| matches!(value, ValueRef::Null));
        Self { key, has_null: has_null && !planted(Bug::NullIsDuplicate) }
    }

    /// The entry of a record. A field that the record lacks counts as null, even if it has a default.
    ///
    /// # Errors
    /// [`Corrupt`](model::ErrorKind::Corrupt) if one of the fields is damaged.
    ///
    /// # Panics
    /// If there are more than [`limits::KEY_FIELDS`].
    pub fn of(record: &RecordRef<'_>, fields: &[FieldNumber]) -> Result<Self> {
        let values: Result<Vec<ValueRef<'_>>> =
            fields.iter().map(|field| Ok(record.field(*field)?.unwrap_or(ValueRef::Null))).collect();
        Ok(Self::new(&values?))
    }
}

impl KeyRange {
    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self { from: vec![], to: vec![tag::END] }
    }

    /// Whether it contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    /// Whether it contains the key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && *key < *self.to
    }

    /// The keys in both ranges.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    /// All keys with a prefix, which ends with a component or within a string.
    fn of_prefix(from: Vec<u8>) -> Self {
        let to = successor(&from);
        Self { from, to }
    }
}

/// The components of values, not truncated: they are equal if the values are, and order as the values do.
pub(crate) fn full_key(values: &[ValueRef<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        append_component(*value, usize::MAX, &mut out);
    }
    out
}

/// The prefix of a key: the components of its first fields, up to the first truncated one.
#[derive(Clone, Debug)]
pub(crate) struct KeyPrefix {
    key: Vec<u8>,
    /// Whether the last component is truncated. Then the key has no further components.
    cut: bool,
    /// The number of remaining fields.
    fields: usize,
}

impl KeyPrefix {
    /// The empty prefix of a key with this number of fields.
    pub(crate) fn new(fields: usize) -> Self {
        Self { key: vec![], cut: false, fields }
    }

    /// Adds the next component.
    pub(crate) fn push(&mut self, value: ValueRef<'_>) {
        if !self.cut {
            let share = self.share();
            self.fields = self.fields.saturating_sub(1);
            self.cut = append_component(value, share, &mut self.key);
        }
    }

    /// The maximum size of the next component: its share of the remaining bytes. It is the same for keys with the same prefix.
    fn share(&self) -> usize {
        (limits::KEY - CHECKSUM - self.key.len()) / self.fields.max(1)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.key
    }

    /// All keys with this prefix.
    pub(crate) fn range(&self) -> KeyRange {
        if self.key.is_empty() { KeyRange::all() } else { KeyRange::of_prefix(self.key.clone()) }
    }

    /// The keys whose next value satisfies a comparison, and possibly others close to the bounds.
    pub(crate) fn compare(&self, comparison: Comparison, value: ValueRef<'_>) -> KeyRange {
        if self.cut {
            return self.range();
        }
        let (first, end) = family(value);
        let mut key = self.key.clone();
        let cut = append_component(value, self.share(), &mut key);
        let (first, end) = (self.key_with(first), self.key_with(end));
        match comparison {
            Comparison::Equal => KeyRange::of_prefix(key),
            Comparison::NotEqual => KeyRange { from: first, to: end },
            Comparison::Less if !cut => KeyRange { from: first, to: key },
            Comparison::Less | Comparison::LessOrEqual => KeyRange { from: first, to: successor(&key) },
            Comparison::Greater if !cut => KeyRange { from: successor(&key), to: end },
            Comparison::Greater | Comparison::GreaterOrEqual => KeyRange { from: key, to: end },
        }
    }

    /// The keys whose next value is a string with this prefix, and possibly others with a similar one.
    pub(crate) fn starts_with(&self, text: &str) -> KeyRange {
        if self.cut {
            return self.range();
        }
        let mut key = self.key_with(tag::STRING);
        append_escaped(text.as_bytes(), self.share() - 3, &mut key);
        KeyRange::of_prefix(key)
    }

    /// The keys whose next value is null.
    pub(crate) fn null(&self) -> KeyRange {
        if self.cut {
            self.range()
        } else {
            KeyRange { from: self.key_with(tag::NULL), to: self.key_with(tag::NULL + 1) }
        }
    }

    /// The keys whose next value is not null.
    pub(crate) fn not_null(&self) -> KeyRange {
        if self.cut {
            self.range()
        } else {
            KeyRange { from: self.key_with(tag::NULL + 1), to: self.key_with(tag::END) }
        }
    }

    fn key_with(&self, byte: u8) -> Vec<u8> {
        let mut key = self.key.clone();
        key.push(byte);
        key
    }
}

/// The first tag of a value's family, and the tag after its last.
fn family(value: ValueRef<'_>) -> (u8, u8) {
    let (first, last) = match value {
        ValueRef::Null => (tag::NULL, tag::NULL),
        ValueRef::Bool(_) => (tag::FALSE, tag::TRUE),
        ValueRef::Int64(_) | ValueRef::Float64(_) | ValueRef::Decimal(_) => (tag::MINUS_INFINITY, tag::NAN),
        ValueRef::String(_) => (tag::STRING, tag::STRING),
        ValueRef::Bytes(_) => (tag::BYTES, tag::BYTES),
        ValueRef::Date(_) => (tag::DATE, tag::DATE),
        ValueRef::Timestamp(_) => (tag::TIMESTAMP, tag::TIMESTAMP),
        ValueRef::Reference(_) => (tag::REFERENCE, tag::REFERENCE),
        ValueRef::List(_) | ValueRef::Set(_) | ValueRef::Map(_) => (tag::COLLECTION, tag::COLLECTION),
    };
    (first, last + 1)
}

/// Appends a component of at most `share` bytes; returns whether it was truncated.
fn append_component(value: ValueRef<'_>, share: usize, out: &mut Vec<u8>) -> bool {
    const SIGN: u64 = 1 << 63;
    match value {
        ValueRef::Null => out.push(tag::NULL),
        ValueRef::Bool(value) => out.push(if value { tag::TRUE } else { tag::FALSE }),
        ValueRef::Int64(_) | ValueRef::Float64(_) | ValueRef::Decimal(_) => {
            return number::append_component(value, share, out);
        }
        ValueRef::String(text) => return append_text(tag::STRING, text.as_bytes(), share, out),
        ValueRef::Bytes(bytes) => return append_text(tag::BYTES, bytes, share, out),
        ValueRef::Date(date) => {
            out.push(tag::DATE);
            out.extend_from_slice(&(date.days as u64 ^ SIGN).to_be_bytes());
        }
        ValueRef::Timestamp(moment) => {
            out.push(tag::TIMESTAMP);
            out.extend_from_slice(&(moment.seconds() as u64 ^ SIGN).to_be_bytes());
            out.extend_from_slice(&moment.subsec_nanos().to_be_bytes());
        }
        ValueRef::Reference(oid) => {
            out.push(tag::REFERENCE);
            out.extend_from_slice(&oid.to_bytes());
        }
        ValueRef::List(_) | ValueRef::Set(_) | ValueRef::Map(_) => out.push(tag::COLLECTION),
    }
    false
}

fn append_text(tag: u8, bytes: &[u8], share: usize, out: &mut Vec<u8>) -> bool {
    out.push(tag);
    let cut = append_escaped(bytes, share - 3, out);
    out.extend_from_slice(&[0, u8::from(cut)]);
    cut
}

/// Appends the bytes that fit in `room`, with two bytes for a zero; returns whether some did not fit.
fn append_escaped(bytes: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    let end = out.len().saturating_add(room);
    for &byte in bytes {
        let escaped: &[u8] = if byte == 0 { &[0, 0xff] } else { &[byte] };
        if out.len() + escaped.len() > end {
            return true;
        }
        out.extend_from_slice(escaped);
    }
    false
}

/// The smallest key above all keys with a prefix.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.last_mut() {
        if *last < 0xff {
            *last += 1;
            return next;
        }
        next.pop();
    }
    vec![tag::END]
}

// ---------------------------------------------------------------------------------------------- first components

/// The first component of a key; `None` if these bytes do not begin with a complete component.
#[must_use]
pub fn first_component(key: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = key.split_first()?;
    let len = match *tag {
        tag::NULL | tag::FALSE | tag::TRUE | tag::ZERO | tag::COLLECTION => 0,
        tag::INFINITY | tag::MINUS_INFINITY | tag::NAN => 0,
        tag::NEGATIVE => number::number_end(rest, |byte| !byte)?,
        tag::POSITIVE => number::number_end(rest, |byte| byte)?,
        tag::STRING | tag::BYTES => text_end(rest)?,
        tag::DATE => 8,
        tag::TIMESTAMP => 8 + 4,
        tag::REFERENCE => 16,
        _ => return None,
    };
    key.get(..1 + len)
}

/// The first component that all keys in a half-open range share; `None` if there is none.
#[must_use]
pub fn common_first_component<'k>(from: &'k [u8], to: &[u8]) -> Option<&'k [u8]> {
    first_component(from).filter(|first| to <= &successor(first)[..])
}

/// The length of an escaped string, with its end.
fn text_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 2;
        match bytes.get(at - 1)? {
            0 | 1 => return Some(at),
            0xff => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
