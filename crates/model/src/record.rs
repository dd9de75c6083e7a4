//! Records: a header that indexes fields by number, then the fields.
//!
//! A brick reads, filters and indexes records without class metadata: [`RecordRef::field`] finds a field by its number
//! and reads it in place, without reading other fields. docs/format.md describes the bytes;
//! docs/decisions/record-encoding.md gives the reasons for this encoding.
//!
//! 1. A record has one encoding: equal fields have equal bytes. [`RecordRef::validate`] accepts no other.
//! 2. Whatever the bytes, no function here panics, reads past them, recurses deeper than [`limits::NESTING`], or
//!    allocates memory by a length that the bytes claim. Reading a record in place allocates nothing; decoding it
//!    creates one [`Value`] for each value.
//! 3. The first byte is the version. Later versions can read earlier ones.

mod builder;
mod layout;
mod value_ref;

use std::collections::BTreeMap;
use std::fmt;

pub use builder::RecordBuilder;
pub(crate) use builder::{encode_ref, encode_value};
pub(crate) use layout::EncodingError;
pub use value_ref::{Elements, Entries, ValueRef};

use crate::{Result, Value, limits};
use layout::Table;

/// The version that is written.
pub(crate) const VERSION: u8 = 1;

/// The number of a field in its class; unlike the field's name it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldNumber(pub u32);

impl fmt::Display for FieldNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An encoded record, read in place.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    table: Table<'a>,
}

impl<'a> RecordRef<'a> {
    /// Reads a record from storage. Only its frame is checked here, at a cost that does not depend on its size; each
    /// field is checked when it is read.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the frame is damaged,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the record was written by a newer version.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        Self::parse(bytes).map_err(EncodingError::into_corrupt)
    }

    /// Validates a whole record from a writer: it is well-formed, and this is its only encoding.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is not,
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) past [`limits::RECORD`],
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the writer is newer.
    pub fn validate(bytes: &'a [u8]) -> Result<Self> {
        let check = || {
            let record = Self::parse(bytes)?;
            record.table.check()?;
            for index in 0..record.len() {
                record.table.value(index)?.check(limits::NESTING)?;
            }
            Ok(record)
        };
        check().map_err(EncodingError::into_invalid)
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the record has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The field with this number; `None` if the record was written before the class had the field.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the field is damaged.
    #[inline]
    pub fn field(&self, field: FieldNumber) -> Result<Option<ValueRef<'a>>> {
        self.look_up(field).map_err(EncodingError::into_corrupt)
    }

    /// As [`field`](Self::field), with a small error type for loops.
    #[inline]
    pub(crate) fn look_up(&self, field: FieldNumber) -> Result<Option<ValueRef<'a>>, EncodingError> {
        self.table.find(field.0).map(|index| self.table.value(index)).transpose()
    }

    /// The fields, by ascending number.
    pub fn fields(&self) -> impl Iterator<Item = Result<(FieldNumber, ValueRef<'a>)>> + use<'a> {
        let record = *self;
        (0..record.len()).map(move |index| record.entry(index).map_err(EncodingError::into_corrupt))
    }

    /// All fields, decoded.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if any part of the record is damaged.
    pub fn to_fields(&self) -> Result<BTreeMap<FieldNumber, Value>> {
        self.fields().map(|field| field.and_then(|(number, value)| Ok((number, value.to_value()?)))).collect()
    }

    fn parse(bytes: &'a [u8]) -> Result<Self, EncodingError> {
        if bytes.len() > limits::RECORD {
            return Err(EncodingError::Size { bytes: bytes.len() });
        }
        match bytes.split_first() {
            Some((&VERSION, table)) => Ok(Self { table: Table::parse(table, true)? }),
            Some((&version, _)) => Err(EncodingError::Version(version)),
            None => Err(EncodingError::Empty),
        }
    }

    fn entry(&self, index: usize) -> Result<(FieldNumber, ValueRef<'a>), EncodingError> {
        let number = self.table.number(index).ok_or(EncodingError::Header)?;
        Ok((FieldNumber(number), self.table.value(index)?))
    }
}

#[cfg(test)]
mod tests;
