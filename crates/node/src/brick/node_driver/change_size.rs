//! How much the change of a transaction takes in the store.
//!
//! What was taken in has to be stored, and a store refuses a change beyond [`limits::OPERATIONS`] and [`limits::CHANGE`]. So a transaction is refused
//! before it is taken in if its change may be larger. The estimate counts all rows of the change, and is never too low.

use std::collections::BTreeSet;

use model::{Entry, Object, Oid, limits};
use protocol::commit::{EntryChanges, Part};

use super::admission::CheckedContents;
use super::rows;
use crate::brick::index_rows;
use crate::brick::indexes::ReplacedObjects;
use crate::brick::plant::{Bug, planted};

/// Bytes of rows that may be in one change of the store with those of a transaction: rows of the records before, of the transactions themselves, and of
/// transactions that are forgotten.
const OTHER_BYTES: usize = 2 << 20;
/// Bytes of the rows and contents of a transaction, at most.
const MAX_BYTES: usize = if cfg!(test) { 64 << 20 } else { limits::CHANGE - OTHER_BYTES };
/// Rows of an object without its entries: itself, the head of its page, its places in two extents.
const ROWS_PER_OBJECT: usize = 4;
/// What an object takes beside its encoding: the key and the head of its row, and another key: that of its place in an extent, of the mark of its
/// staged content, or of the totals of a collection.
const OBJECT_BYTES: usize = rows::OBJECT_ROW + 21;
/// Rows of an entry of a collection, without the heads of pages of guards: itself, under its old and its new target, and the totals.
const ROWS_PER_ENTRY: usize = 4;
/// What a row of an entry takes beside its key, at most, in bytes: the identifiers in the key of the row, and the target.
const ENTRY_ROW_BYTES: usize = 80;
/// Rows of an entry that have its key: itself, and those under its old and its new target.
const ROWS_WITH_KEY: usize = 3;
/// Heads of pages of guards that entries change, at most.
const GUARD_HEADS: usize = 256;
/// What an append takes in the record of its transaction, at most, in bytes.
const OFFSET_BYTES: usize = 64;

/// What the rows and contents that a transaction changes take in the store, at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeSize {
    /// Rows and contents.
    pub(super) rows: usize,
    /// Bytes of their keys and values.
    pub(super) bytes: usize,
}

impl ChangeSize {
    /// The change that a transaction makes which replaces these objects and touches these guards.
    pub(super) fn of(
        part: &Part<Object>,
        touches: &BTreeSet<Oid>,
        replaced: &ReplacedObjects,
        contents: &CheckedContents,
    ) -> Self {
        let (of_indexes, key_bytes) = replaced.entries();
        let of_collections = Self::of_entries(&part.entries);
        let heads = count_pages(part.writes.keys()) + count_pages(touches);
        let CheckedContents { work, object_bytes, offsets, .. } = contents;
        Self {
            rows: of_indexes + of_collections.rows + ROWS_PER_OBJECT * part.writes.len() + touches.len() + work.changes,
            bytes: object_bytes
                + OBJECT_BYTES * part.writes.len()
                + rows::HEAD_ROW * heads
                + key_bytes
                + index_rows::ENTRY_OVERHEAD * of_indexes
                + of_collections.bytes
                + work.written_bytes
                + OFFSET_BYTES * offsets.len(),
        }
    }

    fn of_entries(entries: &EntryChanges) -> Self {
        if entries.is_empty() || planted(Bug::EntriesUnbounded) {
            return Self::default();
        }
        let bytes = |entry: &Entry| ROWS_WITH_KEY * (entry.key.as_bytes().len() + ENTRY_ROW_BYTES);
        Self {
            rows: ROWS_PER_ENTRY * entries.len() + GUARD_HEADS,
            bytes: entries.keys().map(bytes).sum::<usize>() + rows::HEAD_ROW * GUARD_HEADS,
        }
    }

    /// Whether the store may refuse the change.
    pub(super) fn is_too_large(self) -> bool {
        self.rows >= limits::OPERATIONS || self.bytes > MAX_BYTES
    }
}

/// How many pages these are in, at most.
fn count_pages<'a>(oids: impl IntoIterator<Item = &'a Oid>) -> usize {
    let mut last = None;
    oids.into_iter().filter(|oid| last.replace(oid.page()) != Some(oid.page())).count()
}
