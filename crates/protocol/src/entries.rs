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

use std::collections::BTreeMap;

use model::{ClassId, Entry, EntryKey, NodeId, Oid, PageId, SpaceId, checksum};

/// The first computed page number: smaller ones can be reserved for objects.
pub const FIRST_COMPUTED_PAGE: u64 = (PageId::MAX_NUMBER >> 1) + 1;

/// The first page of the guards of entries, and the bits of the page number that the hash determines.
const GUARDS: u64 = FIRST_COMPUTED_PAGE | 4 << 40;
const GUARD_BITS: u64 = 0xff;
/// The page of the root directory of a space.
const ROOT: u64 = FIRST_COMPUTED_PAGE | 5 << 40;

/// The root directory of a space whose first logical node this is. It exists without having been created.
#[must_use]
pub fn root_directory(space: SpaceId, first_node: NodeId) -> Oid {
    Oid::new(ClassId::NONE, PageId { space, node: first_node, number: ROOT }, 0)
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
