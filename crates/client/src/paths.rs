//! Paths: names of objects in the tree of directories below the root of a space.

use model::{ClassId, Entry, EntryKey, Error, ErrorKind, Kind, Object, Oid, Result, limits};
use protocol::locks::LockMode;
use wire::cluster::LookedUp;

use super::client_core::Core;
use super::transaction::{PlacementHint, Transaction};
use crate::plant::{Bug, planted};

/// The components of a path, as keys. A `/` at the beginning means nothing: every path begins at the root, whose own path is empty.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a component that is empty, `.`, `..`, or has a zero byte; [`ErrorKind::TooLarge`] for more than
/// [`limits::NAME`] bytes, or a component of more than [`limits::ENTRY_KEY`].
pub(super) fn components(path: &str) -> Result<Vec<EntryKey>> {
    if path.len() > limits::NAME {
        let what = format!("a path has {} bytes; it may have {}: {path:.80?}", path.len(), limits::NAME);
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(Vec::new()),
        path => path.split('/').map(EntryKey::name).collect(),
    }
}

/// The components of the parent directory, and the last component.
fn split_last(path: &str) -> Result<(Vec<EntryKey>, EntryKey)> {
    let mut keys = components(path)?;
    let last = keys.pop().ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("{path:?} is the root directory: it cannot be bound, moved or removed"))
    })?;
    Ok((keys, last))
}

/// What was found of a path.
struct FoundPath {
    /// The directories from the root on, as far as they exist: the last one has the last component, if `missing` is empty.
    parents: Vec<Oid>,
    /// The components of these directories, without the root.
    present: Vec<EntryKey>,
    /// The components of directories that do not exist.
    missing: Vec<EntryKey>,
    last: EntryKey,
    target: Option<Oid>,
}

impl FoundPath {
    /// The deepest directory that exists.
    fn parent(&self) -> Result<Oid> {
        let none = || Error::new(ErrorKind::Internal, "a path has no root");
        self.parents.last().copied().ok_or_else(none)
    }
}

impl Core {
    /// See [`Client::resolve`](super::Client::resolve).
    pub(super) async fn resolve(&self, path: &str) -> Result<Option<Oid>> {
        let (keys, mut at) = (components(path)?, self.root()?);
        let mut rest = keys.as_slice();
        while !rest.is_empty() {
            // A brick follows the keys as far as they are at its logical node.
            let LookedUp { targets, guards, .. } = self.look_up(at, rest).await?;
            match targets.last() {
                Some(target) if targets.len() == guards.len() => at = *target,
                _ => return Ok(None),
            }
            rest = rest.get(targets.len()..).unwrap_or_default();
        }
        Ok(Some(at))
    }
}

impl Transaction {
    /// The object that a path is bound to, if any; the root directory for an empty path.
    ///
    /// # Errors
    /// As [`Transaction::get`]; [`ErrorKind::Unsupported`] in a group snapshot; [`ErrorKind::Invalid`] and [`ErrorKind::TooLarge`]
    /// for an invalid path.
    pub async fn resolve(&self, path: &str) -> Result<Option<Oid>> {
        let (keys, root) = (components(path)?, self.root()?);
        let found = self.walk(root, &keys, LockMode::Shared).await?;
        Ok(if found.len() < keys.len() { None } else { Some(found.last().copied().unwrap_or(root)) })
    }

    /// Finds a path whose last key this transaction is going to change.
    async fn find_path(&self, path: &str) -> Result<FoundPath> {
        let (mut keys, last) = split_last(path)?;
        keys.push(last.clone());
        let mut parents = vec![self.root()?];
        parents.extend(self.walk(parents[0], &keys, LockMode::Exclusive).await?);
        let target = if parents.len() > keys.len() { parents.pop() } else { None };
        keys.pop();
        let missing = keys.split_off((parents.len() - 1).min(keys.len()));
        Ok(FoundPath { parents, present: keys, missing, last, target })
    }

    /// The deepest directory of a path that exists. It counts as read.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is not a directory.
    async fn require_parent(&self, found: &FoundPath) -> Result<Oid> {
        let parent = found.parent()?;
        self.require(parent, Kind::Directory).await.map_err(|error| {
            if !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound) {
                return error;
            }
            let components = found.present.iter().map(|key| key.to_name().unwrap_or_default());
            let path: String = components.flat_map(|component| ["/", component]).collect();
            Error::new(error.kind(), format!("{path:?}: {}", error.message()))
        })?;
        Ok(parent)
    }

    /// Whether an object is a directory. It counts as read.
    pub(super) async fn is_directory(&self, oid: Oid) -> Result<bool> {
        // An object with a class is a record.
        if oid.class() != ClassId::NONE {
            return Ok(false);
        }
        Ok(oid == self.root()? || self.get(oid).await?.is_some_and(|object| object.kind == Kind::Directory))
    }

    /// Binds a path to an object, which this transaction may have created. Missing parent directories are made. An earlier binding is
    /// replaced, unless it is to a directory. A new object without a placement hint goes to the logical node of its directory.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`ErrorKind::Exists`] if the path is that of another directory; [`ErrorKind::Invalid`] and
    /// [`ErrorKind::TooLarge`] for an invalid path, or one below an object that is not a directory; [`ErrorKind::Invalid`] if the
    /// target is a directory, which has one name only: [`Transaction::rename`].
    pub async fn bind(&self, path: &str, target: impl Into<Oid>) -> Result<()> {
        let found = self.find_path(path).await?;
        let target = target.into();
        if let Some(before) = found.target.filter(|before| *before != target)
            && self.is_directory(before).await?
        {
            let what = format!("{path:?} is a directory: unbind or move it first");
            return Err(Error::new(ErrorKind::Exists, what));
        }
        if found.target != Some(target) {
            self.check_unnamed(target).await?;
        }
        let parent = self.make_missing(&found).await?;
        self.put_key(parent, found.last, target).await
    }

    /// Makes the missing directories of a path. Returns the one with the last component.
    async fn make_missing(&self, found: &FoundPath) -> Result<Oid> {
        let mut parent = self.require_parent(found).await?;
        for key in &found.missing {
            let directory = self.new_directory()?;
            self.put_key(parent, key.clone(), directory).await?;
            parent = directory;
        }
        Ok(parent)
    }

    fn new_directory(&self) -> Result<Oid> {
        self.create_object(ClassId::NONE, Object::collection(Kind::Directory), PlacementHint::Anywhere)
    }

    /// Creates a directory, and its missing parents.
    ///
    /// # Errors
    /// As [`Transaction::bind`]; [`ErrorKind::Exists`] if the path is bound.
    pub async fn create_directory(&self, path: &str) -> Result<Oid> {
        let found = self.find_path(path).await?;
        if found.target.is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("{path:?} exists")));
        }
        let parent = self.make_missing(&found).await?;
        let directory = self.new_directory()?;
        self.put_key(parent, found.last, directory).await?;
        Ok(directory)
    }

    /// Removes a path. Returns whether it was bound. The object stays.
    ///
    /// # Errors
    /// As [`Transaction::bind`]; [`ErrorKind::Invalid`] for a directory: [`Transaction::remove_directory`].
    pub async fn unbind(&self, path: &str) -> Result<bool> {
        let found = self.find_path(path).await?;
        let Some(target) = found.target else { return Ok(false) };
        if self.is_directory(target).await? {
            let what = format!("{path:?} is a directory, whose names would be lost: remove it as a directory");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        self.change_entry(found.parent()?, found.last, None).await?;
        Ok(true)
    }

    /// Removes an empty directory, and deletes it.
    ///
    /// # Errors
    /// As [`Transaction::bind`]; [`ErrorKind::NotFound`] if the path is not bound; [`ErrorKind::Invalid`] if it is not a directory,
    /// or has entries.
    pub async fn remove_directory(&self, path: &str) -> Result<()> {
        let found = self.find_path(path).await?;
        let directory = found.target.ok_or_else(|| not_found(path))?;
        self.require(directory, Kind::Directory).await?;
        if !self.list_keys(directory, None, Default::default(), 1).await?.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, format!("the directory {path:?} is not empty")));
        }
        self.delete(directory).await?;
        self.change_entry(found.parent()?, found.last, None).await
    }

    /// Deletes an object with all its names and its memberships in sets. Names that are bound meanwhile are not found: they stay, and
    /// name an object that does not exist.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub async fn delete_with_names(&self, oid: Oid) -> Result<()> {
        for Entry { collection, key } in self.inner.core.entries_of(oid).await? {
            if self.look_up_key_to_change(collection, &key).await? == Some(oid) {
                self.change_entry(collection, key, None).await?;
            }
        }
        self.delete(oid).await
    }

    /// Binds the object of one path to another path instead. A directory is moved with everything below it, at the same cost.
    ///
    /// # Errors
    /// As [`Transaction::bind`]; [`ErrorKind::NotFound`] if `from`, or the parent directory of `to`, is not bound;
    /// [`ErrorKind::Exists`] if `to` is bound; [`ErrorKind::Invalid`] if a directory would be moved below itself.
    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let found = self.find_path(from).await?;
        let target = found.target.ok_or_else(|| not_found(from))?;
        let place = self.find_path(to).await?;
        if place.parents.contains(&target) && !planted(Bug::MovedBelowItself) {
            return Err(Error::new(ErrorKind::Invalid, format!("{from:?} cannot be moved below itself, to {to:?}")));
        }
        if !place.missing.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("the parent directory of {to:?} does not exist")));
        }
        if place.target.is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("{to:?} exists")));
        }
        let (old, new) = (found.parent()?, self.require_parent(&place).await?);
        self.put_key(new, place.last, target).await?;
        if planted(Bug::OldNameKept) {
            return Ok(());
        }
        self.change_entry(old, found.last, None).await
    }

    /// The first names of the directory with this path after `after`, in the order of their bytes, at most `limit`.
    ///
    /// # Errors
    /// As [`Transaction::resolve`]; [`ErrorKind::NotFound`] if the path is not bound; [`ErrorKind::Invalid`] if it is not a
    /// directory.
    pub async fn list(&self, path: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Oid)>> {
        let directory = self.resolve(path).await?.ok_or_else(|| not_found(path))?;
        self.require(directory, Kind::Directory).await?;
        self.entries(directory, after, "", limit).await
    }
}

fn not_found(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_components() {
        let names = |path: &str| {
            let keys = components(path).map_err(|error| error.kind())?;
            Ok(keys.iter().map(|key| key.to_name().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("|"))
        };
        for (path, expected) in [("", ""), ("/", ""), ("a", "a"), ("/a/b c", "a|b c"), ("notes/1.txt", "notes|1.txt")] {
            assert_eq!(names(path), Ok(expected.to_owned()), "{path:?}");
        }
        for path in ["a/", "a//b", "//a", "a/./b", "..", "a\0b"] {
            assert_eq!(names(path), Err(ErrorKind::Invalid), "{path:?}");
        }
        assert_eq!(names(&"a/".repeat(limits::NAME)), Err(ErrorKind::TooLarge));
        assert_eq!(names(&"a".repeat(limits::ENTRY_KEY + 1)), Err(ErrorKind::TooLarge));
    }

    #[test]
    fn the_root_has_no_last_component() {
        assert_eq!(split_last("/").map(drop).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
        let (parents, last) = split_last("a/b/c").unwrap();
        assert_eq!((parents.len(), last.to_name()), (2, Some("c")));
    }
}
