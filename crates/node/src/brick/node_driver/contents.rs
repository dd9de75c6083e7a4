//! What a write does to the content beside the page of an object.
//!
//! A blob's bytes are in its page or in a content. A write with other bytes in the page, or with another content, frees the content
//! before; a change of a part of the bytes changes the content in place, or moves bytes that become many from the page to a content.
//! Readers of the state before read a snapshot of the store.

use model::{ContentId, ContentOp, ContentPatch, ContentRef, Kind, Object, Oid, Result};
use protocol::page_cache::ObjectState;
use store::ContentChange;

use crate::brick::plant::{Bug, planted};

/// Bytes of a blob that a change of a part leaves in the page.
pub(super) const MAX_INLINE: u64 = if cfg!(any(test, feature = "sim")) { 64 } else { 64 << 10 };

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentRejection {
    /// It changes a part of something that is no blob, or does not exist.
    NotABlob(Oid),
    /// It names a content that is neither the object's nor staged for it.
    NotStaged(Oid, ContentId),
    /// The changes would exceed the largest size of a blob, or are not well formed.
    BadChange(Oid),
}

/// What a write does.
#[derive(Debug)]
pub(super) struct ContentPlan {
    /// The new state.
    pub(super) object: Option<Object>,
    /// Changes of contents, in order.
    pub(super) changes: Vec<ContentChange>,
    /// A staged content that the object takes.
    pub(super) staged: Option<ContentId>,
    /// Where the first append puts its bytes, if the write appends.
    pub(super) append_offset: Option<u64>,
}

/// What a write of `oid` does to an object that is `before`, at a logical node that has moved so often. `staged_size` tells the size of a
/// staged content, `next_id` makes identifiers for contents that the brick makes.
///
/// # Errors
/// Why the write is refused.
pub(super) fn plan_write(
    (oid, moves): (Oid, u32),
    before: Option<&Object>,
    written: ObjectState<Object>,
    staged_size: impl Fn(ContentId) -> Option<u64>,
    next_id: impl FnOnce() -> ContentId,
) -> std::result::Result<ContentPlan, ContentRejection> {
    let content_before = before.and_then(Object::content);
    let mut plan = ContentPlan { object: None, changes: Vec::new(), staged: None, append_offset: None };
    match written {
        ObjectState::Absent => {}
        ObjectState::Changed(change) => {
            let blob = before.filter(|before| before.kind == Kind::Blob).ok_or(ContentRejection::NotABlob(oid))?;
            let decoded = ContentPatch::decode(&change).map_err(|_| ContentRejection::BadChange(oid))?;
            plan.append_offset = decoded.first_append(blob.size());
            let patched = patch(blob, decoded, moves, next_id).map_err(|_| ContentRejection::BadChange(oid))?;
            (plan.object, plan.changes) = (Some(patched.0), patched.1);
        }
        ObjectState::Value(object) => match (object.content(), content_before) {
            (Some(content), Some(same)) if content.id == same.id => {
                // Another transaction may have changed a part of it in the meantime.
                if content != same && !planted(Bug::OldContentWritten) {
                    return Err(ContentRejection::NotStaged(oid, content.id));
                }
                plan.object = Some(object);
            }
            (Some(content), _) => {
                let is_of_space = content.id.space() == oid.space() || planted(Bug::OtherSpaceContentTaken);
                let staged = staged_size(content.id).filter(|_| is_of_space);
                let size = staged.ok_or(ContentRejection::NotStaged(oid, content.id))?;
                // Redirectors send others what the transaction says (R2), so it has to be true.
                let is_true = content == ContentRef { id: content.id, size, generation: 0 };
                if !is_true && !planted(Bug::ClaimedSizeTaken) {
                    return Err(ContentRejection::NotStaged(oid, content.id));
                }
                (plan.object, plan.staged) = (Some(object), Some(content.id));
            }
            (None, _) => plan.object = Some(object),
        },
    }
    let content_after = plan.object.as_ref().and_then(Object::content);
    if let Some(ContentRef { id, .. }) = content_before
        && content_after.is_none_or(|after| after.id != id)
        && !planted(Bug::ReplacedContentKept)
    {
        plan.changes.push(ContentChange::Delete { id });
    }
    Ok(plan)
}

/// A blob with a part of its bytes changed, and the changes of its content.
fn patch(
    before: &Object,
    patch: ContentPatch,
    moves: u32,
    next_id: impl FnOnce() -> ContentId,
) -> Result<(Object, Vec<ContentChange>)> {
    let size = patch.check_sizes(before.size())?;
    if before.content().is_none() && patch.largest_size(before.size()) <= MAX_INLINE {
        let mut bytes = before.data.to_vec();
        patch.ops().iter().for_each(|op| op.apply(&mut bytes));
        return Ok((before.with_data(bytes.into()), Vec::new()));
    }
    let mut changes = Vec::with_capacity(patch.ops().len() + 1);
    let ContentRef { id, size: mut end, generation } = before.content().unwrap_or_else(|| {
        let id = next_id();
        changes.push(ContentChange::Create { id, data: before.data.clone() });
        ContentRef { id, size: before.data.len() as u64, generation: 0 }
    });
    for op in patch.into_ops() {
        let end_after = op.size_after(end);
        changes.push(match op {
            ContentOp::Write { offset, data } => ContentChange::Write { id, offset, data },
            ContentOp::Append { data } => ContentChange::Write { id, offset: end, data },
            ContentOp::Truncate { size } => ContentChange::Truncate { id, size },
            ContentOp::Zero { offset, len } => ContentChange::Zero { id, offset, len },
        });
        end = end_after;
    }
    // A brick that lost changes has another count of moves since, so it gives no generation again to other bytes.
    let least = if planted(Bug::GenerationRepeated) { 0 } else { u64::from(moves) << u32::BITS };
    let generation = if planted(Bug::GenerationKept) { generation } else { (generation + 1).max(least) };
    Ok((before.with_content(ContentRef { id, size, generation }), changes))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use model::planted_bug::assert_noticed;
    use model::{ClassId, NodeId, PageId, SpaceId};

    use super::*;

    const OLD: ContentRef = ContentRef { id: ContentId(1 << 64 | 1), size: 100, generation: 4 };
    const STAGED: ContentId = ContentId(1 << 64 | 2);
    const NEXT: ContentId = ContentId(1 << 64 | 3);

    fn oid() -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(3), number: 1 }, 0)
    }

    fn plan(
        before: Option<&Object>,
        written: ObjectState<Object>,
    ) -> std::result::Result<ContentPlan, ContentRejection> {
        plan_write((oid(), 0), before, written, |id| (id == STAGED).then_some(7), || NEXT)
    }

    fn changed_state(ops: Vec<ContentOp>) -> ObjectState<Object> {
        ObjectState::Changed(ContentPatch::new(ops).encode())
    }

    fn append(data: &'static str) -> ContentOp {
        ContentOp::Append { data: data.into() }
    }

    #[test]
    fn replaced_content_is_deleted() {
        let before = Object::blob_with_content(OLD);
        let delete = [ContentChange::Delete { id: OLD.id }];
        assert_eq!(plan(Some(&before), ObjectState::Absent).unwrap().changes, delete);
        let inline = plan(Some(&before), ObjectState::Value(Object::blob("x".into()))).unwrap();
        assert_eq!((inline.object, &inline.changes[..]), (Some(Object::blob("x".into())), &delete[..]));
        let other = Object::blob_with_content(ContentRef { id: STAGED, size: 7, generation: 0 });
        let staged = plan(Some(&before), ObjectState::Value(other.clone())).unwrap();
        assert_eq!(staged.object, Some(other));
        assert_eq!((staged.staged, &staged.changes[..]), (Some(STAGED), &delete[..]));
    }

    #[test]
    fn staged_content_has_the_size_that_was_staged() {
        for (size, generation) in [(999, 0), (0, 0), (7, 9)] {
            let claimed = Object::blob_with_content(ContentRef { id: STAGED, size, generation });
            for before in [None, Some(Object::blob_with_content(OLD))] {
                let refused = plan(before.as_ref(), ObjectState::Value(claimed.clone())).unwrap_err();
                assert_eq!(refused, ContentRejection::NotStaged(oid(), STAGED), "{size}, {generation}");
            }
        }
    }

    #[test]
    fn content_is_kept_in_its_newest_state_only() {
        let before = Object::blob_with_content(OLD);
        let mut named = before.clone();
        named.set_attribute("key".into(), Some("value".into()));
        let kept = plan(Some(&before), ObjectState::Value(named.clone())).unwrap();
        assert_eq!(kept.object, Some(named.clone()));
        assert!(kept.changes.is_empty() && kept.staged.is_none());
        let old = named.with_content(ContentRef { generation: 2, size: 50, ..OLD });
        let refused = plan(Some(&before), ObjectState::Value(old)).unwrap_err();
        assert_eq!(refused, ContentRejection::NotStaged(oid(), OLD.id), "it has changed since");
    }

    #[test]
    fn content_that_is_not_staged_is_refused() {
        let foreign = Object::blob_with_content(ContentRef { id: ContentId(99), ..OLD });
        let refused = plan(None, ObjectState::Value(foreign)).unwrap_err();
        assert_eq!(refused, ContentRejection::NotStaged(oid(), ContentId(99)));
        let stolen = plan(None, ObjectState::Value(Object::blob_with_content(OLD))).unwrap_err();
        assert_eq!(stolen, ContentRejection::NotStaged(oid(), OLD.id), "the content of another object");
    }

    /// Who may write to one space would read the bytes of another one.
    #[test]
    fn content_of_another_space_is_refused() {
        let other = ContentId::new(SpaceId(2), NodeId(3), 0, model::ContentOrigin::Upload, 7);
        let written = ObjectState::Value(Object::blob_with_content(ContentRef { id: other, size: 7, generation: 0 }));
        let refused = plan_write((oid(), 0), None, written, |_| Some(7), || NEXT).unwrap_err();
        assert_eq!(refused, ContentRejection::NotStaged(oid(), other));
    }

    #[test]
    fn part_of_a_content_changes_in_place() {
        let before = Object::blob_with_content(OLD);
        let ops = vec![append("ab"), ContentOp::Write { offset: 3, data: "c".into() }, append("d")];
        let plan = plan(Some(&before), changed_state(ops)).unwrap();
        let id = OLD.id;
        let expected = [
            ContentChange::Write { id, offset: 100, data: "ab".into() },
            ContentChange::Write { id, offset: 3, data: "c".into() },
            ContentChange::Write { id, offset: 102, data: "d".into() },
        ];
        assert_eq!((plan.changes, plan.append_offset), (expected.into(), Some(100)));
        let after = ContentRef { id, size: 103, generation: 5 };
        assert_eq!(plan.object.unwrap().content(), Some(after));
    }

    /// The brick was restored from a backup, or has accepted a loss: generations that it gave since then are those of other bytes.
    #[test]
    fn generation_is_not_given_again_after_a_loss() {
        let before = Object::blob_with_content(OLD);
        let generation = |moves| {
            let plan =
                plan_write((oid(), moves), Some(&before), changed_state(vec![append("x")]), |_| None, || NEXT).unwrap();
            plan.object.unwrap().content().unwrap().generation
        };
        assert_eq!([generation(0), generation(1), generation(2)], [5, 1 << 32, 2 << 32]);
    }

    #[test]
    fn bytes_in_the_page_move_to_a_content_when_they_are_many() {
        let mut before = Object::blob("hello".into());
        before.set_attribute("key".into(), Some("value".into()));
        let small = plan(Some(&before), changed_state(vec![append("!")])).unwrap();
        assert_eq!((small.object, small.changes.len()), (Some(before.with_data("hello!".into())), 0));
        assert_eq!(small.append_offset, Some(5));
        let many = Bytes::from(vec![7; MAX_INLINE as usize]);
        let large = plan(Some(&before), changed_state(vec![ContentOp::Append { data: many.clone() }])).unwrap();
        let content = ContentRef { id: NEXT, size: 5 + MAX_INLINE, generation: 1 };
        assert_eq!(large.object, Some(before.with_content(content)));
        let create = ContentChange::Create { id: NEXT, data: "hello".into() };
        assert_eq!(large.changes, [create, ContentChange::Write { id: NEXT, offset: 5, data: many }]);
        // Bytes that are many in between do not stay in memory either.
        let peak = vec![ContentOp::Truncate { size: 1 << 40 }, ContentOp::Truncate { size: 1 }];
        assert_eq!(plan(Some(&before), changed_state(peak)).unwrap().changes.len(), 3);
    }

    #[test]
    fn only_parts_of_blobs_can_be_changed() {
        let record = Object::record(ClassId(5), Bytes::new());
        for before in [None, Some(&record)] {
            assert_eq!(plan(before, changed_state(vec![append("x")])).unwrap_err(), ContentRejection::NotABlob(oid()));
        }
        let beyond = changed_state(vec![ContentOp::Append { data: "x".into() }]);
        let vast = Object::blob_with_content(ContentRef { size: model::limits::BLOB, ..OLD });
        assert_eq!(plan(Some(&vast), beyond).unwrap_err(), ContentRejection::BadChange(oid()));
    }

    #[test]
    fn planted_bugs_are_noticed() {
        let checks: [(Bug, fn()); 6] = [
            (Bug::ClaimedSizeTaken, staged_content_has_the_size_that_was_staged),
            (Bug::OldContentWritten, content_is_kept_in_its_newest_state_only),
            (Bug::ReplacedContentKept, replaced_content_is_deleted),
            (Bug::OtherSpaceContentTaken, content_of_another_space_is_refused),
            (Bug::GenerationKept, part_of_a_content_changes_in_place),
            (Bug::GenerationRepeated, generation_is_not_given_again_after_a_loss),
        ];
        for (bug, check) in checks {
            assert_noticed(&[bug], check);
        }
    }
}
