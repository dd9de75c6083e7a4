//! A cache of listings: the members of small collections, each at a version of its collection.
//!
//! Every change of a membership gives the collection a new version in the same transaction. So a cached listing is
//! valid wherever the row of the collection has that version, in the newest state and in snapshots, and needs no
//! invalidation. Reading it costs one look-up of that row instead of a scan of the B-tree.

use std::hash::BuildHasher as _;

use model::Oid;
use parking_lot::Mutex;

use crate::plant::{OperationBug, planted};

/// Maximum number of cached collections. With [`MAX_MEMBERS`] each, they take at most 1 MiB.
const CACHE_SLOTS: usize = 512;
/// Maximum number of members of a cached collection.
const MAX_MEMBERS: usize = 128;

struct CachedListing {
    collection: Oid,
    version: u64,
    members: Box<[Oid]>,
}

/// The listings. Each collection maps to one slot, which several collections share; the last one read is cached.
pub(crate) struct ListingCache {
    slots: Box<[Mutex<Option<CachedListing>>]>,
    hash: foldhash::fast::RandomState,
}

impl ListingCache {
    pub(crate) fn new() -> Self {
        let slots = (0..CACHE_SLOTS).map(|_| Mutex::new(None)).collect();
        Self { slots, hash: foldhash::fast::RandomState::default() }
    }

    fn slot(&self, collection: Oid) -> &Mutex<Option<CachedListing>> {
        &self.slots[self.hash.hash_one(collection.to_u128()) as usize % CACHE_SLOTS]
    }

    /// Up to `limit` members of a collection at a version, in order, after `after`; `None` if they are not cached.
    pub(crate) fn get(&self, collection: Oid, version: u64, after: Option<Oid>, limit: usize) -> Option<Vec<Oid>> {
        let slot = self.slot(collection).lock();
        let listing = slot
            .as_ref()
            .filter(|l| l.collection == collection && (l.version == version || planted(OperationBug::StaleListing)))?;
        let from = after.map_or(0, |after| listing.members.partition_point(|member| *member <= after));
        let members = &listing.members[from..];
        Some(members[..members.len().min(limit)].to_vec())
    }

    /// Caches all members of a collection at a version, unless there are too many.
    pub(crate) fn insert(&self, collection: Oid, version: u64, members: &[Oid]) {
        if members.len() <= MAX_MEMBERS {
            *self.slot(collection).lock() = Some(CachedListing { collection, version, members: members.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_found_at_its_version_only() {
        let (listings, oids) = (ListingCache::new(), [3u128, 5, 9].map(|oid| Oid::from_bytes(oid.to_be_bytes())));
        listings.insert(oids[0], 7, &oids);
        let find = |version, after: Option<usize>, limit| {
            listings.get(oids[0], version, after.map(|index: usize| oids[index]), limit)
        };
        assert_eq!(find(7, None, 10).unwrap(), oids);
        assert_eq!(find(7, Some(0), 1).unwrap(), oids[1..2]);
        assert_eq!(find(7, Some(2), 10).unwrap(), []);
        assert_eq!(find(8, None, 10), None);
        assert_eq!(listings.get(oids[1], 7, None, 10), None);
    }
}
