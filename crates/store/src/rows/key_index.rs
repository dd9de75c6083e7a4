//! The keys of a buffer in order, for listings.
//!
//! Most keys are added and never listed, so the writer only appends them and listings do the sorting. A listing scans
//! the unsorted keys, which costs a fraction of sorting them. They are sorted only when repeated scans have cost as
//! much, or when there are too many to scan. The writer never waits for that.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::rows::key::Key;

/// Scanning this many keys costs as much as inserting one into the sorted set.
const SORT_THRESHOLD: usize = 64;
/// Maximum number of unsorted keys that a listing scans.
const MAX_UNSORTED_SCAN: usize = 16 << 10;

/// An ordered set of keys. A thread that needs both locks locks `sorted` first.
#[derive(Default)]
pub(crate) struct KeyIndex {
    sorted: RwLock<BTreeSet<Key>>,
    recent: RwLock<Vec<Key>>,
    /// Unsorted keys scanned since the last merge.
    scanned_keys: AtomicUsize,
}

impl KeyIndex {
    /// Adds keys that are not in the set.
    pub(crate) fn add(&self, keys: impl IntoIterator<Item = Key>) {
        self.recent.write().extend(keys);
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.merge_recent().remove(key);
    }

    pub(crate) fn clear(&mut self) {
        self.sorted.get_mut().clear();
        self.recent.get_mut().clear();
    }

    /// Appends up to `limit` keys with `from <= key < to`, in order. `from` must be below `to`.
    pub(crate) fn range(&self, from: &[u8], to: &[u8], limit: usize, keys: &mut Vec<Key>) {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let begin = keys.len();
        let sorted = self.sorted.read();
        let recent = self.recent.read();
        if recent.is_empty() || self.may_scan(recent.len()) {
            keys.extend(sorted.range::<[u8], _>(bounds).take(limit).cloned());
            drop(sorted);
            let before = keys.len();
            let (first, last) = (key_prefix(from), key_prefix(to));
            let near = recent.iter().filter(|key| (first..=last).contains(&key_prefix(key)));
            keys.extend(near.filter(|key| from <= &key[..] && &key[..] < to).cloned());
            drop(recent);
            if keys.len() > before {
                keys[begin..].sort();
                keys.truncate(begin.saturating_add(limit));
            }
            return;
        }
        drop((sorted, recent));
        let sorted: RwLockReadGuard<'_, _> = RwLockWriteGuard::downgrade(self.merge_recent());
        keys.extend(sorted.range::<[u8], _>(bounds).take(limit).cloned());
    }

    /// Appends up to `limit` keys with `from <= key < to`, the last first. `from` must be below `to`.
    pub(crate) fn range_back(&self, from: &[u8], to: &[u8], limit: usize, keys: &mut Vec<Key>) {
        // Backward listings read many keys, so recent keys are merged at once.
        let sorted: RwLockReadGuard<'_, _> = RwLockWriteGuard::downgrade(self.merge_recent());
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        keys.extend(sorted.range::<[u8], _>(bounds).rev().take(limit).cloned());
    }

    /// Whether a listing may scan `many` keys instead of merging them.
    fn may_scan(&self, many: usize) -> bool {
        many <= MAX_UNSORTED_SCAN && self.scanned_keys.fetch_add(many, Ordering::Relaxed) <= SORT_THRESHOLD * many
    }

    /// Merges recent keys into the sorted set.
    fn merge_recent(&self) -> RwLockWriteGuard<'_, BTreeSet<Key>> {
        let mut sorted = self.sorted.write();
        let recent = std::mem::take(&mut *self.recent.write());
        self.scanned_keys.store(0, Ordering::Relaxed);
        // Many keys are sorted together and merged; inserting one by one is faster for a few.
        if recent.len() > sorted.len() / 8 {
            sorted.append(&mut recent.into_iter().collect());
        } else {
            sorted.extend(recent);
        }
        sorted
    }
}

/// The first bytes of a key as a number with the same order, for fast comparison.
fn key_prefix(key: &[u8]) -> u128 {
    let mut head = [0; 16];
    match key.first_chunk() {
        Some(first) => head = *first,
        None => head[..key.len()].copy_from_slice(key),
    }
    u128::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn listings_are_those_of_a_sorted_set_whatever_is_sorted_yet(
            steps in proptest::collection::vec((any::<u8>(), any::<u8>(), 0..20_usize, 0..4_u8), 0..200),
        ) {
            let (order, mut set) = (KeyIndex::default(), BTreeSet::new());
            for (a, b, limit, what) in steps {
                let key = Key::from(&[a, b][..]);
                match what {
                    0 if set.insert(key.clone()) => order.add([key]),
                    0 | 1 => {
                        let (from, to) = ([a.min(b)], [a.max(b)]);
                        let mut found = vec![key.clone()];
                        if from < to {
                            order.range(&from, &to, limit, &mut found);
                        }
                        let is_between = |key: &&Key| from[..] <= key[..] && key[..] < to[..];
                        let expected = set.iter().filter(is_between).take(limit);
                        prop_assert!(found.iter().eq([&key].into_iter().chain(expected)));
                        if from < to {
                            found.clear();
                            order.range_back(&from, &to, limit, &mut found);
                        }
                        let expected = set.iter().filter(is_between).rev().take(limit);
                        prop_assert!(from >= to || found.iter().eq(expected));
                    }
                    2 => {
                        set.remove(&key);
                        order.remove(&key);
                    }
                    _ => drop(order.scanned_keys.fetch_add(SORT_THRESHOLD, Ordering::Relaxed)),
                }
            }
        }
    }
}
