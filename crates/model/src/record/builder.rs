//! Writing records.

use std::ops::Range;

use bytes::Bytes;

use super::layout::{EncodingError, write_header};
use super::value_ref::{NAN, tag};
use super::{FieldNumber, VERSION};
use crate::{Error, ErrorKind, Result, Value, ValueRef, limits};

/// Builds an encoded record from its fields, given in any order.
///
/// ```
/// use model::{FieldNumber, RecordBuilder, RecordRef};
///
/// let mut record = RecordBuilder::new();
/// record.set(FieldNumber(0), "Miles Davis")?.set(FieldNumber(1), 1926)?;
/// let bytes = record.build()?;
/// assert!(RecordRef::new(&bytes)?.field(FieldNumber(1))?.is_some());
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RecordBuilder {
    fields: Vec<(FieldNumber, Range<usize>)>,
    values: Vec<u8>,
}

impl RecordBuilder {
    /// A record without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field to a scalar or to a value of another record, replacing an earlier value.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the value is of another record and damaged, [`ErrorKind::TooLarge`] past
    /// [`limits::RECORD`].
    pub fn set<'v>(&mut self, field: FieldNumber, value: impl Into<ValueRef<'v>>) -> Result<&mut Self> {
        let (value, start) = (value.into(), self.values.len());
        value.check(limits::NESTING).map_err(EncodingError::into_corrupt)?;
        encode_ref(value, &mut self.values);
        self.end_field(field, start)
    }

    /// Sets a field to any value, replacing an earlier value.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] past [`limits::RECORD`] or [`limits::NESTING`].
    pub fn set_value(&mut self, field: FieldNumber, value: &Value) -> Result<&mut Self> {
        let start = self.values.len();
        if let Err(error) = encode(value, &mut self.values, limits::NESTING) {
            self.values.truncate(start);
            return Err(error);
        }
        self.end_field(field, start)
    }

    /// The encoded record.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] past [`limits::RECORD`].
    pub fn build(mut self) -> Result<Bytes> {
        // The sort is stable, so the last value of a field comes last and is kept.
        self.fields.sort_by_key(|(field, _)| *field);
        let fields: Vec<_> = self.fields.chunk_by(|a, b| a.0 == b.0).filter_map(|same| same.last()).collect();
        let numbers: Vec<u32> = fields.iter().map(|(field, _)| field.0).collect();
        let size: usize = fields.iter().map(|(_, range)| range.len()).sum();
        if size > limits::RECORD {
            return Err(too_large(size));
        }
        let end_of = |end: &mut u32, (_, range): &&(FieldNumber, Range<usize>)| {
            *end += range.len() as u32;
            Some(*end)
        };
        let ends: Vec<u32> = fields.iter().scan(0, end_of).collect();
        let mut out = Vec::with_capacity(8 + fields.len() * 8 + size);
        out.push(VERSION);
        write_header(&numbers, &ends, &mut out);
        for (_, range) in fields {
            out.extend_from_slice(&self.values[range.clone()]);
        }
        if out.len() > limits::RECORD {
            return Err(too_large(out.len()));
        }
        Ok(out.into())
    }

    fn end_field(&mut self, field: FieldNumber, start: usize) -> Result<&mut Self> {
        let end = self.values.len();
        if end - start > limits::RECORD {
            self.values.truncate(start);
            return Err(too_large(end - start));
        }
        self.fields.push((field, start..end));
        Ok(self)
    }
}

fn too_large(bytes: usize) -> Error {
    EncodingError::Size { bytes }.into_invalid()
}

/// The encoding of a value.
pub(crate) fn encode_value(value: &Value) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    encode(value, &mut out, limits::NESTING)?;
    Ok(out)
}

/// Appends a value with at most `levels` nested lists, sets and maps.
fn encode(value: &Value, out: &mut Vec<u8>, levels: usize) -> Result<()> {
    match value {
        Value::List(values) => encode_table(tag::LIST, values.iter(), out, levels),
        Value::Set(values) => encode_table(tag::SET, values.iter(), out, levels),
        Value::Map(entries) => {
            encode_table(tag::MAP, entries.iter().flat_map(|(key, value)| [key, value]), out, levels)
        }
        scalar => {
            scalar.as_scalar().into_iter().for_each(|scalar| encode_ref(scalar, out));
            Ok(())
        }
    }
}

fn encode_table<'v>(tag: u8, values: impl Iterator<Item = &'v Value>, out: &mut Vec<u8>, levels: usize) -> Result<()> {
    let below = levels.checked_sub(1).ok_or_else(|| {
        let limit = limits::NESTING;
        Error::new(
            ErrorKind::TooLarge,
            format!("lists, sets and maps are nested deeper than the limit of {limit} levels"),
        )
    })?;
    out.push(tag);
    let start = out.len();
    let mut ends = Vec::with_capacity(values.size_hint().0);
    for value in values {
        encode(value, out, below)?;
        let end = out.len() - start;
        if end > limits::RECORD {
            return Err(too_large(end));
        }
        ends.push(end as u32);
    }
    // The size of the header is known only now, so the values are moved once for each level.
    let mut header = Vec::new();
    write_header(&[], &ends, &mut header);
    out.splice(start..start, header);
    Ok(())
}

/// Appends a scalar, or a list, set or map in its encoded form.
pub(crate) fn encode_ref(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.push(tag::NULL),
        ValueRef::Bool(false) => out.push(tag::FALSE),
        ValueRef::Bool(true) => out.push(tag::TRUE),
        ValueRef::Int64(number) => put(tag::INT64, integer(&number.to_be_bytes()), out),
        ValueRef::Float64(number) => {
            let bits = if number.is_nan() { NAN } else { number.to_bits() };
            put(tag::FLOAT64, &bits.to_be_bytes(), out);
        }
        ValueRef::Decimal(number) => {
            let scale = number.scale().to_be_bytes();
            let scale = integer(&scale);
            out.extend_from_slice(&[tag::DECIMAL, scale.len() as u8]);
            out.extend_from_slice(scale);
            out.extend_from_slice(number.unscaled_value());
        }
        ValueRef::String(text) => put(tag::STRING, text.as_bytes(), out),
        ValueRef::Bytes(bytes) => put(tag::BYTES, bytes, out),
        ValueRef::Date(date) => put(tag::DATE, integer(&date.days.to_be_bytes()), out),
        ValueRef::Timestamp(moment) => put(tag::TIMESTAMP, integer(&moment.as_nanos().to_be_bytes()), out),
        ValueRef::Reference(oid) => put(tag::REFERENCE, &oid.to_bytes(), out),
        ValueRef::List(elements) => put(tag::LIST, elements.bytes(), out),
        ValueRef::Set(elements) => put(tag::SET, elements.bytes(), out),
        ValueRef::Map(entries) => put(tag::MAP, entries.bytes(), out),
    }
}

fn put(tag: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(body);
}

/// A two's complement integer in the fewest bytes, none for 0.
fn integer(bytes: &[u8]) -> &[u8] {
    match crate::decimal::strip_sign_extension(bytes) {
        [0] => &[],
        bytes => bytes,
    }
}
