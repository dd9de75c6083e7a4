//! The structs of objects that a transaction has only read.
//!
//! Objects that refer to one another are often in one page. So the structs are kept by page and slot: a look-up finds its page in a small
//! table, mostly as the one of the look-up before, and the entries of a page lie side by side in memory.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;
use model::{ClassId, Oid, PageId};

/// Slots that have a place in the list of their page, at most. Clients fill pages from the first slot on, and far below this one.
const LISTED_SLOTS: u16 = 1_024;

/// A struct of any type.
pub(super) type AnyStruct = Arc<dyn Any + Send + Sync>;

/// The struct of the object of a slot, and the class of the object.
type SlotEntry = Option<(ClassId, AnyStruct)>;

/// Structs by the identifiers of their objects.
#[derive(Debug, Default)]
pub(super) struct SharedStructs {
    pages: IndexMap<PageId, Vec<SlotEntry>, RandomState>,
    /// The place of the page that was looked up last.
    last: usize,
    /// The structs in higher slots, and those of a second class in a slot.
    others: HashMap<Oid, AnyStruct, RandomState>,
}

impl SharedStructs {
    /// The struct of an object.
    pub(super) fn get(&mut self, oid: &Oid) -> Option<&AnyStruct> {
        let place = self.place(oid.page());
        let listed = place.and_then(|place| self.pages[place].get(usize::from(oid.slot()))?.as_ref());
        match listed {
            Some((class, found)) if *class == oid.class() => Some(found),
            _ => self.others.get(oid),
        }
    }

    /// Sets the struct of an object.
    pub(super) fn insert(&mut self, oid: Oid, new: AnyStruct) {
        if oid.slot() < LISTED_SLOTS && !self.others.contains_key(&oid) {
            let entry = self.slot_entry(oid);
            if entry.as_ref().is_none_or(|(class, _)| *class == oid.class()) {
                *entry = Some((oid.class(), new));
                return;
            }
        }
        self.others.insert(oid, new);
    }

    /// Removes the struct of an object.
    pub(super) fn remove(&mut self, oid: &Oid) -> Option<AnyStruct> {
        let place = self.place(oid.page());
        let listed = place.and_then(|place| self.pages[place].get_mut(usize::from(oid.slot())));
        match listed.and_then(|entry| entry.take_if(|(class, _)| *class == oid.class())) {
            Some((_, found)) => Some(found),
            None => self.others.remove(oid),
        }
    }

    /// Removes all structs.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The place of a page.
    fn place(&mut self, page: PageId) -> Option<usize> {
        if self.pages.get_index(self.last).is_none_or(|(last, _)| *last != page) {
            self.last = self.pages.get_index_of(&page)?;
        }
        Some(self.last)
    }

    /// The entry of an object's slot, which must be a listed one.
    fn slot_entry(&mut self, oid: Oid) -> &mut SlotEntry {
        let entries = match self.pages.entry(oid.page()) {
            Entry::Occupied(entries) => entries.into_mut(),
            Entry::Vacant(entries) => entries.insert(Vec::new()),
        };
        let slot = usize::from(oid.slot());
        if entries.len() <= slot {
            entries.resize(slot + 1, None);
        }
        &mut entries[slot]
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;

    fn oid(page: u64, class: u32, slot: u16) -> Oid {
        Oid::new(ClassId(class), PageId { space: SpaceId(1), node: NodeId(1), number: page }, slot)
    }

    fn value(found: Option<&AnyStruct>) -> Option<u64> {
        found.and_then(|found| found.downcast_ref().copied())
    }

    #[test]
    fn structs_are_found_by_page_slot_and_class() {
        let mut structs = SharedStructs::default();
        let all =
            [oid(1, 5, 0), oid(1, 5, 7), oid(2, 5, 7), oid(2, 6, 7), oid(2, 5, LISTED_SLOTS), oid(3, 6, u16::MAX)];
        for (number, oid) in (0_u64..).zip(all) {
            structs.insert(oid, Arc::new(number));
        }
        for (number, oid) in (0..).zip(all) {
            assert_eq!(value(structs.get(&oid)), Some(number));
        }
        for absent in [oid(1, 6, 0), oid(1, 5, 1), oid(4, 5, 0), oid(3, 6, 9), oid(1, 5, LISTED_SLOTS)] {
            assert_eq!(value(structs.get(&absent)), None);
        }
    }

    #[test]
    fn removed_struct_is_gone_and_others_stay() {
        let mut structs = SharedStructs::default();
        let (one, second_class, high) = (oid(1, 5, 3), oid(1, 6, 3), oid(1, 5, 2_000));
        for (number, oid) in [(1_u64, one), (2, second_class), (3, high)] {
            structs.insert(oid, Arc::new(number));
        }
        assert_eq!(value(structs.remove(&one).as_ref()), Some(1));
        assert_eq!((value(structs.get(&one)), value(structs.get(&second_class))), (None, Some(2)));
        assert!(structs.remove(&one).is_none());
        structs.insert(second_class, Arc::new(4_u64));
        assert_eq!(value(structs.remove(&second_class).as_ref()), Some(4));
        assert!(structs.get(&second_class).is_none());
        assert_eq!(value(structs.remove(&high).as_ref()), Some(3));
        structs.clear();
        assert!(structs.get(&one).is_none());
    }

    #[test]
    fn last_struct_of_an_object_counts() {
        let mut structs = SharedStructs::default();
        for number in [1_u64, 2] {
            [oid(1, 5, 3), oid(1, 6, 3)].into_iter().for_each(|oid| structs.insert(oid, Arc::new(number)));
        }
        assert_eq!(value(structs.get(&oid(1, 5, 3))), Some(2));
        assert_eq!(value(structs.get(&oid(1, 6, 3))), Some(2));
    }
}
