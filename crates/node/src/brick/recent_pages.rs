//! Pages that changed recently, so that filling or changing them again needs no lookup in the store.
//!
//! 1. A page is entered with its head when it changes or is about to. All changes of a page pass through here.
//! 2. A page that was never changed has no head, so all its slots are free. From then on each slot is marked when it is
//!    written, before the store has it. A slot that is not marked is free; the store is asked about marked slots.
//! 3. A page with changes in flight is not evicted, because the store's head is older than the machine's.
//! 4. The state of a blob after a change of a part of it is kept until that change was output: the next one builds on it.
//! 5. No page is evicted while a transaction is taken in: the head that was read for it is the one that its record replaces, so
//!    damage is noticed when the transaction can still be refused. Evictions wait for [`RecentPages::shrink`].
//!
//! This saves B-tree lookups, many of them for absent rows, in each transaction.

use std::collections::{BTreeMap, HashMap, VecDeque};

use model::{Object, PageId, Result};
use protocol::ident::Version;

use super::page_rows::{self as rows, Head, Rows};
use super::plant::{Bug, planted};
use super::row_reader::RowReader;

/// Number of pages that are remembered, apart from those that are changing. Clients fill few pages at a time.
const MAX_PAGES: usize = if cfg!(test) { 2 } else { 1_024 };
/// Number of slots of a page that are marked. Slots above are guards, which have no content.
const SLOTS: usize = 256;

/// The slots of a page that were written, a bit for each.
type SlotBitmap = [u64; SLOTS / 64];

#[derive(Debug)]
struct RecentPage {
    /// The version with all changes that the machine has output.
    emitted: Version,
    /// The head with all changes.
    newest_head: Head,
    /// Number of changes that the machine has not output yet.
    pending: u32,
    /// The slots that were written, if the page was new.
    written: Option<SlotBitmap>,
    /// The newest states of blobs of which transactions in flight change a part, with the positions of these transactions. The next
    /// transaction that changes such a blob may arrive before they are durable (V2).
    changed: BTreeMap<u16, (u64, Object)>,
}

/// Pages that changed recently.
#[derive(Debug, Default)]
pub(super) struct RecentPages {
    pages: HashMap<PageId, RecentPage, foldhash::fast::RandomState>,
    /// The pages, the oldest first.
    order: VecDeque<PageId>,
    /// How many pages were entered or changed since the last eviction.
    used: usize,
}

impl RecentPages {
    /// The version of a page with all changes that the machine has output, if it is known. The store may have a newer one.
    pub(super) fn emitted_version(&self, page: PageId) -> Option<Version> {
        self.pages.get(&page).map(|page| page.emitted)
    }

    /// The head of a page with all changes, if it is known.
    pub(super) fn newest_head(&self, page: PageId) -> Option<Head> {
        self.pages.get(&page).map(|page| page.newest_head)
    }

    /// Enters a page that is about to change with its head in the store, unless it is here.
    ///
    /// # Errors
    /// If its head cannot be read, or is later than `newest`, the version of the last record.
    pub(super) fn enter(&mut self, page: PageId, reader: &impl Rows, newest: Version) -> Result<()> {
        if !self.pages.contains_key(&page) {
            let head = rows::read_head(reader, page)?;
            if head.version > newest {
                return Err(rows::damage_error(page, "its head is later than the last record"));
            }
            self.entry(page, head);
        }
        Ok(())
    }

    /// Begins a change that replaces the head of a page.
    pub(super) fn begin_change(&mut self, page: PageId, before: Head, newest: Head) {
        let page = self.entry(page, before);
        (page.newest_head, page.pending) = (newest, page.pending + 1);
    }

    fn entry(&mut self, id: PageId, head: Head) -> &mut RecentPage {
        self.used += 1;
        self.pages.entry(id).or_insert_with(|| {
            self.order.push_back(id);
            let is_new = head == Head::default() || planted(Bug::PagesTakenForNew);
            let written = is_new.then(SlotBitmap::default);
            RecentPage { emitted: head.version, newest_head: head, pending: 0, written, changed: BTreeMap::new() }
        })
    }

    /// Handles the output of a change.
    pub(super) fn on_emitted(&mut self, page: PageId, version: Version) {
        if let Some(page) = self.pages.get_mut(&page) {
            assert!(page.pending > 0, "L1: a change of a page was output that never began");
            (page.emitted, page.pending) = (version, page.pending - 1);
            page.changed.retain(|_, (position, _)| *position > version.position);
        }
    }

    /// A transaction was taken in, or refused: evicts the oldest pages if there are too many. A page with changes in flight is moved to the
    /// end instead. Visits two pages for each that was used since, one more than was added, so that the table shrinks again.
    pub(super) fn shrink(&mut self) {
        for _ in 0..2 * std::mem::take(&mut self.used) {
            if self.order.len() <= MAX_PAGES {
                return;
            }
            let Some(oldest) = self.order.pop_front() else { return };
            match self.pages.get(&oldest) {
                Some(page) if page.pending > 0 && !planted(Bug::ChangingPagesForgotten) => self.order.push_back(oldest),
                _ => drop(self.pages.remove(&oldest)),
            }
        }
    }

    /// Marks a slot as written.
    ///
    /// # Panics
    /// If a transaction in flight changes a part of the blob there: a write that replaces the blob conflicts with it (V2).
    pub(super) fn mark_written(&mut self, page: PageId, slot: u16) {
        assert!(
            self.changed_blob(page, slot).is_none(),
            "V2: slot {slot} of {page:?} is replaced while a transaction in flight changes a part of it"
        );
        self.mark_slot(page, slot);
    }

    fn mark_slot(&mut self, page: PageId, slot: u16) {
        let slot = usize::from(slot);
        let written = self.pages.get_mut(&page).and_then(|page| page.written.as_mut());
        if let Some(word) = written.and_then(|written| written.get_mut(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Marks a slot of a changing page as written, and notes the state of the blob there, of which the transaction at a position changes
    /// a part.
    pub(super) fn mark_changed(&mut self, page: PageId, slot: u16, position: u64, blob: Object) {
        self.mark_slot(page, slot);
        if let Some(page) = self.pages.get_mut(&page).filter(|_| !planted(Bug::ChangeInFlightForgotten)) {
            page.changed.insert(slot, (position, blob));
        }
    }

    /// Whether a transaction in flight changes a part of the blob in a slot.
    pub(super) fn is_changing(&self, page: PageId, slot: u16) -> bool {
        self.changed_blob(page, slot).is_some()
    }

    /// The state of a blob of which a transaction in flight changes a part.
    fn changed_blob(&self, page: PageId, slot: u16) -> Option<&Object> {
        self.pages.get(&page)?.changed.get(&slot).map(|(_, blob)| blob)
    }

    fn is_free(&self, page: PageId, slot: u16) -> bool {
        let slot = usize::from(slot);
        let written = self.pages.get(&page).and_then(|page| page.written?.get(slot / 64).copied());
        written.is_some_and(|word| word & (1 << (slot % 64)) == 0)
    }
}

/// Reads the objects of a logical node as the transactions find them that are taken in next. What is in flight of others conflicts with
/// theirs, but for changes of parts of blobs.
#[derive(Clone, Copy)]
pub(super) struct ObjectReader<'a> {
    pub(super) reader: &'a RowReader,
    pub(super) recent: &'a RecentPages,
}

impl ObjectReader<'_> {
    /// An object of a page; `None` if the slot is free.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(self, page: PageId, slot: u16) -> Result<Option<Object>> {
        match self.recent.changed_blob(page, slot) {
            Some(blob) => Ok(Some(blob.clone())),
            None if self.recent.is_free(page, slot) => Ok(None),
            None => rows::read_object(self.reader, page, slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};
    use protocol::ident::HlcTimestamp;
    use store::{Options, RowChanges, Store};

    use super::*;

    fn page(number: u64) -> PageId {
        PageId { space: SpaceId(1), node: NodeId(1), number }
    }

    fn head(position: u64) -> Head {
        Head { version: Version { moves: 0, position }, timestamp: HlcTimestamp(position) }
    }

    /// A change that was output.
    fn change(recent: &mut RecentPages, page: PageId, before: Head, newest: Head) {
        recent.begin_change(page, before, newest);
        recent.on_emitted(page, newest.version);
        recent.shrink();
    }

    /// A store with the heads of these pages.
    fn store_with(heads: &[(PageId, Head)]) -> Store {
        let store = Store::in_memory(Options::default()).unwrap();
        let mut changes = RowChanges::new();
        heads.iter().for_each(|(page, head)| changes.put(&rows::head_key(*page), head.encode()));
        store.commit_rows(changes).unwrap();
        store
    }

    #[test]
    fn only_unwritten_slots_of_new_pages_are_free() {
        let mut recent = RecentPages::default();
        change(&mut recent, page(1), head(1), head(2));
        recent.mark_written(page(1), 7);
        assert!(!recent.is_free(page(1), 8), "the page was not new");
        change(&mut recent, page(2), Head::default(), head(3));
        for slot in [0, 7, 63, 64, 255] {
            assert!(recent.is_free(page(2), slot));
            recent.mark_written(page(2), slot);
            assert!(!recent.is_free(page(2), slot));
        }
        assert!(recent.is_free(page(2), 8));
        assert!(!recent.is_free(page(2), 256), "guards are not marked");
        recent.mark_written(page(2), u16::MAX);
        change(&mut recent, page(2), head(3), head(4));
        assert!(recent.is_free(page(2), 8) && !recent.is_free(page(2), 7), "the page changes once more");
    }

    #[test]
    fn page_that_is_about_to_change_is_entered_with_its_head() {
        let store = store_with(&[(page(2), head(5))]);
        let mut recent = RecentPages::default();
        recent.enter(page(1), &store, Version::MAX).unwrap();
        assert!(recent.is_free(page(1), 3), "the page is new");
        recent.enter(page(2), &store, Version::MAX).unwrap();
        assert!(!recent.is_free(page(2), 3));
        assert_eq!(
            (recent.emitted_version(page(2)), recent.newest_head(page(2))),
            (Some(head(5).version), Some(head(5)))
        );
        (3..9).for_each(|number| recent.enter(page(number), &store, Version::MAX).unwrap());
        recent.shrink();
        assert!(recent.pages.len() <= MAX_PAGES && recent.order.len() == recent.pages.len());
    }

    #[test]
    fn page_is_not_evicted_while_a_transaction_is_taken_in() {
        let store = store_with(&[]);
        let mut recent = RecentPages::default();
        change(&mut recent, page(1), head(1), head(2));
        (1..9).for_each(|number| recent.enter(page(number), &store, Version::MAX).unwrap());
        recent.begin_change(page(8), Head::default(), head(3));
        assert_eq!(recent.newest_head(page(1)), Some(head(2)), "its head was not read again");
        recent.shrink();
        assert_eq!(recent.newest_head(page(1)), None);
        assert!(recent.newest_head(page(8)).is_some());
        assert!(recent.pages.len() <= MAX_PAGES && recent.order.len() == recent.pages.len());
    }

    #[test]
    fn blob_that_changes_in_flight_is_kept_until_its_last_change_was_output() {
        let mut recent = RecentPages::default();
        let state = |recent: &RecentPages| recent.changed_blob(page(1), 3).map(|blob| blob.data.clone());
        recent.begin_change(page(1), head(1), head(2));
        recent.mark_changed(page(1), 3, 2, Object::blob("a".into()));
        recent.begin_change(page(1), head(2), head(3));
        recent.mark_changed(page(1), 3, 3, Object::blob("ab".into()));
        assert_eq!(state(&recent), Some("ab".into()));
        recent.on_emitted(page(1), head(2).version);
        assert_eq!(state(&recent), Some("ab".into()));
        assert_eq!(recent.changed_blob(page(1), 4), None);
        recent.on_emitted(page(1), head(3).version);
        assert_eq!(state(&recent), None);
    }

    #[test]
    fn evicted_pages_are_not_treated_as_new() {
        let mut recent = RecentPages::default();
        (1..=MAX_PAGES as u64 + 1).for_each(|number| change(&mut recent, page(number), Head::default(), head(1)));
        assert!(!recent.is_free(page(1), 0));
        assert!(recent.is_free(page(2), 0));
        assert_eq!((recent.newest_head(page(1)), recent.newest_head(page(2))), (None, Some(head(1))));
    }

    #[test]
    fn changes_in_flight_are_kept_apart_and_not_evicted() {
        let mut recent = RecentPages::default();
        recent.begin_change(page(1), head(1), head(2));
        recent.begin_change(page(1), head(2), head(3));
        assert_eq!(
            (recent.emitted_version(page(1)), recent.newest_head(page(1))),
            (Some(head(1).version), Some(head(3)))
        );
        recent.on_emitted(page(1), head(2).version);
        assert_eq!(
            (recent.emitted_version(page(1)), recent.newest_head(page(1))),
            (Some(head(2).version), Some(head(3)))
        );
        (2..9).for_each(|number| change(&mut recent, page(number), head(1), head(2)));
        assert_eq!(recent.newest_head(page(1)), Some(head(3)), "one change is in flight");
        recent.on_emitted(page(1), head(3).version);
        (2..9).for_each(|number| change(&mut recent, page(number), head(2), head(3)));
        assert_eq!(recent.newest_head(page(1)), None);
        assert!(recent.pages.len() <= MAX_PAGES && recent.order.len() == recent.pages.len());
    }
}
