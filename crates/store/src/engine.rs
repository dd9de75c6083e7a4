//! The B-tree below the log: a trait with implementations on disk and in memory.
//!
//! The store writes to it in large, sorted, atomic batches from one thread, and reads from many threads. Each read sees
//! the state between two batches. One conformance suite runs on every implementation.

use std::fmt;
use std::ops::ControlFlow;

use crate::rows::key::{Key, hex};
use crate::rows::key_range::KeyRange;

#[cfg(test)]
mod conformance;
pub(crate) mod damaged_ranges;
pub(crate) mod memory;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;
pub(crate) mod tree;

/// After so many batches in a row that failed because a page of the B-tree or a chunk of a content could not be read, what cannot be read
/// counts as damaged. The installer tries again every half second, so that is a minute.
pub(crate) const FAILED_READS: u32 = 120;

/// Why an engine failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The device or the map has no room; nothing of the batch was written.
    #[error("no room left in the B-tree")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The source of the batch failed; nothing of it was written.
    #[error("the batch was aborted")]
    Aborted,
    /// The stored data is invalid.
    #[error("the B-tree is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Anything else.
    #[error("the B-tree failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EngineError {
    /// What is wrong, without the part that its caller says, too.
    pub(crate) fn cause(&self) -> String {
        std::error::Error::source(self).map_or_else(|| self.to_string(), ToString::to_string)
    }
}

/// Damage of the B-tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeDamage {
    pub(crate) what: String,
    /// The damaged page.
    pub(crate) page: u64,
    /// The keys whose rows cannot all be read; `None` if the page has no rows.
    pub(crate) range: Option<KeyRange>,
}

impl fmt::Display for TreeDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let Some(KeyRange { from, to }) = &self.range else { return Ok(()) };
        match to {
            Some(to) if from.is_empty() => write!(f, "; it has the keys from the first to {}", hex(to)),
            None if from.is_empty() => f.write_str("; it has the keys from the first on, which is all of them"),
            Some(to) => write!(f, "; it has the keys from {} to {}", hex(from), hex(to)),
            None => write!(f, "; it has the keys from {} on", hex(from)),
        }
    }
}

/// What a check of the stored data has come to.
pub(crate) enum Checked<'a> {
    /// This number of bytes were read.
    Bytes(u64),
    Damage(TreeDamage),
    /// A row that was written to a damaged part and can be read: its key and its value.
    Kept(&'a [u8], &'a [u8]),
    /// All pages of the rows before this key were read; `None` at the end.
    UpTo(Option<&'a [u8]>),
}

/// Called during a check; breaks to end it.
pub(crate) type CheckObserver<'a> = dyn FnMut(Checked<'_>) -> ControlFlow<()> + 'a;

pub(crate) type EngineResult<T> = Result<T, EngineError>;

/// Called with a key and its value; breaks to end the scan.
pub(crate) type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One state of the B-tree.
pub(crate) trait EngineRead {
    /// The value of `key`.
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>>;

    /// Calls `show` with the rows `from <= key < to`, in order, until it breaks.
    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()>;

    /// As [`EngineRead::range`], in reverse order.
    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()>;

    /// The keys of the first part with keys `from <= key < to` that cannot be read. An engine without a disk has none.
    fn first_damage(&self, _from: &[u8], _to: &[u8]) -> Option<KeyRange> {
        None
    }

    /// Reads everything from the disk until `observe` breaks. Reports each page and all damage, in the order of the keys. An engine without
    /// a disk has none.
    fn check(&self, observe: &mut CheckObserver<'_>) -> ControlFlow<()> {
        self.check_from(&[], observe)
    }

    /// As [`EngineRead::check`], but only the pages with rows at or behind a key, and those on the way to them. What has no rows comes first, and only if
    /// there is no key.
    fn check_from(&self, _from: &[u8], _observe: &mut CheckObserver<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// A row to write: a value, or `None` to remove the key.
pub(crate) type EngineRow = (Key, Option<bytes::Bytes>);

/// The source of a batch could not produce a row.
#[derive(Debug)]
pub(crate) struct BatchAborted;

/// A state of the B-tree that stays readable from any thread during later writes.
pub(crate) trait EnginePin: Send + Sync {
    /// Calls `read` with that state.
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead));
}

/// An embedded, ordered key-value store.
pub(crate) trait Engine: Send + Sync {
    /// Calls `read` with the newest state. This must be cheap: every small read uses it.
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()>;

    /// A copy of the value of `key` in the newest state.
    fn get(&self, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let mut found = Ok(None);
        self.read(&mut |state| found = state.get(key).map(|row| row.map(<[u8]>::to_vec)))?;
        found
    }

    /// [`EngineRead::range`] of the newest state.
    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        let mut scanned = Ok(());
        self.read(&mut |state| scanned = state.range(from, to, show))?;
        scanned
    }

    /// The newest state, pinned until it is dropped.
    fn pin(&self) -> EngineResult<Box<dyn EnginePin>>;

    /// Makes the newest state durable. After an opening it may be in the system's cache only, because the process that wrote it was
    /// killed before it knew that the disk has it.
    fn make_durable(&self) -> EngineResult<()> {
        Ok(())
    }

    /// Writes all rows or none, preferably in key order. The rows are durable when this returns.
    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()>;

    /// As [`Engine::write`], but the rows may become durable only with the next call of that. For filling a store that no process opens before: a
    /// crash meanwhile may leave no readable state.
    fn load(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        self.write(rows)
    }

    /// As [`Engine::write`], and gives up the rows of these parts, which a check has found: they are absent from then on, apart from those that
    /// can be read. A part is the first key of its range and its page.
    fn give_up(
        &self,
        _parts: &[(Key, u64)],
        rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>,
    ) -> EngineResult<()> {
        self.write(rows)
    }

    /// Frees space that is recorded as used and to which nothing refers, as damage leaves it; returns the bytes. Nothing is freed if a
    /// part of the data cannot be read; parts that are damaged are lost, with all to which only they refer.
    fn reclaim_space(&self) -> EngineResult<u64> {
        Ok(0)
    }

    /// Forgets for a part of the stored data that it was checked, so that the next read checks it again. Calls every two seconds go
    /// through all of it within five minutes.
    fn forget_some_checks(&self) {}

    /// Whether the rows `from <= key <= to` can probably be read without waiting for a disk. This is a hint.
    fn is_resident(&self, _from: &[u8], _to: &[u8]) -> bool {
        true
    }

    /// Bytes on disk, or in memory for an engine without a disk.
    fn size(&self) -> u64;
}
