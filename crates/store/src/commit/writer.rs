//! Applying a transaction: its rows go into the buffer, and its frame into the batch for the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use super::apply::Applier;
use super::committer::Pending;
use super::row_changes::{RowSequence, RowSequences};
use super::{Core, Job, ReplyTo};
use crate::change_tracking::{ChangeTracker, ChangeTrackers};
use crate::error::{self, StoreError};
use crate::log::entry::{self, Step};
use crate::log::{FrameBatch, frame};
use crate::plant::{Bug, ChangeBug, FaultBug, planted};
use crate::read::layers::{Layers, ReadPosition};
use crate::read::view::View;
use crate::rows::changes::Changes;
use crate::rows::key::Key;
use crate::rows::mob::{LogPosition, Mob, Row, SEQ_END, Seq};
use crate::rows::row::Extent;

/// The error of a store in memory that is full.
fn no_room() -> Error {
    Error::new(
        ErrorKind::Full,
        "the store in memory has no room: delete contents or rows, or restart it with a higher limit",
    )
}

/// The bytes that a row takes; `None` for a removal.
fn row_size(row: &Row) -> Option<usize> {
    (!matches!(row, Row::Tombstone)).then(|| row.size())
}

/// A transaction with a result that is not durable yet.
pub(crate) struct DecidedTransaction {
    pub(crate) result: Result<Seq>,
    pub(crate) staged: Vec<Extent>,
    pub(crate) sequences: RowSequences,
    pub(crate) reply_to: ReplyTo,
}

/// What the writer's lock guards.
#[derive(Default)]
pub(crate) struct WriterState {
    /// The position of the next transaction.
    pub(crate) next_seq: Seq,
    /// The checksum of the last frame.
    pub(crate) crc: u32,
    /// Frames to be forced.
    pub(crate) batch: FrameBatch,
    /// The checksum of the frame before the batch.
    pub(crate) batch_prev_crc: u32,
    pub(crate) pending: Pending,
    /// Bytes logged since the buffer was last frozen.
    pub(crate) logged_bytes: u64,
    /// Why no further commit is possible.
    pub(crate) log_failure: Option<Arc<str>>,
    /// Whether the last frame is a marker: it only records what was forced before it.
    pub(crate) has_marker: bool,
    /// Trackers of changes, for backups that follow the store.
    pub(crate) trackers: ChangeTrackers,
}

impl WriterState {
    /// Continues at position `next`, after a frame with checksum `crc`.
    pub(crate) fn resume_at(next: Seq, crc: u32) -> Self {
        // The log stays as it is until something is changed.
        Self { next_seq: next, crc, has_marker: true, ..Self::default() }
    }
}

impl Core {
    /// Applies a transaction to a store that has no committer.
    pub(super) fn apply_now(&self, mut job: Job) {
        let mut writer = self.pipeline.writer.lock();
        if self.is_full(&self.state.view.load()) {
            self.sweep_memory();
        }
        let result = if let Some(wrong) = job.refusal() {
            Err(wrong)
        } else {
            let is_full = self.is_full(&self.state.view.load()) && !planted(FaultBug::FullMemoryIgnored);
            let is_bounded = is_full && !job.is_needed && !job.steps.iter().all(Step::frees);
            self.apply(&mut writer, job.steps, is_bounded)
        };
        if result.is_err() {
            job.sequences.iter().for_each(RowSequence::mark_broken);
        }
        drop(writer);
        self.uploads.release(&job.taken_uploads);
        job.reply_to.send(result);
    }

    /// Applies a transaction or determines why it is refused. Its frame goes into the batch. The staged chunks are
    /// freed unless the transaction is logged.
    pub(crate) fn apply_or_refuse(&self, writer: &mut WriterState, mut job: Job) -> DecidedTransaction {
        let refusal = job.refusal().or_else(|| self.refusal(writer));
        let Job { steps, mut staged, taken_uploads, sequences, reply_to, .. } = job;
        let result = match refusal {
            Some(refusal) => Err(refusal),
            None => self.apply(writer, steps, false),
        };
        if result.is_err() {
            sequences.iter().for_each(RowSequence::mark_broken);
        }
        if result.is_ok() || !planted(FaultBug::RefusedUploadKept) {
            self.uploads.release(&taken_uploads);
        }
        if result.is_err() && !planted(ChangeBug::StagedChunksLeak) {
            self.discard(&std::mem::take(&mut staged));
        }
        DecidedTransaction { result, staged, sequences, reply_to }
    }

    /// The reason to refuse all transactions now, even if the buffer had room.
    pub(crate) fn refusal(&self, writer: &WriterState) -> Option<Error> {
        if let Some(why) = &writer.log_failure {
            let message = format!(
                "the store accepts no changes because its log failed: {why}; repair the cause and restart the server"
            );
            return Some(Error::new(ErrorKind::Io, message));
        }
        if self.installer.is_disk_full() && self.is_full(&self.state.view.load()) {
            let message = "the disk is full: changes cannot be moved to the B-tree; free disk space and try again";
            return Some(Error::new(ErrorKind::Full, message));
        }
        if self.is_full(&self.state.view.load())
            && let Some(why) = self.installer.failure()
        {
            return Some(Error::new(ErrorKind::Io, format!("changes cannot be moved to the B-tree: {why}")));
        }
        None
    }

    /// Whether a store in memory accepts only changes that free memory or are [needed](RowChanges::mark_needed).
    pub(crate) fn is_memory_full(&self) -> bool {
        let is_full = || !self.is_durable() && self.is_full(&self.state.view.load());
        is_full() && {
            self.sweep_memory();
            is_full()
        }
    }

    /// Whether the buffer is full until the installer has made room.
    pub(crate) fn is_full(&self, view: &View) -> bool {
        if self.is_durable() {
            view.frozen.is_some() && view.active.bytes() >= self.options.mob_bytes / 2
        } else {
            view.active.bytes() >= self.options.memory_bytes
        }
    }

    /// Applies a transaction and puts its frame into the batch; returns its position. If `is_bounded`, it may not take more
    /// memory than it frees.
    fn apply(&self, writer: &mut WriterState, steps: Vec<Step>, is_bounded: bool) -> Result<Seq> {
        let (view, seq) = (self.state.view.load(), writer.next_seq);
        if let [Step::Rows(rows)] = &steps[..] {
            if is_bounded && !view.active.has_room_for(rows.iter().map(|row| (&row.key, row.size()))) {
                return Err(no_room());
            }
            self.apply_rows(writer, &view, steps)?;
            return Ok(seq);
        }
        let changes = self.apply_on(&view, seq, &steps)?;
        if is_bounded && !view.active.has_room_for(changes.iter().map(|(key, row)| (key, row_size(row)))) {
            return Err(no_room());
        }
        self.append_frame(writer, &steps)?;
        self.insert(&view.active, seq, changes);
        self.finish_apply(writer, &view);
        Ok(seq)
    }

    /// Applies a transaction that changes only rows, which needs no look-ups.
    fn apply_rows(&self, writer: &mut WriterState, view: &View, steps: Vec<Step>) -> Result<()> {
        self.append_frame(writer, &steps)?;
        let seq = writer.next_seq;
        let mut slabs = view.active.slabs.lock();
        let changes = steps.into_iter().flat_map(|step| if let Step::Rows(rows) = step { rows } else { Vec::new() });
        self.insert(&view.active, seq, changes.map(|change| change.into_row(&mut slabs)));
        drop(slabs);
        self.finish_apply(writer, view);
        Ok(())
    }

    /// Advances the writer after a transaction was applied.
    fn finish_apply(&self, writer: &mut WriterState, view: &View) {
        writer.next_seq += 1;
        writer.has_marker = false;
        if self.is_durable() {
            self.maybe_freeze(writer, view);
        }
    }

    /// The rows that steps change in the newest state, durable or not.
    pub(crate) fn apply_on(&self, view: &View, seq: Seq, steps: &[Step]) -> Result<Changes> {
        let mut applied = None;
        let read = self.state.engine.read(&mut |engine| {
            let below = Layers {
                changes: None,
                active: &view.active,
                frozen: view.frozen.as_deref(),
                at: ReadPosition::Seq(Seq::MAX),
                engine,
                files: self.state.files(),
            };
            applied = Some(Applier::run(below, seq, steps));
        });
        read.map_err(|e| StoreError::from(e).0)?;
        applied.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the B-tree was not read")))
    }

    /// Appends the frame of an entry to the batch.
    pub(crate) fn append_frame(&self, writer: &mut WriterState, steps: &[Step]) -> Result<()> {
        if !self.is_durable() {
            return Ok(());
        }
        if writer.batch.frames.is_empty() {
            writer.batch_prev_crc = writer.crc;
        }
        let before = writer.batch.bytes.len();
        let (seq, crc, mut forced) = (writer.next_seq, writer.crc, self.state.visible_seq());
        if seq >= SEQ_END {
            let what =
                "the log has reached its last position, which only damage can bring about: restore from a backup";
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        if planted(Bug::ForcedTooHigh) {
            forced = seq;
        }
        let write = |out: &mut Vec<u8>| entry::encode(out, steps);
        let framed = frame::encode(&mut writer.batch.bytes, &self.id, seq, forced, crc, write);
        let limit = frame::MAX_PAYLOAD as u64;
        writer.crc = framed.map_err(|len| error::too_large("a transaction's log record", len as u64, limit))?;
        let end = writer.batch.bytes.len();
        writer.batch.frames.push((end, seq, writer.crc));
        writer.logged_bytes += (end - before) as u64;
        writer.trackers.note(seq, steps);
        Ok(())
    }

    /// Begins to track changes, after the last one so far.
    pub(crate) fn begin_tracking(&self) -> ChangeTracker {
        let mut writer = self.pipeline.writer.lock();
        let last = writer.next_seq - 1;
        writer.trackers.begin(last)
    }

    /// Puts changed rows into the buffer.
    pub(crate) fn insert(&self, active: &Mob, seq: Seq, changes: impl IntoIterator<Item = (Key, Row)>) {
        if !self.is_durable() {
            return self.insert_and_show(active, seq, changes);
        }
        active.insert_all(changes, seq, self.state.pins.horizon(&self.state.visible_seq));
    }

    /// Puts changed rows into the buffer of a store in memory and makes them visible.
    fn insert_and_show(&self, active: &Mob, seq: Seq, changes: impl IntoIterator<Item = (Key, Row)>) {
        let mut changes = changes.into_iter();
        let (first, second) = (changes.next(), changes.next());
        // Fast path for a single row: no second look-up is needed to prune it.
        if let (Some((key, row)), None) = (&first, &second) {
            return active.insert_and_show(key.clone(), seq, row.clone(), || self.make_visible(seq));
        }
        let horizon = self.state.pins.horizon(&self.state.visible_seq);
        let mut keys: SmallVec<[Key; 8]> = SmallVec::new();
        let changes = first.into_iter().chain(second).chain(changes).inspect(|(key, _)| keys.push(key.clone()));
        active.insert_all(changes, seq, horizon);
        let horizon = self.make_visible(seq);
        for key in keys {
            active.prune_key(key, seq, horizon);
        }
    }

    /// Frees versions in memory that snapshots had kept.
    pub(crate) fn sweep_memory(&self) {
        self.state.view.load().active.sweep(self.state.pins.horizon(&self.state.visible_seq));
    }

    /// Makes a transaction visible without a log; returns the new horizon.
    fn make_visible(&self, seq: Seq) -> Seq {
        self.state.visible_seq.store(seq, Ordering::SeqCst);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.state.pins.horizon(&self.state.visible_seq)
    }

    /// Freezes the buffer for installing if it is half full or the log is long.
    fn maybe_freeze(&self, writer: &mut WriterState, view: &View) {
        let due = view.active.bytes() >= self.options.mob_bytes / 2 || writer.logged_bytes >= self.options.log_bytes();
        if due && view.frozen.is_none() && !view.active.is_empty() {
            self.freeze(writer, view);
        }
    }

    /// Freezes the buffer and wakes the installer. No buffer may be frozen already.
    pub(crate) fn freeze(&self, writer: &mut WriterState, view: &View) {
        assert!(view.frozen.is_none(), "one buffer is frozen at a time");
        view.active.set_end(LogPosition { seq: writer.next_seq - 1, crc: writer.crc });
        let frozen = Some(Arc::clone(&view.active));
        let active = Arc::new(self.installer.take_spare_mob());
        self.state.view.store(Arc::new(View { active, frozen }));
        writer.logged_bytes = 0;
        self.installer.wake();
    }

    pub(crate) fn discard(&self, extents: &[Extent]) {
        if let Some(files) = self.state.files() {
            files.discard(extents);
        }
    }
}
