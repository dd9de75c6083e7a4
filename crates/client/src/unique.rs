//! Unique indexes: values that no two objects may have.
//!
//! Who has the values of a unique index is kept as entries, spread over the logical nodes of the space by the values
//! ([`protocol::entries::unique_entry`]). A transaction that gives an object such values binds each of them to the object, if nothing else is bound
//! to it; what an object has no more, it unbinds. So of two transactions that give the same values one
//! conflicts, and a transaction has at most one more participant for each value that it gives or takes away. A brick refuses values of a
//! transaction that does not say that it has done so; a client that does not know the index then fetches the classes and indexes, and
//! begins again.
//!
//! Values that a transaction only gives are not looked up before: it *claims* them ([`protocol::entries::unbound_key`]), and the brick
//! that binds them looks them up. So they cost no message. If the commit is refused because of one, the client finds out whether
//! another object has it, and looks it up first from then on; a transaction with locks then waits for others that change it.
//!
//! 1. An entry tells who had the values last. Before it forbids anything, that object is read: it may have been changed or removed by
//!    a client that did not know the index.
//! 2. Values of objects from before the index are not bound: [`completion`].
//! 3. A query for such values is a look-up: [`look_up`].
//! 4. A scrub compares objects with their entries: [`check`].

pub(crate) mod check;
mod completion;
mod look_up;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{ClassId, Entry, EntryKey, Error, ErrorKind, FieldNumber, Kind, Object, Oid, RecordRef, Result, ValueRef};
use protocol::entries::{
    entry_guard, index_of_values, key_guard, unbound_key, unique_entry, unique_key, unique_question,
};
use protocol::ident::HlcTimestamp;
use protocol::locks::LockMode;
use query::Schema;
use query::key::IndexEntry;
use tokio::time;
use wire::proto::schema;

use super::client_core::Core;
use super::concurrent::concurrently;
use super::outcome::{CommitOutcome, ConflictReason};
use super::rows::ReadSet;
use super::transaction::{Changes, IsolationLevel, Transaction};
use crate::plant::{Bug, planted};

/// Values that are remembered because another object had them, or was given them at the same time.
const MAX_CONTESTED: usize = 4_096;
/// The pause before a brick is asked again that does not know an index.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// A unique index: fields of a class and its subclasses in which no two objects have the same values.
#[derive(Debug)]
pub(super) struct UniqueIndex {
    id: u32,
    name: String,
    class: String,
    family: Arc<BTreeSet<ClassId>>,
    fields: Vec<FieldNumber>,
    /// Objects from before the index may have no entries.
    is_building: bool,
}

impl UniqueIndex {
    /// The index, if its class is in the schema.
    pub(super) fn from_proto(message: schema::Unique, schema: &Schema) -> Option<Self> {
        let class = ClassId(message.class);
        Some(Self {
            id: message.id,
            name: message.name,
            class: schema.class(class)?.name.clone(),
            family: schema.family(class),
            fields: message.fields.into_iter().map(FieldNumber).collect(),
            is_building: message.building,
        })
    }

    /// The key of a record's values; none with a null, which equals nothing.
    fn key(&self, object: &Object) -> Result<Option<Vec<u8>>> {
        if object.kind != Kind::Record {
            return Ok(None);
        }
        let IndexEntry { key, has_null } = IndexEntry::of(&RecordRef::new(&object.data)?, &self.fields)?;
        Ok(Some(key).filter(|_| !has_null))
    }

    /// Whether an object to which values were bound under this key has them still. It may be of a class that this client does not know.
    fn has_values(&self, object: Option<&Object>, bound: &EntryKey) -> Result<bool> {
        let key = object.map(|object| self.key(object)).transpose()?.flatten();
        let is_same = key.is_some_and(|key| unique_key(&key).is_ok_and(|key| key == *bound));
        Ok(is_same && !planted(Bug::UniqueConflictMissed))
    }

    /// The entry of an object's values. An object of another class has none.
    fn entry(&self, core: &Core, object: Option<&Object>) -> Result<Option<Entry>> {
        let object = object.filter(|object| self.family.contains(&object.class));
        let key = object.map(|object| self.key(object)).transpose()?.flatten();
        key.map(|key| unique_entry(core.space, &core.nodes, self.id, &key)).transpose()
    }

    /// Whether an object's values refer to new objects by temporary identifiers.
    fn has_temporary_values(&self, object: &Object) -> Result<bool> {
        let record = RecordRef::new(&object.data)?;
        for number in &self.fields {
            if let Some(ValueRef::Reference(oid)) = record.field(*number)?
                && oid.is_temporary()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn taken_error(&self, holder: Oid) -> Error {
        let what = format!("{holder} has the same values already, and index {:?} is unique", self.name);
        Error::new(ErrorKind::Exists, what).about(holder)
    }
}

/// Values because of which a commit was refused. They are looked up before the next one that gives them.
#[derive(Debug, Default)]
pub(super) struct ContestedValues(Mutex<BTreeSet<Entry>>);

impl ContestedValues {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Entry>> {
        // The set is consistent between statements, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, entry: &Entry) -> bool {
        self.lock().contains(entry)
    }

    fn add(&self, entry: Entry) {
        let mut entries = self.lock();
        if entries.len() >= MAX_CONTESTED {
            entries.clear();
        }
        entries.insert(entry);
    }
}

/// A change of the values that an object has in a unique index.
struct ChangedValues<'k> {
    oid: Oid,
    index: &'k Arc<UniqueIndex>,
    before: Option<Entry>,
    after: Option<Entry>,
    has_temporary: bool,
}

/// Values that a transaction binds to an object, and that are bound to no other one as far as it knows.
#[derive(Debug)]
pub(super) struct Claim {
    oid: Oid,
    index: Arc<UniqueIndex>,
    entry: Entry,
}

/// What a transaction has bound.
#[derive(Debug, Default)]
pub(super) struct BoundValues {
    /// What it has not looked up.
    pub(super) claims: Vec<Claim>,
    /// The objects that gain values of unique indexes, with the numbers of the indexes.
    gained: Vec<(Oid, u32)>,
    /// Some of the values are temporary identifiers: they are bound again when the real ones are known.
    has_temporary: bool,
}

impl Core {
    /// Whether the schema of this client has all of these classes. Objects without a class need none.
    fn knows_all(&self, mut classes: impl Iterator<Item = ClassId>) -> bool {
        let schema = self.classes.schema();
        classes.all(|class| class == ClassId::NONE || schema.class(class).is_some())
    }

    /// The unique indexes of the space; fetched anew if classes were not known.
    async fn unique_indexes(&self, are_known: bool) -> Result<Arc<[Arc<UniqueIndex>]>> {
        if !are_known {
            match self.refresh_classes().await {
                // A cluster without a catalogue has no indexes.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                refreshed => refreshed?,
            }
        }
        Ok(self.classes.unique())
    }
}

impl Transaction {
    /// Looks up the unique values that this transaction gives to objects, and binds them; unbinds those that it takes away.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if another object has one of them; else as [`Transaction::get`].
    pub(super) async fn bind_unique_values(&self) -> Result<BoundValues> {
        let are_known = self.core().knows_all(self.changes()?.writes.keys().map(|oid| oid.class()));
        let known = self.core().unique_indexes(are_known).await?;
        self.changes()?.forget_unique_entries();
        let changed = self.changed_values(&known).await?;
        let (claimed, looked_up) = self.part_claims(&changed);
        concurrently(&looked_up, |one| self.look_up_change(one)).await?;
        let mut bound = BoundValues { claims: self.claim(&claimed)?, ..BoundValues::default() };
        for ChangedValues { oid, index, after, has_temporary, .. } in changed {
            if let Some(entry) = after {
                self.changes()?.set_unique_entry(entry, Some(oid));
                bound.gained.push((oid, index.id));
                bound.has_temporary |= has_temporary;
            }
        }
        Ok(bound)
    }

    /// Parts the changes that this transaction may claim from those that it looks up: what it takes away, what another object may still have
    /// within it, and what is not final.
    fn part_claims<'c, 'k>(
        &self,
        changed: &'c [ChangedValues<'k>],
    ) -> (Vec<&'c ChangedValues<'k>>, Vec<&'c ChangedValues<'k>>) {
        let lost: BTreeSet<&Entry> = changed.iter().filter_map(|one| one.before.as_ref()).collect();
        let is_claimed = |one: &&ChangedValues<'_>| {
            let after = one.after.as_ref().filter(|_| one.before.is_none() && !one.has_temporary);
            after.is_some_and(|after| !lost.contains(after) && !self.core().contested.contains(after))
        };
        changed.iter().partition(is_claimed)
    }

    /// Says that values are bound to no object. Each is looked up by the brick that binds it; the transaction conflicts if the index is
    /// dropped.
    fn claim(&self, claimed: &[&ChangedValues<'_>]) -> Result<Vec<Claim>> {
        let (mut reads, mut claims) = (Vec::new(), Vec::new());
        for ChangedValues { oid, index, after, .. } in claimed {
            let Some(entry) = after else { continue };
            let collection = entry.collection;
            reads.push(unbound_key(collection, &entry.key));
            reads.push(unique_question(collection.space(), collection.page().node, index.id));
            claims.push(Claim { oid: *oid, index: Arc::clone(index), entry: entry.clone() });
        }
        if !reads.is_empty() {
            self.rely(ReadSet { reads, at: HlcTimestamp::ZERO })?;
        }
        Ok(claims)
    }

    /// The outcome of a commit that was refused because of a claim.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if another object has the values.
    pub(super) async fn explain_refusal(&self, claims: &[Claim], outcome: CommitOutcome) -> Result<CommitOutcome> {
        let CommitOutcome::Conflict(ConflictReason::Object(guard, _)) = &outcome else { return Ok(outcome) };
        let Some(Claim { oid, index, entry }) = claims.iter().find(|claim| entry_guard(&claim.entry) == *guard) else {
            return Ok(outcome);
        };
        let core = self.core();
        core.contested.add(entry.clone());
        // An error here is one of finding out only: the transaction has changed nothing, and may be begun again.
        let Ok(found) = core.look_up(entry.collection, std::slice::from_ref(&entry.key)).await else {
            return Ok(outcome);
        };
        let Some(holder) = found.targets.first().copied().filter(|holder| holder != oid) else { return Ok(outcome) };
        match core.read_object(holder, false).await {
            Ok(object) if index.has_values(object.as_ref(), &entry.key)? => Err(index.taken_error(holder)),
            _ => Ok(outcome),
        }
    }

    /// Says to the logical nodes of objects that their unique values are bound, once their real identifiers are known.
    pub(super) async fn rely_on_unique_values(&self, mut bound: BoundValues) -> Result<()> {
        if bound.has_temporary {
            bound = self.bind_unique_values().await?;
        }
        let gained = bound.gained;
        if gained.is_empty() {
            return Ok(());
        }
        let places = gained.into_iter().map(|(oid, index)| (self.real_oid(oid).unwrap_or(oid).page().node, index));
        let places: BTreeSet<_> = places.collect();
        let space = self.core().space;
        let reads = places.into_iter().map(|(node, index)| unique_question(space, node, index)).collect();
        self.rely(ReadSet { reads, at: HlcTimestamp::ZERO })
    }

    /// The objects whose values in unique indexes this transaction changes.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if it gives two objects the same values.
    async fn changed_values<'k>(&self, known: &'k [Arc<UniqueIndex>]) -> Result<Vec<ChangedValues<'k>>> {
        let mut changed = Vec::new();
        if known.is_empty() {
            return Ok(changed);
        }
        let mut holders: BTreeMap<Entry, Oid> = BTreeMap::new();
        let mut written = self.written_records()?;
        written.retain(|(oid, ..)| known.iter().any(|index| index.family.contains(&oid.class())));
        let replaced: Vec<Oid> = written.iter().filter(|(.., is_new)| !is_new).map(|(oid, ..)| *oid).collect();
        if replaced.len() > 1 {
            self.prefetch(replaced).await?;
        }
        for (oid, object, is_new) in written {
            let before = if is_new { None } else { self.read(oid, LockMode::Exclusive).await? };
            for index in known {
                let before = index.entry(self.core(), before.as_ref())?;
                let after = index.entry(self.core(), object.as_ref())?;
                if let Some(after) = &after
                    && let Some(other) = holders.insert(after.clone(), oid)
                {
                    return Err(index.taken_error(other));
                }
                if before != after {
                    let has_temporary =
                        after.is_some() && object.as_ref().map_or(Ok(false), |one| index.has_temporary_values(one))?;
                    changed.push(ChangedValues { oid, index, before, after, has_temporary });
                }
            }
        }
        Ok(changed)
    }

    /// Looks up the values that an object gains and loses: no other object may have the former, and the latter are unbound.
    async fn look_up_change(&self, one: &ChangedValues<'_>) -> Result<()> {
        if let Some(entry) = &one.after {
            self.check_free(one.index, one.oid, entry).await?;
        }
        if let Some(entry) = &one.before
            && self.look_up_holder(entry).await? == Some(one.oid)
        {
            self.changes()?.set_unique_entry(entry.clone(), None);
        }
        Ok(())
    }

    /// Checks that no other object has these values.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if one has; else as [`Transaction::get`].
    async fn check_free(&self, index: &UniqueIndex, oid: Oid, entry: &Entry) -> Result<()> {
        let Some(holder) = self.look_up_holder(entry).await?.filter(|holder| *holder != oid) else { return Ok(()) };
        match index.has_values(self.get(holder).await?.as_ref(), &entry.key)? {
            true => Err(index.taken_error(holder)),
            false => Ok(()),
        }
    }

    /// The object to which values are bound. This transaction changes that, so it locks the guard exclusively.
    async fn look_up_holder(&self, Entry { collection, key }: &Entry) -> Result<Option<Oid>> {
        if self.inner.level == IsolationLevel::Locks {
            self.read(key_guard(*collection, key), LockMode::Exclusive).await?;
        }
        self.look_up_values(*collection, key).await
    }

    /// The object to which values are bound. The transaction conflicts if the index is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the index was dropped, or its brick has not learned of it yet.
    async fn look_up_values(&self, collection: Oid, key: &EntryKey) -> Result<Option<Oid>> {
        let holder = match self.look_up_key(collection, key).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.core().refresh_classes().await?;
                time::sleep(RETRY_DELAY).await;
                return Err(Error::new(ErrorKind::Conflict, error.message().to_owned()));
            }
            found => found?,
        };
        if let Some(index) = index_of_values(collection) {
            let question = unique_question(collection.space(), collection.page().node, index);
            self.rely(ReadSet { reads: vec![question], at: HlcTimestamp::ZERO })?;
        }
        Ok(holder)
    }
}

impl Changes {
    fn set_unique_entry(&mut self, entry: Entry, target: Option<Oid>) {
        self.unique_entries.insert(entry.clone());
        self.entries.insert(entry, target);
    }

    /// Forgets what an earlier try to commit has bound and unbound.
    fn forget_unique_entries(&mut self) {
        for entry in std::mem::take(&mut self.unique_entries) {
            self.entries.remove(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::RecordBuilder;
    use model::planted_bug::is_noticed;

    use super::*;

    fn index() -> UniqueIndex {
        let (class, family) = ("Account".to_owned(), Arc::new([ClassId(5)].into()));
        let fields = vec![FieldNumber(1)];
        UniqueIndex { id: 1, name: "by_owner".to_owned(), class, family, fields, is_building: false }
    }

    fn account(owner: Option<&str>) -> Object {
        let mut record = RecordBuilder::new();
        if let Some(owner) = owner {
            record.set(FieldNumber(1), owner).unwrap();
        }
        Object::record(ClassId(5), record.build().unwrap())
    }

    fn taken_value_is_found() {
        let key = unique_key(&index().key(&account(Some("Ann"))).unwrap().unwrap()).unwrap();
        let is_taken = |by: Option<Object>| index().has_values(by.as_ref(), &key).unwrap();
        assert!(is_taken(Some(account(Some("Ann")))));
        let of_unknown_class = Object::record(ClassId(6), account(Some("Ann")).data);
        assert!(is_taken(Some(of_unknown_class)), "a class below that of the index, for all that is known");
        assert!(!is_taken(Some(account(Some("Bob")))) && !is_taken(Some(account(None))) && !is_taken(None));
    }

    #[test]
    fn value_that_an_object_still_has_is_taken() {
        taken_value_is_found();
        assert!(is_noticed(Bug::UniqueConflictMissed, taken_value_is_found));
    }

    #[test]
    fn object_without_a_value_or_without_fields_has_no_key() {
        assert_eq!(index().key(&account(None)).unwrap(), None);
        assert_eq!(index().key(&Object::blob("Ann".into())).unwrap(), None);
    }
}
