//! Changes of rows: one change by the user of the store, and all rows that a transaction changes.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use bytes::{BufMut, Bytes};
use smallvec::SmallVec;

use super::key::Key;
use super::mob::Row;
use super::row;
use super::slab::Slabs;
use crate::checksum::crc32c_parts;

/// Most transactions change at most this many rows and need no tree.
const MAX_LIST_LEN: usize = 8;

/// Rows by key: a sorted list, or a tree for many rows.
#[derive(Default)]
pub(crate) struct Changes {
    list: SmallVec<[(Key, Row); 2]>,
    /// Contains all rows once there are more than `MAX_LIST_LEN`.
    tree: BTreeMap<Key, Row>,
}

impl Changes {
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|(known, _)| (**known).cmp(key))
    }

    /// Sets the new state of a row, replacing an earlier one.
    pub(crate) fn insert(&mut self, key: Key, row: Row) {
        if !self.tree.is_empty() {
            self.tree.insert(key, row);
            return;
        }
        match self.search(&key) {
            Ok(at) => self.list[at].1 = row,
            Err(at) if self.list.len() < MAX_LIST_LEN => self.list.insert(at, (key, row)),
            Err(_) => {
                self.tree.extend(self.list.drain(..));
                self.tree.insert(key, row);
            }
        }
    }

    /// All changed rows, in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.list.iter().map(|(key, row)| (key, row)).chain(&self.tree)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Row> {
        if self.tree.is_empty() { self.search(key).ok().map(|at| &self.list[at].1) } else { self.tree.get(key) }
    }

    /// The changed rows with `from <= key < to`. `to` must not be below `from`.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&Key, &Row)> {
        let (first, end) = [from, to].map(|key| self.search(key).unwrap_or_else(|at| at)).into();
        let many = self.tree.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        self.list[first..end].iter().map(|(key, row)| (key, row)).chain(many)
    }
}

impl IntoIterator for Changes {
    type Item = (Key, Row);
    type IntoIter = std::iter::Chain<smallvec::IntoIter<[(Key, Row); 2]>, btree_map::IntoIter<Key, Row>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter().chain(self.tree)
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn changes_are_an_ordered_map_of_any_size(
            inserts in proptest::collection::vec((0..40_u8, any::<u8>()), 0..60),
            bounds in (0..40_u8, 0..40_u8),
        ) {
            let (mut changes, mut map) = (Changes::default(), BTreeMap::new());
            for (key, value) in &inserts {
                let key = Key::from(&[*key][..]);
                changes.insert(key.clone(), Row::Value(vec![*value].into()));
                map.insert(key, *value);
            }
            let value = |row: &Row| if let Row::Value(value) = row { value[0] } else { unreachable!() };
            for key in 0..40_u8 {
                prop_assert_eq!(changes.get(&[key]).map(value), map.get(&[key][..]).copied());
            }
            let (from, to) = ([bounds.0.min(bounds.1)], [bounds.0.max(bounds.1)]);
            let found: Vec<_> = changes.range(&from, &to).map(|(key, row)| (key.clone(), value(row))).collect();
            let is_between = |key: &Key| from[..] <= **key && **key < to[..];
            let wanted: Vec<_> = map.clone().into_iter().filter(|(key, _)| is_between(key)).collect();
            prop_assert_eq!(found, wanted);
            let all: Vec<_> = changes.into_iter().map(|(key, row)| (key, value(&row))).collect();
            prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
        }
    }
}
