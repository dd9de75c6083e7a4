//! A change of one row of the user of the store.

use bytes::{BufMut, Bytes};

use super::key::Key;
use super::mob::Row;
use super::row;
use super::slab::Slabs;
use crate::checksum::crc32c_parts;

/// Values of at least this many bytes share the submitter's memory. Smaller ones are copied, so that they do not keep a
/// large receive buffer in memory.
const MIN_SHARED_BYTES: usize = 64 << 10;
/// A row and its new value; no value for a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowChange {
    pub(crate) key: Key,
    pub(crate) value: Option<Bytes>,
    /// The checksum of key and value.
    checksum: u32,
}

impl RowChange {
    pub(crate) fn new(key: &[u8], value: Option<Bytes>) -> Self {
        let key = Key::row(key);
        let checksum = value.as_ref().map_or(0, |value| crc32c_parts(&[&key[..], value]));
        Self { key, value, checksum }
    }

    /// The key without its table.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key[1..]
    }

    /// The length of the value; `None` for a removal.
    pub(crate) fn size(&self) -> Option<usize> {
        self.value.as_ref().map(Bytes::len)
    }

    pub(crate) fn is_removal(&self) -> bool {
        self.value.is_none()
    }

    /// The row for the buffer.
    pub(crate) fn into_row(self, slabs: &mut Slabs) -> (Key, Row) {
        let row = match self.value {
            None => Row::Tombstone,
            Some(value) if value.len() >= MIN_SHARED_BYTES => Row::Shared(value, self.checksum),
            Some(value) => {
                let mut row = slabs.row(row::sealed_len(value.len()));
                row.put_slice(&value);
                row.put_u32_le(self.checksum);
                Row::Value(row.freeze())
            }
        };
        (self.key, row)
    }
}
