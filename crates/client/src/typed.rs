//! Transactions over structs: `#[derive(Persistent)]`, [`Ref`], [`Loaded`].
//!
//! The terms are those of JDO: *identity* (a transaction has one struct for each object), *dirty tracking* (the commit finds
//! the structs that were changed), *persistence by reachability* (a draft to which a persistent object refers becomes persistent).
//!
//! A new object gets its real identifier at once, in a page that is leased to the transaction. So its [`Ref`] stays valid after the
//! commit.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::persistent::{Persistent, Ref};
use bytes::Bytes;
use indexmap::map::Entry;
use model::{ClassId, Error, ErrorKind, Kind, NodeId, Object, Oid, RecordRef, Result, ValueRef};
use protocol::locks::LockMode;
use protocol::page_cache::DerivedValue;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema;

use super::Client;
use super::client_core::{Core, unexpected_answer_error};
use super::driver::ReadRequest;
use super::loaded::{
    AnyStructEntry, DecodedStruct, Loaded, LoadedMut, SharedStruct, StructEntry, being_read_error, decode,
};
use super::transaction::{Changes, Inner, IsolationLevel, MAX_PAGE_BYTES, PlacementHint, Transaction};

// ---------------------------------------------------------------------------------------------- outside of transactions

impl Client {
    /// Defines the class of a struct in the space, with the classes that it extends and refers to, and their indexes. Missing
    /// classes are created; existing ones get the fields and indexes that they lack. A program calls this when it starts; if
    /// nothing is missing, nothing changes. With a unique index for objects that exist it takes until their values are bound.
    ///
    /// Fields and classes that the program does not know stay as they are. So programs of different versions work on the same
    /// objects: an older one keeps fields that it does not know, and a newer one reads older records with defaults.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], with the reason, if a class cannot be changed to what the program needs: nothing was changed then.
    pub async fn define<T: Persistent>(&self) -> Result<()> {
        let classes = crate::persistent::Classes::of::<T>();
        self.core.define(&classes).await?;
        let building = self.core.building_indexes(&classes.iter().map(|class| class.name).collect());
        if building.is_empty() {
            return Ok(());
        }
        match self.complete_unique_indexes(building).await {
            // It may use the classes, and others complete the indexes.
            Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
            completed => completed,
        }
    }

    /// Removes a class that has no objects, and that no other class, index or field needs. Meanwhile bricks refuse objects of it, which wait.
    /// Its number is never given again; a class that is defined with its name later is another one.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it has objects, [`ErrorKind::Invalid`] if something needs it, [`ErrorKind::NotFound`] if there is no such
    /// class: nothing was removed then.
    pub async fn remove_class(&self, name: &str) -> Result<()> {
        let remove = schema::RemoveClass { name: name.to_owned(), cancel: false };
        let request = Some(schema::describe::Request::RemoveClass(remove));
        let describe = Request::Describe(Box::new(schema::Describe { space: String::new(), request }));
        let (Response::Described(_), _) = self.core.ask(describe).await? else {
            return Err(unexpected_answer_error());
        };
        self.core.refresh_classes().await
    }

    /// Reads an object outside of transactions, from the nearest copy, as a struct. `None` if there is no such object.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is of another class.
    pub async fn read<T: Persistent>(&self, reference: Ref<T>) -> Result<Option<T>> {
        let oid = reference.oid();
        let shape = self.core.mapping_of::<T>(oid).await?;
        let object = self.core.get(oid).await?;
        object.map(|object| decode(oid, &object, &shape)).transpose()
    }

    /// Decodes an object as a struct.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is of another class.
    pub async fn decode<T: Persistent>(&self, oid: Oid, object: &Object) -> Result<T> {
        decode(oid, object, &*self.core.mapping_of::<T>(oid).await?)
    }
}

// ---------------------------------------------------------------------------------------------- loading

impl Transaction {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Loads an object to read it. An object that is not cached is fetched; objects that it refers to are not.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such object, [`ErrorKind::Invalid`] if it is of another class, or if this transaction
    /// has a [`LoadedMut`] of it; else as [`Transaction::get`].
    pub async fn load<T: Persistent>(&self, reference: Ref<T>) -> Result<Loaded<T>> {
        let oid = reference.oid();
        let loaded = match self.load_available(oid)? {
            Some(loaded) => Some(loaded),
            None => Box::pin(self.load_missing(oid)).await?,
        };
        loaded.ok_or_else(|| not_found_error::<T>(oid))
    }

    /// Loads an object to change it: the commit writes the changes. At the level [`IsolationLevel::Locks`] it is locked exclusively.
    ///
    /// # Errors
    /// As [`Transaction::load`]; also [`ErrorKind::Invalid`] if this transaction has a [`Loaded`] of it.
    pub async fn load_mut<T: Persistent>(&self, reference: Ref<T>) -> Result<LoadedMut<T>> {
        self.check_writable()?;
        let oid = reference.oid();
        // As in `load`. A lock has to be exclusive first.
        if self.inner.level != IsolationLevel::Locks
            && let Some(own) = self.with_entry(oid, |entry: &StructEntry<T>| entry.change(oid))?
        {
            return own;
        }
        let entry = Box::pin(self.struct_entry::<T>(oid, LockMode::Exclusive)).await?;
        entry.ok_or_else(|| not_found_error::<T>(oid))?.change(oid)
    }

    /// Loads an object to read it; `None` if there is no such object.
    ///
    /// # Errors
    /// As [`Transaction::load`], except [`ErrorKind::NotFound`].
    pub async fn try_load<T: Persistent>(&self, reference: Ref<T>) -> Result<Option<Loaded<T>>> {
        let oid = reference.oid();
        match self.load_available(oid)? {
            Some(loaded) => Ok(Some(loaded)),
            None => Box::pin(self.load_missing(oid)).await,
        }
    }

    /// Loads an object that is not [available](Transaction::load_available). Its future is large, so callers box it: theirs, which most
    /// loads of a program that navigates do not need, would be as large, and be moved at each load.
    async fn load_missing<T: Persistent>(&self, oid: Oid) -> Result<Option<Loaded<T>>> {
        match self.inner.level {
            IsolationLevel::Optimistic | IsolationLevel::Snapshot => self.load_shared(oid).await,
            IsolationLevel::Locks => {
                self.struct_entry::<T>(oid, LockMode::Shared).await?.map(|slot| slot.read(oid)).transpose()
            }
        }
    }

    /// Loads an object that this transaction has as a struct already, or the cache has, without a call that waits.
    fn load_available<T: Persistent>(&self, oid: Oid) -> Result<Option<Loaded<T>>> {
        let Inner { core, txn, level, .. } = &*self.inner;
        let changes = &mut *self.changes()?;
        if let Some(entry) = changes.loaded.get(&oid) {
            let own = (&**entry as &dyn Any).downcast_ref::<StructEntry<T>>();
            return own.map(|entry| entry.read(oid)).transpose();
        }
        if let Some(entry) = changes.shared.get(&oid) {
            return Ok(entry.clone().downcast::<SharedStruct<T>>().ok().map(|shared| shared.read(oid)));
        }
        if *level == IsolationLevel::Locks || changes.has_written(oid) {
            return Ok(None);
        }
        let read = ReadRequest { txn: *txn, level: *level, oid, mode: LockMode::Shared };
        let derived = core.read_derived(&read)?.and_then(|derived| derived.downcast::<DecodedStruct<T>>().ok());
        let Some(decoded) = derived.filter(|decoded| core.classes.is_current(&decoded.mapping)) else {
            return Ok(None);
        };
        changes.read_nodes.insert(oid.page().node);
        let shared = Arc::new(SharedStruct { decoded });
        changes.shared.insert(oid, shared.clone());
        Ok(Some(shared.read(oid)))
    }

    /// Loads an object that the cache does not have as a struct, and keeps the struct there.
    async fn load_shared<T: Persistent>(&self, oid: Oid) -> Result<Option<Loaded<T>>> {
        let core = self.core();
        let mapping = core.mapping_of::<T>(oid).await?;
        loop {
            if self.changes()?.has_written(oid) {
                return self.struct_entry::<T>(oid, LockMode::Shared).await?.map(|slot| slot.read(oid)).transpose();
            }
            let Some(object) = self.get(oid).await? else { return Ok(None) };
            let decoded = DecodedStruct::<T>::of(oid, object, mapping.clone())?;
            let Some(loaded) = self.share(oid, &decoded)? else { continue };
            if !T::HAS_SKIPPED_FIELDS {
                let derived = DerivedValue { value: decoded.clone(), bytes: decoded.memory_size() };
                core.attach(oid, &decoded.object, derived)?;
            }
            return Ok(Some(loaded));
        }
    }

    /// Makes a struct that of an object in this transaction. `None` if another task has written the object meanwhile.
    fn share<T: Persistent>(&self, oid: Oid, decoded: &Arc<DecodedStruct<T>>) -> Result<Option<Loaded<T>>> {
        let changes = &mut *self.changes()?;
        if changes.has_written(oid) {
            return Ok(None);
        }
        if let Some(entry) = changes.shared.get(&oid) {
            // Another task has loaded it meanwhile.
            if let Ok(shared) = entry.clone().downcast::<SharedStruct<T>>() {
                return Ok(Some(shared.read(oid)));
            }
            // As a struct of another type.
            changes.forget_shared(oid)?;
        }
        let shared = Arc::new(SharedStruct { decoded: decoded.clone() });
        changes.shared.insert(oid, shared.clone());
        Ok(Some(shared.read(oid)))
    }

    /// Loads many objects to read them, in this order. Those that are not cached are fetched together; at the level
    /// [`IsolationLevel::Locks`] they are locked, up to 64 at a time.
    ///
    /// # Errors
    /// As [`Transaction::load`].
    pub async fn load_all<T: Persistent>(
        &self,
        references: impl IntoIterator<Item = Ref<T>>,
    ) -> Result<Vec<Loaded<T>>> {
        let references: Vec<Ref<T>> = references.into_iter().collect();
        let oids: Vec<Oid> = references.iter().copied().map(Oid::from).collect();
        self.read_ahead(&oids, LockMode::Shared).await?;
        let mut loaded = Vec::with_capacity(references.len());
        for reference in references {
            loaded.push(self.load(reference).await?);
        }
        Ok(loaded)
    }

    /// The object that a name is bound to.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is of another class; else as [`Transaction::get`].
    pub async fn resolve_ref<T: Persistent>(&self, path: &str) -> Result<Option<Ref<T>>> {
        let Some(oid) = self.resolve(path).await? else { return Ok(None) };
        self.core().mapping_of::<T>(oid).await?;
        Ok(Some(Ref::new(oid)))
    }

    /// The transaction's own struct of an object, loaded if necessary; `None` if there is no such object.
    async fn struct_entry<T: Persistent>(&self, oid: Oid, mode: LockMode) -> Result<Option<Arc<StructEntry<T>>>> {
        let shape = self.core().mapping_of::<T>(oid).await?;
        self.changes()?.own_shared::<T>(oid)?;
        let known = self.known_entry::<T>(oid)?;
        if let Some(slot) = &known
            && (slot.is_new() || mode == LockMode::Shared || self.inner.level != IsolationLevel::Locks)
        {
            return Ok(known);
        }
        let object = match mode {
            LockMode::Shared | LockMode::Touch => self.get(oid).await?,
            LockMode::Patch | LockMode::Exclusive => self.get_for_update(oid).await?,
        };
        // The struct that was loaded before is current, because the object is locked.
        if known.is_some() {
            return Ok(known);
        }
        let Some(object) = object else { return Ok(None) };
        let slot = StructEntry::<T>::of(oid, object, shape)?;
        loop {
            {
                let changes = &mut *self.changes()?;
                changes.forget_shared(oid)?;
                if let Entry::Vacant(place) = changes.loaded.entry(oid) {
                    place.insert(slot.clone());
                    return Ok(Some(slot));
                }
            }
            // Another task has loaded it meanwhile.
            if let Some(known) = self.known_entry::<T>(oid)? {
                return Ok(Some(known));
            }
        }
    }

    /// Calls `with` for the struct of an object that the transaction has already, if it is of this type.
    fn with_entry<T: Persistent, R>(&self, oid: Oid, with: impl FnOnce(&StructEntry<T>) -> R) -> Result<Option<R>> {
        let changes = self.changes()?;
        let known = changes.loaded.get(&oid).map(|entry| &**entry as &dyn Any);
        Ok(known.and_then(|entry| entry.downcast_ref()).map(with))
    }

    /// The struct of an object that the transaction has already. One of another type is flushed and removed.
    fn known_entry<T: Persistent>(&self, oid: Oid) -> Result<Option<Arc<StructEntry<T>>>> {
        let mut changes = self.changes()?;
        let Some(slot) = changes.loaded.get(&oid).cloned() else { return Ok(None) };
        let any: Arc<dyn Any + Send + Sync> = slot.clone();
        if let Ok(same) = any.downcast::<StructEntry<T>>() {
            return Ok(Some(same));
        }
        slot.retire(oid)?;
        changes.loaded.swap_remove(&oid);
        if let Some(object) = slot.flush(oid)? {
            changes.drafts.remove(&oid);
            changes.writes.insert(oid, Some(object));
        }
        Ok(None)
    }

    // -------------------------------------------------------------------------------------------- creating and removing

    /// Creates an object. Its reference can be used at once and stays valid after the commit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the class has a required field that the struct does not know; [`ErrorKind::TooLarge`];
    /// [`ErrorKind::NotFound`] if the space does not have the class: [`Client::define`] creates it.
    pub async fn create<T: Persistent>(&self, value: T) -> Result<Ref<T>> {
        self.create_with(value, PlacementHint::Anywhere).await
    }

    /// Creates an object at a given place.
    ///
    /// # Errors
    /// As [`Transaction::create`].
    pub async fn create_with<T: Persistent>(&self, value: T, hint: PlacementHint) -> Result<Ref<T>> {
        self.create_entry(value, hint, false).await
    }

    /// Makes a draft: an object that the commit creates only if it is reachable, by references, from a name or another object that
    /// the transaction writes.
    ///
    /// # Errors
    /// As [`Transaction::create`].
    pub async fn draft<T: Persistent>(&self, value: T) -> Result<Ref<T>> {
        self.create_entry(value, PlacementHint::Anywhere, true).await
    }

    async fn create_entry<T: Persistent>(&self, value: T, hint: PlacementHint, is_draft: bool) -> Result<Ref<T>> {
        self.check_writable()?;
        let shape = self.core().mapping::<T>().await?;
        shape.layout.check_complete()?;
        let record = Object::record(shape.layout.class(), value.to_record(&shape.layout, None)?);
        record.check()?;
        let oid = self.place(record.class, record.data.len(), hint).await?;
        let mut changes = self.changes()?;
        changes.loaded.insert(oid, StructEntry::new(value, shape));
        if is_draft {
            changes.drafts.insert(oid);
        }
        Ok(Ref::new(oid))
    }

    /// Assigns the identifier of a record of a class that [`Transaction::create_record`] is to create, of about `len` bytes. Unlike the
    /// identifiers of [`Transaction::create_object`] it is permanent, so other objects and programs can refer to it before the commit. It
    /// means nothing if the transaction does not commit.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the hint names a logical node that the space does not have; [`ErrorKind::Unsupported`] in a group snapshot;
    /// [`ErrorKind::Unavailable`] if no place can be reserved in time.
    pub async fn allocate(&self, class: ClassId, len: usize, hint: PlacementHint) -> Result<Oid> {
        self.check_writable()?;
        let oid = self.place(class, len, hint).await?;
        self.changes()?.allocated.insert(oid);
        Ok(oid)
    }

    /// Creates a record under an identifier that [`Transaction::allocate`] has assigned in this transaction.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for another identifier, or a record that cannot be stored; [`ErrorKind::TooLarge`].
    pub fn create_record(&self, oid: Oid, record: Bytes) -> Result<()> {
        if !self.changes()?.allocated.contains(&oid) {
            let what = format!("{oid} was not allocated in this transaction: an object that exists is replaced");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        self.write(oid, Some(Object::record(oid.class(), record)))
    }

    /// Assigns the identifier of a new object.
    async fn place(&self, class: ClassId, len: usize, hint: PlacementHint) -> Result<Oid> {
        let node: Option<NodeId> = match hint {
            PlacementHint::Anywhere => None,
            PlacementHint::At(node) => Some(node),
            PlacementHint::Near(other) => {
                if let Some(room) = self.changes()?.page_lease.open_page_at(other.page(), len) {
                    return Ok(room.place(class, len));
                }
                if let Some(place) = self.place_near(class, other, len, &BTreeMap::new()).await? {
                    return Ok(place);
                }
                Some(other.page().node).filter(|_| !other.is_temporary())
            }
        };
        if let Some(node) = node
            && !self.core().nodes.contains(&node)
        {
            let what = format!("the space has no logical node {:x}: nothing can be created there", node.0);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let is_at_home = node.is_none();
        let mut node = node.map_or_else(|| self.home(), Ok)?;
        loop {
            if let Some(room) = self.changes()?.page_lease.open_page(node, len) {
                return Ok(room.place(class, len));
            }
            match self.core().page_source.lease(self.core(), node, len).await {
                Ok(room) => self.changes()?.page_lease.add(room),
                Err(error) if is_at_home => node = self.leave_home(node, &self.core().unavailable_nodes()?, error)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes an object. References to it remain; loading one of them is an error.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist; else as [`Transaction::load_mut`].
    pub async fn remove<T: Persistent>(&self, reference: Ref<T>) -> Result<()> {
        self.check_writable()?;
        let oid = reference.oid();
        let slot = self.struct_entry::<T>(oid, LockMode::Exclusive).await?.ok_or_else(|| not_found_error::<T>(oid))?;
        slot.retire(oid)?;
        let mut changes = self.changes()?;
        changes.loaded.swap_remove(&oid);
        changes.drafts.remove(&oid);
        match slot.is_new() {
            // An object that was created and removed again is not written.
            true => drop(changes.writes.remove(&oid)),
            false => drop(changes.writes.insert(oid, None)),
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        match self.inner.level {
            IsolationLevel::Snapshot => Err(read_only_error()),
            IsolationLevel::Optimistic | IsolationLevel::Locks => Ok(()),
        }
    }

    // -------------------------------------------------------------------------------------------- what was changed

    /// Encodes the structs that were changed as records, which [`Transaction::get`] and queries see. A commit does this too.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is a [`LoadedMut`] of one of them, [`ErrorKind::TooLarge`].
    pub fn flush(&self) -> Result<()> {
        let mut changes = self.changes()?;
        let slots: Vec<(Oid, Arc<dyn AnyStructEntry>)> =
            changes.non_drafts().map(|(oid, slot)| (*oid, slot.clone())).collect();
        for (oid, slot) in slots {
            let Some(object) = slot.flush(oid)? else { continue };
            // A change that was reverted is no change.
            if slot.is_as_loaded(&object) && !changes.writes.contains_key(&oid) {
                continue;
            }
            if !slot.is_new() {
                self.check_page_size(oid, &object).inspect_err(|_| slot.touch())?;
            }
            changes.writes.insert(oid, Some(object));
        }
        Ok(())
    }

    /// Flushes all structs, and the drafts that are reachable.
    pub(super) fn flush_reachable(&self) -> Result<()> {
        self.flush()?;
        let mut changes = self.changes()?;
        changes.persist_reachable()?;
        changes.check_pages()
    }
}

impl Changes {
    /// Whether the transaction has written an object, or has a struct of its own of it.
    fn has_written(&self, oid: Oid) -> bool {
        self.writes.contains_key(&oid) || self.patches.contains_key(&oid) || self.loaded.contains_key(&oid)
    }

    /// Makes the shared struct of an object the transaction's own, so that it can be changed.
    fn own_shared<T: Persistent>(&mut self, oid: Oid) -> Result<()> {
        if let Some(entry) = self.forget_shared(oid)?
            && let Ok(shared) = entry.downcast::<SharedStruct<T>>()
        {
            let DecodedStruct { object, mapping, .. } = &*shared.decoded;
            self.loaded.insert(oid, StructEntry::<T>::of(oid, object.clone(), mapping.clone())?);
        }
        Ok(())
    }

    /// Removes and returns the shared struct of an object, if there is one. It must not be borrowed now.
    fn forget_shared(&mut self, oid: Oid) -> Result<Option<Arc<dyn Any + Send + Sync>>> {
        match self.shared.get(&oid) {
            Some(entry) if Arc::strong_count(entry) > 1 => Err(being_read_error(oid)),
            Some(_) => Ok(self.shared.remove(&oid)),
            None => Ok(None),
        }
    }

    /// The structs that are not drafts.
    fn non_drafts(&self) -> impl Iterator<Item = (&Oid, &Arc<dyn AnyStructEntry>)> {
        self.loaded.iter().filter(|(oid, _)| !self.drafts.contains(oid))
    }

    /// Flushes the struct of an object, if there is one. Returns the object if it is a draft.
    pub(super) fn flush_one(&mut self, oid: Oid) -> Result<Option<Object>> {
        let Some(slot) = self.loaded.get(&oid) else { return Ok(None) };
        if self.drafts.contains(&oid) {
            return slot.object(oid).map(Some);
        }
        if let Some(object) = slot.flush(oid)? {
            self.writes.insert(oid, Some(object));
        }
        Ok(None)
    }

    /// Removes the struct of an object, which the transaction writes as a record.
    pub(super) fn forget_struct(&mut self, oid: Oid) -> Result<()> {
        self.forget_shared(oid)?;
        if let Some(slot) = self.loaded.get(&oid) {
            slot.retire(oid)?;
            self.loaded.swap_remove(&oid);
            self.drafts.remove(&oid);
        }
        Ok(())
    }

    /// Makes drafts persistent that are reachable from persistent objects, and drops the others.
    fn persist_reachable(&mut self) -> Result<()> {
        let mut reached: Vec<Oid> = Vec::new();
        if !self.drafts.is_empty() {
            reached.extend(self.entries.values().flatten());
            for object in self.writes.values().flatten() {
                reached.extend(references(object)?);
            }
        }
        while let Some(oid) = reached.pop() {
            let Some(slot) = self.loaded.get(&oid).filter(|_| self.drafts.contains(&oid)) else { continue };
            let object = slot.object(oid)?;
            object.check()?;
            self.drafts.remove(&oid);
            reached.extend(references(&object)?);
            self.writes.insert(oid, Some(object));
        }
        self.drafts.clear();
        Ok(())
    }

    /// Checks that the new objects of each page fit into one page.
    fn check_pages(&self) -> Result<()> {
        let mut pages: BTreeMap<_, usize> = BTreeMap::new();
        for (oid, slot) in &self.loaded {
            if let Some(Some(object)) = self.writes.get(oid)
                && slot.is_new()
            {
                let bytes = pages.entry(oid.page()).or_default();
                *bytes += object.data.len();
                if *bytes > MAX_PAGE_BYTES {
                    let what =
                        format!("{oid} and other new objects in its page have grown beyond {MAX_PAGE_BYTES} bytes");
                    return Err(Error::new(ErrorKind::TooLarge, what + ": create large objects with their final size"));
                }
            }
        }
        Ok(())
    }
}

/// The references in an object.
pub(super) fn references(object: &Object) -> Result<Vec<Oid>> {
    let mut found = Vec::new();
    if object.kind == Kind::Record {
        for field in RecordRef::new(&object.data)?.fields() {
            collect_references(field?.1, &mut found)?;
        }
    }
    Ok(found)
}

/// The references in a value.
pub(super) fn collect_references(value: ValueRef<'_>, found: &mut Vec<Oid>) -> Result<()> {
    match value {
        ValueRef::Reference(oid) => found.push(oid),
        ValueRef::List(elements) | ValueRef::Set(elements) => {
            for element in elements.iter() {
                collect_references(element?, found)?;
            }
        }
        ValueRef::Map(entries) => {
            for entry in entries.iter() {
                let (key, value) = entry?;
                collect_references(key, found)?;
                collect_references(value, found)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn not_found_error<T: Persistent>(oid: Oid) -> Error {
    let what = format!("there is no {} {oid}: it was removed, or never created", T::CLASS);
    Error::new(ErrorKind::NotFound, what)
}

/// The error of a write in a group snapshot.
pub(super) fn read_only_error() -> Error {
    Error::new(ErrorKind::Invalid, "a group snapshot cannot write: begin an optimistic transaction")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{FieldNumber, PageId, RecordBuilder, SpaceId, Value};

    use super::*;

    /// A draft becomes persistent by a reference, wherever that stands in a record.
    #[test]
    fn references_are_found_in_fields_and_in_elements_keys_and_values_at_any_depth() {
        let page = PageId { space: SpaceId(1), node: NodeId(3), number: 7 };
        let oids: Vec<Oid> = (0..5).map(|slot| Oid::new(ClassId(1), page, slot)).collect();
        let [field, element, member, key, value] = [0, 1, 2, 3, 4].map(|at| Value::Reference(oids[at]));
        let map = Value::Map(BTreeMap::from([(key, Value::List(vec![value]))]));
        let mut record = RecordBuilder::new();
        let list = Value::List(vec![element, Value::Set(BTreeSet::from([member]))]);
        for (number, value) in (1..).zip([field, list, map, Value::String("no reference".to_owned())]) {
            record.set_value(FieldNumber(number), &value).unwrap();
        }
        let mut found = references(&Object::record(ClassId(1), record.build().unwrap())).unwrap();
        found.sort();
        assert_eq!(found, oids);
        assert_eq!(references(&Object::blob("no record".into())).unwrap(), []);
    }
}
