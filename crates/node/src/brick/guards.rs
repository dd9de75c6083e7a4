//! Identifiers of guards: objects without content whose versions say when a set last changed.
//!
//! Each class has one guard at each logical node, for its extent. Each index has one guard for all its entries, and *buckets*,
//! each for the objects whose first field has one of some values. A search for equal values of the first field reads a
//! bucket, any other search reads the guard of the index. A change touches the guards of the old and the new entries.
//! So a transaction conflicts with every change that it can have missed, and rarely with others.
//!
//! Guards are in pages with computed numbers, above those that can be reserved. All guards of an index are in one page, and there are as many as the window of a page has entries, so a touch changes
//! one more page.

use model::{ClassId, NodeId, Oid, PageId, SpaceId, checksum};
use protocol::entries::index_of_question;

use super::node_driver::{RESERVABLE, WINDOW};

/// The first slot of a guard.
const FIRST_SLOT: u16 = 0x100;
/// Buckets of an index. Together with the guard of the index they fill the window of a page.
const BUCKETS: u64 = WINDOW as u64 - 1;
/// First pages of the guards of classes and indexes.
const CLASSES: u64 = RESERVABLE | 1 << 40;
const INDEXES: u64 = RESERVABLE | 2 << 40;

fn guard(space: SpaceId, node: NodeId, number: u64, slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PageId { space, node, number }, slot)
}

/// The guard of the objects of a class at a logical node, without subclasses.
pub(crate) fn of_class(space: SpaceId, node: NodeId, class: ClassId) -> Oid {
    guard(space, node, CLASSES | u64::from(class.0), FIRST_SLOT)
}

/// The guard of all entries of an index.
pub(crate) fn of_index(space: SpaceId, node: NodeId, index: u32) -> Oid {
    guard(space, node, INDEXES | u64::from(index), FIRST_SLOT)
}

/// The guard of the entries of an index whose first component is in the same bucket.
pub(crate) fn of_bucket(space: SpaceId, node: NodeId, index: u32, first: &[u8]) -> Oid {
    let bucket = (checksum::crc64(first) % BUCKETS) as u16;
    guard(space, node, INDEXES | u64::from(index), FIRST_SLOT + 1 + bucket)
}

/// The index that a guard belongs to: the guard of all entries, of a bucket, or the question of a unique index.
pub(crate) fn index_guarded_by(oid: Oid) -> Option<u32> {
    if let Some(index) = index_of_question(oid) {
        return Some(index);
    }
    let index = oid.page().number ^ INDEXES;
    if oid.slot() < FIRST_SLOT { None } else { u32::try_from(index).ok() }
}

/// Whether a page has guards of an index.
pub(crate) fn has_guards_of_index(page: PageId) -> bool {
    index_guarded_by(Oid::new(ClassId::NONE, page, FIRST_SLOT)).is_some()
}

#[cfg(test)]
mod tests {
    use protocol::entries::unique_question;

    use super::*;

    #[test]
    fn guards_of_indexes_are_distinguished_from_other_objects() {
        let (space, node) = (SpaceId(1), NodeId(3));
        for index in [0, 7, u32::MAX] {
            assert_eq!(index_guarded_by(of_index(space, node, index)), Some(index));
            assert_eq!(index_guarded_by(of_bucket(space, node, index, b"x")), Some(index));
            assert_eq!(index_guarded_by(unique_question(space, node, index).oid), Some(index));
            assert_eq!(index_guarded_by(of_class(space, node, ClassId(index & 0xff_ffff))), None);
        }
        let other = Oid::new(ClassId::NONE, of_index(space, node, 7).page(), 0);
        assert_eq!(index_guarded_by(other), None, "guards are not in the first slots");
    }
}
