//! Rows: an ordered map from keys to values for the user of the store.
//!
//! Rows are in the same log, buffer and B-tree as contents. Changes that are submitted together become durable and visible
//! together. A brick stores its state here (`docs/decisions/rows.md`).
//!
//! 1. No row is visible before it is durable. Of changes that are submitted together, all are visible or none.
//! 2. A value has a checksum over its key and bytes from its submission on. The checksum is verified when the row is
//!    read from the B-tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use model::{Error, ErrorKind, Result, limits};
use smallvec::SmallVec;

use super::contents::ContentChange;
use super::stage::StagedSteps;
use super::{Core, Job, ReplyTo};
use crate::error::{invalid, too_large};
use crate::log::entry::Step;
use crate::plant::{Bug, planted};
use crate::rows::changes::RowChange;
use crate::rows::key::hex;

/// Changes of rows that depend on each other: after one fails, no later one is applied.
///
/// A store may refuse some changes for lack of room and accept later ones when there is room again. A caller that
/// submits changes without waiting for earlier replies puts them into one sequence. Then the applied changes are always
/// a prefix of the submitted ones. When the first failure is reported, that prefix is durable and no change of the
/// sequence is pending. A broken sequence stays broken: the caller reads what was stored and continues with a new
/// sequence.
#[derive(Clone, Debug, Default)]
pub struct RowSequence {
    broken: Arc<AtomicBool>,
}

impl RowSequence {
    /// A sequence without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A sequence whose changes are refused. Appended to other changes, such ones keep all of them from being applied, and break their sequences.
    #[must_use]
    pub fn new_broken() -> Self {
        let sequence = Self::default();
        sequence.mark_broken();
        sequence
    }

    /// The next changes of the sequence, initially empty. Their order is the order of submission.
    #[must_use]
    pub fn changes(&self) -> RowChanges {
        RowChanges::new().in_sequence(self)
    }

    /// Whether a change of the sequence has failed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Marks the sequence as broken. Called with the writer's lock held, or for changes that were never queued.
    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// The error for changes after a failed one.
    pub(crate) fn broken_error() -> Error {
        let message =
            "an earlier change of the sequence has failed: read what is stored, and continue with a new sequence";
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// The sequences that changes are of. Nearly always it is one.
pub(crate) type RowSequences = SmallVec<[RowSequence; 1]>;

/// Receives the log position of changes when they are durable, or why they were refused.
pub type RowReply = Box<dyn FnOnce(Result<u64>) + Send>;

/// Changes of rows that are applied together.
///
/// Of several changes of one row the last one counts. Keys have 1 to [`limits::ROW_KEY`] bytes (keys of up to 23 bytes
/// are fastest), values up to [`limits::ROW_VALUE`]. [`Store::submit_rows`](crate::Store::submit_rows) checks these
/// limits.
#[derive(Clone, Debug, Default)]
pub struct RowChanges {
    changes: Vec<RowChange>,
    contents: Vec<ContentChange>,
    /// Bytes of keys, values and contents.
    bytes: usize,
    /// Those that the changes are of.
    sequences: RowSequences,
    is_needed: bool,
}

impl RowChanges {
    /// No changes, outside of any sequence.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same changes in another sequence.
    #[must_use]
    pub fn in_sequence(mut self, sequence: &RowSequence) -> Self {
        self.sequences = RowSequences::from_iter([sequence.clone()]);
        self
    }

    /// Adds changes, which become durable and visible together with these. If changes of any of the sequences have failed, none is applied;
    /// if these fail, all sequences are broken.
    pub fn append(&mut self, other: Self) {
        let Self { changes, contents, bytes, sequences, is_needed } = other;
        self.changes.extend(changes);
        self.contents.extend(contents);
        self.bytes += bytes;
        self.sequences.extend(sequences);
        self.is_needed |= is_needed;
    }

    /// The same changes, which a full store in memory still accepts: they follow from changes that it has accepted, or
    /// they free memory. The caller bounds how many such changes can arise.
    #[must_use]
    pub fn mark_needed(mut self) -> Self {
        self.is_needed = true;
        self
    }

    /// Sets the value of a row, whether it exists or not.
    pub fn put(&mut self, key: &[u8], value: Bytes) {
        self.bytes += key.len() + value.len();
        self.changes.push(RowChange::new(key, Some(value)));
    }

    /// Removes a row, if it exists.
    pub fn remove(&mut self, key: &[u8]) {
        self.bytes += key.len();
        self.changes.push(RowChange::new(key, None));
    }

    /// Changes a content together with the rows, after the contents that were added before.
    pub fn content(&mut self, change: ContentChange) {
        self.bytes += change.data_len();
        self.contents.push(change);
    }

    /// The changes of contents, in the order of the calls.
    #[must_use]
    pub fn contents(&self) -> &[ContentChange] {
        &self.contents
    }

    /// Whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.contents.is_empty()
    }

    /// How many changes of rows and contents there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len() + self.contents.len()
    }

    /// How many bytes the changes have: keys, values, and what is written to contents.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The keys of the rows, in the order of the calls.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().map(RowChange::key)
    }

    /// The step that makes the changes of rows: sorted by key, each row once.
    fn step(mut changes: Vec<RowChange>) -> Step {
        if !changes.is_sorted_by(|a, b| a.key < b.key) {
            changes.sort_by(|a, b| a.key.cmp(&b.key));
            // `dedup_by` keeps the first of equal keys, and the last change counts.
            changes.dedup_by(|later, kept| {
                let same = later.key == kept.key;
                if same && !planted(Bug::FirstChangeCounts) {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        Step::Rows(changes)
    }

    /// Checks the changes against the limits.
    ///
    /// # Errors
    /// The change that exceeds a limit, or the limit that all of them exceed.
    fn check(&self) -> Result<()> {
        if self.len() > limits::OPERATIONS {
            let (found, limit) = (self.len(), limits::OPERATIONS);
            let message =
                format!("{found} rows and contents are changed together; the limit is {limit}: split the changes");
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        self.contents.iter().try_for_each(ContentChange::check)?;
        for change in &self.changes {
            let (key, value) = (change.key(), change.value.as_ref().map_or(0, Bytes::len));
            if key.is_empty() {
                return Err(invalid("the key of a row is empty"));
            }
            if key.len() > limits::ROW_KEY {
                return Err(too_large("the key of a row", key.len() as u64, limits::ROW_KEY as u64));
            }
            if value > limits::ROW_VALUE {
                let what = format!("the value of row {}", hex(key));
                return Err(too_large(&what, value as u64, limits::ROW_VALUE as u64));
            }
        }
        if self.bytes > limits::CHANGE {
            return Err(too_large("a change of rows and contents", self.bytes as u64, limits::CHANGE as u64));
        }
        Ok(())
    }
}

impl Core {
    pub(crate) fn submit_rows(&self, changes: RowChanges, done: impl FnOnce(Result<u64>) + Send + 'static) {
        self.submit_job(self.prepare_job(changes, ReplyTo::Callback(Box::new(done))));
    }

    pub(crate) fn submit_rows_together(&self, changes: Vec<(RowChanges, RowReply)>) {
        let job = |(changes, done)| self.prepare_job(changes, ReplyTo::Callback(done));
        self.submit_jobs(changes.into_iter().map(job).collect());
    }

    pub(crate) fn commit_rows(&self, changes: RowChanges) -> Result<u64> {
        let slot = Arc::default();
        let job = self.prepare_job(changes, ReplyTo::Slot(Arc::clone(&slot)));
        self.submit_job_and_wait(job, &slot)
    }

    /// The job for the writer. Invalid changes are queued, too: their reply must not overtake earlier ones.
    fn prepare_job(&self, changes: RowChanges, reply_to: ReplyTo) -> Job {
        let checked = changes.check();
        let RowChanges { changes, contents, sequences, is_needed, .. } = changes;
        let mut job = Job { sequences, is_needed, ..Job::new(reply_to) };
        let staged = checked.and_then(|()| {
            let mut staged = StagedSteps::new(self, RowChanges::step(changes));
            contents.into_iter().try_for_each(|change| staged.add(change))?;
            Ok(staged.take_parts())
        });
        match staged {
            Ok((steps, extents, uploads)) => (job.steps, job.staged, job.taken_uploads) = (steps, extents, uploads),
            Err(error) => job.rejection = Some(Box::new(error)),
        }
        job
    }
}
