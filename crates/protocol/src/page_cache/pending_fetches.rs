//! The fetches of a client that are not answered, counted for each logical node.

use std::collections::BTreeMap;

use model::{NodeId, PageId, SpaceId};

use super::{FetchId, Invalidation, SlotStates};

#[derive(Clone, Debug)]
pub(super) struct PendingFetch<T> {
    pub(super) id: FetchId,
    pub(super) messages: Vec<(Invalidation, Option<SlotStates<T>>)>,
    /// Their approximate memory in bytes. Above the limit they are dropped, and the reply of the fetch is discarded.
    pub(super) bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) struct PendingFetches<T> {
    of_pages: BTreeMap<PageId, PendingFetch<T>>,
    at_nodes: BTreeMap<(SpaceId, NodeId), usize>,
}

impl<T> Default for PendingFetches<T> {
    fn default() -> Self {
        Self { of_pages: BTreeMap::new(), at_nodes: BTreeMap::new() }
    }
}

impl<T> PendingFetches<T> {
    pub(super) fn len(&self) -> usize {
        self.of_pages.len()
    }

    /// How many there are at the logical node of a page, in its space.
    pub(super) fn count_at(&self, page: PageId) -> usize {
        self.at_nodes.get(&(page.space, page.node)).copied().unwrap_or_default()
    }

    pub(super) fn get(&self, page: PageId) -> Option<&PendingFetch<T>> {
        self.of_pages.get(&page)
    }

    pub(super) fn get_mut(&mut self, page: PageId) -> Option<&mut PendingFetch<T>> {
        self.of_pages.get_mut(&page)
    }

    pub(super) fn insert(&mut self, page: PageId, id: FetchId) {
        let fetch = PendingFetch { id, messages: Vec::new(), bytes: 0 };
        if self.of_pages.insert(page, fetch).is_none() {
            *self.at_nodes.entry((page.space, page.node)).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, page: PageId) -> Option<PendingFetch<T>> {
        let fetch = self.of_pages.remove(&page)?;
        let at = (page.space, page.node);
        if let Some(count) = self.at_nodes.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.at_nodes.remove(&at);
            }
        }
        Some(fetch)
    }

    /// Removes those at a logical node.
    pub(super) fn remove_node(&mut self, node: NodeId) {
        self.of_pages.retain(|page, _| page.node != node);
        self.at_nodes.retain(|(_, at), _| *at != node);
    }
}
