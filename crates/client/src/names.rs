//! Lists the names of a space: a walk through the tree of directories.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use model::{EntryKey, Error, ErrorKind, Kind, Oid, Result};
use wire::cluster::{EntryList, ListEntries, ListedEntry};

use super::client_core::Core;
use super::entries::{first_portion, name_of};
use super::paths::components;

/// Maximum names in a portion, and maximum entries that are requested at a time.
const MAX_PORTION: usize = 65_536;
const MAX_REQUESTED: u32 = 1_000;

/// A directory that is being listed.
#[derive(Debug)]
struct Level {
    directory: Oid,
    /// The path of the directory, with a `/` behind it.
    path: String,
    /// Only names that begin with this.
    prefix: Bytes,
    /// The last name that was requested.
    after: Option<EntryKey>,
    entries: VecDeque<ListedEntry>,
    /// Whether there may be more entries behind these.
    more: bool,
    /// Whether damage among the entries has been told.
    is_damage_told: bool,
}

impl Level {
    fn new(directory: Oid, path: String, prefix: Bytes, after: Option<EntryKey>) -> Self {
        Self { directory, path, prefix, after, entries: VecDeque::new(), more: true, is_damage_told: false }
    }

    /// Asks for the next entries.
    fn next_request(&self, wanted: usize, passes_damage: bool) -> ListEntries {
        let limit = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, MAX_REQUESTED);
        let list = first_portion(self.directory, self.after.clone(), self.prefix.clone(), limit);
        ListEntries { kinds: true, passes_damage, ..list }
    }

    /// Adds the next entries. Returns the directory as a damaged name, if some of its entries cannot be read and that was not told.
    fn add(&mut self, EntryList { entries, more, damage, .. }: EntryList) -> Option<ListedName> {
        self.more = more;
        self.after = entries.last().map(|entry| entry.key.clone()).or_else(|| self.after.take());
        self.entries = entries.into();
        self.tell(damage?)
    }

    /// None of the further entries can be read. Returns what [`Level::add`] does.
    fn give_up(&mut self, damage: String) -> Option<ListedName> {
        self.more = false;
        self.tell(damage)
    }

    fn tell(&mut self, damage: String) -> Option<ListedName> {
        if std::mem::replace(&mut self.is_damage_told, true) {
            return None;
        }
        let path = self.path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or("/").to_owned();
        Some(ListedName { path, oid: self.directory, is_directory: true, damage: Some(damage) })
    }
}

/// A name of a space, and the object that it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// The absolute path.
    pub path: String,
    /// The object.
    pub oid: Oid,
    /// Whether the object is a directory.
    pub is_directory: bool,
    /// Why the object cannot be read, if it is damaged. If it is a directory, its names are listed only [on
    /// request](Names::below_damage).
    pub damage: Option<String>,
}

/// The names of a space in order, in portions: [`Client::names`](super::Client::names).
///
/// Paths are absolute: they begin with `/`. The order is that of a walk: names of one directory are in the order of their bytes, and what is
/// in a directory follows its name.
#[derive(Debug)]
pub struct Names {
    core: Arc<Core>,
    prefix: String,
    after: Option<String>,
    portion_size: usize,
    with_directories: bool,
    one_level: bool,
    below_damage: bool,
    has_begun: bool,
    /// The directories that are being listed, the deepest last.
    levels: Vec<Level>,
    /// Names of the next portion.
    portion: Vec<ListedName>,
}

impl Names {
    pub(super) fn new(core: Arc<Core>, prefix: &str) -> Self {
        let (prefix, levels, portion) = (prefix.to_owned(), Vec::new(), Vec::new());
        let (with_directories, one_level, below_damage, has_begun) = (false, false, false, false);
        let (after, portion_size) = (None, MAX_PORTION);
        Self {
            core,
            prefix,
            after,
            portion_size,
            with_directories,
            one_level,
            below_damage,
            has_begun,
            levels,
            portion,
        }
    }

    /// Begins after this name, whether or not it exists.
    #[must_use]
    pub fn after(mut self, path: &str) -> Self {
        self.after = Some(path.to_owned());
        self
    }

    /// Sets the maximum number of names in a portion.
    #[must_use]
    pub fn portion_size(mut self, names: usize) -> Self {
        self.portion_size = names.clamp(1, MAX_PORTION);
        self
    }

    /// Lists directories, too. Without this, only other objects are listed.
    #[must_use]
    pub fn with_directories(mut self) -> Self {
        self.with_directories = true;
        self
    }

    /// Lists only the names of one directory: those behind the last `/` of the prefix, directories among them.
    #[must_use]
    pub fn one_level(mut self) -> Self {
        self.one_level = true;
        self.with_directories()
    }

    /// Lists what can be read below damaged directories, too. One of which entries cannot be read is listed once more, with that
    /// [damage](ListedName::damage), before names of it.
    #[must_use]
    pub fn below_damage(mut self) -> Self {
        self.below_damage = true;
        self
    }

    /// The next names with the objects that they are bound to; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if a brick cannot be reached in time, [`ErrorKind::Stopped`] if the space is stopped. A listing
    /// never omits names silently: after an error, the next call continues where this one ended.
    pub async fn next(&mut self) -> Result<Option<Vec<ListedName>>> {
        if !self.has_begun {
            self.levels = self.begin().await?;
            self.has_begun = true;
        }
        // `levels` and `portion` change only when a request was answered, and what they lose is told. So a call that fails, or whose future is
        // dropped, can be repeated.
        while self.portion.len() < self.portion_size
            && let Some(level) = self.levels.last()
        {
            let Some(ListedEntry { key, target, kind }) = level.entries.front() else {
                if level.more {
                    let list = level.next_request(self.portion_size - self.portion.len(), self.below_damage);
                    let found = match self.core.list_entries(list).await {
                        Err(error) if error.kind() == ErrorKind::Corrupt && self.below_damage => Err(error),
                        found => Ok(found?),
                    };
                    self.portion.extend(self.levels.last_mut().and_then(|level| match found {
                        Ok(found) => level.add(found),
                        Err(error) => level.give_up(error.message().to_owned()),
                    }));
                } else {
                    self.levels.pop();
                }
                continue;
            };
            let (path, target) = (format!("{}{}", level.path, name_of(key)?), *target);
            let (kind, damage) = match self.kind(target, *kind).await {
                Err(error) if error.kind() == ErrorKind::Corrupt => (None, Some(error.message().to_owned())),
                kind => (kind?, None),
            };
            let has_names = damage.is_some() && self.below_damage && self.has_names(target).await?;
            let is_directory = kind == Some(Kind::Directory) || has_names;
            self.levels.last_mut().and_then(|level| level.entries.pop_front());
            if is_directory && !self.one_level {
                if self.levels.iter().any(|above| above.directory == target) {
                    return Err(Error::new(ErrorKind::Corrupt, format!("the directory {path:?} contains itself")));
                }
                self.levels.push(Level::new(target, format!("{path}/"), Bytes::new(), None));
            }
            if !is_directory || self.with_directories {
                self.portion.push(ListedName { path, oid: target, is_directory, damage });
            }
        }
        Ok(Some(std::mem::take(&mut self.portion)).filter(|portion| !portion.is_empty()))
    }

    /// Whether something that cannot be read is a directory: the first of its entries that can be read is a name.
    async fn has_names(&self, target: Oid) -> Result<bool> {
        let list = first_portion(target, None, Bytes::new(), 1);
        match self.core.list_entries(ListEntries { passes_damage: true, ..list }).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
            found => Ok(found?.entries.first().is_some_and(|entry| entry.key.to_name().is_some())),
        }
    }

    /// The kind of a target that may be a directory; `kind` is its kind, if the brick of its directory knows it.
    async fn kind(&self, target: Oid, kind: Option<Kind>) -> Result<Option<Kind>> {
        match kind {
            Some(kind) => Ok(Some(kind)),
            None if target.class() != model::ClassId::NONE => Ok(None),
            None => Ok(self.core.read_object(target, false).await?.map(|object| object.kind)),
        }
    }

    /// The entry of a directory with this name.
    async fn find(&self, directory: Oid, key: &EntryKey) -> Result<Option<Oid>> {
        let list = first_portion(directory, None, key.to_bytes(), 1);
        let EntryList { entries, .. } = self.core.list_entries(ListEntries { kinds: true, ..list }).await?;
        let Some(entry) = entries.into_iter().next().filter(|entry| entry.key == *key) else { return Ok(None) };
        let kind = self.kind(entry.target, entry.kind).await?;
        Ok(Some(entry.target).filter(|_| kind == Some(Kind::Directory)))
    }

    /// The directories at which the walk begins.
    async fn begin(&self) -> Result<Vec<Level>> {
        let (base, prefix) = self.prefix.rsplit_once('/').unwrap_or(("", &self.prefix));
        let base = components(base)?;
        let mut directory = self.core.root()?;
        for key in &base {
            let Some(found) = self.find(directory, key).await? else { return Ok(Vec::new()) };
            directory = found;
        }
        let mut path = String::from("/");
        for key in &base {
            path = format!("{path}{}/", name_of(key)?);
        }
        let prefix = Bytes::copy_from_slice(prefix.as_bytes());
        let after = match &self.after {
            Some(after) => components(after)?,
            None => Vec::new(),
        };
        let (own, below) = after.split_at(base.len().min(after.len()));
        match own.cmp(&base[..own.len()]) {
            Ordering::Greater => Ok(Vec::new()),
            Ordering::Equal if own.len() == base.len() => self.begin_after(directory, path, prefix, below).await,
            _ => Ok(vec![Level::new(directory, path, prefix, None)]),
        }
    }

    /// The directories on the way to a name, each from the entry behind that way on.
    async fn begin_after(&self, base: Oid, path: String, prefix: Bytes, after: &[EntryKey]) -> Result<Vec<Level>> {
        let (mut levels, mut directory, mut path, mut prefix) = (Vec::new(), base, path, prefix);
        for key in after {
            let is_listed = key.as_bytes().starts_with(&prefix);
            levels.push(Level::new(directory, path.clone(), std::mem::take(&mut prefix), Some(key.clone())));
            let Some(found) = self.find(directory, key).await?.filter(|_| is_listed) else { return Ok(levels) };
            directory = found;
            path = format!("{path}{}/", name_of(key)?);
        }
        levels.push(Level::new(directory, path, prefix, None));
        Ok(levels)
    }
}

#[cfg(test)]
mod tests {
    use model::{ClassId, NodeId, PageId, SpaceId};

    use super::*;

    fn oid(slot: u16) -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(3), number: 1 }, slot)
    }

    fn answer(names: &[&str], more: bool, damage: Option<&str>) -> EntryList {
        let entry = |name: &&str| ListedEntry { key: EntryKey::name(name).unwrap(), target: oid(2), kind: None };
        let (entries, damage) = (names.iter().map(entry).collect(), damage.map(str::to_owned));
        EntryList { entries, more, damage, ..EntryList::default() }
    }

    #[test]
    fn damage_among_the_entries_of_a_directory_is_told_once() {
        let mut level = Level::new(oid(1), "/a/".to_owned(), Bytes::new(), None);
        assert_eq!(level.add(answer(&["b", "c"], true, None)), None);
        let told = level.add(answer(&["e"], true, Some("a row is damaged"))).unwrap();
        assert_eq!((told.path.as_str(), told.damage.as_deref()), ("/a", Some("a row is damaged")));
        assert_eq!(level.add(answer(&[], true, Some("another row is damaged"))), None);
        let after = level.next_request(7, true).after.unwrap();
        assert_eq!(after.to_name(), Some("e"), "a portion without entries does not begin again");
        assert_eq!((level.give_up("its logical node is damaged".to_owned()), level.more), (None, false));
        let mut closed = Level::new(oid(1), "/c/".to_owned(), Bytes::new(), None);
        assert_eq!(closed.give_up("its logical node is damaged".to_owned()).unwrap().path, "/c");
        let mut root = Level::new(oid(1), "/".to_owned(), Bytes::new(), None);
        assert_eq!(root.add(answer(&[], false, Some("a row is damaged"))).unwrap().path, "/");
    }
}
