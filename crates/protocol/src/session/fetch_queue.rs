//! Pages that wait to be fetched: a client has a limited number of fetches under way, so that a read of many objects, and the revalidation of
//! all copies after a lost connection (D4), fill neither the connection nor the memory of the nodes above.
//!
//! Places are given to the logical nodes in turn. Each may always have a few fetches under way, so that others which do not answer hold
//! it up less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use model::{NodeId, PageId, SpaceId};

use crate::memory_size::MemorySize;
use crate::page_cache::PageCache;

/// How many fetches a client has under way at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// At one logical node.
    pub node: usize,
    /// In all, unless a logical node has fewer than [`FetchLimits::least`].
    pub total: usize,
    /// At one logical node however many there are in all.
    pub least: usize,
}

impl Default for FetchLimits {
    /// Over a link with a round trip of 80 ms, 512 pages at a time are 6,400 a second, with 8 KiB each 52 MB.
    fn default() -> Self {
        Self { node: 512, total: 2_048, least: 16 }
    }
}

impl FetchLimits {
    /// Whether a client with these copies may fetch one more page.
    pub(super) fn have_room<T: Clone + MemorySize>(self, cache: &PageCache<T>, page: PageId) -> bool {
        let at_node = cache.fetch_count_at(page);
        at_node < self.least || at_node < self.node && cache.fetch_count() < self.total
    }
}

/// A logical node and the space of its pages.
type SpaceNode = (SpaceId, NodeId);

/// Pages that are to be fetched, in the order for each logical node.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchQueue {
    waiting: BTreeMap<SpaceNode, VecDeque<PageId>>,
    /// Those that are still wanted.
    pages: BTreeSet<PageId>,
    /// Whose page was fetched last.
    last: Option<SpaceNode>,
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

    /// A page is not wanted any more.
    pub(super) fn remove(&mut self, page: PageId) {
        self.pages.remove(&page);
    }

    /// Removes the first page of the next logical node that has room for a fetch; `has_room` says so of a page's.
    pub(super) fn pop(&mut self, has_room: impl Fn(PageId) -> bool) -> Option<PageId> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let upto = self.last.map_or(Bound::Unbounded, Bound::Included);
        let first = |queue: &VecDeque<PageId>| queue.front().is_some_and(|page| has_room(*page));
        let later = self.waiting.range((behind, Bound::Unbounded)).find(|(_, queue)| first(queue));
        let found = later.or_else(|| self.waiting.range((Bound::Unbounded, upto)).find(|(_, queue)| first(queue)));
        let at = *found?.0;
        let queue = self.waiting.get_mut(&at)?;
        let page = std::iter::from_fn(|| queue.pop_front()).find(|page| self.pages.remove(page));
        if queue.is_empty() {
            self.waiting.remove(&at);
        }
        self.last = Some(at);
        // All that waited there may have been unwanted.
        page.or_else(|| self.pop(has_room))
    }

    /// A page that waits although `has_room` says that it need not.
    pub(super) fn needlessly_waiting(&self, has_room: impl Fn(PageId) -> bool) -> Option<PageId> {
        self.pages.iter().copied().find(|page| has_room(*page))
    }
}
