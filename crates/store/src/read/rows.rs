//! Reading rows of the store's user. The checksum of a value is verified when it is read from the B-tree.

use std::ops::ControlFlow;

use bytes::Bytes;
use model::{Error, ErrorKind, Result};

use crate::checksum::crc32c_parts;
use crate::error::corrupt_row;
use crate::read::Readable;
use crate::read::layers::{FoundRow, RowRef};
use crate::rows::key::{Key, hex};
use crate::rows::key_range::KeyRange;
use crate::rows::mob::Row;
use crate::rows::row::{self, RowError};

/// The error for a damaged row with this whole key.
pub(crate) fn damage_error(key: &[u8], error: RowError) -> Error {
    corrupt_row(&format!("row {}", hex(key.get(1..).unwrap_or_default())), error)
}

/// The value of a row. A value from the B-tree is verified.
pub(crate) fn row_value<'f>(key: &[u8], row: RowRef<'f>) -> Result<Option<&'f [u8]>> {
    match row {
        RowRef::Nothing | RowRef::Row(Row::Tombstone | Row::Patch(_)) => Ok(None),
        RowRef::Row(Row::Shared(value, _)) => Ok(Some(value)),
        RowRef::Row(Row::Value(row)) => match row.split_last_chunk::<4>() {
            Some((value, _)) => Ok(Some(value)),
            None => Err(damage_error(key, RowError::Short)),
        },
        RowRef::Engine(row) => match row::unseal(key, row) {
            Ok(len) => Ok(Some(&row[..len])),
            Err(error) => Err(damage_error(key, error)),
        },
    }
}

/// The value of a row, verified wherever it was found.
pub(crate) fn verify_value<'f>(key: &[u8], found: &'f FoundRow<'_>) -> std::result::Result<&'f [u8], RowError> {
    match found {
        FoundRow::Row(Row::Shared(value, checksum), _) if crc32c_parts(&[key, value]) == *checksum => Ok(value),
        _ => {
            let row = found.value().ok_or(RowError::Value)?;
            Ok(&row[..row::unseal(key, row)?])
        }
    }
}

/// The value of a row, in place.
#[derive(Clone, Copy, Debug)]
pub struct RowValue<'a> {
    value: &'a [u8],
    /// What it is a part of, if it is in memory of its own.
    buffer: Option<&'a Bytes>,
}

impl<'a> RowValue<'a> {
    pub(crate) fn new(row: RowRef<'a>, value: &'a [u8]) -> Self {
        let buffer = match row {
            RowRef::Row(Row::Value(row) | Row::Shared(row, _)) => Some(row),
            _ => None,
        };
        Self { value, buffer }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.value
    }

    /// What the bytes are a part of, if they are not in the B-tree: a slice of it keeps them without a copy.
    #[must_use]
    pub fn buffer(self) -> Option<&'a Bytes> {
        self.buffer
    }
}

pub(crate) fn row(this: &impl Readable, key: &[u8]) -> Result<Option<Bytes>> {
    with_row_value(this, key, |row, value| match RowValue::new(row, value).buffer {
        Some(buffer) => buffer.slice_ref(value),
        None => Bytes::copy_from_slice(value),
    })
}

/// Calls `look` with a row in place and its value.
pub(crate) fn with_row_value<T>(
    this: &impl Readable,
    key: &[u8],
    mut look: impl FnMut(RowRef<'_>, &[u8]) -> T,
) -> Result<Option<T>> {
    let key = Key::row(key);
    this.read_row(|layers| layers.with_row(&key, |row| Ok(row_value(&key, row)?.map(|value| look(row, value))))?)
}

/// Calls `visit` with the rows of a range, in reverse order if `back`.
pub(crate) fn rows(
    this: &impl Readable,
    (from, to): (&[u8], &[u8]),
    back: bool,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let (from, to) = (Key::row(from), Key::row(to));
    if from >= to {
        return Ok(());
    }
    this.read_state(|layers| {
        let mut failed = None;
        let mut show = |key: &[u8], found: &FoundRow<'_>| match row_value(key, found.row_ref()) {
            Ok(Some(value)) => visit(&key[1..], value),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        match back {
            false => layers.scan(&from, &to, &mut show)?,
            true => layers.scan_back(&from, &to, &mut show)?,
        }
        failed.map_or(Ok(()), Err)
    })
}

/// As [`rows`], and goes on behind rows that cannot be read, of which it tells `damaged` the keys and the error.
pub(crate) fn rows_beside_damage(
    this: &impl Readable,
    (from, to): (&[u8], &[u8]),
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    mut damaged: impl FnMut(KeyRange, &Error),
) -> Result<()> {
    let mut from = from.to_vec();
    while from[..] < *to {
        let mut next = from.clone();
        let ScanEnd::Damage(error) = scan_to_damage(this, &mut next, to, &mut visit)? else { return Ok(()) };
        let page = first_unreadable_page(this, &next, to)?;
        // The scan may have ended before rows that are in the buffer and before the page.
        let before_page = page.as_ref().map_or(to, |page| to.min(&page.from));
        let (range, error) = match (scan_to_damage(this, &mut next, before_page, &mut visit)?, page) {
            // It was ended, or the page can be read again.
            (ScanEnd::Stopped, _) | (ScanEnd::Complete, None) => return Ok(()),
            (ScanEnd::Complete, Some(page)) => (page, error),
            // The checksum of a row is wrong: the one behind all that were visited.
            (ScanEnd::Damage(error), _) => (KeyRange::of_key(&first_key(this, &next, to)?.unwrap_or(next)), error),
        };
        let first = range.from.max(from);
        if first[..] >= *to {
            return Ok(());
        }
        let end = range.to.filter(|end| *end > first && end[..] < *to).unwrap_or_else(|| to.to_vec());
        damaged(KeyRange { from: first, to: Some(end.clone()) }, &error);
        from = end;
    }
    Ok(())
}

/// How a scan ended.
enum ScanEnd {
    /// It has come to the end of its range.
    Complete,
    /// Its visitor has ended it.
    Stopped,
    /// A row or a page of the B-tree cannot be read.
    Damage(Error),
}

/// Calls `visit` with the rows from `next` to `to`. Then `next` is behind the last of them.
fn scan_to_damage(
    this: &impl Readable,
    next: &mut Vec<u8>,
    to: &[u8],
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<ScanEnd> {
    let from = next.clone();
    let mut flow = ControlFlow::Continue(());
    let scanned = rows(this, (&from, to), false, |key, value| {
        next.clear();
        next.extend_from_slice(key);
        next.push(0);
        flow = visit(key, value);
        flow
    });
    match scanned {
        Ok(()) if flow.is_break() => Ok(ScanEnd::Stopped),
        Ok(()) => Ok(ScanEnd::Complete),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(ScanEnd::Damage(error)),
        Err(error) => Err(error),
    }
}

/// The keys of the first page of the B-tree with rows `from <= key < to` that cannot be read.
fn first_unreadable_page(this: &impl Readable, from: &[u8], to: &[u8]) -> Result<Option<KeyRange>> {
    let page = this.read_state(|layers| Ok(layers.engine.first_damage(&Key::row(from), &Key::row(to))))?;
    Ok(page.and_then(|keys| keys.of_user()))
}

/// The key of the first row `from <= key < to`, whether its value can be read or not.
fn first_key(this: &impl Readable, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut first = None;
    this.read_state(|layers| {
        layers.scan(&Key::row(from), &Key::row(to), &mut |key, _| {
            first = Some(key[1..].to_vec());
            ControlFlow::Break(())
        })
    })?;
    Ok(first)
}
