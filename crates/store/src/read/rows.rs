//! Reading rows of the store's user. The checksum of a value is verified when it is read from the B-tree.

use std::ops::ControlFlow;

use bytes::Bytes;
use model::{Error, ErrorKind, Result};

use crate::checksum::crc32c_parts;
use crate::error::corrupt_row;
use crate::read::Readable;
use crate::read::layers::{FoundRow, RowRef};
use crate::rows::key::{Key, hex};
use crate::rows::mob::Row;
use crate::rows::row::{self, RowError};

/// Rows of the store's user: `from <= key < to`, all from `from` on if `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The first key.
    pub from: Vec<u8>,
    /// Behind the last key.
    pub to: Option<Vec<u8>>,
}

impl LostRange {
    /// Whether it has a part of `from <= key < to`.
    #[must_use]
    pub fn overlaps(&self, from: &[u8], to: &[u8]) -> bool {
        self.from[..] < *to && self.to.as_deref().is_none_or(|end| *from < *end)
    }

    /// Whether it has a key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from[..] <= *key && self.to.as_deref().is_none_or(|end| *key < *end)
    }
}

/// The error for a damaged row with this whole key.
pub(crate) fn damaged(key: &[u8], error: RowError) -> Error {
    corrupt_row(&format!("row {}", hex(key.get(1..).unwrap_or_default())), error)
}

/// The value of a row. A value from the B-tree is verified.
pub(crate) fn row_value<'f>(key: &[u8], row: RowRef<'f>) -> Result<Option<&'f [u8]>> {
    match row {
        RowRef::Nothing | RowRef::Row(Row::Tombstone | Row::Patch(_)) => Ok(None),
        RowRef::Row(Row::Shared(value, _)) => Ok(Some(value)),
        RowRef::Row(Row::Value(row)) => match row.split_last_chunk::<4>() {
            Some((value, _)) => Ok(Some(value)),
            None => Err(damaged(key, RowError::Short)),
        },
        RowRef::Engine(row) => match row::unseal(key, row) {
            Ok(len) => Ok(Some(&row[..len])),
            Err(error) => Err(damaged(key, error)),
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
    mut damaged: impl FnMut(LostRange, &Error),
) -> Result<()> {
    let (mut from, to) = (Key::row(from), Key::row(to));
    let own = |key: &[u8]| key.get(1..).unwrap_or_default().to_vec();
    let mut flow = ControlFlow::Continue(());
    while from < to {
        // The rows before the first damaged page, also those in the buffer, and then the page.
        let (mut behind, mut error) = (from.clone(), None);
        let mut scan = |from: &mut Key, to: &Key| {
            let scanned = rows(this, (&from.clone()[1..], &to[1..]), false, |key, value| {
                *from = Key::row(key).successor();
                flow = visit(key, value);
                flow
            });
            match scanned {
                Err(damage) if damage.kind() == ErrorKind::Corrupt => error = Some(damage),
                scanned => return scanned.map(|()| true),
            }
            Ok(false)
        };
        if scan(&mut behind, &to)? {
            return Ok(());
        }
        let part = this.read_state(|layers| Ok(layers.engine.first_damage(&behind, &to)))?;
        let first = part.as_ref().map_or_else(|| to.clone(), |(first, _)| Key::from(&first[..]).min(to.clone()));
        let is_whole = first <= behind || scan(&mut behind, &first)?;
        let (first, end) = match part {
            // It can be read again.
            None if is_whole => (to.clone(), None),
            Some((_, end)) if is_whole => (first.max(from.clone()), end.map(|end| Key::from(&end[..]))),
            // The checksum of a row is wrong: the one behind all that were visited.
            _ => {
                let mut next = None;
                this.read_state(|layers| {
                    layers.scan(&behind, &to, &mut |key, _| {
                        next = Some(Key::from(key));
                        ControlFlow::Break(())
                    })
                })?;
                let row = next.unwrap_or_else(|| behind.clone());
                let end = row.successor();
                (row, Some(end))
            }
        };
        if flow.is_break() || first >= to {
            return Ok(());
        }
        let end = end.filter(|end| *end > first && *end < to).unwrap_or_else(|| to.clone());
        if let Some(error) = &error {
            damaged(LostRange { from: own(&first), to: Some(own(&end)) }, error);
        }
        from = end;
    }
    Ok(())
}
