//! The B-tree beneath the log: a small trait with one implementation on LMDB and one in memory.
//!
//! The store writes to it only in large, sorted, atomic batches, from one thread; it reads from many threads at once,
//! each read seeing the state between two batches. One conformance suite runs on every implementation.

use std::ops::ControlFlow;

use crate::rows::key::Key;

#[cfg(test)]
mod conformance;
pub(crate) mod lmdb;
pub(crate) mod memory;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;

/// Why an engine failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The device or the map has no room; nothing of the batch was written.
    #[error("no room left in the B-tree")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The rows of the batch could not all be made; nothing of it was written.
    #[error("the batch was given up")]
    Aborted,
    /// What is stored cannot be understood.
    #[error("the B-tree is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Anything else.
    #[error("the B-tree failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

pub(crate) type EngineResult<T> = Result<T, EngineError>;

/// Is shown a key and its value; breaks to see no more.
pub(crate) type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One state of the B-tree.
pub(crate) trait EngineRead {
    /// The value of `key`.
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>>;

    /// Shows the rows from `from` up to, not including, `to`, in order, until `show` breaks.
    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()>;

    /// Shows the same rows, the last first.
    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()>;
}

/// A row to write: a value, or `None` to remove the key.
pub(crate) type EngineRow = (Key, Option<bytes::Bytes>);

/// The source of a batch could not make a row.
#[derive(Debug)]
pub(crate) struct BatchAborted;

/// A state of the B-tree that stays readable, from any thread, whatever is written meanwhile.
pub(crate) trait EnginePin: Send + Sync {
    /// Shows `read` that state.
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead));
}

/// An embedded, ordered key-value store.
pub(crate) trait Engine: Send + Sync {
    /// Shows `read` the newest state. Cheap: the hot path of every small read.
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()>;

    /// The newest state, pinned until dropped.
    fn pin(&self) -> EngineResult<Box<dyn EnginePin>>;

    /// Writes rows, best in order of their keys, all or none; durable when it returns.
    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()>;

    /// Bytes that the engine takes on disk, or in memory if it has no disk.
    fn size(&self) -> u64;
}
