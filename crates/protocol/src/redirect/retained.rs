//! The updates of commits that have passed and are not proven yet (rule R2).

use std::collections::{BTreeMap, VecDeque};

use model::PageId;

use crate::commit::{Writes, by_page};
use crate::ident::TxnId;
use crate::page_cache::Contents;

/// Commits of which updates are retained at most; the oldest go first, which costs a fetch.
const LIMIT: usize = 1024;

/// What transactions write, by page.
#[derive(Clone, Debug)]
pub(super) struct Retained<T> {
    updates: BTreeMap<TxnId, BTreeMap<PageId, Contents<T>>>,
    order: VecDeque<TxnId>,
}

impl<T> Default for Retained<T> {
    fn default() -> Self {
        Self { updates: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T: Clone> Retained<T> {
    pub(super) fn retain(&mut self, txn: TxnId, writes: &Writes<T>) {
        if self.updates.contains_key(&txn) || writes.is_empty() {
            return;
        }
        let pages = by_page(writes.iter().map(|(oid, content)| (*oid, content.clone())));
        self.updates.insert(txn, pages);
        self.order.push_back(txn);
        while self.order.len() > LIMIT {
            if let Some(oldest) = self.order.pop_front() {
                self.updates.remove(&oldest);
            }
        }
    }

    /// The update of a page, which is proven now. There is one invalidation for each page.
    pub(super) fn take(&mut self, txn: TxnId, page: PageId) -> Option<Contents<T>> {
        let pages = self.updates.get_mut(&txn)?;
        let contents = pages.remove(&page);
        if pages.is_empty() {
            self.forget(txn);
        }
        contents
    }

    pub(super) fn forget(&mut self, txn: TxnId) {
        if self.updates.remove(&txn).is_some() {
            self.order.retain(|other| *other != txn);
        }
    }
}
