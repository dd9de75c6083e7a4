//! The state in the store of a file that is to be imported.

use client::Client;
use model::{Kind, Oid, Stat};

use crate::failure::{Failure, Result};
use crate::tree::attributes::Attributes;
use crate::tree::walk::{Entry, EntryKind};

/// The object that has a file's name.
pub(super) struct ExistingObject {
    /// The object.
    pub(super) oid: Oid,
    /// Its properties.
    pub(super) stat: Stat,
    /// The attributes of the file from which it was imported.
    pub(super) attributes: Attributes,
}

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

impl ExistingObject {
    /// Looks up the object with a name.
    async fn look_up(client: &Client, name: &str) -> Result<Option<Self>> {
        /// Most attributes that are read. Three of them are used; others do no harm.
        const ATTRIBUTES: usize = 100;
        let Some(oid) = client.resolve(name).await? else { return Ok(None) };
        let (stat, pairs) = tokio::join!(client.stat(oid), client.attributes(oid, None, ATTRIBUTES));
        // An object that was deleted meanwhile has lost its name too.
        let Some(stat) = stat? else { return Ok(None) };
        Ok(Some(Self { oid, stat, attributes: Attributes::read(&pairs?) }))
    }
}

/// Looks up all entries together.
pub(super) async fn look_up(client: &Client, entries: &[Entry]) -> Result<Vec<Option<ExistingObject>>> {
    let lookups: Vec<_> = entries
        .iter()
        .map(|entry| {
            let (client, name) = (client.clone(), entry.name.clone());
            tokio::spawn(async move { ExistingObject::look_up(&client, &name).await })
        })
        .collect();
    let mut found = Vec::with_capacity(lookups.len());
    for lookup in lookups {
        found.push(lookup.await.map_err(|e| Failure::new(format!("looking names up failed: {e}")))??);
    }
    Ok(found)
}

/// The action for `entry` if the store has `found`.
pub(super) fn choose_action(entry: &Entry, found: Option<&ExistingObject>) -> FileAction {
    let Some(found) = found else { return FileAction::Create };
    let expected = if entry.kind == EntryKind::Directory { Kind::Collection } else { Kind::Blob };
    if found.stat.kind != expected {
        return FileAction::Blocked(format!(
            "{}: in the store {} is a {}; remove it there first: mortar rm -r {}",
            entry.path.display(),
            entry.name,
            found.stat.kind.name(),
            entry.name
        ));
    }
    let is_link = entry.kind == EntryKind::Symlink;
    let same_content = expected == Kind::Collection
        || found.stat.size == entry.size
            && found.attributes.mtime == Some(entry.mtime)
            && found.attributes.symlink == is_link;
    let wanted = expected_attributes(entry, found.attributes.content_type.clone());
    match (same_content, wanted == found.attributes) {
        (false, _) => FileAction::Replace,
        (true, false) => FileAction::Update,
        (true, true) => FileAction::Unchanged,
    }
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
    use super::*;
    use crate::tree::attributes::Mtime;

    fn entry(kind: EntryKind, size: u64, seconds: i64, mode: u32) -> Entry {
        let mtime = Mtime { seconds, nanoseconds: 5 };
        Entry { path: "/d/f".into(), name: "/f".into(), parent: None, kind, size, mode, mtime }
    }

    fn found(entry: &Entry, kind: Kind) -> ExistingObject {
        let stat = Stat { oid: Oid::MIN, kind, size: entry.size, version: 1, modified_us: 0 };
        ExistingObject { oid: Oid::MIN, stat, attributes: expected_attributes(entry, Some("text/plain".into())) }
    }

    #[test]
    fn only_differences_are_imported() {
        let file = entry(EntryKind::File, 10, 1000, 0o644);
        let there = found(&file, Kind::Blob);
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
        let mut there = found(&directory, Kind::Collection);
        there.stat.size = 7;
        assert!(matches!(choose_action(&directory, Some(&there)), FileAction::Unchanged));
        assert!(matches!(
            choose_action(&entry(EntryKind::Directory, 0, 2000, 0o755), Some(&there)),
            FileAction::Update
        ));
    }
}
