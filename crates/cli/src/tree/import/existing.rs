//! What an import does with a file, depending on the object that has its name.

use model::{Kind, Object};

use crate::tree::attributes::Attributes;
use crate::tree::lookup::{BoundObject, ObjectState};
use crate::tree::walk::{Entry, EntryKind};

/// The action for a file.
pub(super) enum FileAction {
    /// Create its object.
    Create,
    /// Replace the content, or the kind of file.
    Replace,
    /// Change only attributes.
    Update,
    /// Nothing: the object equals the file.
    Unchanged,
    /// None: another kind of object has its name.
    Blocked(String),
}

/// The action for `entry` if the store has `found`.
pub(super) fn choose_action(entry: &Entry, found: Option<&BoundObject>) -> FileAction {
    let Some(BoundObject { oid, state }) = found else { return FileAction::Create };
    if entry.is_space_root() {
        return FileAction::Unchanged;
    }
    let expected = if entry.kind == EntryKind::Directory { Kind::Directory } else { Kind::Blob };
    let object = match state {
        ObjectState::Present(object) if object.kind == expected => object,
        ObjectState::Present(object) => return blocked_action(entry, &format!("is a {}", object.kind.name())),
        ObjectState::Deleted => return blocked_action(entry, &format!("is bound to {oid}, which was deleted")),
        ObjectState::Damaged(why) => return blocked_action(entry, &format!("is damaged ({why})")),
    };
    let stored = Attributes::of(object);
    let is_changed = expected == Kind::Blob && !has_same_content(entry, object, &stored);
    let wanted = expected_attributes(entry, stored.content_type.clone());
    match (is_changed, wanted == stored) {
        (true, _) => FileAction::Replace,
        (false, false) => FileAction::Update,
        (false, true) => FileAction::Unchanged,
    }
}

fn has_same_content(entry: &Entry, object: &Object, stored: &Attributes) -> bool {
    let is_link = entry.kind == EntryKind::Symlink;
    object.size() == entry.size && stored.mtime == Some(entry.mtime) && stored.symlink == is_link
}

fn blocked_action(entry: &Entry, what: &str) -> FileAction {
    let (path, name) = (entry.path.display(), &entry.name);
    FileAction::Blocked(format!("{path}: in the store {name} {what}; remove it there first: mortar rm -r {name}"))
}

/// The attributes that the object of `entry` should have.
pub(super) fn expected_attributes(entry: &Entry, content_type: Option<String>) -> Attributes {
    let is_link = entry.kind == EntryKind::Symlink;
    Attributes {
        mode: (!is_link).then_some(entry.mode),
        mtime: Some(entry.mtime),
        symlink: is_link,
        content_type: content_type.filter(|_| entry.kind == EntryKind::File),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use model::Oid;

    use super::*;
    use crate::tree::attributes::Mtime;

    fn entry(kind: EntryKind, size: u64, seconds: i64, mode: u32) -> Entry {
        let mtime = Mtime { seconds, nanoseconds: 5 };
        Entry { path: "/d/f".into(), name: "/f".into(), parent: None, kind, size, mode, mtime }
    }

    fn bound_object(entry: &Entry, mut object: Object) -> BoundObject {
        expected_attributes(entry, Some("text/plain".into())).apply(&mut object);
        BoundObject { oid: Oid::MIN, state: ObjectState::Present(object) }
    }

    #[test]
    fn only_differences_are_imported() {
        let file = entry(EntryKind::File, 10, 1000, 0o644);
        let there = bound_object(&file, Object::blob(Bytes::from_static(&[0; 10])));
        assert!(matches!(choose_action(&file, None), FileAction::Create));
        assert!(matches!(choose_action(&file, Some(&there)), FileAction::Unchanged));
        assert!(matches!(choose_action(&entry(EntryKind::File, 10, 1000, 0o600), Some(&there)), FileAction::Update));
        assert!(matches!(choose_action(&entry(EntryKind::File, 10, 1001, 0o644), Some(&there)), FileAction::Replace));
        assert!(matches!(choose_action(&entry(EntryKind::File, 11, 1000, 0o644), Some(&there)), FileAction::Replace));
        assert!(matches!(
            choose_action(&entry(EntryKind::Symlink, 10, 1000, 0o777), Some(&there)),
            FileAction::Replace
        ));
        assert!(matches!(
            choose_action(&entry(EntryKind::Directory, 0, 1000, 0o755), Some(&there)),
            FileAction::Blocked(_)
        ));
    }

    #[test]
    fn only_attributes_of_a_directory_can_change() {
        let directory = entry(EntryKind::Directory, 0, 1000, 0o755);
        let there = bound_object(&directory, Object::collection(Kind::Directory));
        assert!(matches!(choose_action(&directory, Some(&there)), FileAction::Unchanged));
        assert!(matches!(
            choose_action(&entry(EntryKind::Directory, 0, 2000, 0o755), Some(&there)),
            FileAction::Update
        ));
    }

    #[test]
    fn name_of_a_deleted_object_or_a_set_is_reported() {
        let file = entry(EntryKind::File, 10, 1000, 0o644);
        let deleted = BoundObject { oid: Oid::MIN, state: ObjectState::Deleted };
        let set = bound_object(&file, Object::collection(Kind::Collection));
        for there in [deleted, set] {
            assert!(matches!(choose_action(&file, Some(&there)), FileAction::Blocked(_)));
        }
    }
}
