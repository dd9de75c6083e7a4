//! Decides which copies a full cache evicts.
//!
//! Copies that are used once, for example by a scan, must not displace copies that are used repeatedly. So there are
//! two queues (S3-FIFO; Yang and others, SOSP 2023). A copy enters the small queue. If it is used again before it
//! reaches the front, it moves to the main queue; otherwise it is evicted, and its page is remembered for a while as a
//! *ghost*. If the page is fetched again while it is a ghost, it enters the main queue at once. A copy that was used
//! and reaches the front of the main queue moves to its end.

use std::collections::VecDeque;
use std::hash::Hash;

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use model::PageId;

/// The small queue may have this fraction of all bytes: one in this number.
const SMALL_QUEUE_DIVISOR: usize = 10;
/// The maximum of the use counter.
const MAX_USES: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct CacheEntry {
    bytes: usize,
    uses: u8,
    is_main: bool,
}

/// The sizes and uses of all copies. `K` names a copy; most caches have pages.
#[derive(Clone, Debug)]
pub struct EvictionPolicy<K = PageId> {
    limit: usize,
    pages: IndexMap<K, CacheEntry, RandomState>,
    small: VecDeque<K>,
    main: VecDeque<K>,
    small_bytes: usize,
    main_bytes: usize,
    /// Pages that were evicted from the small queue recently, in order.
    ghosts: VecDeque<K>,
    ghost_set: IndexSet<K, RandomState>,
    last_used: Option<K>,
    /// The size of the copy that was evicted last, in bytes.
    last_evicted_bytes: usize,
}

impl<K: Copy + Eq + Hash> EvictionPolicy<K> {
    /// A policy for a cache with a limit in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            pages: IndexMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: VecDeque::new(),
            ghost_set: IndexSet::default(),
            last_used: None,
            last_evicted_bytes: 0,
        }
    }

    /// Records a use of a copy.
    pub fn record_use(&mut self, page: K) {
        // Consecutive uses count as one: a reader often accesses an object several times in a row.
        if self.last_used == Some(page) {
            return;
        }
        self.last_used = Some(page);
        if let Some(resident) = self.pages.get_mut(&page) {
            resident.uses = (resident.uses + 1).min(MAX_USES);
        }
    }

    /// Adds a copy, or changes its size.
    pub fn insert(&mut self, page: K, bytes: usize) {
        if let Some(resident) = self.pages.get_mut(&page) {
            let total = if resident.is_main { &mut self.main_bytes } else { &mut self.small_bytes };
            *total = *total - resident.bytes + bytes;
            resident.bytes = bytes;
            return;
        }
        let is_main = self.ghost_set.swap_remove(&page);
        self.pages.insert(page, CacheEntry { bytes, uses: 0, is_main });
        self.enqueue(page, bytes, is_main);
    }

    /// Changes the size of a copy by what a part of it has grown or shrunk, in bytes.
    pub fn resize_part(&mut self, page: K, before: usize, after: usize) {
        if let Some(resident) = self.pages.get(&page) {
            let bytes = (resident.bytes + after).saturating_sub(before);
            self.insert(page, bytes);
        }
    }

    /// The maximum of [`EvictionPolicy::bytes`].
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    fn enqueue(&mut self, page: K, bytes: usize, is_main: bool) {
        if is_main {
            self.main.push_back(page);
            self.main_bytes += bytes;
        } else {
            self.small.push_back(page);
            self.small_bytes += bytes;
        }
    }

    /// Removes a copy that was not evicted by this policy.
    pub fn remove(&mut self, page: K) {
        if let Some(resident) = self.pages.swap_remove(&page) {
            self.subtract(resident);
        }
    }

    fn subtract(&mut self, resident: CacheEntry) {
        let total = if resident.is_main { &mut self.main_bytes } else { &mut self.small_bytes };
        assert!(*total >= resident.bytes, "a queue of copies has {total} bytes, one of them {}", resident.bytes);
        *total -= resident.bytes;
    }

    /// The size of all copies, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.small_bytes + self.main_bytes
    }

    /// Removes and returns the next copy to evict, if the limit is exceeded. The copy that was just `fetched` stays,
    /// whatever its size, because its reader has not used it yet.
    pub fn evict(&mut self, fetched: K) -> Option<K> {
        while self.bytes() > self.limit && self.pages.len() > 1 {
            let from_small = self.small_bytes * SMALL_QUEUE_DIVISOR > self.limit || self.main_bytes == 0;
            let page = if from_small { self.evict_small() } else { self.evict_main() };
            if page == Some(fetched) {
                let bytes = self.last_evicted_bytes;
                self.insert(fetched, bytes);
                continue;
            }
            if page.is_some() {
                return page;
            }
            if self.small.is_empty() && self.main.is_empty() {
                return None;
            }
        }
        None
    }

    fn evict_small(&mut self) -> Option<K> {
        let page = self.small.pop_front()?;
        let resident = *self.pages.get(&page).filter(|resident| !resident.is_main)?;
        self.subtract(resident);
        // The use for which the copy was fetched does not count.
        if resident.uses > 1 {
            self.pages.insert(page, CacheEntry { uses: 0, is_main: true, ..resident });
            self.enqueue(page, resident.bytes, true);
            return None;
        }
        self.pages.swap_remove(&page);
        self.last_evicted_bytes = resident.bytes;
        self.remember_ghost(page);
        Some(page)
    }

    fn evict_main(&mut self) -> Option<K> {
        let page = self.main.pop_front()?;
        let resident = self.pages.get_mut(&page).filter(|resident| resident.is_main)?;
        if resident.uses > 0 {
            resident.uses -= 1;
            self.main.push_back(page);
            return None;
        }
        let resident = *resident;
        self.subtract(resident);
        self.pages.swap_remove(&page);
        self.last_evicted_bytes = resident.bytes;
        Some(page)
    }

    fn remember_ghost(&mut self, page: K) {
        if self.ghost_set.insert(page) {
            self.ghosts.push_back(page);
        }
        while self.ghosts.len() > self.pages.len().max(16) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.swap_remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;

    fn page(number: u64) -> PageId {
        PageId { space: SpaceId(1), node: NodeId(1), number }
    }

    /// Uses a page as a cache does. Returns whether the page had to be fetched.
    fn visit(residents: &mut EvictionPolicy, number: u64) -> bool {
        let is_fetched = !residents.pages.contains_key(&page(number));
        if is_fetched {
            residents.insert(page(number), 1);
            while let Some(evicted) = residents.evict(page(number)) {
                assert!(evicted != page(number) && !residents.pages.contains_key(&evicted));
            }
        }
        residents.record_use(page(number));
        is_fetched
    }

    #[test]
    fn no_copy_is_evicted_below_the_limit() {
        let mut residents = EvictionPolicy::new(100);
        (0..100).for_each(|number| assert!(visit(&mut residents, number)));
        (0..100).for_each(|number| assert!(!visit(&mut residents, number)));
        assert_eq!(residents.bytes(), 100);
    }

    #[test]
    fn scan_does_not_displace_reused_copies() {
        let mut residents = EvictionPolicy::new(100);
        for _ in 0..4 {
            (0..50).for_each(|number| {
                visit(&mut residents, number);
            });
        }
        (1_000..11_000).for_each(|number| {
            visit(&mut residents, number);
        });
        let missed = (0..50).filter(|number| visit(&mut residents, *number)).count();
        assert!(missed <= 5, "a scan displaced {missed} of 50 copies");
    }

    #[test]
    fn unused_copies_are_evicted() {
        let mut residents = EvictionPolicy::new(100);
        for _ in 0..4 {
            (0..100).for_each(|number| {
                visit(&mut residents, number);
            });
        }
        for _ in 0..20 {
            (200..290).for_each(|number| {
                visit(&mut residents, number);
            });
        }
        let missed = (200..290).filter(|number| visit(&mut residents, *number)).count();
        assert!(missed <= 9, "{missed} of 90 used copies are missing");
    }

    #[test]
    fn size_stays_below_the_limit() {
        let mut residents = EvictionPolicy::new(1_000);
        for step in 0..10_000_u64 {
            let number = step * 7_919 % 257;
            match step % 5 {
                0 => residents.remove(page(number)),
                1 | 2 => residents.record_use(page(number)),
                _ => residents.insert(page(number), (step % 97) as usize),
            }
            while residents.evict(page(number)).is_some() {}
            let bytes: usize = residents.pages.values().map(|resident| resident.bytes).sum();
            assert_eq!(bytes, residents.bytes());
            assert!(bytes <= 1_000 || residents.pages.len() == 1);
        }
    }
}
