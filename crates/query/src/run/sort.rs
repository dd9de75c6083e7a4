//! Sorting. Keeps only as many rows as are wanted.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use model::{Result, ValueRef};

use super::{Row, size, too_large};
use crate::key::full_key;
use crate::limits;
use crate::plant::{Bug, planted};

/// Keeps the first rows in order.
#[derive(Debug)]
pub(super) struct Sorter {
    /// The number of wanted rows.
    most: u64,
    /// With the last row on top.
    rows: BinaryHeap<SortEntry>,
    bytes: usize,
}

#[derive(Debug)]
struct SortEntry {
    key: Vec<u8>,
    /// Its position in the order of the index, if the index provides the order.
    index_position: Option<Vec<u8>>,
    row: Row,
}

/// Appends bytes that order as the value does. Several of them in sequence order as tuples do.
pub(super) fn sort_key(value: ValueRef<'_>, descending: bool, nulls_first: bool, out: &mut Vec<u8>) {
    if matches!(value, ValueRef::Null) {
        out.push(if nulls_first || planted(Bug::NullsAlwaysFirst) { 0 } else { 2 });
        return;
    }
    out.push(1);
    let start = out.len();
    out.extend_from_slice(&full_key(&[value]));
    if descending {
        // The bytes of a value are never a prefix of another's.
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

impl Sorter {
    pub(super) fn new(most: u64) -> Self {
        Self { most, rows: BinaryHeap::new(), bytes: 0 }
    }

    pub(super) fn add(&mut self, key: Vec<u8>, place: Option<Vec<u8>>, row: Row) -> Result<()> {
        if self.is_full() && self.rows.peek().is_none_or(|last| key >= last.key) {
            return Ok(());
        }
        let held = SortEntry { key, index_position: place, row };
        self.bytes += held.bytes();
        self.rows.push(held);
        if self.rows.len() as u64 > self.most {
            self.bytes -= self.rows.pop().map_or(0, |held| held.bytes());
        }
        if self.bytes > limits::BUFFERED { Err(too_large("sorting")) } else { Ok(()) }
    }

    /// Whether every object from this position of the index on orders after the last wanted row.
    pub(super) fn is_behind(&self, place: &[u8]) -> bool {
        let last = self.rows.peek().and_then(|last| last.index_position.as_deref());
        self.is_full() && last.is_none_or(|last| place > last)
    }

    fn is_full(&self) -> bool {
        self.rows.len() as u64 >= self.most
    }

    pub(super) fn into_rows(self) -> Vec<Row> {
        self.rows.into_sorted_vec().into_iter().map(|held| held.row).collect()
    }
}

impl SortEntry {
    fn bytes(&self) -> usize {
        let row = match &self.row {
            Row::Object(_, record) => record.len() + 64,
            Row::Values(values) => size(values),
        };
        row + self.key.len() + self.index_position.as_ref().map_or(0, Vec::len) + 64
    }
}

impl Ord for SortEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl PartialOrd for SortEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for SortEntry {}
