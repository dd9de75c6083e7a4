//! A map of pages for look-ups that are frequent.

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use model::PageId;

/// A hash map from pages to values. Its iteration order follows from the insertions and removals, not from the hashes, so a machine that
/// uses it stays deterministic. Each process has another seed, so an attacker cannot choose pages whose hashes collide.
pub(crate) type PageMap<V> = IndexMap<PageId, V, RandomState>;

/// Entries that a map has room for without giving memory back.
const SMALL: usize = 1_024;

/// Removes a page. A map that was much larger gives memory back.
pub(crate) fn remove_page<V>(map: &mut PageMap<V>, page: PageId) -> Option<V> {
    let removed = map.swap_remove(&page);
    if map.capacity() > SMALL && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
    removed
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;

    #[test]
    fn memory_of_removed_pages_is_given_back() {
        let page = |number| PageId { space: SpaceId(1), node: NodeId(0), number };
        let mut map: PageMap<u64> = (0..100_000).map(|number| (page(number), number)).collect();
        assert!(map.capacity() >= 100_000);
        for number in 10..100_000 {
            assert_eq!(remove_page(&mut map, page(number)), Some(number));
            assert!(map.capacity() <= SMALL.max(map.len() * 8 + 8) * 2, "{} for {}", map.capacity(), map.len());
        }
        assert!((0..10).all(|number| map.get(&page(number)) == Some(&number)));
        assert!(map.capacity() <= SMALL, "{}", map.capacity());
    }
}
