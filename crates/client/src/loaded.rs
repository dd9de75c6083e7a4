//! Objects that a transaction has as structs.
//!
//! A struct that is only read is a [`DecodedStruct`], which the cache keeps with the object and all transactions share. The transaction has
//! a [`SharedStruct`] of it, whose references count its readers. For a change it decodes a struct of its own, a [`StructEntry`].
//!
//! 1. A transaction has one struct for each object: loading an object again returns the same struct, with its changes.
//! 2. A struct has many readers or one writer at a time, as with a `RefCell`; a conflicting borrow is an error.
//! 3. A struct is *touched* once a [`LoadedMut`] is dereferenced mutably. The commit encodes touched structs as records, and
//!    writes those that differ.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::persistent::{Persistent, Ref};
use model::{Error, ErrorKind, Kind, Object, Oid, RecordRef, Result};
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};

use super::classes::StructMapping;

/// A struct that was decoded from an object.
pub(super) struct DecodedStruct<T> {
    pub(super) value: T,
    /// The object, whose bytes the struct is decoded from.
    pub(super) object: Object,
    pub(super) mapping: Arc<StructMapping>,
}

/// Whether an object has the bytes of this one, at their place in memory. A struct keeps the bytes that it was decoded from, so no other
/// object can be there.
pub(super) fn has_bytes_of(object: &Object, source: &Object) -> bool {
    let (now, then) = (&object.data, &source.data);
    !now.is_empty() && now.as_ptr() == then.as_ptr() && now.len() == then.len() && object.kind == source.kind
}

impl<T: Persistent> DecodedStruct<T> {
    pub(super) fn of(oid: Oid, object: Object, mapping: Arc<StructMapping>) -> Result<Arc<Self>> {
        let value = decode(oid, &object, &mapping)?;
        Ok(Arc::new(Self { value, object, mapping }))
    }

    /// The memory that it takes, about, in bytes. What its fields own is estimated by the record.
    pub(super) fn memory_size(&self) -> usize {
        size_of::<Self>() + FIELD_BYTES_FACTOR * self.object.data.len()
    }
}

/// A struct of an object that a transaction has only read. Each reference beside that of the transaction is a [`Loaded`].
pub(super) struct SharedStruct<T> {
    pub(super) decoded: Arc<DecodedStruct<T>>,
}

impl<T: Persistent> SharedStruct<T> {
    /// Borrows the struct to read it.
    pub(super) fn read(self: Arc<Self>, oid: Oid) -> Loaded<T> {
        Loaded { borrowed: Borrowed::Shared(self), oid }
    }
}

/// How much more memory the fields of a struct take than their encoding, about.
const FIELD_BYTES_FACTOR: usize = 2;

/// The struct of an object.
#[derive(Debug)]
struct StructCell<T> {
    value: T,
    touched: Arc<AtomicBool>,
    /// Whether the transaction has removed or replaced it.
    retired: bool,
}

/// The struct of an object in a transaction.
pub(super) struct StructEntry<T> {
    cell: Arc<RwLock<StructCell<T>>>,
    touched: Arc<AtomicBool>,
    mapping: Arc<StructMapping>,
    /// The object as it was loaded; `None` if the transaction has created it.
    before: Option<Object>,
}

/// A [`StructEntry`] of any type.
pub(super) trait AnyStructEntry: Any + Send + Sync {
    /// The object, if it was touched since the last flush.
    fn flush(&self, oid: Oid) -> Result<Option<Object>>;

    /// Marks the struct as touched, because its object could not be written.
    fn touch(&self);

    /// The object as it is now.
    fn object(&self, oid: Oid) -> Result<Object>;

    /// Retires the struct: it must not be borrowed now, and cannot be borrowed any more.
    fn retire(&self, oid: Oid) -> Result<()>;

    /// Whether the transaction has created it.
    fn is_new(&self) -> bool;

    /// Whether the object is the same as when it was loaded.
    fn is_as_loaded(&self, object: &Object) -> bool;
}

impl fmt::Debug for dyn AnyStructEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StructEntry({})", if self.is_new() { "new" } else { "loaded" })
    }
}

impl<T: Persistent> StructEntry<T> {
    /// An object that a transaction creates.
    pub(super) fn new(value: T, shape: Arc<StructMapping>) -> Arc<Self> {
        Self::with(value, shape, None)
    }

    fn with(value: T, shape: Arc<StructMapping>, before: Option<Object>) -> Arc<Self> {
        let touched = Arc::new(AtomicBool::new(before.is_none()));
        let cell = StructCell { value, touched: touched.clone(), retired: false };
        Arc::new(Self { cell: Arc::new(RwLock::new(cell)), touched, mapping: shape, before })
    }

    /// An object that a transaction reads.
    pub(super) fn of(oid: Oid, object: Object, shape: Arc<StructMapping>) -> Result<Arc<Self>> {
        let value = decode(oid, &object, &shape)?;
        Ok(Self::with(value, shape, Some(object)))
    }

    /// Borrows the struct to read it.
    pub(super) fn read(&self, oid: Oid) -> Result<Loaded<T>> {
        let cell = self.cell.try_read_arc().ok_or_else(|| in_use_error::<T>(oid, "changed"))?;
        if cell.retired {
            return Err(retired_error::<T>(oid));
        }
        Ok(Loaded { borrowed: Borrowed::Own(cell), oid })
    }

    /// Borrows the struct to change it.
    pub(super) fn change(&self, oid: Oid) -> Result<LoadedMut<T>> {
        let cell = self.cell.try_write_arc().ok_or_else(|| in_use_error::<T>(oid, "read or changed"))?;
        if cell.retired {
            return Err(retired_error::<T>(oid));
        }
        Ok(LoadedMut { cell, oid })
    }

    fn encode(&self, cell: &StructCell<T>, oid: Oid) -> Result<Object> {
        let before = self.before.as_ref().map(|object| RecordRef::new(&object.data)).transpose()?;
        Ok(Object::record(oid.class(), cell.value.to_record(&self.mapping.layout, before.as_ref())?))
    }
}

impl<T: Persistent> AnyStructEntry for StructEntry<T> {
    fn flush(&self, oid: Oid) -> Result<Option<Object>> {
        let cell = self.cell.try_read().ok_or_else(|| in_use_error::<T>(oid, "changed"))?;
        if !self.touched.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let object = self.encode(&cell, oid)?;
        object.check()?;
        // The read lock excludes writers.
        self.touched.store(false, Ordering::Relaxed);
        Ok(Some(object))
    }

    fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    fn object(&self, oid: Oid) -> Result<Object> {
        let cell = self.cell.try_read().ok_or_else(|| in_use_error::<T>(oid, "changed"))?;
        self.encode(&cell, oid)
    }

    fn retire(&self, oid: Oid) -> Result<()> {
        self.cell.try_write().ok_or_else(|| in_use_error::<T>(oid, "read or changed"))?.retired = true;
        Ok(())
    }

    fn is_new(&self) -> bool {
        self.before.is_none()
    }

    fn is_as_loaded(&self, object: &Object) -> bool {
        self.before.as_ref().is_some_and(|before| before.data == object.data)
    }
}

/// Decodes an object as a struct.
pub(super) fn decode<T: Persistent>(oid: Oid, object: &Object, shape: &StructMapping) -> Result<T> {
    if object.kind != Kind::Record {
        let what = format!("{oid} is not a record, and the program expects one of class {}", T::CLASS);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let read = RecordRef::new(&object.data).and_then(|record| T::from_record(&record, &shape.layout));
    read.map_err(|error| Error::new(error.kind(), format!("{oid}: {}", error.message())))
}

fn in_use_error<T: Persistent>(oid: Oid, how: &str) -> Error {
    let what = format!("{} {oid} is being {how} by this transaction: drop its Loaded or LoadedMut first", T::CLASS);
    Error::new(ErrorKind::Invalid, what)
}

/// The error of a change of an object that has readers.
pub(super) fn being_read_error(oid: Oid) -> Error {
    let what = format!("{oid} is being read or changed by this transaction: drop its Loaded or LoadedMut first");
    Error::new(ErrorKind::Invalid, what)
}

fn retired_error<T: Persistent>(oid: Oid) -> Error {
    let what = format!("{} {oid} was removed or replaced by this transaction meanwhile: load it again", T::CLASS);
    Error::new(ErrorKind::Invalid, what)
}

/// An object that a transaction has loaded to read it.
pub struct Loaded<T> {
    borrowed: Borrowed<T>,
    oid: Oid,
}

enum Borrowed<T> {
    Shared(Arc<SharedStruct<T>>),
    Own(ArcRwLockReadGuard<RawRwLock, StructCell<T>>),
}

/// An object that a transaction has loaded to change it. The commit writes the changes.
pub struct LoadedMut<T> {
    cell: ArcRwLockWriteGuard<RawRwLock, StructCell<T>>,
    oid: Oid,
}

impl<T> Loaded<T> {
    /// The reference to the object. It is called as `Loaded::reference(&account)`, because the struct may have a method of that name.
    #[must_use]
    pub fn reference(this: &Self) -> Ref<T> {
        Ref::new(this.oid)
    }
}

impl<T> LoadedMut<T> {
    /// The reference to the object.
    #[must_use]
    pub fn reference(this: &Self) -> Ref<T> {
        Ref::new(this.oid)
    }
}

impl<T> Deref for Loaded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.borrowed {
            Borrowed::Shared(shared) => &shared.decoded.value,
            Borrowed::Own(cell) => &cell.value,
        }
    }
}

impl<T> Deref for LoadedMut<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.cell.value
    }
}

impl<T> DerefMut for LoadedMut<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.cell.touched.store(true, Ordering::Relaxed);
        &mut self.cell.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Loaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loaded").field(&self.oid).field(&**self).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for LoadedMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadedMut").field(&self.oid).field(&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use model::{ClassId, FieldNumber, RecordBuilder};

    use super::*;

    #[test]
    fn struct_belongs_to_a_copy_with_the_very_bytes_that_it_was_decoded_from() {
        let record = |value: i64| {
            let mut record = RecordBuilder::new();
            record.set(FieldNumber(1), value).unwrap();
            Object::record(ClassId(1), record.build().unwrap())
        };
        let source = record(7);
        assert!(has_bytes_of(&source.clone(), &source), "a copy shares its bytes");
        assert!(!has_bytes_of(&record(8), &source), "it was changed");
        assert!(!has_bytes_of(&record(7), &source), "equal bytes that were fetched again");
        let mut part = source.clone();
        part.data.truncate(source.data.len() - 1);
        assert!(!has_bytes_of(&part, &source));
        let mut blob = source.clone();
        blob.kind = Kind::Blob;
        assert!(!has_bytes_of(&blob, &source));
        let mut empty = source;
        empty.data.clear();
        assert!(!has_bytes_of(&empty, &empty.clone()), "bytes that are not there have no place");
    }
}
