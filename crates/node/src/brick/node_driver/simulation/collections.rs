//! Transactions on collections: look-ups, listings and changes of entries.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ClassId, Entry, EntryKey, NodeId, Object, Oid, PageId};
use protocol::commit::EntryChanges;
use protocol::entries::{is_unique_values, unique_values};
use protocol::ident::HlcTimestamp;
use wire::cluster::{EntryList, ListEntries, LookUp, LookedUp};

use super::history::History;
use super::workload::{BADGE, BY_NUMBER, Draft, age, number_entry};
use super::{Checked, NODES, RngExt, SPACE, World};
use crate::brick::entries;
use crate::brick::entry_rows::{self as rows, Totals};
use crate::brick::page_rows::{self, Rows};

/// Collections of a logical node, and keys.
const COLLECTIONS: u16 = 3;
const KEYS: [&str; 4] = ["a", "ab", "b", "z"];

/// What a transaction has looked up and listed, and the entries that it changes.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedEntries {
    look_ups: Vec<(Entry, Option<Oid>)>,
    /// All entries of a collection, and their number.
    listings: Vec<(Oid, BTreeMap<EntryKey, Oid>, u64)>,
    pub(super) changes: EntryChanges,
}

/// The entries that there are.
type AllEntries = BTreeMap<Entry, Oid>;

fn collection(node: NodeId, slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SPACE, node, number: 50 }, slot)
}

fn entries_in(all: &AllEntries, collection: Oid) -> BTreeMap<EntryKey, Oid> {
    let here = all.iter().filter(|(entry, _)| entry.collection == collection);
    here.map(|(entry, target)| (entry.key.clone(), *target)).collect()
}

impl World {
    fn any_collection(&mut self, node: NodeId) -> Oid {
        collection(node, self.rng.random_range(0..COLLECTIONS))
    }

    fn any_key(&mut self) -> EntryKey {
        EntryKey::name(KEYS[self.rng.random_range(0..KEYS.len())]).unwrap()
    }

    /// Looks keys up or lists a collection, and changes entries.
    pub(super) fn add_entries(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        if self.chance(50) {
            self.add_look_up(node, draft)?;
        }
        if self.chance(30) {
            self.add_listing(node, draft)?;
        }
        for _ in 0..self.rng.random_range(0..3) {
            let entry = Entry { collection: self.any_collection(node), key: self.any_key() };
            let target = NODES[self.rng.random_range(0..2)];
            let target = Some(self.any_collection(target)).filter(|_| self.chance(60));
            draft.observed.entries.changes.insert(entry, target);
        }
        Ok(())
    }

    /// Follows one or two keys.
    fn add_look_up(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        let keys = (0..self.rng.random_range(1..3)).map(|_| self.any_key()).collect();
        let wanted = LookUp { collection: self.any_collection(node), keys };
        let found = entries::look_up(&self.machine.store(), &wanted).map_err(|error| error.to_string())?;
        let LookedUp { targets, guards, .. } = found;
        let mut at = wanted.collection;
        for (number, key) in wanted.keys.into_iter().enumerate().take(guards.len()) {
            let target = targets.get(number).copied();
            draft.observed.entries.look_ups.push((Entry { collection: at, key }, target));
            at = target.unwrap_or(at);
        }
        draft.reads.extend(guards);
        Ok(())
    }

    /// Looks one entry up.
    pub(super) fn look_up_one(&mut self, entry: &Entry, draft: &mut Draft) -> Result<Option<Oid>, String> {
        let wanted = LookUp { collection: entry.collection, keys: vec![entry.key.clone()] };
        let found = entries::look_up(&self.machine.store(), &wanted).map_err(|error| error.to_string())?;
        let target = found.targets.first().copied();
        draft.reads.extend(found.guards);
        draft.observed.entries.look_ups.push((entry.clone(), target));
        Ok(target)
    }

    /// Lists a whole collection, in portions.
    fn add_listing(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        let (collection, mut all, mut after) = (self.any_collection(node), BTreeMap::new(), None);
        let (reverse, mut counts) = (self.chance(30), Vec::new());
        loop {
            let wanted = ListEntries {
                collection,
                after,
                prefix: Bytes::new(),
                limit: 2,
                reverse,
                kinds: true,
                passes_damage: false,
            };
            let found = entries::list(&self.machine.store(), &wanted).map_err(|error| error.to_string())?;
            let EntryList { entries, more, guards, count, .. } = found;
            draft.reads.extend(guards);
            counts.push(count);
            after = entries.last().map(|entry| entry.key.clone()).filter(|_| more);
            all.extend(entries.into_iter().map(|entry| (entry.key, entry.target)));
            if after.is_none() {
                break;
            }
        }
        let count = counts.pop().unwrap_or_default();
        draft.observed.entries.listings.push((collection, all, count));
        Ok(())
    }

    /// Judges the rows of collections.
    pub(super) fn judge_entries(&self, objects: &BTreeMap<Oid, Object>) -> Checked {
        let (mut expected, mut modified) = self.history.replay_entries()?;
        modified.retain(|collection, _| !is_unique_values(*collection));
        let bound = expected.extract_if(.., |entry, _| is_unique_values(entry.collection)).collect();
        self.judge_unique_values(&bound, objects)?;
        let mut found = AllEntries::new();
        let mut reverse: Vec<(Entry, Oid)> = Vec::new();
        let reader = self.reader();
        for collection in NODES.into_iter().flat_map(|node| (0..COLLECTIONS).map(move |slot| collection(node, slot))) {
            let (from, to) = rows::entry_range(collection, &[]);
            let visit = |row: &[u8], value: &[u8]| {
                let key = rows::key_in_row(row).unwrap();
                found.insert(Entry { collection, key }, rows::decode_target(row, value).unwrap());
                ControlFlow::Continue(())
            };
            reader.each(&from, &to, visit).map_err(|error| error.to_string())?;
            for node in NODES {
                let (from, to) = rows::reverse_range(node, collection, None);
                let visit = |row: &[u8], _: &[u8]| {
                    reverse.push((rows::entry_in_row(row).unwrap(), collection));
                    ControlFlow::Continue(())
                };
                reader.each(&from, &to, visit).map_err(|error| error.to_string())?;
            }
            let totals = Totals::read(&reader, collection).map_err(|error| error.to_string())?;
            let count = entries_in(&expected, collection).len() as u64;
            let wanted = Totals { count, modified: modified.get(&collection).copied().unwrap_or_default() };
            if totals != wanted {
                return Err(format!("the totals of {collection} are {totals:?}, and must be {wanted:?}"));
            }
        }
        if found != expected {
            return Err(format!("the entries are {found:?}, and must be {expected:?}"));
        }
        let count = reverse.len();
        if reverse.into_iter().collect::<AllEntries>() != expected || count != expected.len() {
            return Err(format!("the entries are not all found from their targets, and no others: {expected:?}"));
        }
        self.judge_guards(&modified)
    }

    /// The numbers of badges are bound, each to its badge, and nothing else is.
    fn judge_unique_values(&self, expected: &AllEntries, objects: &BTreeMap<Oid, Object>) -> Checked {
        let mut found = AllEntries::new();
        for collection in NODES.map(|node| unique_values(SPACE, node, BY_NUMBER)) {
            let (from, to) = (rows::totals_key(collection), rows::entry_range(collection, &[]).1);
            let visit = |row: &[u8], value: &[u8]| {
                let key = rows::key_in_row(row).unwrap();
                found.insert(Entry { collection, key }, rows::decode_target(row, value).unwrap());
                ControlFlow::Continue(())
            };
            self.reader().each(&from, &to, visit).map_err(|error| error.to_string())?;
        }
        let badges = objects.iter().filter(|(_, object)| object.class == BADGE);
        let of_badges = badges.map(|(oid, badge)| (number_entry(age(badge)), *oid)).collect::<AllEntries>();
        if found != *expected || found != of_badges {
            return Err(format!("U: the numbers of badges are bound as {found:?}, and must be as {expected:?}"));
        }
        Ok(())
    }

    /// The guard of a collection is as new as its last change.
    fn judge_guards(&self, modified: &BTreeMap<Oid, HlcTimestamp>) -> Checked {
        for (collection, at) in modified {
            let guard = protocol::entries::collection_guard(*collection);
            let head = page_rows::read_head(&self.reader(), guard.page()).map_err(|error| error.to_string())?;
            if head.timestamp < *at {
                return Err(format!(
                    "the guard of {collection} is of {:?}, and a key changed at {at:?}",
                    head.timestamp
                ));
            }
        }
        Ok(())
    }
}

impl History {
    /// Repeats the changes of entries in the order of timestamps. Returns the entries in the end, and when each collection last changed.
    fn replay_entries(&self) -> Result<(AllEntries, BTreeMap<Oid, HlcTimestamp>), String> {
        let (mut all, mut modified) = (AllEntries::new(), BTreeMap::new());
        for ((at, txn), observed) in self.committed_txns() {
            let ObservedEntries { look_ups, listings, changes } = &observed.entries;
            if let Some((entry, seen)) = look_ups.iter().find(|(entry, seen)| all.get(entry) != seen.as_ref()) {
                return Err(format!("V2: {txn:?} at {at:?} found {seen:?} for {entry:?}, not {:?}", all.get(entry)));
            }
            for (collection, seen, count) in listings {
                let there = entries_in(&all, *collection);
                if there != *seen || *count != there.len() as u64 {
                    return Err(format!("V2: {txn:?} at {at:?} listed {count} entries {seen:?}, not {there:?}"));
                }
            }
            for (entry, target) in changes {
                match target {
                    Some(target) => drop(all.insert(entry.clone(), *target)),
                    None => drop(all.remove(entry)),
                }
                modified.insert(entry.collection, *at);
            }
        }
        Ok((all, modified))
    }
}
