//! The read handle of a driver: what it may do with a store.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Oid, Result};
use store::{ContentChange, Store};

use super::cold_reads::ColdReads;
use super::content_rows::Contents;
use super::page_rows::Rows;
use super::plant::{Bug, planted};

/// Reads the newest durable rows of a store. A driver has no other way to its store: rows are written by its outputs.
#[derive(Clone)]
pub(crate) struct RowReader {
    store: Store,
    is_in_memory: bool,
    /// Where single rows that take long are noticed.
    cold_reads: Option<Arc<ColdReads>>,
}

impl RowReader {
    /// The read handle of a store.
    pub(crate) fn new(store: Store) -> Self {
        let is_in_memory = store.is_in_memory();
        Self { store, is_in_memory, cold_reads: None }
    }

    /// The same; it notices rows that may have waited for the disk.
    pub(crate) fn with_cold_reads(store: Store, cold_reads: Arc<ColdReads>) -> Self {
        Self { cold_reads: Some(cold_reads), ..Self::new(store) }
    }

    fn measure<T>(&self, read: impl FnOnce() -> T) -> T {
        match &self.cold_reads {
            Some(cold_reads) => cold_reads.measure(read),
            None => read(),
        }
    }

    /// Checks that the content of an object is there, and that what its changes build on can be read.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if not: also without the content, which an object has that is there.
    pub(crate) fn check_changeable(&self, oid: Oid, changes: &[ContentChange]) -> Result<()> {
        self.measure(|| self.store.check_changeable(changes)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let what = format!(
                    "the content of {oid} is lost: write it as a whole, delete it, or restore it from a backup"
                );
                Error::new(ErrorKind::Corrupt, what)
            }
            _ => error,
        })
    }

    /// Whether the store is in memory and has no room for more.
    pub(crate) fn is_memory_full(&self) -> bool {
        self.is_in_memory && self.store.is_memory_full()
    }
}

/// The error of a read; with the planted bug, nothing if it is damage.
fn damage_hidden<T: Default>(error: Error) -> Result<T> {
    match error.kind() {
        ErrorKind::Corrupt if planted(Bug::DamageIsAbsence) => Ok(T::default()),
        _ => Err(error),
    }
}

impl Rows for RowReader {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.measure(|| self.store.row(key)).or_else(damage_hidden)
    }

    fn get_with<T>(&self, key: &[u8], show: impl FnMut(&[u8]) -> T) -> Result<Option<T>> {
        self.measure(|| self.store.get_with(key, show)).or_else(damage_hidden)
    }

    fn each(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.store.rows(from, to, visit).or_else(damage_hidden)
    }
}

impl Contents for RowReader {
    fn contents(&self, from: ContentId, to: ContentId, limit: usize) -> Result<Vec<ContentId>> {
        self.store.contents(from, to, limit)
    }

    fn content_size(&self, id: ContentId) -> Result<Option<u64>> {
        self.store.content_size(id)
    }

    fn read_content(&self, id: ContentId, offset: u64, len: u64) -> Result<Bytes> {
        self.store.read_content(id, offset, len)
    }
}
