//! Reads of ranges of a blob's bytes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, NodeId, Object, Oid, Result};
use store::Snapshot;
use wire::cluster::{ReadContent, is_expected};

use super::content_rows::Contents;
use super::node_manager::INCOMPLETE_COPY;
use super::page_rows as rows;

/// What a read of a range found.
pub(crate) struct FoundRange {
    /// The object, unless its content is in the expected state.
    pub(crate) object: Option<Object>,
    /// The bytes, if they were read.
    pub(crate) bytes: Option<RangeBytes>,
}

/// The bytes of a range.
pub(crate) enum RangeBytes {
    /// In memory.
    Bytes(Bytes),
    /// Where they are stored.
    Pieces(store::Pieces),
}

/// Bytes up to which a range is read into memory, at once if they are in the system's; more is sent from where it is stored.
pub(crate) const MAX_COPIED: u32 = 64 << 10;

/// The table of the heads of pages and of objects.
pub(crate) const OBJECTS: u8 = b'P';
/// Contents that are looked up together.
const CHECKED_TOGETHER: usize = 4096;

/// Reads a range in one state of the store.
///
/// # Errors
/// If it cannot be read; [`ErrorKind::Corrupt`] if the store has lost the content of the object.
pub(crate) fn read_range(state: &Snapshot, read: &ReadContent) -> Result<FoundRange> {
    let ReadContent { oid, offset, length, expected } = *read;
    let object = rows::read_object(state, oid.page(), oid.slot())?.filter(|object| object.class == oid.class());
    let content = object.as_ref().and_then(Object::content);
    if !is_expected(expected, content) {
        return Ok(FoundRange { object, bytes: None });
    }
    let bytes = match (&object, content) {
        (None, _) => None,
        // The object has all its bytes, and it is in the answer: the client cannot expect a state of it.
        (Some(_), None) => Some(RangeBytes::Bytes(Bytes::new())),
        (Some(_), Some(content)) => {
            let len = u64::from(length).min(content.size.saturating_sub(offset));
            let read = match length {
                0..=MAX_COPIED => state.read_content(content.id, offset, len).map(RangeBytes::Bytes),
                _ => state.content_pieces(content.id, offset, len).map(RangeBytes::Pieces),
            };
            Some(read.map_err(|error| name_object(oid, content.id, error))?)
        }
    };
    Ok(FoundRange { object: object.filter(|_| expected.is_none()), bytes })
}

/// Adds the object to the error of a damaged content. A content that its object names in the same state, and that does not exist, is lost:
/// a client that read an older state of the object would read again in vain.
fn name_object(oid: Oid, content: ContentId, error: Error) -> Error {
    let error = match error.kind() {
        ErrorKind::NotFound => store::lost_content(content),
        ErrorKind::Corrupt => error,
        _ => return error,
    };
    Error::new(ErrorKind::Corrupt, format!("object {oid}: {}", error.message())).about(oid).with_source(error)
}

/// Checks that the store has the contents of these objects, which a state of it names.
///
/// # Errors
/// [`ErrorKind::Corrupt`], which names the object, for the first that it has not; those of reading.
pub(crate) fn check_contents(state: &impl Contents, named: &[(Oid, ContentId)]) -> Result<()> {
    named.iter().try_for_each(|(oid, id)| check_content(state, *id).map_err(|error| name_object(*oid, *id, error)))
}

/// Checks that the store has a content.
fn check_content(state: &impl Contents, id: ContentId) -> Result<()> {
    state.content_size(id)?.map(drop).ok_or_else(|| store::lost_content(id))
}

/// Checks that the store has the contents of all objects of some logical nodes: an archive without them would seem complete.
///
/// # Errors
/// [`ErrorKind::Corrupt`], which names the content, for the first that does not exist; those of reading.
pub(crate) fn check_all_contents(state: &Snapshot, nodes: &BTreeSet<NodeId>) -> Result<()> {
    for node in nodes {
        // The rows of an incomplete copy come before its contents.
        if rows::read_number(state, &rows::seal_key(*node))? == INCOMPLETE_COPY {
            continue;
        }
        let (mut from, to) = rows::table_range(OBJECTS, *node);
        loop {
            let (mut named, mut next) = (Vec::new(), None);
            state.rows(&from, &to, |key, row| {
                if named.len() == CHECKED_TOGETHER {
                    next = Some(rows::Key::from_slice(key));
                    return ControlFlow::Break(());
                }
                named.extend(content_of(key, row));
                ControlFlow::Continue(())
            })?;
            named.into_iter().try_for_each(|(_, id)| check_content(state, id))?;
            let Some(next) = next else { break };
            from = next;
        }
    }
    Ok(())
}

/// The object in a row, and its content, if it has one. A damaged row is left to those who read it as a whole.
pub(crate) fn content_of(key: &[u8], row: &[u8]) -> Option<(Oid, ContentId)> {
    let (page, slot) = rows::parse_key(key)?;
    let (class, content) = rows::content_in_row(page, row).ok()??;
    Some((Oid::new(class, page, slot?), content))
}

#[cfg(test)]
mod tests {
    use model::{ClassId, ContentOrigin, ContentRef, PageId, SpaceId, SpaceMap, SpaceNodes};
    use store::{ContentChange, Options, RowChanges, Store};
    use wire::cluster::CloneRows;

    use super::*;
    use crate::brick::node_manager::{MoveLimits, NodeManager};
    use crate::brick::scrub::name_damaged_object;
    use crate::brick::space_clone::make_portion;

    const SPACE: SpaceId = SpaceId(1);
    const NODE: NodeId = NodeId(3);

    fn content(number: u64) -> ContentRef {
        let id = ContentId::new(SPACE, NODE, 0, ContentOrigin::Record, number);
        ContentRef { id, size: 200_000, generation: 0 }
    }

    fn oid(slot: u16) -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SPACE, node: NODE, number: 1 }, slot)
    }

    /// A store with two objects, of which the second has lost its content.
    fn store_with_a_lost_content() -> Store {
        let store = Store::in_memory(Options::default()).unwrap();
        let mut changes = RowChanges::new();
        for slot in [0, 1] {
            let object = Object::blob_with_content(content(slot.into()));
            changes.put(&rows::object_key(oid(slot).page(), slot), rows::encode_object(&object));
        }
        changes.content(ContentChange::Create { id: content(0).id, data: vec![7; 200_000].into() });
        store.commit_rows(changes).unwrap();
        store
    }

    fn assert_is_lost(error: &Error) {
        assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, Some(oid(1))), "{error}");
        assert!(error.message().contains("does not have it any more"), "{error}");
    }

    #[test]
    fn a_content_that_its_object_names_and_that_does_not_exist_is_damage() {
        let state = store_with_a_lost_content().snapshot().unwrap();
        for (length, expected) in [(100, None), (100_000, None), (100, Some((content(1).id, 0)))] {
            let read =
                |slot, expected| read_range(&state, &ReadContent { oid: oid(slot), offset: 5, length, expected });
            assert_is_lost(&read(1, expected).err().unwrap());
            assert!(read(0, None).unwrap().bytes.is_some());
            // The content that a client expects was replaced: it gets the new object.
            let replaced = read(1, Some((content(9).id, 0))).unwrap();
            assert!(replaced.bytes.is_none() && replaced.object.is_some());
        }
    }

    #[test]
    fn a_backup_does_not_omit_a_lost_content() {
        let store = store_with_a_lost_content();
        let served = BTreeSet::from([NODE]);
        let state = store.snapshot().unwrap();
        let error = name_damaged_object(&state, check_all_contents(&state, &served).unwrap_err());
        assert_is_lost(&error);
        assert!(check_all_contents(&state, &BTreeSet::from([NodeId(4)])).is_ok());
        store.commit_rows(NodeManager::seal_rows(NODE, INCOMPLETE_COPY)).unwrap();
        assert!(check_all_contents(&store.snapshot().unwrap(), &served).is_ok(), "the contents of a copy come later");
        let mut changes = RowChanges::new();
        changes.content(ContentChange::Create { id: content(1).id, data: vec![7; 200_000].into() });
        store.commit_rows(changes).unwrap();
        store.commit_rows(NodeManager::seal_rows(NODE, 1)).unwrap();
        assert!(check_all_contents(&store.snapshot().unwrap(), &served).is_ok());
    }

    #[test]
    fn a_clone_does_not_omit_a_lost_content() {
        let state = store_with_a_lost_content().snapshot().unwrap();
        let space = |space, first_node| SpaceNodes { space, first_node };
        let map = SpaceMap::new(space(SPACE, NODE), space(SpaceId(2), NodeId(9)), 1).unwrap();
        let asked = CloneRows { map, node: NODE, cut: 1, from: None, most_objects: 100 };
        assert_is_lost(&make_portion(&state, &asked, MoveLimits::SERVING).unwrap_err());
    }
}
