//! Directories at bricks: what clients look up and list, and what they must have in the end.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{Entry, EntryKey, NodeId, Oid};
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;
use wire::cluster::{EntriesOf, EntryList, ListEntries, ListEntriesOf, LookUp, LookedUp};

use super::{RunFailure, World};
use crate::plan::Key;
use check::history;

/// Entries in an answer of a brick: few, so that a listing takes several.
const LIST_LIMIT: u32 = 3;
/// Directories of a logical node, at most.
const DIRECTORIES: u64 = 2;

/// What was found in a directory, and what a transaction relies on that has read it.
pub(super) struct FoundEntries {
    /// The numbers of the operations that have bound the names.
    pub(super) numbers: Vec<i64>,
    pub(super) reads: Vec<Read>,
    pub(super) seen: HlcTimestamp,
}

impl World {
    /// Looks up a name at the brick of its directory; `None` if that is down.
    pub(super) fn look_up_entry(&self, collection: Oid, key: &EntryKey) -> Option<FoundEntries> {
        let (target, reads, seen) = self.look_up_target(&Entry { collection, key: key.clone() })?;
        Some(FoundEntries { numbers: target.into_iter().map(Key::operation).collect(), reads, seen })
    }

    /// The target of an entry, and what a transaction relies on that has looked it up; `None` if the brick is down.
    pub(super) fn look_up_target(&self, entry: &Entry) -> Option<(Option<Oid>, Vec<Read>, HlcTimestamp)> {
        let brick = &self.driven_brick(entry.collection.page().node)?.brick;
        let wanted = LookUp { collection: entry.collection, keys: vec![entry.key.clone()] };
        let LookedUp { targets, guards, seen } = brick.look_up(&wanted).ok()?;
        Some((targets.first().copied(), guards, seen))
    }

    /// Lists a directory in portions; `None` if its brick is down.
    pub(super) fn list_directory(&self, collection: Oid) -> Option<FoundEntries> {
        let mut all = FoundEntries { numbers: Vec::new(), reads: Vec::new(), seen: HlcTimestamp::ZERO };
        self.list_entries(collection, |list| {
            all.numbers.extend(list.entries.iter().map(|entry| Key::operation(entry.target)));
            all.reads.extend(list.guards);
            all.seen = all.seen.max(list.seen);
        })?;
        Some(all)
    }

    fn list_entries(&self, collection: Oid, mut show: impl FnMut(EntryList)) -> Option<()> {
        let brick = &self.driven_brick(collection.page().node)?.brick;
        let mut after = None;
        loop {
            let (prefix, limit) = (Bytes::new(), LIST_LIMIT);
            let wanted =
                ListEntries { collection, after, prefix, limit, reverse: false, kinds: false, passes_damage: false };
            let list = brick.list_entries(&wanted).ok()?;
            after = list.entries.last().map(|entry| entry.key.clone()).filter(|_| list.more);
            show(list);
            if after.is_none() {
                return Some(());
            }
        }
    }

    /// The directories of a logical node count the entries that they have, and each is found from its target.
    pub(super) fn check_directories(&self, node: NodeId) -> Result<(), RunFailure> {
        let Some(driven) = self.driven_brick(node) else { return Ok(()) };
        for page in 1..=DIRECTORIES {
            let collection = Key::guard(node.0, page).directory();
            let (mut entries, mut count) = (Vec::new(), 0);
            let listed = self.list_entries(collection, |list| {
                entries.extend(list.entries);
                count = list.count;
            });
            let wrong = |what: String| RunFailure::Rule(format!("E: directory {collection} {what}"));
            listed.ok_or_else(|| wrong("cannot be listed".to_owned()))?;
            if count != entries.len() as u64 {
                return Err(wrong(format!("has {} entries and counts {count}", entries.len())));
            }
            for entry in &entries {
                let wanted = ListEntriesOf { node, target: entry.target, after: None, limit: 10 };
                let found = driven.brick.list_entries_of(&wanted);
                let EntriesOf { entries: of_target, .. } = found.map_err(|error| wrong(error.to_string()))?;
                if !of_target.iter().any(|found| found.collection == collection && found.key == entry.key) {
                    return Err(wrong(format!("has {:?}, which is not found from its target", entry.key)));
                }
                let found = self.look_up_entry(collection, &entry.key).map(|found| found.numbers);
                if found != Some(vec![Key::operation(entry.target)]) {
                    return Err(wrong(format!("lists {:?}, and it is looked up as {found:?}", entry.key)));
                }
            }
        }
        Ok(())
    }

    /// Adds what all directories have to the final state.
    pub(super) fn add_directories(&self, finals: &mut BTreeMap<String, Vec<i64>>) {
        for node in self.serving.keys() {
            for directory in (1..=DIRECTORIES).map(|page| Key::guard(node.0, page)) {
                let _ = self.list_entries(directory.directory(), |list| {
                    for entry in list.entries {
                        let number = Key::operation(entry.target);
                        let name = entry.key.to_name().and_then(|name| name.parse().ok()).unwrap_or_default();
                        for set in [directory.directory_name(), directory.bound_name(name)] {
                            finals.insert(history::member(&set, number), vec![number]);
                        }
                    }
                });
            }
        }
    }
}
