//! What the benchmark requires of a store of objects.
//!
//! The loader, the traversals and the queries are written against these traits. So the same code runs on Mortar
//! ([`Space`](super::space::Space)) and on structs in memory ([`Control`](super::control::Control)), whose results Mortar's have to equal.

use std::ops::Deref;

use client::{Ref, Result};

use super::control::Stored;
use super::model::{AtomicPart, Document, Module};

/// A store of objects.
pub(crate) trait Database {
    /// The objects within a transaction.
    type Objects: Objects;

    /// Runs `body` in a transaction. After a conflict it runs again.
    async fn transact<T>(&self, body: impl AsyncFn(&Self::Objects) -> Result<T>) -> Result<T>;

    /// Runs `body`, which writes nothing and searches nothing, in a transaction.
    async fn traverse<T>(&self, body: impl AsyncFn(&Self::Objects) -> Result<T>) -> Result<T>;
}

/// The objects of a store, within a transaction.
pub(crate) trait Objects {
    /// Loads an object. It must be dropped before the object is changed.
    async fn get<T: Stored>(&self, reference: Ref<T>) -> Result<impl Deref<Target = T>>;

    /// Changes an object.
    async fn update<T: Stored>(&self, reference: Ref<T>, change: impl FnOnce(&mut T)) -> Result<()>;

    /// Creates an object.
    async fn create<T: Stored>(&self, value: T) -> Result<Ref<T>>;

    /// Names a module by its number.
    async fn name_module(&self, number: u32, module: Ref<Module>) -> Result<()>;

    /// The module with this number.
    async fn module(&self, number: u32) -> Result<Ref<Module>>;

    /// The atomic part with this identifier, found by an index.
    async fn atomic_part(&self, id: i64) -> Result<impl Deref<Target = AtomicPart>>;

    /// The atomic parts that were built on a date or later, found by an index.
    async fn atomic_parts_since(&self, date: i64) -> Result<Vec<impl Deref<Target = AtomicPart>>>;

    /// The document with this title, found by an index.
    async fn document(&self, title: &str) -> Result<impl Deref<Target = Document>>;

    /// All objects of a class.
    async fn all<T: Stored>(&self) -> Result<Vec<impl Deref<Target = T>>>;
}
