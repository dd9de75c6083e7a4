//! Which copies stay when there is not room for all.
//!
//! What is used once, by a scan perhaps, must not drive out what is used again and again. So there are two queues (S3-FIFO;
//! Yang and others, SOSP 2023): a copy enters the small one; if it is used again before it gets to the front, it moves to
//! the main one, else it goes, and its name is remembered for a while: if it comes again soon, it enters the main one at
//! once. In the main queue a copy that was used goes round again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::PageId;

/// The small queue's part of all bytes: one in so many.
const SMALL_QUEUE_DIVISOR: usize = 10;
/// Uses that count.
const MAX_USES: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct CacheEntry {
    bytes: usize,
    uses: u8,
    is_main: bool,
}

/// The copies that there are, as far as their size and use go.
#[derive(Clone, Debug)]
pub struct EvictionPolicy {
    limit: usize,
    pages: BTreeMap<PageId, CacheEntry>,
    small: VecDeque<PageId>,
    main: VecDeque<PageId>,
    small_bytes: usize,
    main_bytes: usize,
    /// Pages that went from the small queue lately, in order.
    ghosts: VecDeque<PageId>,
    ghost_set: BTreeSet<PageId>,
    last_used: Option<PageId>,
    /// Bytes of the copy that went last.
    last_evicted_bytes: usize,
}

impl EvictionPolicy {
    /// Room for so many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            pages: BTreeMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: VecDeque::new(),
            ghost_set: BTreeSet::new(),
            last_used: None,
            last_evicted_bytes: 0,
        }
    }

    /// A copy was used.
    pub fn record_use(&mut self, page: PageId) {
        // Uses one after the other are one use: an object is looked at several times by one who has it at hand.
        if self.last_used == Some(page) {
            return;
        }
        self.last_used = Some(page);
        if let Some(resident) = self.pages.get_mut(&page) {
            resident.uses = (resident.uses + 1).min(MAX_USES);
        }
    }

    /// A copy has come, or has another size now.
    pub fn insert(&mut self, page: PageId, bytes: usize) {
        if let Some(resident) = self.pages.get_mut(&page) {
            let total = if resident.is_main { &mut self.main_bytes } else { &mut self.small_bytes };
            *total = *total - resident.bytes + bytes;
            resident.bytes = bytes;
            return;
        }
        let is_main = self.ghost_set.remove(&page);
        self.pages.insert(page, CacheEntry { bytes, uses: 0, is_main });
        self.enqueue(page, bytes, is_main);
    }

    fn enqueue(&mut self, page: PageId, bytes: usize, is_main: bool) {
        if is_main {
            self.main.push_back(page);
            self.main_bytes += bytes;
        } else {
            self.small.push_back(page);
            self.small_bytes += bytes;
        }
    }

    /// A copy is gone for another reason.
    pub fn remove(&mut self, page: PageId) {
        if let Some(resident) = self.pages.remove(&page) {
            self.subtract(resident);
        }
    }

    fn subtract(&mut self, resident: CacheEntry) {
        let total = if resident.is_main { &mut self.main_bytes } else { &mut self.small_bytes };
        *total -= resident.bytes;
    }

    /// Bytes of all copies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.small_bytes + self.main_bytes
    }

    /// The next copy to be removed, if there is not room for all. It counts no more. What has just come stays, however large:
    /// its reader has not used it yet.
    pub fn evict(&mut self, came: PageId) -> Option<PageId> {
        while self.bytes() > self.limit && self.pages.len() > 1 {
            let from_small = self.small_bytes * SMALL_QUEUE_DIVISOR > self.limit || self.main_bytes == 0;
            let page = if from_small { self.evict_small() } else { self.evict_main() };
            if page == Some(came) {
                let bytes = self.last_evicted_bytes;
                self.insert(came, bytes);
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

    fn evict_small(&mut self) -> Option<PageId> {
        let page = self.small.pop_front()?;
        let resident = *self.pages.get(&page).filter(|resident| !resident.is_main)?;
        self.subtract(resident);
        // The use for which it came does not count.
        if resident.uses > 1 {
            self.pages.insert(page, CacheEntry { uses: 0, is_main: true, ..resident });
            self.enqueue(page, resident.bytes, true);
            return None;
        }
        self.pages.remove(&page);
        self.last_evicted_bytes = resident.bytes;
        self.remember_ghost(page);
        Some(page)
    }

    fn evict_main(&mut self) -> Option<PageId> {
        let page = self.main.pop_front()?;
        let resident = self.pages.get_mut(&page).filter(|resident| resident.is_main)?;
        if resident.uses > 0 {
            resident.uses -= 1;
            self.main.push_back(page);
            return None;
        }
        let resident = *resident;
        self.subtract(resident);
        self.pages.remove(&page);
        self.last_evicted_bytes = resident.bytes;
        Some(page)
    }

    fn remember_ghost(&mut self, page: PageId) {
        if self.ghost_set.insert(page) {
            self.ghosts.push_back(page);
        }
        while self.ghosts.len() > self.pages.len().max(16) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.remove(&oldest);
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

    /// Uses a page as a cache would; says whether it had to come.
    fn visit(residents: &mut EvictionPolicy, number: u64) -> bool {
        let came = !residents.pages.contains_key(&page(number));
        if came {
            residents.insert(page(number), 1);
            while let Some(gone) = residents.evict(page(number)) {
                assert!(gone != page(number) && !residents.pages.contains_key(&gone));
            }
        }
        residents.record_use(page(number));
        came
    }

    #[test]
    fn all_stay_while_there_is_room() {
        let mut residents = EvictionPolicy::new(100);
        (0..100).for_each(|number| assert!(visit(&mut residents, number)));
        (0..100).for_each(|number| assert!(!visit(&mut residents, number)));
        assert_eq!(residents.bytes(), 100);
    }

    #[test]
    fn scan_does_not_drive_out_what_is_used_again() {
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
        assert!(missed <= 5, "{missed} of 50 were driven out by a scan");
    }

    #[test]
    fn what_is_not_used_any_more_goes() {
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
        assert!(missed <= 9, "{missed} of 90 that are in use are not there");
    }

    #[test]
    fn bytes_stay_below_the_limit_whatever_comes_and_goes() {
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
