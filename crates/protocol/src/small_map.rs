//! A map for places that have few entries, most often one, and of which there are many.

use smallvec::SmallVec;

/// A sorted map. Its first `N` entries are in the map itself, further ones in an allocation; a map of the standard library allocates room for
/// eleven with the first one. Insertions and removals take time in proportion to the number of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmallMap<K, V, const N: usize>(SmallVec<[(K, V); N]>);

impl<K, V, const N: usize> Default for SmallMap<K, V, N> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<K: Ord, V, const N: usize> SmallMap<K, V, N> {
    /// Where the entry is, or where it would be.
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The value of a key, which is inserted if there is none.
    pub(crate) fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, value));
            at
        });
        &mut self.0[at].1
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Ok(at) = self.find(key) {
            self.0.remove(at);
        }
    }

    /// The entries, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_the_entries_of_a_map_of_the_standard_library(
            changes in prop::collection::vec((any::<bool>(), 0..12_u16, any::<u8>()), 0..60)
        ) {
            let (mut small, mut expected) = (SmallMap::<u16, u8, 1>::default(), BTreeMap::new());
            for (is_removal, key, value) in changes {
                if is_removal {
                    small.remove(&key);
                    expected.remove(&key);
                } else {
                    prop_assert_eq!(small.get_or_insert(key, value), expected.entry(key).or_insert(value));
                }
                prop_assert!(small.iter().eq(&expected));
                prop_assert!(small.keys().eq(expected.keys()) && small.values().eq(expected.values()));
                prop_assert_eq!(small.is_empty(), expected.is_empty());
                for key in 0..12 {
                    prop_assert_eq!(small.get(&key), expected.get(&key));
                    prop_assert_eq!(small.get_mut(&key), expected.get_mut(&key));
                }
            }
        }
    }
}
