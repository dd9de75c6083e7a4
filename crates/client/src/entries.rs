//! Collections in transactions: sets and directories as ordered maps from keys to objects.
//!
//! Entries are read at the bricks, not from copies. An answer comes with guards and their versions, which the transaction adds to its
//! read set ([`protocol::entries`]). A transaction sees its own changes merged into what it reads.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{ClassId, Entry, EntryKey, Error, ErrorKind, Kind, NodeId, Object, Oid, Result, limits};
use protocol::entries::{collection_guard, key_guard, of_collection, root_directory};
use protocol::ident::HlcTimestamp;
use protocol::locks::LockMode;
use protocol::validate::Read;
use wire::cluster::{EntriesOf, EntryList, ListEntries, ListEntriesOf, LookUp, LookedUp, MAX_LOOK_UP_KEYS};
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::client_core::{Core, unexpected_answer_error};
use super::concurrent::concurrently;
use super::rows::ReadSet;
use super::transaction::{Changes, IsolationLevel, PlacementHint, Transaction, temporary_error};
use super::typed::read_only_error;
use crate::plant::{Bug, planted};

/// Maximum entries in one answer of a brick.
const PORTION: usize = 1_000;

impl Core {
    /// The root directory of the space.
    pub(super) fn root(&self) -> Result<Oid> {
        let nowhere = || Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet");
        Ok(root_directory(self.space, *self.nodes.iter().min().ok_or_else(nowhere)?))
    }

    /// Looks up keys at the logical node of a collection.
    pub(super) async fn look_up(&self, collection: Oid, keys: &[EntryKey]) -> Result<LookedUp> {
        let keys = keys.iter().take(MAX_LOOK_UP_KEYS).cloned().collect();
        let request = Request::LookUp(LookUp { collection, keys }.into_proto());
        let (Response::LookedUp(found), _) = self.ask(request).await? else { return Err(unexpected_answer_error()) };
        let found = LookedUp::from_proto(*found)?;
        if found.guards.is_empty() { Err(unexpected_answer_error()) } else { Ok(found) }
    }

    /// See [`Client::entry`](super::Client::entry).
    pub(super) async fn entry(&self, directory: Oid, name: &str) -> Result<Option<Oid>> {
        self.check_in_space(directory)?;
        let found = self.look_up(directory, &[EntryKey::name(name)?]).await?;
        Ok(found.targets.first().copied())
    }

    /// Lists entries of a collection at its logical node.
    pub(super) async fn list_entries(&self, list: ListEntries) -> Result<EntryList> {
        let request = Request::ListEntries(list.into_proto());
        let (Response::EntryList(found), raw) = self.ask(request).await? else { return Err(unexpected_answer_error()) };
        EntryList::from_proto(*found, &raw)
    }

    /// See [`Client::collection_totals`](super::Client::collection_totals).
    pub(super) async fn collection_totals(&self, collection: Oid) -> Result<(u64, HlcTimestamp)> {
        self.check_in_space(collection)?;
        let found = self.list_entries(first_portion(collection, None, Bytes::new(), 0)).await?;
        Ok((found.count, found.modified))
    }

    /// See [`Client::members`](super::Client::members).
    pub(super) async fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        self.check_in_space(collection)?;
        let mut members: Vec<Oid> = Vec::new();
        while members.len() < limit {
            let after = members.last().copied().or(after).map(EntryKey::member);
            let wanted = (limit - members.len()).min(PORTION) as u32;
            let found = self.list_entries(first_portion(collection, after, Bytes::new(), wanted)).await?;
            members.extend(found.entries.iter().map(|entry| entry.target));
            if !found.more {
                break;
            }
        }
        Ok(members)
    }

    /// See [`Client::entries`](super::Client::entries).
    pub(super) async fn entries(
        &self,
        directory: Oid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Oid)>> {
        self.check_in_space(directory)?;
        let mut after = after.map(EntryKey::name).transpose()?;
        let mut entries = Vec::new();
        while entries.len() < limit {
            let wanted = (limit - entries.len()).min(PORTION) as u32;
            let found = self.list_entries(first_portion(directory, after.take(), Bytes::new(), wanted)).await?;
            for entry in found.entries {
                entries.push((name_of(&entry.key)?.to_owned(), entry.target));
                after = Some(entry.key);
            }
            if !found.more {
                break;
            }
        }
        Ok(entries)
    }

    /// See [`Client::collections_of`](super::Client::collections_of).
    pub(super) async fn collections_of(&self, member: Oid) -> Result<Vec<Oid>> {
        let key = EntryKey::member(member);
        let entries = self.entries_of(member).await?;
        Ok(entries.into_iter().filter(|entry| entry.key == key).map(|entry| entry.collection).collect())
    }

    /// See [`Client::names_of`](super::Client::names_of).
    pub(super) async fn names_of(&self, oid: Oid) -> Result<Vec<String>> {
        let root = self.root()?;
        // Directories whose names are to be found: each with those below it, down to the object, and with what follows its name.
        let mut pending = vec![(vec![oid], String::new())];
        let mut names = Vec::new();
        while let Some((chain, below)) = pending.pop() {
            let at = chain.last().copied().unwrap_or(oid);
            let member = EntryKey::member(at);
            for Entry { collection, key } in self.entries_of(at).await?.into_iter().filter(|entry| entry.key != member)
            {
                let name = name_of(&key)?;
                let path = if below.is_empty() { name.to_owned() } else { format!("{name}/{below}") };
                if collection == root {
                    names.push(format!("/{path}"));
                    continue;
                }
                if chain.contains(&collection) {
                    let what = format!(
                        "the directory {collection} is below itself, by its name for {at}, or was moved meanwhile: ask again, or remove that name"
                    );
                    return Err(Error::new(ErrorKind::Corrupt, what));
                }
                pending.push(([&chain[..], &[collection]].concat(), path));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The entries that have a target, at all logical nodes of the space.
    pub(super) async fn entries_of(&self, target: Oid) -> Result<Vec<Entry>> {
        self.check_in_space(target)?;
        let found = concurrently(&self.nodes, |node| self.entries_at(*node, target)).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The entries of collections at a logical node that have a target.
    async fn entries_at(&self, node: NodeId, target: Oid) -> Result<Vec<Entry>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let list = ListEntriesOf { node, target, after, limit: PORTION as u32 };
            let request = Request::ListEntriesOf(list.into_proto());
            let (Response::EntriesOf(found), raw) = self.ask(request).await? else {
                return Err(unexpected_answer_error());
            };
            let EntriesOf { entries, more } = EntriesOf::from_proto(*found, &raw)?;
            after = entries.last().cloned().filter(|_| more);
            all.extend(entries);
            if after.is_none() {
                return Ok(all);
            }
        }
    }
}

impl Transaction {
    /// The root directory of the space. It exists without having been created, and cannot be deleted.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the space has no logical nodes yet.
    pub fn root(&self) -> Result<Oid> {
        self.inner.core.root()
    }

    /// Creates an empty set under a temporary identifier; see [`Transaction::create_object`].
    ///
    /// # Errors
    /// As there.
    pub fn create_collection(&self) -> Result<Oid> {
        self.create_object(ClassId::NONE, Object::collection(Kind::Collection), PlacementHint::Anywhere)
    }

    /// Creates the object of a set or a directory again whose entries are there and whose object is lost, so that they are listed and can be
    /// changed. Its attributes are lost. Returns its kind; `None` if the object exists, or has no entries.
    ///
    /// # Errors
    /// As [`Transaction::contains`] and [`Transaction::put`].
    pub async fn restore_collection(&self, collection: Oid) -> Result<Option<Kind>> {
        if self.get(collection).await?.is_some() {
            return Ok(None);
        }
        let first = self.list_keys(collection, None, Bytes::new(), 1).await?.pop();
        let Some((key, target)) = first else { return Ok(None) };
        self.create_again(collection, &key, target).await.map(Some)
    }

    /// Creates the object of a collection again, of the kind that one of its entries tells.
    async fn create_again(&self, collection: Oid, key: &EntryKey, target: Oid) -> Result<Kind> {
        let kind = if *key == EntryKey::member(target) { Kind::Collection } else { Kind::Directory };
        self.put(collection, Object::collection(kind)).await?;
        Ok(kind)
    }

    /// Binds a key of a set or a directory to its target again, after its entry was lost. The object of the collection is created again, if
    /// it is lost, too. Returns whether the target exists; `None` if the key is bound.
    ///
    /// # Errors
    /// As [`Transaction::contains`] and [`Transaction::put`].
    pub async fn restore_entry(&self, entry: Entry, target: Oid) -> Result<Option<bool>> {
        let Entry { collection, key } = entry;
        if self.look_up_key_to_change(collection, &key).await?.is_some() {
            return Ok(None);
        }
        let exists = self.get(target).await?.is_some();
        if collection != self.root()? && self.get(collection).await?.is_none() {
            self.create_again(collection, &key, target).await?;
        }
        self.put_key(collection, key, target).await?;
        Ok(Some(exists))
    }

    // -------------------------------------------------------------------------------------------- sets

    /// Adds a member to a set. It may be a member already.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`ErrorKind::NotFound`] and [`ErrorKind::Invalid`] if there is no such set.
    pub async fn add_member(&self, collection: Oid, member: Oid) -> Result<()> {
        self.require(collection, Kind::Collection).await?;
        self.check_permanent(member)?;
        self.change_entry(collection, EntryKey::member(member), Some(member)).await
    }

    /// Removes a member from a set. Returns whether it was one.
    ///
    /// # Errors
    /// As [`Transaction::add_member`].
    pub async fn remove_member(&self, collection: Oid, member: Oid) -> Result<bool> {
        self.require(collection, Kind::Collection).await?;
        self.remove_key(collection, EntryKey::member(member)).await
    }

    /// Whether an object is a member of a set.
    ///
    /// # Errors
    /// As [`Transaction::get`]; [`ErrorKind::Unsupported`] in a group snapshot.
    pub async fn contains(&self, collection: Oid, member: Oid) -> Result<bool> {
        Ok(self.look_up_key(collection, &EntryKey::member(member)).await?.is_some())
    }

    /// The first members of a set after `after`, in the order of identifiers, at most `limit`.
    ///
    /// # Errors
    /// As [`Transaction::contains`].
    pub async fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        let found = self.list_keys(collection, after.map(EntryKey::member), Bytes::new(), limit).await?;
        Ok(found.into_iter().map(|(_, member)| member).collect())
    }

    // -------------------------------------------------------------------------------------------- directories

    /// The object that a name in a directory is bound to, if any.
    ///
    /// # Errors
    /// As [`Transaction::contains`]; [`ErrorKind::Invalid`] for a name that is not one component of a path.
    pub async fn entry(&self, directory: Oid, name: &str) -> Result<Option<Oid>> {
        self.look_up_key(directory, &EntryKey::name(name)?).await
    }

    /// Binds a name in a directory to an object, which this transaction may have created. An earlier binding is replaced, and not read: the
    /// brick is not asked, and transactions that put the same name do not conflict.
    ///
    /// # Errors
    /// As [`Transaction::add_member`]; [`ErrorKind::Invalid`] for a name that is not one component of a path, for a directory that has its
    /// name, as it has one only: [`Transaction::rename`], and for one that would be below itself.
    pub async fn put_entry(&self, directory: Oid, name: &str, target: impl Into<Oid>) -> Result<()> {
        let (key, target) = (EntryKey::name(name)?, target.into());
        self.require(directory, Kind::Directory).await?;
        self.check_not_above(target, directory)?;
        // What the name was bound to matters only for a directory. Otherwise the brick need not be asked.
        if self.is_named_directory(target).await? && self.look_up_key_to_change(directory, &key).await? != Some(target)
        {
            return Err(second_name_error(target));
        }
        self.put_key(directory, key, target).await
    }

    /// Binds a free name in a directory to an object, which this transaction may have created.
    ///
    /// # Errors
    /// As [`Transaction::put_entry`]; [`ErrorKind::Exists`] if the name is bound.
    pub async fn add_entry(&self, directory: Oid, name: &str, target: impl Into<Oid>) -> Result<()> {
        let (key, target) = (EntryKey::name(name)?, target.into());
        self.require(directory, Kind::Directory).await?;
        if let Some(before) = self.look_up_key_to_change(directory, &key).await? {
            let what = format!("the name {name:?} in the directory {directory} is bound to {before}");
            return Err(Error::new(ErrorKind::Exists, what));
        }
        self.check_not_above(target, directory)?;
        self.check_unnamed(target).await?;
        self.put_key(directory, key, target).await
    }

    /// Removes a name from a directory. Returns whether it was bound. The object stays.
    ///
    /// # Errors
    /// As [`Transaction::put_entry`].
    pub async fn remove_entry(&self, directory: Oid, name: &str) -> Result<bool> {
        self.remove_key(directory, EntryKey::name(name)?).await
    }

    /// The first names of a directory after `after` that begin with `prefix`, in the order of their bytes, at most `limit`.
    ///
    /// # Errors
    /// As [`Transaction::contains`].
    pub async fn entries(
        &self,
        directory: Oid,
        after: Option<&str>,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<(String, Oid)>> {
        let after = after.map(|after| EntryKey::new(after.as_bytes().to_vec())).transpose()?;
        let found = self.list_keys(directory, after, Bytes::copy_from_slice(prefix.as_bytes()), limit).await?;
        found.into_iter().map(|(key, target)| Ok((name_of(&key)?.to_owned(), target))).collect()
    }

    /// The number of entries of a set or a directory. It counts as read: a transaction that adds or removes an entry meanwhile
    /// conflicts with this one.
    ///
    /// # Errors
    /// As [`Transaction::contains`].
    pub async fn count(&self, collection: Oid) -> Result<u64> {
        let mut count = 0;
        if !collection.is_temporary() {
            count = self.read_list(first_portion(collection, None, Bytes::new(), 0)).await?.count;
        }
        let own = self.own_entries(collection)?;
        let before = concurrently(&own, |(key, _)| async move {
            match collection.is_temporary() {
                true => Ok(None),
                false => self.read_key(collection, key, LockMode::Shared).await,
            }
        });
        for ((_, target), before) in own.iter().zip(before.await?) {
            count = count.saturating_add(u64::from(target.is_some())).saturating_sub(u64::from(before.is_some()));
        }
        Ok(count)
    }

    // -------------------------------------------------------------------------------------------- reading keys

    fn check_level(&self) -> Result<()> {
        if self.inner.level == IsolationLevel::Snapshot {
            let what = "a group snapshot cannot look names up, as bricks have only the newest state: begin another transaction";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(())
    }

    /// The target of a key, with the changes of this transaction.
    pub(super) async fn look_up_key(&self, collection: Oid, key: &EntryKey) -> Result<Option<Oid>> {
        Ok(self.walk(collection, std::slice::from_ref(key), LockMode::Shared).await?.pop())
    }

    /// The same of a key that this transaction is going to change.
    pub(super) async fn look_up_key_to_change(&self, collection: Oid, key: &EntryKey) -> Result<Option<Oid>> {
        Ok(self.walk(collection, std::slice::from_ref(key), LockMode::Exclusive).await?.pop())
    }

    /// The target of a key, without the changes of this transaction.
    async fn read_key(&self, collection: Oid, key: &EntryKey, mode: LockMode) -> Result<Option<Oid>> {
        self.lock_guard(key_guard(collection, key), mode).await?;
        let found = self.note_timeout(self.inner.core.look_up(collection, std::slice::from_ref(key)).await)?;
        self.rely(ReadSet { reads: found.guards, at: found.seen })?;
        Ok(found.targets.first().copied())
    }

    /// Follows keys from a collection: the target of each, as far as they are found. Each is looked up in the target before it. At the level of
    /// locks, the last one is locked in this mode: transactions that are going to change it wait for one another here. If they shared its lock
    /// first, each of them would wait for the others to give it up.
    pub(super) async fn walk(&self, collection: Oid, keys: &[EntryKey], last: LockMode) -> Result<Vec<Oid>> {
        self.check_level()?;
        let (mut found, mut at) = (Vec::with_capacity(keys.len()), collection);
        while let Some(key) = keys.get(found.len()) {
            let target = match self.own_entry(at, key)? {
                Some(own) => own,
                None if at.is_temporary() => None,
                // A lock has to be held before its key is read.
                None if self.inner.level == IsolationLevel::Locks => {
                    let mode = if found.len() + 1 == keys.len() { last } else { LockMode::Shared };
                    self.read_key(at, key, mode).await?
                }
                None => {
                    let rest = keys.get(found.len()..).unwrap_or_default();
                    let (targets, is_missing) = self.read_keys(at, rest).await?;
                    found.extend(targets);
                    at = found.last().copied().unwrap_or(at);
                    if is_missing {
                        break;
                    }
                    continue;
                }
            };
            let Some(target) = target else { break };
            found.push(target);
            at = target;
        }
        Ok(found)
    }

    /// Follows keys at one logical node, up to one that this transaction has changed. The first one was not changed. Says whether the
    /// key behind those that are found is missing.
    async fn read_keys(&self, collection: Oid, keys: &[EntryKey]) -> Result<(Vec<Oid>, bool)> {
        let LookedUp { targets, guards, seen } = self.note_timeout(self.inner.core.look_up(collection, keys).await)?;
        let (mut found, mut reads, mut at, mut is_missing) = (Vec::new(), Vec::new(), collection, false);
        for ((key, guard), target) in keys.iter().zip(guards).zip(targets.into_iter().map(Some).chain([None])) {
            if !reads.is_empty() && self.own_entry(at, key)?.is_some() {
                break;
            }
            reads.push(guard);
            let Some(target) = target else {
                is_missing = true;
                break;
            };
            found.push(target);
            at = target;
        }
        self.rely(ReadSet { reads, at: seen })?;
        Ok((found, is_missing))
    }

    /// Locks a guard, if this transaction reads with locks.
    async fn lock_guard(&self, guard: Oid, mode: LockMode) -> Result<()> {
        match self.inner.level {
            IsolationLevel::Locks => self.read(guard, mode).await.map(drop),
            IsolationLevel::Optimistic | IsolationLevel::Snapshot => Ok(()),
        }
    }

    // -------------------------------------------------------------------------------------------- listing keys

    async fn read_list(&self, list: ListEntries) -> Result<EntryList> {
        self.lock_guard(collection_guard(list.collection), LockMode::Shared).await?;
        let found = self.note_timeout(self.inner.core.list_entries(list).await)?;
        let reads: Vec<Read> = found.guards.clone();
        self.rely(ReadSet { reads, at: found.seen })?;
        Ok(found)
    }

    /// Entries of a collection in the order of their keys, with the changes of this transaction.
    pub(super) async fn list_keys(
        &self,
        collection: Oid,
        mut after: Option<EntryKey>,
        prefix: Bytes,
        limit: usize,
    ) -> Result<Vec<(EntryKey, Oid)>> {
        self.check_level()?;
        let mut all: Vec<(EntryKey, Oid)> = Vec::new();
        while all.len() < limit {
            let wanted = (limit - all.len()).min(PORTION);
            let (portion, more) = match collection.is_temporary() {
                true => (Vec::new(), false),
                false => {
                    let list = first_portion(collection, after.clone(), prefix.clone(), wanted as u32);
                    let EntryList { entries, more, .. } = self.read_list(list).await?;
                    (entries.into_iter().map(|entry| (entry.key, entry.target)).collect(), more)
                }
            };
            let last = portion.last().map(|(key, _): &(EntryKey, Oid)| key.clone()).filter(|_| more);
            let mut merged: BTreeMap<EntryKey, Oid> = portion.into_iter().collect();
            for (key, target) in
                self.own_entries(collection)?.into_iter().filter(|_| !planted(Bug::OwnEntriesNotListed))
            {
                let is_here = after.as_ref().is_none_or(|after| key > *after)
                    && last.as_ref().is_none_or(|last| key <= *last)
                    && key.as_bytes().starts_with(&prefix);
                match target {
                    Some(target) if is_here => drop(merged.insert(key, target)),
                    None if is_here => drop(merged.remove(&key)),
                    _ => {}
                }
            }
            all.extend(merged.into_iter().take(limit - all.len()));
            match last {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        Ok(all)
    }

    // -------------------------------------------------------------------------------------------- changing keys

    /// Checks that there is a collection of this kind, and reads it, so that a transaction which deletes it conflicts with this one.
    pub(super) async fn require(&self, collection: Oid, kind: Kind) -> Result<()> {
        if collection == self.root()? && kind == Kind::Directory || planted(Bug::CollectionNotRead) {
            return Ok(());
        }
        match self.get(collection).await? {
            Some(object) if object.kind == kind => Ok(()),
            Some(object) => {
                let what = format!("{collection} is a {}, not a {}", object.kind.name(), kind.name());
                Err(Error::new(ErrorKind::Invalid, what))
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("there is no {} {collection}", kind.name()))),
        }
    }

    fn check_permanent(&self, oid: Oid) -> Result<()> {
        if oid.is_temporary() {
            let what = format!("{oid} is a temporary identifier, which cannot be a key: commit its object first");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        self.inner.core.check_in_space(oid)
    }

    /// Binds a key of a directory. A new object without a placement hint goes to the logical node of the directory.
    pub(super) async fn put_key(&self, directory: Oid, key: EntryKey, target: Oid) -> Result<()> {
        if !target.is_temporary() {
            self.inner.core.check_in_space(target)?;
        }
        self.change_entry(directory, key, Some(target)).await?;
        let root = self.root()?;
        self.changes()?.place_in(directory, target, root);
        Ok(())
    }

    /// Checks that an object may get another name. A directory may not: it has one place in the tree, and so one path.
    pub(super) async fn check_unnamed(&self, target: Oid) -> Result<()> {
        if self.is_named_directory(target).await? { Err(second_name_error(target)) } else { Ok(()) }
    }

    /// Checks that a new object is neither this directory nor above it: a circle of directories would be below no other. Directories that were
    /// there before have their names, and get no others.
    fn check_not_above(&self, new: Oid, directory: Oid) -> Result<()> {
        let changes = self.changes()?;
        // What has no names in it is above nothing.
        let is_above = new == directory || of_collection(&changes.entries, new).next().is_some();
        let mut at = Some(directory).filter(|_| new.is_temporary() && is_above);
        while let Some(below) = at.filter(|oid| oid.is_temporary()) {
            if below == new {
                let what = format!("{new} is the directory {directory}, or above it: it cannot be below itself");
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            at = changes.parent_of(below);
        }
        Ok(())
    }

    /// Whether an object is a directory that has its name already. It counts as read.
    async fn is_named_directory(&self, target: Oid) -> Result<bool> {
        let is_new = target.is_temporary() && !self.changes()?.named.contains_key(&target);
        Ok(!is_new && self.is_directory(target).await?)
    }

    async fn remove_key(&self, collection: Oid, key: EntryKey) -> Result<bool> {
        let is_bound = self.look_up_key_to_change(collection, &key).await?.is_some();
        if is_bound {
            self.change_entry(collection, key, None).await?;
        }
        Ok(is_bound)
    }

    pub(super) async fn change_entry(&self, collection: Oid, key: EntryKey, target: Option<Oid>) -> Result<()> {
        if self.inner.level == IsolationLevel::Snapshot {
            return Err(read_only_error());
        }
        [Some(collection), target].into_iter().flatten().try_for_each(|oid| self.changes()?.check_own(oid))?;
        if !collection.is_temporary() {
            self.inner.core.check_in_space(collection)?;
            self.lock_guard(key_guard(collection, &key), LockMode::Exclusive).await?;
            self.lock_guard(collection_guard(collection), LockMode::Touch).await?;
        }
        self.changes()?.set_entry(Entry { collection, key }, target);
        Ok(())
    }

    /// The change of a key by this transaction: `Some(None)` if it has removed the key.
    fn own_entry(&self, collection: Oid, key: &EntryKey) -> Result<Option<Option<Oid>>> {
        let entry = Entry { collection, key: key.clone() };
        Ok(self.changes()?.entries.get(&entry).copied().filter(|_| !planted(Bug::OwnEntriesNotFound)))
    }

    fn own_entries(&self, collection: Oid) -> Result<Vec<(EntryKey, Option<Oid>)>> {
        let changes = self.changes()?;
        let own = of_collection(&changes.entries, collection);
        Ok(own.map(|(entry, target)| (entry.key.clone(), *target)).collect())
    }
}

impl Changes {
    fn set_entry(&mut self, entry: Entry, target: Option<Oid>) {
        let is_new = |target: &Oid| target.is_temporary();
        if let Some(target) = target.filter(is_new) {
            *self.named.entry(target).or_default() += 1;
        }
        if let Some(replaced) = self.entries.insert(entry, target).flatten().filter(is_new)
            && let Some(count) = self.named.get_mut(&replaced)
        {
            *count -= 1;
            if *count == 0 {
                self.named.remove(&replaced);
            }
        }
    }

    /// The directory in which this transaction names a new one.
    fn parent_of(&self, new: Oid) -> Option<Oid> {
        // A tree that is made from its leaves up has no name yet.
        self.named.get(&new)?;
        self.entries.iter().find(|(_, target)| **target == Some(new)).map(|(entry, _)| entry.collection)
    }

    /// Places a new object at the logical node of the directory that names it, unless it has a placement hint. A directory in the root
    /// goes where the client creates objects: otherwise all named objects of a space would be at the logical node of its root.
    fn place_in(&mut self, directory: Oid, target: Oid, root: Oid) {
        let is_directory = matches!(self.writes.get(&target), Some(Some(object)) if object.kind == Kind::Directory);
        let near = match directory.is_temporary() {
            true => self.hints.get(&directory).copied().unwrap_or_default(),
            false if directory == root && is_directory => PlacementHint::Anywhere,
            false => PlacementHint::At(directory.page().node),
        };
        if let Some(hint @ PlacementHint::Anywhere) = self.hints.get_mut(&target) {
            *hint = near;
        }
    }

    /// The changed entries with permanent identifiers instead of temporary ones.
    pub(super) fn entries_with(&self, real: &BTreeMap<Oid, Oid>) -> Result<BTreeMap<Entry, Option<Oid>>> {
        let find = |oid: Oid| match oid.is_temporary() {
            false => Ok(oid),
            true => real.get(&oid).copied().ok_or_else(|| temporary_error(oid)),
        };
        // What a collection has that was created and deleted again is not written.
        let is_written = |entry: &&Entry| !entry.collection.is_temporary() || real.contains_key(&entry.collection);
        let entries = self.entries.iter().filter(|(entry, _)| is_written(entry));
        entries
            .map(|(Entry { collection, key }, target)| {
                let entry = Entry { collection: find(*collection)?, key: key.clone() };
                Ok((entry, target.map(find).transpose()?))
            })
            .collect()
    }
}

fn second_name_error(directory: Oid) -> Error {
    let what = format!("{directory} is a directory, which has one name only: rename it instead");
    Error::new(ErrorKind::Invalid, what)
}

/// A request for entries after a key.
pub(super) fn first_portion(collection: Oid, after: Option<EntryKey>, prefix: Bytes, limit: u32) -> ListEntries {
    let limit = limit.min(limits::LISTING as u32);
    ListEntries { collection, after, prefix, limit, reverse: false, kinds: false, passes_damage: false }
}

/// The name that is the key of an entry of a directory.
pub(super) fn name_of(key: &EntryKey) -> Result<&str> {
    key.to_name().ok_or_else(|| {
        let what = format!("the entry {key:?} is not a name: its collection is a set, or is damaged");
        Error::new(ErrorKind::Invalid, what)
    })
}
