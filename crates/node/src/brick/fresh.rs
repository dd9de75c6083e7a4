//! Pages that are new, and which of their slots were written: who creates objects need not look for what was there before.
//!
//! 1. A page is noted when it changes for the first time ever: it has no head, so none of its slots has anything.
//! 2. From then on each slot is noted when it is written, before the store has it. So one that is not noted is free; of one that is,
//!    the store is asked.
//!
//! That saves a way down the B-tree, to nothing, for each object that is created in a page that somebody fills.

use std::collections::{HashMap, VecDeque};

use model::{Object, PageId, Result};
use store::Store;

use super::page_rows as rows;

/// Pages that are remembered. Whoever fills pages fills few at a time.
const PAGES: usize = if cfg!(test) { 2 } else { 4_096 };
/// Slots of a page that are noted; those above are guards, which have no content.
const SLOTS: usize = 256;

/// The slots of a page that were written, a bit for each.
type Written = [u64; SLOTS / 64];

/// Pages that are new.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pages: HashMap<PageId, Written>,
    /// The same, the oldest first.
    order: VecDeque<PageId>,
}

impl Fresh {
    /// A page has never changed, and does now.
    pub(super) fn begin(&mut self, page: PageId) {
        if self.pages.insert(page, Written::default()).is_none() {
            self.order.push_back(page);
        }
        while self.order.len() > PAGES {
            self.order.pop_front().map(|page| self.pages.remove(&page));
        }
    }

    /// A slot is written.
    pub(super) fn write(&mut self, page: PageId, slot: u16) {
        let slot = usize::from(slot);
        if let Some(written) = self.pages.get_mut(&page)
            && let Some(word) = written.get_mut(slot / 64)
        {
            *word |= 1 << (slot % 64);
        }
    }

    fn is_free(&self, page: PageId, slot: u16) -> bool {
        let slot = usize::from(slot);
        let written = self.pages.get(&page).and_then(|written| written.get(slot / 64));
        written.is_some_and(|word| word & (1 << (slot % 64)) == 0)
    }
}

/// The newest durable objects of a logical node.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) store: &'a Store,
    pub(super) fresh: &'a Fresh,
}

impl Objects<'_> {
    /// An object of a page; `None` if the slot is free.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(self, page: PageId, slot: u16) -> Result<Option<Object>> {
        if self.fresh.is_free(page, slot) { Ok(None) } else { rows::read_object(self.store, page, slot) }
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;

    fn page(number: u64) -> PageId {
        PageId { space: SpaceId(1), node: NodeId(1), number }
    }

    #[test]
    fn only_slots_of_new_pages_that_nobody_wrote_are_free() {
        let mut fresh = Fresh::default();
        fresh.write(page(1), 7);
        assert!(!fresh.is_free(page(1), 8), "the page is not known to be new");
        fresh.begin(page(1));
        for slot in [0, 7, 63, 64, 255] {
            assert!(fresh.is_free(page(1), slot));
            fresh.write(page(1), slot);
            assert!(!fresh.is_free(page(1), slot));
        }
        assert!(fresh.is_free(page(1), 8));
        assert!(!fresh.is_free(page(1), 256), "guards are not noted");
        fresh.write(page(1), u16::MAX);
    }

    #[test]
    fn pages_that_are_forgotten_are_not_taken_for_new() {
        let mut fresh = Fresh::default();
        (1..=PAGES as u64 + 1).for_each(|number| fresh.begin(page(number)));
        assert!(!fresh.is_free(page(1), 0));
        assert!(fresh.is_free(page(2), 0));
    }
}
