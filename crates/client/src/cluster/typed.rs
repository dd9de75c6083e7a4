//! Transactions over structs: `#[derive(Persistent)]`, [`Ref`], [`Loaded`].
//!
//! The words are those of JDO: *identity* (of each object one struct), *dirty tracking* (what was changed is found at the
//! commit), *persistence by reachability* (a draft that something persistent refers to becomes persistent too).
//!
//! New objects get their real identifiers at once, in a page that the client was lent for this transaction, so a
//! [`Ref`] means the same during the transaction and after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Error, ErrorKind, Kind, NodeId, Object, Oid, RecordRef, Result, ValueRef};
use protocol::locks::LockMode;
use query::persistent::{Persistent, Ref};

use super::classes::StructMapping;
use super::loaded::{AnyStructEntry, Loaded, LoadedMut, StructEntry, decode};
use super::transaction::{Changes, IsolationLevel, MAX_PAGE_BYTES, PlacementHint, Transaction};
use super::{Cluster, core::Core};

// ---------------------------------------------------------------------------------------------- outside of transactions

impl Cluster {
    /// Brings the class of a struct into the space, with all that it extends and refers to, and their indexes: classes that
    /// are not there are made, others get what they lack. A program does this when it starts; nothing happens if all is
    /// there.
    ///
    /// What the program does not know stays as it is. So programs of several ages work on the same objects: older ones
    /// keep what they do not know, newer ones read what older ones wrote with defaults.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if a class cannot become what the program has, with why: nothing was changed then.
    pub async fn define<T: Persistent>(&self) -> Result<()> {
        self.core.define(&query::persistent::Classes::of::<T>()).await
    }

    /// An object outside of any transaction: the nearest copy, as a struct of its own. `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is of another class.
    pub async fn read<T: Persistent>(&self, reference: Ref<T>) -> Result<Option<T>> {
        let oid = reference.oid();
        let shape = self.core.mapping_of::<T>(oid).await?;
        let object = self.core.get(oid).await?;
        object.map(|object| decode(oid, &object, &shape)).transpose()
    }

    /// The struct of an object that was found.
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

    /// An object, to be read. It is fetched if it is not at hand; what it refers to is not.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist (any more), [`ErrorKind::Invalid`] if it is of another class, or being
    /// changed right now by this transaction; else as [`Transaction::get`].
    pub async fn load<T: Persistent>(&self, reference: Ref<T>) -> Result<Loaded<T>> {
        let oid = reference.oid();
        self.struct_entry::<T>(oid, LockMode::Shared).await?.ok_or_else(|| not_found_error::<T>(oid))?.read(oid)
    }

    /// An object, to be changed: what is changed is written when the transaction commits. With locks, it is locked for that
    /// at once.
    ///
    /// # Errors
    /// As [`Transaction::load`]; also if this transaction has it in use in any other way.
    pub async fn load_mut<T: Persistent>(&self, reference: Ref<T>) -> Result<LoadedMut<T>> {
        self.check_writable()?;
        let oid = reference.oid();
        self.struct_entry::<T>(oid, LockMode::Exclusive).await?.ok_or_else(|| not_found_error::<T>(oid))?.change(oid)
    }

    /// An object, to be read, that may not exist.
    ///
    /// # Errors
    /// As [`Transaction::load`], but for an object that does not exist.
    pub async fn try_load<T: Persistent>(&self, reference: Ref<T>) -> Result<Option<Loaded<T>>> {
        let oid = reference.oid();
        self.struct_entry::<T>(oid, LockMode::Shared).await?.map(|slot| slot.read(oid)).transpose()
    }

    /// Many objects, to be read, in the same order: those that are not at hand are fetched together.
    ///
    /// # Errors
    /// As [`Transaction::load`].
    pub async fn load_all<T: Persistent>(
        &self,
        references: impl IntoIterator<Item = Ref<T>>,
    ) -> Result<Vec<Loaded<T>>> {
        let references: Vec<Ref<T>> = references.into_iter().collect();
        self.prefetch(references.iter().copied()).await?;
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
    pub async fn named<T: Persistent>(&self, path: &str) -> Result<Option<Ref<T>>> {
        let Some(oid) = self.resolve(path).await? else { return Ok(None) };
        self.core().mapping_of::<T>(oid).await?;
        Ok(Some(Ref::new(oid)))
    }

    /// What the transaction has of an object; `None` if there is none.
    async fn struct_entry<T: Persistent>(&self, oid: Oid, mode: LockMode) -> Result<Option<Arc<StructEntry<T>>>> {
        let shape = self.core().mapping_of::<T>(oid).await?;
        let known = self.known_entry::<T>(oid)?;
        if let Some(slot) = &known
            && (slot.is_new() || mode == LockMode::Shared || self.inner.level != IsolationLevel::Locks)
        {
            return Ok(known);
        }
        let object = match mode {
            LockMode::Shared | LockMode::Touch => self.get(oid).await?,
            LockMode::Exclusive => self.get_for_update(oid).await?,
        };
        // What was read before is as it was, as it is locked.
        if known.is_some() {
            return Ok(known);
        }
        let Some(object) = object else { return Ok(None) };
        let slot = StructEntry::<T>::of(oid, object, shape)?;
        // Somebody else may have loaded it meanwhile.
        if let Some(known) = self.known_entry::<T>(oid)? {
            return Ok(Some(known));
        }
        self.changes()?.loaded.insert(oid, slot.clone());
        Ok(Some(slot))
    }

    /// What the transaction has of an object already. What it has as another struct is put away for this one.
    fn known_entry<T: Persistent>(&self, oid: Oid) -> Result<Option<Arc<StructEntry<T>>>> {
        let mut changes = self.changes()?;
        let Some(slot) = changes.loaded.get(&oid) else { return Ok(None) };
        if let Ok(same) = slot.clone().as_any().downcast::<StructEntry<T>>() {
            return Ok(Some(same));
        }
        let slot = slot.clone();
        slot.retire(oid)?;
        changes.loaded.remove(&oid);
        if let Some(object) = slot.flush(oid)? {
            changes.drafts.remove(&oid);
            changes.writes.insert(oid, Some(object));
        }
        Ok(None)
    }

    // -------------------------------------------------------------------------------------------- creating and removing

    /// Creates an object. Its reference may be used at once, and stays the same when the transaction is committed.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the class has a field that must have a value and that the struct does not know;
    /// [`ErrorKind::TooLarge`]; [`ErrorKind::NotFound`] if the space does not have the class: [`Cluster::define`] it.
    pub async fn create<T: Persistent>(&self, value: T) -> Result<Ref<T>> {
        self.create_with(value, PlacementHint::Anywhere).await
    }

    /// Creates an object, near another one or at some logical node.
    ///
    /// # Errors
    /// As [`Transaction::create`].
    pub async fn create_with<T: Persistent>(&self, value: T, hint: PlacementHint) -> Result<Ref<T>> {
        self.create_entry(value, hint, false).await
    }

    /// Makes an object that is created only if something persistent refers to it when the transaction is committed: a name,
    /// or an object that was created, changed, or is reachable itself. Else it never was.
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
        let oid = self.place(&record, &shape, hint).await?;
        let mut changes = self.changes()?;
        changes.loaded.insert(oid, StructEntry::new(value, shape));
        if is_draft {
            changes.drafts.insert(oid);
        }
        Ok(Ref::new(oid))
    }

    /// Gives a new object its identifier.
    async fn place(&self, object: &Object, shape: &StructMapping, hint: PlacementHint) -> Result<Oid> {
        let (class, len) = (shape.layout.class(), object.data.len());
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
        loop {
            if let Some(room) = self.changes()?.page_lease.open_page(node, len) {
                return Ok(room.place(class, len));
            }
            let room = self.core().page_allocator.lease(self.core(), node, len).await?;
            self.changes()?.page_lease.add(node, room);
        }
    }

    /// Removes an object. References to it stay, and are errors for whoever loads them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist; else as [`Transaction::load_mut`].
    pub async fn remove<T: Persistent>(&self, reference: Ref<T>) -> Result<()> {
        self.check_writable()?;
        let oid = reference.oid();
        let slot = self.struct_entry::<T>(oid, LockMode::Exclusive).await?.ok_or_else(|| not_found_error::<T>(oid))?;
        slot.retire(oid)?;
        let mut changes = self.changes()?;
        changes.loaded.remove(&oid);
        changes.drafts.remove(&oid);
        match slot.is_new() {
            // What was created and removed again never was.
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

    /// Makes records of the structs that were changed, so that [`Transaction::get`] and whatever else works on records sees
    /// them. A commit does this by itself.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if one is being changed right now, [`ErrorKind::TooLarge`].
    pub fn flush(&self) -> Result<()> {
        let mut changes = self.changes()?;
        let slots: Vec<(Oid, Arc<dyn AnyStructEntry>)> =
            changes.non_drafts().map(|(oid, slot)| (*oid, slot.clone())).collect();
        for (oid, slot) in slots {
            let Some(object) = slot.flush(oid)? else { continue };
            // Who changes something back has changed nothing.
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

    /// The same at the commit, with all drafts that are reachable.
    pub(super) fn flush_reachable(&self) -> Result<()> {
        self.flush()?;
        let mut changes = self.changes()?;
        changes.persist_reachable()?;
        changes.check_pages()
    }
}

impl Changes {
    /// Structs that are no drafts.
    fn non_drafts(&self) -> impl Iterator<Item = (&Oid, &Arc<dyn AnyStructEntry>)> {
        self.loaded.iter().filter(|(oid, _)| !self.drafts.contains(oid))
    }

    /// One object as the transaction has it now, if it has it as a struct.
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

    /// The transaction writes an object as a record: it is no struct any more.
    pub(super) fn forget_struct(&mut self, oid: Oid) -> Result<()> {
        if let Some(slot) = self.loaded.get(&oid) {
            slot.retire(oid)?;
            self.loaded.remove(&oid);
            self.drafts.remove(&oid);
        }
        Ok(())
    }

    /// Drafts that something persistent refers to become persistent; others never were.
    fn persist_reachable(&mut self) -> Result<()> {
        let mut reached: Vec<Object> = Vec::new();
        if !self.drafts.is_empty() {
            reached.extend(self.writes.values().flatten().cloned());
        }
        while let Some(object) = reached.pop() {
            for oid in references(&object)? {
                let Some(slot) = self.loaded.get(&oid).filter(|_| self.drafts.contains(&oid)) else { continue };
                let object = slot.object(oid)?;
                object.check()?;
                self.drafts.remove(&oid);
                self.writes.insert(oid, Some(object.clone()));
                reached.push(object);
            }
        }
        self.drafts.clear();
        Ok(())
    }

    /// Whether all new objects of a page can be sent together.
    fn check_pages(&self) -> Result<()> {
        let mut pages: BTreeMap<_, usize> = BTreeMap::new();
        for (oid, slot) in &self.loaded {
            if let Some(Some(object)) = self.writes.get(oid)
                && slot.is_new()
            {
                let bytes = pages.entry(oid.page()).or_default();
                *bytes += object.data.len();
                if *bytes > MAX_PAGE_BYTES {
                    let what = format!(
                        "{oid} and other new objects have become too large for one page, of {MAX_PAGE_BYTES} bytes"
                    );
                    return Err(Error::new(
                        ErrorKind::TooLarge,
                        what + ": create them when they are as large as they get",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What an object refers to.
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
    let what = format!("there is no {} {oid}: it was removed, or never was", T::CLASS);
    Error::new(ErrorKind::NotFound, what)
}

/// What a transaction that only reads says to whoever writes.
pub(super) fn read_only_error() -> Error {
    Error::new(ErrorKind::Invalid, "a group snapshot only reads: begin an optimistic transaction")
}
