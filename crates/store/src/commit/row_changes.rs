//! Rows: an ordered map from keys to values that belongs to who uses the store.
//!
//! They stand beside objects, collections and names in the same log, buffer and B-tree: changes that are handed over
//! together are durable and seen together. A brick keeps here whatever it must find again (`docs/decisions/rows.md`).
//!
//! 1. No row is shown before it is durable; of changes that are made together all are shown or none.
//! 2. A value has the checksum of its key and its bytes from when it is handed over on; it is checked when the row is
//!    read from the B-tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use model::{Error, ErrorKind, Outcome, Result, limits};

use super::{Core, Job, ReplyTo};
use crate::error::{invalid, too_large};
use crate::log::entry::Step;
use crate::plant::{Bug, planted};
use crate::read::rows::hex;
use crate::rows::row_change::RowChange;

/// Changes of rows that build on each other: when some fail, none behind them are made any more.
///
/// A store may refuse some changes, as there is no room, and take the next, as there is room again. Who submits changes
/// without waiting for those before lets all be of one sequence: then, whatever fails, what is made is a beginning of what
/// was submitted, and when the first failure is told, that is durable and nothing of the sequence is under way any more. It
/// stays broken; who has found out what is there goes on with another.
#[derive(Clone, Debug, Default)]
pub struct RowSequence {
    broken: Arc<AtomicBool>,
}

impl RowSequence {
    /// A sequence without changes yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next changes of the sequence, none yet; their place is where they are submitted.
    #[must_use]
    pub fn changes(&self) -> RowChanges {
        RowChanges { sequence: Some(self.clone()), ..RowChanges::default() }
    }

    /// Whether some of its changes have failed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// None behind are made. Called with the writer's lock held, or for what never came to it.
    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// What those behind a failure are told.
    pub(crate) fn broken_error() -> Error {
        let message = "earlier changes of the sequence have failed; find out what is there, and begin another";
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// Changes of rows that happen together.
///
/// Of several changes of one row the last one counts. Keys have 1 to [`limits::ROW_KEY`] bytes (those of up to 23 are
/// the quickest), values up to [`limits::ROW_VALUE`]; [`Store::submit_rows`](crate::Store::submit_rows) checks that.
#[derive(Clone, Debug, Default)]
pub struct RowChanges {
    changes: Vec<RowChange>,
    sequence: Option<RowSequence>,
    is_needed: bool,
}

impl RowChanges {
    /// No changes yet, and of no sequence.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same changes in another sequence.
    #[must_use]
    pub fn in_sequence(mut self, sequence: &RowSequence) -> Self {
        self.sequence = Some(sequence.clone());
        self
    }

    /// The same changes, which a store in memory takes though it is full: they follow from what it has taken, or let go of something.
    /// Whoever gives them sees to it that what makes them necessary is not taken in without end.
    #[must_use]
    pub fn needed(mut self) -> Self {
        self.is_needed = true;
        self
    }

    /// Gives a row a value, whether it exists or not.
    pub fn put(&mut self, key: &[u8], value: Bytes) {
        self.changes.push(RowChange::new(key, Some(value)));
    }

    /// Removes a row, if it exists.
    pub fn remove(&mut self, key: &[u8]) {
        self.changes.push(RowChange::new(key, None));
    }

    /// Whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many changes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// The keys of the rows, in the order in which they were given.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.changes.iter().map(RowChange::key)
    }

    /// The step that makes the changes: in order, each row once.
    fn step(mut changes: Vec<RowChange>) -> Result<Step> {
        check(&changes)?;
        if !changes.is_sorted_by(|a, b| a.key < b.key) {
            changes.sort_by(|a, b| a.key.cmp(&b.key));
            // The first of a run is the one that stays.
            changes.dedup_by(|later, kept| {
                let same = later.key == kept.key;
                if same && !planted(Bug::FirstChangeCounts) {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        Ok(Step::Rows(changes))
    }
}

fn check(changes: &[RowChange]) -> Result<()> {
    if changes.len() > limits::OPERATIONS {
        let (found, limit) = (changes.len(), limits::OPERATIONS);
        let message = format!("{found} rows are changed together; the limit is {limit}: split the changes");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let mut total = 0;
    for change in changes {
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
        total += key.len() + value;
    }
    if total > limits::TRANSACTION {
        return Err(too_large("a change of rows", total as u64, limits::TRANSACTION as u64));
    }
    Ok(())
}

impl Core {
    pub(crate) fn submit_rows(&self, changes: RowChanges, done: impl FnOnce(Result<u64>) + Send + 'static) {
        let tell = Box::new(move |result: Result<Outcome>| done(result.and_then(committed_position)));
        self.submit_job(prepare_job(changes, ReplyTo::Callback(tell)));
    }

    pub(crate) fn commit_rows(&self, changes: RowChanges) -> Result<u64> {
        let place = Arc::default();
        let job = prepare_job(changes, ReplyTo::Slot(Arc::clone(&place)));
        self.submit_job_and_wait(job, &place).and_then(committed_position)
    }
}

/// What is handed to the writer. What is wrong in itself is, too: its answer must not overtake those before it.
fn prepare_job(RowChanges { changes, sequence, is_needed }: RowChanges, answer: ReplyTo) -> Job {
    let (steps, wrong) = match RowChanges::step(changes) {
        Ok(step) => (vec![step], None),
        Err(error) => (Vec::new(), Some(Box::new(error))),
    };
    Job { steps, rejection: wrong, sequence, is_needed, ..Job::new(answer) }
}

fn committed_position(outcome: Outcome) -> Result<u64> {
    match outcome {
        Outcome::Committed(committed) => Ok(committed.version),
        // Rows expect nothing.
        Outcome::Conflict(_) => Err(Error::new(ErrorKind::Internal, "a change of rows met a conflict")),
    }
}
