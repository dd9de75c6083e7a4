//! Turns changed entries of collections into rows, and counts them.
//!
//! 1. The guard of a key is held exclusively from when its change is accepted until the change is durable. So the durable row of the
//!    key is what the change replaces.
//! 2. Values of unique indexes are not listed: they have no totals, and are not found from their targets.
//! 3. Different keys of one collection change at the same time. So the durable totals may be older than changes in flight: the newest
//!    totals of changing collections are kept here until they are durable.

use std::collections::{BTreeSet, HashMap};

use model::{Entry, Oid, Result};
use protocol::commit::EntryChanges;
use protocol::entries::{entry_guard, is_unique_values, of_collection};
use protocol::ident::HlcTimestamp;
use store::RowChanges;

use crate::brick::entry_rows::{self as rows, Totals};
use crate::brick::page_rows::Rows;
use crate::brick::plant::{Bug, planted};

/// Collections whose totals are kept although they are durable.
const MAX_RESTING: usize = if cfg!(test) { 2 } else { 256 };

/// The totals of a collection, and the record that last changed them.
#[derive(Clone, Copy, Debug)]
struct NewestTotals {
    totals: Totals,
    position: u64,
}

/// Writes entries of collections.
#[derive(Debug, Default)]
pub(super) struct EntryWriter {
    newest: HashMap<Oid, NewestTotals>,
    /// How many there may be before durable ones are forgotten.
    limit: usize,
}

impl EntryWriter {
    /// Makes the rows of the entries that the record at `position` changes. Everything up to `durable` is durable.
    ///
    /// # Errors
    /// If what they replace cannot be read.
    pub(super) fn write(
        &mut self,
        entries: &EntryChanges,
        (position, timestamp): (u64, HlcTimestamp),
        durable: u64,
        reader: &impl Rows,
        changes: &mut RowChanges,
    ) -> Result<()> {
        let mut current: Option<(Oid, Totals)> = None;
        for (entry, target) in entries {
            if is_unique_values(entry.collection) {
                let row = rows::entry_key(entry.collection, &entry.key);
                match target {
                    Some(target) => changes.put(&row, rows::encode_target(*target)),
                    None => changes.remove(&row),
                }
                continue;
            }
            let mut totals = match current {
                Some((collection, totals)) if collection == entry.collection => totals,
                _ => {
                    self.finish(current, position, changes);
                    self.newest_totals(entry.collection, reader)?
                }
            };
            let before = rows::read_target(reader, entry.collection, &entry.key)?;
            write_entry(entry, before, *target, changes);
            totals.count = totals.count.saturating_add(u64::from(target.is_some()));
            totals.count = totals.count.saturating_sub(u64::from(before.is_some()));
            if planted(Bug::CountedTwice) {
                totals.count += u64::from(target.is_some() && before.is_none());
            }
            totals.modified = totals.modified.max(timestamp);
            current = Some((entry.collection, totals));
        }
        self.finish(current, position, changes);
        self.forget_durable(durable);
        Ok(())
    }

    /// Reads what [`EntryWriter::write`] will replace, so that damage is noticed before. If the transaction takes keys for
    /// [unbound](protocol::entries::unbound_key), returns the guards of those that are.
    ///
    /// # Errors
    /// If something of that cannot be read.
    pub(super) fn read_replaced(
        &self,
        entries: &EntryChanges,
        takes_for_unbound: bool,
        reader: &impl Rows,
    ) -> Result<BTreeSet<Oid>> {
        let (mut unbound, mut bound, mut last) = (BTreeSet::new(), BTreeSet::new(), None);
        for entry in entries.keys() {
            let has_totals = !is_unique_values(entry.collection);
            if !has_totals && !takes_for_unbound {
                continue;
            }
            if has_totals && last.replace(entry.collection) != Some(entry.collection) {
                self.newest_totals(entry.collection, reader)?;
            }
            let target = rows::read_target(reader, entry.collection, &entry.key)?;
            if takes_for_unbound {
                let is_bound = target.is_some() && !planted(Bug::BoundKeyTakenForUnbound);
                (if is_bound { &mut bound } else { &mut unbound }).insert(entry_guard(entry));
            }
        }
        // Keys may share a guard.
        unbound.retain(|guard| !bound.contains(guard));
        Ok(unbound)
    }

    /// A collection is deleted by the record at `position`, or replaced by another object.
    pub(super) fn remove_totals(&mut self, collection: Oid, position: u64, changes: &mut RowChanges) {
        self.newest.insert(collection, NewestTotals { totals: Totals::default(), position });
        changes.remove(&rows::totals_key(collection));
    }

    /// A collection has these totals, whatever its row says. No change of its entries is in flight, and the record at `next` is the next one.
    pub(super) fn replace_totals(&mut self, collection: Oid, totals: Totals, next: u64, changes: &mut RowChanges) {
        changes.put(&rows::totals_key(collection), totals.encode());
        self.newest.insert(collection, NewestTotals { totals, position: next });
    }

    /// The number of entries that a collection has after these changes.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(super) fn count_after(&self, collection: Oid, entries: &EntryChanges, reader: &impl Rows) -> Result<u64> {
        let mut count = self.newest_totals(collection, reader)?.count;
        for (entry, target) in of_collection(entries, collection) {
            let before = rows::read_target(reader, collection, &entry.key)?;
            count = (count + u64::from(target.is_some())).saturating_sub(u64::from(before.is_some()));
        }
        Ok(count)
    }

    fn newest_totals(&self, collection: Oid, reader: &impl Rows) -> Result<Totals> {
        match self.newest.get(&collection).filter(|_| !planted(Bug::CountedFromDurable)) {
            Some(newest) => Ok(newest.totals),
            None => Totals::read(reader, collection),
        }
    }

    /// The entries of a collection are written.
    fn finish(&mut self, changed: Option<(Oid, Totals)>, position: u64, changes: &mut RowChanges) {
        let Some((collection, totals)) = changed else { return };
        changes.put(&rows::totals_key(collection), totals.encode());
        self.newest.insert(collection, NewestTotals { totals, position });
    }

    /// Forgets durable totals if there are many. The limit follows those that are not durable, so that this is seldom done in vain.
    fn forget_durable(&mut self, durable: u64) {
        if self.newest.len() > self.limit.max(MAX_RESTING) {
            self.newest.retain(|_, newest| newest.position > durable && !planted(Bug::CountsForgottenInFlight));
            self.limit = 2 * self.newest.len();
        }
    }
}

fn write_entry(entry: &Entry, before: Option<Oid>, target: Option<Oid>, changes: &mut RowChanges) {
    if before == target {
        return;
    }
    let row = rows::entry_key(entry.collection, &entry.key);
    if let Some(before) = before.filter(|_| !planted(Bug::ReverseRowKept)) {
        changes.remove(&rows::reverse_key(before, entry));
    }
    match target {
        Some(target) => {
            changes.put(&row, rows::encode_target(target));
            changes.put(&rows::reverse_key(target, entry), bytes::Bytes::new());
        }
        None => changes.remove(&row),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::ControlFlow;

    use bytes::Bytes;
    use model::{ClassId, EntryKey, NodeId, PageId, SpaceId};
    use protocol::entries::unique_entry;
    use store::{Options, Store};

    use super::*;

    fn collection(number: u64) -> Oid {
        let page = PageId { space: SpaceId(1), node: NodeId(3), number };
        Oid::new(ClassId::NONE, page, 0)
    }

    /// Counts the rows that are read.
    struct CountingRows<'a>(&'a Store, Cell<usize>);

    impl Rows for CountingRows<'_> {
        fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
            self.1.set(self.1.get() + 1);
            self.0.get(key)
        }

        fn get_with<T>(&self, key: &[u8], show: impl FnMut(&[u8]) -> T) -> Result<Option<T>> {
            self.1.set(self.1.get() + 1);
            self.0.get_with(key, show)
        }

        fn each(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
            self.0.each(from, to, visit)
        }
    }

    #[test]
    fn one_reading_shows_damage_and_whether_unique_values_are_bound() {
        let (space, node, target) = (SpaceId(1), NodeId(3), collection(100));
        let [bound, unbound] = [1, 2].map(|key| unique_entry(space, &[node], 9, &[key]).unwrap());
        let store = Store::in_memory(Options::default()).unwrap();
        let mut changes = RowChanges::new();
        changes.put(&rows::entry_key(bound.collection, &bound.key), rows::encode_target(target));
        store.commit_rows(changes).unwrap();
        let entries = EntryChanges::from([bound, unbound.clone()].map(|entry| (entry, Some(target))));
        let state = CountingRows(&store, Cell::new(0));
        let found = EntryWriter::default().read_replaced(&entries, true, &state).unwrap();
        assert_eq!((found, state.1.get()), ([entry_guard(&unbound)].into(), 2));
        let found = EntryWriter::default().read_replaced(&entries, false, &state).unwrap();
        assert_eq!((found, state.1.get()), (BTreeSet::new(), 2), "unique values replace nothing that is read");
    }

    #[test]
    fn totals_are_kept_until_they_are_durable_and_few_of_them_then() {
        let state = Store::in_memory(Options::default()).unwrap().snapshot().unwrap();
        let (mut writer, mut changes) = (EntryWriter::default(), RowChanges::new());
        // Each collection gets an entry in a record of its own.
        let mut write = |writer: &mut EntryWriter, number: u64, durable: u64| {
            let entry = Entry { collection: collection(number), key: EntryKey::new(b"name".to_vec()).unwrap() };
            let entries = EntryChanges::from([(entry, Some(collection(100)))]);
            writer.write(&entries, (number, HlcTimestamp::at(number)), durable, &state, &mut changes).unwrap();
        };
        let in_flight = 4 * MAX_RESTING as u64;
        (1..=in_flight).for_each(|number| write(&mut writer, number, 1));
        let none = EntryChanges::default();
        for number in 2..=in_flight {
            assert_eq!(writer.count_after(collection(number), &none, &state).unwrap(), 1, "collection {number}");
        }
        (in_flight + 1..=4 * in_flight).for_each(|number| write(&mut writer, number, number - 1));
        assert!(writer.newest.len() <= MAX_RESTING, "{}", writer.newest.len());
    }
}
