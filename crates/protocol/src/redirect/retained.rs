//! The updates of commits that have passed and are not proven yet (rule R2).

use std::collections::{BTreeMap, VecDeque};

use model::PageId;

use crate::commit::{Writes, group_by_page};
use crate::ident::TxnId;
use crate::memory_size::MemorySize;
use crate::page_cache::SlotStates;
use crate::plant::{Bug, planted};

/// The maximum number of commits with retained updates. The oldest are dropped first, which costs a fetch.
const LIMIT: usize = 1024;
/// The maximum size of the retained updates, in bytes.
const LIMIT_BYTES: usize = 16 << 20;

/// The writes of transactions, by page.
#[derive(Clone, Debug)]
pub(super) struct RetainedUpdates<T> {
    updates: BTreeMap<TxnId, Update<T>>,
    order: VecDeque<TxnId>,
    /// Their approximate size in bytes.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Update<T> {
    pages: BTreeMap<PageId, SlotStates<T>>,
    bytes: usize,
}

impl<T> Default for RetainedUpdates<T> {
    fn default() -> Self {
        Self { updates: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }
}

impl<T: Clone + MemorySize> RetainedUpdates<T> {
    pub(super) fn retain(&mut self, txn: TxnId, writes: &Writes<T>) {
        if self.updates.contains_key(&txn) || writes.is_empty() {
            return;
        }
        let pages = group_by_page(writes.iter().map(|(oid, content)| (*oid, content.clone())));
        let weight = pages.values().map(MemorySize::memory_size).sum();
        self.bytes += weight;
        self.updates.insert(txn, Update { pages, bytes: weight });
        self.order.push_back(txn);
        while (self.order.len() > LIMIT || self.bytes > LIMIT_BYTES)
            && !planted(Bug::RetainedUnbounded)
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
        let (updates, order) = (self.updates.len(), self.order.len());
        assert!(updates == order, "R2: {updates} updates are retained, but {order} can be dropped");
    }

    fn remove(&mut self, txn: TxnId) -> bool {
        let Some(update) = self.updates.remove(&txn) else { return false };
        assert!(
            self.bytes >= update.bytes,
            "R2: the update of {txn:?} has {} bytes, more than the total of {}",
            update.bytes,
            self.bytes
        );
        self.bytes -= update.bytes;
        assert!(
            self.bytes == 0 || !self.updates.is_empty(),
            "R2: no update is retained, but {} bytes are counted",
            self.bytes
        );
        true
    }

    /// Removes and returns the update of a page, which an invalidation has proven. There is one invalidation for each
    /// page.
    pub(super) fn take(&mut self, txn: TxnId, page: PageId) -> Option<SlotStates<T>> {
        let any = || self.updates.iter().find(|(_, update)| update.pages.contains_key(&page)).map(|(txn, _)| *txn);
        let txn = if planted(Bug::UpdateOfAnotherTransaction) { any()? } else { txn };
        let update = self.updates.get_mut(&txn)?;
        let contents = update.pages.remove(&page);
        if update.pages.is_empty() {
            self.forget(txn);
        }
        contents
    }

    pub(super) fn forget(&mut self, txn: TxnId) {
        if self.remove(txn) {
            self.order.retain(|other| *other != txn);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::plant;
    use model::{ClassId, NodeId, Oid, SpaceId};

    use super::*;
    use crate::ident::{ClientId, HlcTimestamp};
    use crate::page_cache::ObjectState;

    const PAGE: PageId = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };

    fn txn(number: u64) -> TxnId {
        TxnId { start: HlcTimestamp::at(number), client: ClientId(1) }
    }

    #[test]
    fn number_of_updates_is_bounded() {
        for bug in [None, Some(Bug::RetainedUnbounded)] {
            let _planted = bug.map(plant);
            let mut retained: RetainedUpdates<Vec<u8>> = RetainedUpdates::default();
            for number in 0..=LIMIT as u64 {
                let object = ObjectState::Value(Vec::new());
                retained.retain(txn(number), &[(Oid::new(ClassId::NONE, PAGE, 1), object)].into());
            }
            assert_eq!(retained.take(txn(0), PAGE).is_some(), bug.is_some());
            assert!(retained.take(txn(LIMIT as u64), PAGE).is_some());
        }
    }

    #[test]
    fn oldest_updates_are_dropped_above_the_size_limit() {
        let mut retained: RetainedUpdates<Vec<u8>> = RetainedUpdates::default();
        let object = || ObjectState::Value(vec![0; LIMIT_BYTES / 3]);
        for number in 0..3 {
            retained.retain(txn(number), &[(Oid::new(ClassId::NONE, PAGE, 1), object())].into());
        }
        assert!(retained.take(txn(0), PAGE).is_none() && retained.take(txn(1), PAGE).is_some());
        retained.forget(txn(2));
        assert_eq!((retained.bytes, retained.order.len()), (0, 0));
        let larger = ObjectState::Value(vec![0; LIMIT_BYTES + 1]);
        retained.retain(txn(4), &[(Oid::new(ClassId::NONE, PAGE, 1), larger)].into());
        assert_eq!((retained.bytes, retained.order.len()), (0, 0), "an update above the limit is not retained");
    }
}
