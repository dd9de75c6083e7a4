//! Values that a driver keeps with the objects of its copies, such as decoded structs.
//!
//! A value belongs to one state of an object: the page cache drops it when the object changes or its copy goes. It counts in the limit of
//! the cache as a part of its copy. Values take half of the limit at most, so that a client that works with structs still has copies
//! of many pages.

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use model::{Oid, PageId};
use protocol::lease::Ms;
use protocol::page_cache::DerivedValue;

use super::{ClientDriver, DriverObject};
use crate::plant::{Bug, planted};

/// The fraction of the cache that derived values may take: one in this number.
const SHARE_DIVISOR: usize = 2;

/// The counted bytes of derived values by page. Values that a page has lost count until the page gets another one.
#[derive(Debug, Default)]
pub(super) struct DerivedBytes {
    pages: IndexMap<PageId, usize, RandomState>,
    total: usize,
    /// Where the search for the next page to drop values of begins.
    hand: usize,
}

impl DerivedBytes {
    /// The values of a page have this size now. Returns the size before.
    pub(super) fn set(&mut self, page: PageId, bytes: usize) -> usize {
        let before = match bytes {
            0 => self.pages.swap_remove(&page),
            _ => self.pages.insert(page, bytes),
        };
        self.total = self.total - before.unwrap_or(0) + bytes;
        before.unwrap_or(0)
    }

    /// A page whose values are to be dropped if all values may take `limit` bytes; never `kept`. Pages take turns.
    fn surplus(&mut self, limit: usize, kept: PageId) -> Option<PageId> {
        if self.total <= limit || self.pages.len() < 2 {
            return None;
        }
        self.hand += 1;
        let at = self.hand % self.pages.len();
        let (page, _) = self.pages.get_index(at)?;
        if *page == kept {
            self.hand += 1;
            return self.pages.get_index(self.hand % self.pages.len()).map(|(page, _)| *page);
        }
        Some(*page)
    }
}

impl<T: DriverObject> ClientDriver<T> {
    /// Keeps a value that was derived from an object, as long as the copy has this state of the object: [`ClientDriver::read_derived`]
    /// returns it. `is_source` says whether the object that the copy has now is the one that the value was derived from.
    pub fn attach(&mut self, oid: Oid, is_source: impl FnOnce(&T) -> bool, derived: DerivedValue, now: Ms) {
        let page = oid.page();
        let is_source = |object: &T| object.is_of_class(oid.class()) && is_source(object);
        let Some(bytes) = self.session.attach(oid, is_source, derived) else { return };
        let before = self.derived.set(page, bytes);
        if planted(Bug::DerivedValuesFree) {
            return;
        }
        self.residents.resize_part(page, before, bytes);
        while let Some(surplus) = self.derived.surplus(self.residents.limit() / SHARE_DIVISOR, page) {
            self.session.drop_derived(surplus);
            let before = self.derived.set(surplus, 0);
            self.residents.resize_part(surplus, before, 0);
        }
        self.evict_surplus(page, now);
        self.drain();
    }

    /// The counted bytes of all derived values.
    #[must_use]
    pub fn derived_bytes(&self) -> usize {
        self.derived.total
    }

    /// The counted bytes of all copies and of their derived values.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.residents.bytes()
    }
}
