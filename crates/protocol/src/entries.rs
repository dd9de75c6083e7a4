//! The guards of the entries of collections.
//!
//! A collection is an ordered map from keys to objects ([`model::Entry`]) at the collection's logical node. Two kinds of
//! *guards* protect it: objects without content whose versions say when something last changed.
//!
//! - The guard of a *key*: a look-up of the key reads it, a change of the key writes it. So changes of different keys
//!   do not conflict, and a transaction that has seen that a key is free conflicts with another one that takes it.
//! - The guard of the *whole collection*: a listing reads it, a change of any key touches it. Touches do not conflict
//!   with each other ([`LockMode::Touch`](crate::locks::LockMode::Touch)), so additions do not conflict with additions.
//!
//! Guards need no rows of their own: their identifiers are computed from a hash. They are in pages of the collection's
//! logical node and space, above the page numbers that can be reserved:
//!
//! ```text
//!   hash of (collection, key), 64 bits:   unused 16 | class 24 | slot 16 | page 8
//! ```
//!
//! The class makes the identifier, and so the lock, as good as unique. The window of a page has entries by slots (V3),
//! so 256 pages remember many changes of keys, and their memory is bounded. Two guards with equal places cost at worst
//! an unnecessary conflict.
//!
//! The values of a unique index are keys of entries too ([`unique_entry`]): each logical node of the space has, for each unique index,
//! a collection for its share of all values. Who has the values is the target. A transaction that gives an object such values looks
//! the key up and binds it, so of two that give the same values one conflicts, wherever the objects are. These collections are never
//! listed, so they have no guard, no totals, and are not found from their targets.

use std::collections::BTreeMap;

use model::{ClassId, Entry, EntryKey, Error, ErrorKind, NodeId, Oid, PageId, Result, SpaceId, checksum, limits};

use crate::ident::Version;
use crate::validate::{NO_STATE, Read, ReadVersion};

/// The first computed page number: smaller ones can be reserved for objects.
pub const FIRST_COMPUTED_PAGE: u64 = (PageId::MAX_NUMBER >> 1) + 1;

/// The first page of the guards of entries, and the bits of the page number that the hash determines.
const GUARDS: u64 = FIRST_COMPUTED_PAGE | 4 << 40;
const GUARD_BITS: u64 = 0xff;
/// The page of the root directory of a space.
const ROOT: u64 = FIRST_COMPUTED_PAGE | 5 << 40;
/// The first pages of the values of unique indexes, and of their questions. The number of the index is added.
const UNIQUE_VALUES: u64 = FIRST_COMPUTED_PAGE | 6 << 40;
const UNIQUE_QUESTIONS: u64 = FIRST_COMPUTED_PAGE | 3 << 40;
/// The bytes of a key of values that are kept if it is too long for an entry. A checksum of the whole follows.
const KEPT_KEY: usize = limits::ENTRY_KEY - 8;

/// The root directory of a space whose first logical node this is. It exists without having been created.
#[must_use]
pub fn root_directory(space: SpaceId, first_node: NodeId) -> Oid {
    Oid::new(ClassId::NONE, PageId { space, node: first_node, number: ROOT }, 0)
}

/// The values of a unique index of which a logical node keeps who has them. The collection exists without having been created.
#[must_use]
pub fn unique_values(space: SpaceId, node: NodeId, index: u32) -> Oid {
    Oid::new(ClassId::NONE, PageId { space, node, number: UNIQUE_VALUES | u64::from(index) }, 0)
}

/// The unique index that a collection has [values](unique_values) of.
#[must_use]
pub fn index_of_values(collection: Oid) -> Option<u32> {
    index_in(collection, UNIQUE_VALUES)
}

/// Whether a collection has [values of a unique index](unique_values).
#[must_use]
pub fn is_unique_values(collection: Oid) -> bool {
    index_of_values(collection).is_some()
}

/// The key of the entry for the values with this key of an index. Two keys have one only if they are equal, or are long and have equal
/// checksums and beginnings.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the key is empty.
pub fn unique_key(key: &[u8]) -> Result<EntryKey> {
    EntryKey::new(match key.get(..KEPT_KEY) {
        Some(kept) if key.len() > limits::ENTRY_KEY => [kept, &checksum::crc64(key).to_be_bytes()].concat(),
        _ => key.to_vec(),
    })
}

/// The entry for the values with this key of a unique index, in a space with these logical nodes, in ascending order.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the space has no logical nodes; else as [`unique_key`].
pub fn unique_entry(space: SpaceId, nodes: &[NodeId], index: u32, key: &[u8]) -> Result<Entry> {
    let nowhere = || Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet");
    let chosen = checksum::mix(checksum::crc64(key)).checked_rem(nodes.len() as u64).ok_or_else(nowhere)?;
    let node = nodes.get(chosen as usize).copied().ok_or_else(nowhere)?;
    Ok(Entry { collection: unique_values(space, node, index), key: unique_key(key)? })
}

/// The question of a unique index at a logical node: an object without content that never changes. A transaction that has read it has
/// looked up and bound the values of this index that it gives to objects at this logical node. Where it looks values up it reads the
/// question, too: if the index is dropped, nothing binds values any more, and the transaction conflicts.
#[must_use]
pub fn unique_question(space: SpaceId, node: NodeId, index: u32) -> Read {
    let page = PageId { space, node, number: UNIQUE_QUESTIONS | u64::from(index) };
    Read { oid: Oid::new(ClassId::NONE, page, 0), seen: ReadVersion::At(Version::ZERO) }
}

/// A read of the guard of a key that no object is bound to: what a transaction says that binds the key without having looked it up. The brick
/// looks the key up when it takes the transaction in, which writes the guard: so no other one binds the key meanwhile (V2). A key that is
/// bound makes the read [one of no state that there is](NO_STATE), and the transaction conflicts.
#[must_use]
pub fn unbound_key(collection: Oid, key: &EntryKey) -> Read {
    Read { oid: key_guard(collection, key), seen: NO_STATE }
}

/// The unique index that an object is a [question](unique_question) of.
#[must_use]
pub fn index_of_question(oid: Oid) -> Option<u32> {
    index_in(oid, UNIQUE_QUESTIONS)
}

/// The number of an index in the number of a page, above the first of some pages.
fn index_in(oid: Oid, first: u64) -> Option<u32> {
    u32::try_from(oid.page().number ^ first).ok()
}

/// Those of some entries that are of one collection, in the order of their keys.
pub fn of_collection<V>(entries: &BTreeMap<Entry, V>, collection: Oid) -> impl Iterator<Item = (&Entry, &V)> {
    entries.range(Entry::before_all(collection)..).take_while(move |(entry, _)| entry.collection == collection)
}

/// The guard of a key of a collection.
#[must_use]
pub fn key_guard(collection: Oid, key: &EntryKey) -> Oid {
    guard(collection, key.as_bytes())
}

/// The guard of an entry: see [`key_guard`].
#[must_use]
pub fn entry_guard(entry: &Entry) -> Oid {
    key_guard(entry.collection, &entry.key)
}

/// The guard of all keys of a collection.
#[must_use]
pub fn collection_guard(collection: Oid) -> Oid {
    // No key is empty.
    guard(collection, &[])
}

/// Whether a page has guards of entries.
#[must_use]
pub fn is_guard_page(page: PageId) -> bool {
    page.number & !GUARD_BITS == GUARDS
}

fn guard(collection: Oid, key: &[u8]) -> Oid {
    // The same on every machine and in every version, because clients and bricks compute it.
    let hash = checksum::mix(checksum::crc64_parts(&[&collection.to_bytes(), key]));
    let PageId { space, node, .. } = collection.page();
    let page = PageId { space, node, number: GUARDS | hash & GUARD_BITS };
    Oid::new(ClassId((hash >> 24) as u32 & ClassId::MAX.0), page, (hash >> 8) as u16)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn collection(number: u64) -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(3), number }, 1)
    }

    fn name(name: &str) -> EntryKey {
        EntryKey::name(name).unwrap()
    }

    #[test]
    fn guards_never_change_their_place() {
        let guard = key_guard(collection(7), &name("notes"));
        assert_eq!(guard.to_string(), "1.ae555d.3.8400000000d5.b261");
        assert_eq!(collection_guard(collection(7)).to_string(), "1.ca56d8.3.84000000007f.5fd3");
    }

    #[test]
    fn guards_are_in_pages_of_their_own_at_the_collection() {
        for guard in [key_guard(collection(7), &name("a")), collection_guard(collection(7))] {
            assert!(is_guard_page(guard.page()) && guard.page().number >= FIRST_COMPUTED_PAGE);
            assert_eq!((guard.space(), guard.page().node), (SpaceId(1), NodeId(3)));
        }
        let root = root_directory(SpaceId(1), NodeId(3));
        assert!(!is_guard_page(root.page()) && !is_guard_page(collection(7).page()));
    }

    #[test]
    fn values_of_a_unique_index_never_change_their_place_and_are_spread() {
        let nodes: Vec<NodeId> = (1..=8).map(NodeId).collect();
        let entry = |key: &[u8]| unique_entry(SpaceId(1), &nodes, 7, key).unwrap();
        assert_eq!(entry(b"Ann").collection.to_string(), "1.0.3.860000000007.0");
        assert!(is_unique_values(entry(b"Ann").collection) && !is_unique_values(collection(7)));
        let root = root_directory(SpaceId(1), NodeId(1));
        let question = unique_question(SpaceId(1), NodeId(1), 7).oid;
        assert!(!is_unique_values(root) && !is_unique_values(question));
        assert_eq!((index_of_values(entry(b"Ann").collection), index_of_question(question)), (Some(7), Some(7)));
        assert_eq!((index_of_values(question), index_of_question(root)), (None, None));
        let mut counts: BTreeMap<Oid, usize> = BTreeMap::new();
        (0..8_000_u32).for_each(|value| *counts.entry(entry(&value.to_be_bytes()).collection).or_default() += 1);
        assert!(counts.len() == 8 && counts.values().all(|count| (800..1_200).contains(count)), "{counts:?}");
        assert!(unique_entry(SpaceId(1), &[], 7, b"Ann").is_err());
    }

    #[test]
    fn long_values_have_one_entry_only_if_they_are_equal() {
        let key = |key: &[u8]| unique_key(key).unwrap();
        let long = [b'x'; 300];
        let mut other = long;
        other[299] = b'y';
        assert_ne!(key(&long), key(&other));
        assert_eq!(key(&long), key(&long.clone()));
        assert_eq!(key(&long[..limits::ENTRY_KEY]).as_bytes(), &long[..limits::ENTRY_KEY]);
        assert_eq!(key(&long).as_bytes().len(), limits::ENTRY_KEY);
    }

    #[test]
    fn similar_keys_have_different_guards_in_all_pages() {
        let names = (0..10_000).map(|number| name(&format!("file{number:06}")));
        let guards: BTreeSet<Oid> = names.map(|name| key_guard(collection(7), &name)).collect();
        assert_eq!(guards.len(), 10_000);
        let mut pages = [0; 256];
        guards.iter().for_each(|guard| pages[(guard.page().number & GUARD_BITS) as usize] += 1);
        assert!(pages.iter().all(|count| (10..100).contains(count)), "{pages:?}");
        let slots: BTreeSet<u16> = guards.iter().map(|guard| guard.slot()).collect();
        assert!(slots.len() > 9_000);
    }
}
