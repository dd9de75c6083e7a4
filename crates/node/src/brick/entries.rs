//! Reads collections of one logical node: look-ups of keys, listings, and the entries that have a target.
//!
//! An answer is read from one durable snapshot. Look-ups and listings come with the guards that a transaction relies on
//! ([`protocol::entries`]), with their versions in that snapshot: a transaction that has read them sees the entries as they are, or
//! conflicts.
//!
//! A commit over several logical nodes is acknowledged when its outcome is certain, which may be before it is durable at all of them.
//! Look-ups and listings wait for that, so that who has seen the acknowledgement sees the entries.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::iter;
use std::ops::ControlFlow;

use model::{Entry, Kind, Oid, Result};
use protocol::entries::{collection_guard, key_guard};
use protocol::ident::{HlcTimestamp, Version};
use protocol::validate::{Read, ReadVersion};
use store::{Snapshot, Store};
use wire::cluster::{EntriesOf, EntryList, ListEntries, ListEntriesOf, ListedEntry, LookUp, LookedUp};

use super::consistency::is_damage;
use super::entry_rows::{self as rows, Totals};
use super::page_rows::{self, Key, Rows};
use super::passed_damage::PassedDamage;
use super::plant::{Bug, planted};

/// Bytes of keys after which an answer ends.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// A version after every change: of planted bugs.
const LATER: ReadVersion = ReadVersion::At(Version::MAX);

/// A guard with its version in a state.
fn read_guard(state: &Snapshot, oid: Oid) -> Result<Read> {
    let version = page_rows::read_head(state, oid.page())?.version;
    Ok(Read { oid, seen: ReadVersion::At(version) })
}

/// Whether a look-up has read an entry whose change is not decided or not durable.
pub(crate) fn looks_up_any(wanted: &LookUp, found: &LookedUp, entries: &BTreeSet<Entry>) -> bool {
    let collections = iter::once(&wanted.collection).chain(&found.targets);
    let read = collections.zip(&wanted.keys).take(found.guards.len());
    !entries.is_empty()
        && read
            .map(|(collection, key)| Entry { collection: *collection, key: key.clone() })
            .any(|one| entries.contains(&one))
}

/// Whether any of these entries is of a collection.
pub(crate) fn has_any(collection: Oid, entries: &BTreeSet<Entry>) -> bool {
    entries.range(Entry::before_all(collection)..).next().is_some_and(|entry| entry.collection == collection)
}

/// Follows keys, as long as collections are at the logical node of the first one. [`LookedUp::seen`] is left to the caller.
///
/// # Errors
/// If rows cannot be read.
pub(crate) fn look_up(store: &Store, wanted: &LookUp) -> Result<LookedUp> {
    let state = store.snapshot()?;
    let (mut found, mut at) = (LookedUp::default(), wanted.collection);
    for key in &wanted.keys {
        if at.page().node != wanted.node() || at.space() != wanted.collection.space() {
            break;
        }
        let mut guard = read_guard(&state, key_guard(at, key))?;
        if planted(Bug::LookUpWithoutVersion) {
            guard.seen = LATER;
        }
        found.guards.push(guard);
        let Some(target) = rows::read_target(&state, at, key)? else { break };
        found.targets.push(target);
        at = target;
    }
    Ok(found)
}

/// Lists entries of a collection. [`EntryList::seen`] is left to the caller.
///
/// # Errors
/// If rows cannot be read; damage only if it is not to be passed over, or is at too many places.
pub(crate) fn list(store: &Store, wanted: &ListEntries) -> Result<EntryList> {
    let collection = wanted.collection;
    let state = store.snapshot()?;
    let mut damage = PassedDamage::new(wanted.passes_damage);
    let Totals { count, modified } = damage.pass(Totals::read(&state, collection))?.unwrap_or_default();
    let mut entries = Vec::new();
    let more = wanted.limit > 0 && read_entries(&state, wanted, &mut entries, &mut damage)?;
    if wanted.kinds {
        for entry in &mut entries {
            entry.kind = read_kind(&state, collection, entry.target)?;
        }
    }
    let mut guards = Vec::from_iter(damage.pass(read_guard(&state, collection_guard(collection)))?);
    if planted(Bug::ListingWithLaterGuard) {
        guards.iter_mut().for_each(|guard| guard.seen = LATER);
    }
    let damage = damage.message();
    Ok(EntryList { entries, more, guards, seen: HlcTimestamp::ZERO, count, modified, damage })
}

/// The rows of entries that a listing may read, from the first key to before the second.
pub(crate) fn listed_range(wanted: &ListEntries) -> (Key, Key) {
    let (mut from, mut to) = rows::entry_range(wanted.collection, &wanted.prefix);
    if let Some(after) = &wanted.after {
        let mut place = rows::entry_key(wanted.collection, after);
        if wanted.reverse {
            to = to.min(place);
        } else {
            place.push(0);
            from = from.max(place);
        }
    }
    (from, to)
}

/// Reads entries in the requested order. Returns whether there may be more.
fn read_entries(
    state: &Snapshot,
    wanted: &ListEntries,
    entries: &mut Vec<ListedEntry>,
    damage: &mut PassedDamage,
) -> Result<bool> {
    let (from, to) = listed_range(wanted);
    if from >= to {
        return Ok(false);
    }
    let (mut bytes, mut failed, mut is_full) = (0, None, false);
    let damage = RefCell::new(damage);
    let visit = |row: &[u8], value: &[u8]| {
        let entry = rows::key_in_row(row).and_then(|key| Ok((key, rows::decode_target(row, value)?)));
        match damage.borrow_mut().pass(entry) {
            Ok(Some((key, target))) => {
                bytes += key.as_bytes().len();
                entries.push(ListedEntry { key, target, kind: None });
                is_full = entries.len() >= wanted.limit as usize || bytes >= MAX_ANSWER_BYTES;
            }
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
        let is_over = is_full || failed.is_some() || damage.borrow().is_full();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match (wanted.reverse, wanted.passes_damage) {
        (true, _) => state.rows_back(&from, &to, visit)?,
        (false, false) => state.rows(&from, &to, visit)?,
        (false, true) => {
            state.rows_beside_damage(&from, &to, visit, |_, error| damage.borrow_mut().add(error))?;
        }
    }
    match failed {
        Some(error) => Err(error),
        None if damage.borrow().is_full() => Err(damage.borrow().error()),
        None => Ok(is_full),
    }
}

/// The kind of an object that is at the logical node of a collection. It is not known of a damaged object: who reads that hears of the damage, and
/// the listing goes on.
fn read_kind(state: &Snapshot, collection: Oid, target: Oid) -> Result<Option<Kind>> {
    let (page, at) = (target.page(), collection.page());
    if page.node != at.node || page.space != at.space {
        return Ok(None);
    }
    match page_rows::read_kind(state, target) {
        Err(error) if is_damage(&error) => Ok(None),
        read => read,
    }
}

/// Lists the entries of a logical node that have a target.
///
/// # Errors
/// If rows cannot be read.
pub(crate) fn list_of(store: &Store, wanted: &ListEntriesOf) -> Result<EntriesOf> {
    let (from, to) = rows::reverse_range(wanted.node, wanted.target, wanted.after.as_ref());
    let (mut entries, mut bytes, mut damaged, mut more) = (Vec::new(), 0, Ok(()), false);
    let limit = (wanted.limit as usize).max(1);
    Rows::each(store, &from, &to, |row, _| {
        if entries.len() >= limit || bytes >= MAX_ANSWER_BYTES {
            more = true;
            return ControlFlow::Break(());
        }
        bytes += row.len();
        match rows::entry_in_row(row) {
            Ok(entry) => entries.push(entry),
            Err(error) => damaged = Err(error),
        }
        if damaged.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    damaged.map(|()| EntriesOf { entries, more })
}
