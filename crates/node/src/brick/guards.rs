//! Where guards are: the objects without content whose versions say when a set changed last.
//!
//! Each class has one at each logical node: its extent. Each index has one for all that is in it, and others, its
//! *buckets*, each for those objects whose first field has one of some values. Whoever looks for equal values of the
//! first field reads a bucket, whoever looks for more the one of the index; a change touches them all, of what was and of what
//! is. So transactions conflict where they can have missed each other, and seldom elsewhere.
//!
//! Guards stand in pages whose numbers are computed, above those that can be reserved. Names are there too, in the first
//! slots; guards are in others. All of an index are in one page, and there are no more than the window of a page has
//! entries: a touch is one page more that changes.
//!
//! One more object without content stands for a *question*: whoever relies on it has asked who has the values that it writes, which
//! are to be unique. It never changes.

use model::{ClassId, NodeId, Oid, PageId, SpaceId, checksum};

use super::node_driver::{RESERVABLE, WINDOW};

/// The first slot of a guard; names are before.
const FIRST_SLOT: u16 = 0x100;
/// Buckets of an index. With the guard of all they fill the window of a page.
const BUCKETS: u64 = WINDOW as u64 - 1;
/// The pages of classes and of indexes.
const CLASSES: u64 = RESERVABLE | 1 << 40;
const INDEXES: u64 = RESERVABLE | 2 << 40;
const QUESTIONS: u64 = RESERVABLE | 3 << 40;

fn guard(space: SpaceId, node: NodeId, number: u64, slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PageId { space, node, number }, slot)
}

/// The guard of a class: of its objects at a logical node, without those of classes below it.
pub(crate) fn of_class(space: SpaceId, node: NodeId, class: ClassId) -> Oid {
    guard(space, node, CLASSES | u64::from(class.0), FIRST_SLOT)
}

/// The guard of all that is in an index.
pub(crate) fn of_index(space: SpaceId, node: NodeId, index: u32) -> Oid {
    guard(space, node, INDEXES | u64::from(index), FIRST_SLOT)
}

/// The question who has values of an index that is unique.
pub(crate) fn of_question(space: SpaceId, node: NodeId, index: u32) -> Oid {
    guard(space, node, QUESTIONS | u64::from(index), FIRST_SLOT)
}

/// The guard of what has this first component in an index.
pub(crate) fn of_bucket(space: SpaceId, node: NodeId, index: u32, first: &[u8]) -> Oid {
    let bucket = (checksum::crc64(first) % BUCKETS) as u16;
    guard(space, node, INDEXES | u64::from(index), FIRST_SLOT + 1 + bucket)
}

/// The index whose guard an object is, be it of all that is in the index or of a bucket.
pub(crate) fn index_guarded_by(oid: Oid) -> Option<u32> {
    let index = oid.page().number ^ INDEXES;
    if oid.slot() < FIRST_SLOT { None } else { u32::try_from(index).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_of_indexes_are_told_from_others() {
        let (space, node) = (SpaceId(1), NodeId(3));
        for index in [0, 7, u32::MAX] {
            assert_eq!(index_guarded_by(of_index(space, node, index)), Some(index));
            assert_eq!(index_guarded_by(of_bucket(space, node, index, b"x")), Some(index));
            assert_eq!(index_guarded_by(of_question(space, node, index)), None);
            assert_eq!(index_guarded_by(of_class(space, node, ClassId(index & 0xff_ffff))), None);
        }
        let name = Oid::new(ClassId::NONE, of_index(space, node, 7).page(), 0);
        assert_eq!(index_guarded_by(name), None, "names are in the first slots");
    }
}
