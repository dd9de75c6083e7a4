//! Pages that wait to be fetched: a client has a limited number of fetches under way, so that a read of many objects, and the revalidation of all copies
//! after a lost connection (D4), fill neither the connection nor the memory of the nodes above. The limit for one logical node is smaller, so that
//! one that does not answer holds up no fetches at others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{NodeId, PageId, SpaceId};

use crate::memory_size::MemorySize;
use crate::page_cache::PageCache;

/// How many fetches a client has under way at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// At one logical node.
    pub node: usize,
    /// In all.
    pub total: usize,
}

impl Default for FetchLimits {
    /// Over a link with a round trip of 80 ms, 512 pages at a time are 6,400 a second, with 8 KiB each 52 MB.
    fn default() -> Self {
        Self { node: 512, total: 2_048 }
    }
}

impl FetchLimits {
    /// Whether a client with these copies may fetch one more page.
    pub(super) fn have_room<T: Clone + MemorySize>(self, cache: &PageCache<T>, page: PageId) -> bool {
        let count = cache.fetch_count();
        // Few are counted.
        let is_node_full = || cache.fetches_at_node_of(page).take(self.node).count() >= self.node;
        count < self.total && (count < self.node || !is_node_full())
    }
}

/// Pages that are to be fetched, in the order for each logical node.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchQueue {
    waiting: BTreeMap<(SpaceId, NodeId), VecDeque<PageId>>,
    pages: BTreeSet<PageId>,
}

impl FetchQueue {
    pub(super) fn contains(&self, page: PageId) -> bool {
        self.pages.contains(&page)
    }

    /// Adds a page, which does not wait yet.
    pub(super) fn push(&mut self, page: PageId) {
        self.pages.insert(page);
        self.waiting.entry((page.space, page.node)).or_default().push_back(page);
    }

    /// Removes the first page of a logical node that has room for a fetch; `has_room` says so of a page's.
    pub(super) fn pop(&mut self, has_room: impl Fn(PageId) -> bool) -> Option<PageId> {
        let is_first = |queue: &VecDeque<PageId>| queue.front().is_some_and(|page| has_room(*page));
        let (at, _) = self.waiting.iter().find(|(_, queue)| is_first(queue))?;
        let at = *at;
        let queue = self.waiting.get_mut(&at)?;
        let page = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&at);
        }
        self.pages.remove(&page);
        Some(page)
    }
}
