//! Rows: an ordered map from keys to values that belongs to who uses the store.
//!
//! They stand beside objects, collections and names in the same log, buffer and B-tree: changes that are handed over
//! together are durable and seen together. A brick keeps here whatever it must find again (`docs/decisions/rows.md`).
//!
//! 1. No row is shown before it is durable; of changes that are made together all are shown or none.
//! 2. A value has the checksum of its key and its bytes from when it is handed over on; it is checked when the row is
//!    read from the B-tree.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, Bytes};
use model::{Error, ErrorKind, Outcome, Result, limits};

use crate::checksum::crc32c_parts;
use crate::commit::{Job, ReplyTo};
use crate::core::Core;
use crate::error::{corrupt_row, invalid, too_large};
use crate::log::entry::Step;
use crate::plant::{Bug, planted};
use crate::read::Readable;
use crate::read::layers::{FoundRow, RowRef};
use crate::rows::key::Key;
use crate::rows::mob::Row;
use crate::rows::row::{self, RowError};
use crate::rows::slab::Slabs;

/// Values of so many bytes and more are shared with who brings them. Others are copied once: a small part must not keep
/// the large buffer alive that it came in.
const MIN_SHARED_BYTES: usize = 64 << 10;
/// So many bytes of a key are shown in an error.
const MAX_KEY_BYTES_SHOWN: usize = 64;

/// A row and its new value, or that it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowChange {
    pub(crate) key: Key,
    pub(crate) value: Option<Bytes>,
    /// The checksum of key and value.
    checksum: u32,
}

impl RowChange {
    pub(crate) fn new(key: &[u8], value: Option<Bytes>) -> Self {
        let key = Key::row(key);
        let checksum = value.as_ref().map_or(0, |value| crc32c_parts(&[&key[..], value]));
        Self { key, value, checksum }
    }

    /// The key without its table.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key[1..]
    }

    /// The bytes of the value; `None` if the row is removed.
    pub(crate) fn size(&self) -> Option<usize> {
        self.value.as_ref().map(Bytes::len)
    }

    pub(crate) fn is_removal(&self) -> bool {
        self.value.is_none()
    }

    /// What the buffer gets.
    pub(crate) fn into_row(self, slabs: &mut Slabs) -> (Key, Row) {
        let row = match self.value {
            None => Row::Tombstone,
            Some(value) if value.len() >= MIN_SHARED_BYTES => Row::Shared(value, self.checksum),
            Some(value) => {
                let mut row = slabs.row(row::sealed_len(value.len()));
                row.put_slice(&value);
                row.put_u32_le(self.checksum);
                Row::Value(row.freeze())
            }
        };
        (self.key, row)
    }
}

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

/// A key to be read by people, as far as it is not too long.
pub(crate) fn hex(key: &[u8]) -> String {
    let mut text = String::with_capacity(2 * key.len().min(MAX_KEY_BYTES_SHOWN) + 3);
    for byte in &key[..key.len().min(MAX_KEY_BYTES_SHOWN)] {
        let _ = write!(text, "{byte:02x}");
    }
    if key.len() > MAX_KEY_BYTES_SHOWN {
        text.push_str("...");
    }
    text
}

/// A row, of which this is the whole key, cannot be read.
pub(crate) fn damaged(key: &[u8], error: RowError) -> Error {
    corrupt_row(&format!("row {}", hex(key.get(1..).unwrap_or_default())), error)
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

/// The value in a row; what comes from the B-tree is checked.
pub(crate) fn row_value<'f>(key: &[u8], row: RowRef<'f>) -> Result<Option<&'f [u8]>> {
    match row {
        RowRef::Nothing | RowRef::Row(Row::Tombstone | Row::Patch(_)) => Ok(None),
        RowRef::Row(Row::Shared(value, _)) => Ok(Some(value)),
        RowRef::Row(Row::Value(row)) => match row.split_last_chunk::<4>() {
            Some((value, _)) => Ok(Some(value)),
            None => Err(damaged(key, RowError::Short)),
        },
        RowRef::Engine(row) => match row::unseal(key, row) {
            Ok(len) => Ok(Some(&row[..len])),
            Err(error) => Err(damaged(key, error)),
        },
    }
}

/// The value in a row, checked wherever it was found.
pub(crate) fn verify_value<'f>(key: &[u8], found: &'f FoundRow<'_>) -> std::result::Result<&'f [u8], RowError> {
    match found {
        FoundRow::Row(Row::Shared(value, checksum), _) if crc32c_parts(&[key, value]) == *checksum => Ok(value),
        _ => {
            let row = found.value().ok_or(RowError::Value)?;
            Ok(&row[..row::unseal(key, row)?])
        }
    }
}

pub(crate) fn row(this: &impl Readable, key: &[u8]) -> Result<Option<Bytes>> {
    with_row_value(this, key, |row, value| match row {
        RowRef::Row(Row::Value(row) | Row::Shared(row, _)) => row.slice_ref(value),
        _ => Bytes::copy_from_slice(value),
    })
}

/// Looks at a row where it lies, and at its value.
pub(crate) fn with_row_value<T>(
    this: &impl Readable,
    key: &[u8],
    mut look: impl FnMut(RowRef<'_>, &[u8]) -> T,
) -> Result<Option<T>> {
    let key = Key::row(key);
    this.read_row(|layers| layers.with_row(&key, |row| Ok(row_value(&key, row)?.map(|value| look(row, value))))?)
}

/// Shows the rows of a range; `back`: the last first.
pub(crate) fn rows(
    this: &impl Readable,
    (from, to): (&[u8], &[u8]),
    back: bool,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let (from, to) = (Key::row(from), Key::row(to));
    if from >= to {
        return Ok(());
    }
    this.read_state(|layers| {
        let mut failed = None;
        let mut show = |key: &[u8], found: &FoundRow<'_>| match row_value(key, found.row_ref()) {
            Ok(Some(value)) => visit(&key[1..], value),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        match back {
            false => layers.scan(&from, &to, &mut show)?,
            true => layers.scan_back(&from, &to, &mut show)?,
        }
        failed.map_or(Ok(()), Err)
    })
}
