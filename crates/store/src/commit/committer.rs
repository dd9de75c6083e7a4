//! The committer: one thread that drains the queue, applies transactions, and writes and forces their frames together.
//!
//! Transactions that arrive during a force form the next batch, so concurrency costs no extra forces. If a force fails,
//! all transactions of the batch fail and their changes are rolled back. Transactions for which the buffer has no room
//! wait in the backlog until the installer has made room.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, Result};
use parking_lot::MutexGuard;

use super::queue::WaitOutcome;
use super::round::Round;
use super::row_changes::RowSequence;
use super::writer::{DecidedTransaction, WriterState};
use super::{Core, DurableFiles, Job};
use crate::disk;
use crate::error;
use crate::log::{FrameBatch, LogError};
use crate::plant::{Bug, FaultBug, ForceBug, planted};
use crate::rows::mob::LogPosition;

/// How long the log is idle before a marker records that its last frames were forced.
const MARKER_DELAY: Duration = Duration::from_millis(20);
/// How often the committer checks for room while transactions wait.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Transactions that were drained from the queue and have no reply yet.
#[derive(Default)]
pub(crate) struct Pending {
    /// Transactions that wait for room.
    pub(crate) backlog: VecDeque<Job>,
    /// Transactions that wait for the batch to be forced.
    decided: Vec<DecidedTransaction>,
    /// Rounds, each with the number of decided transactions after which it ends.
    rounds: VecDeque<(u64, Round)>,
    /// Transactions decided since the store was opened.
    decided_count: u64,
    /// Transactions that were counted as waiting or passed since the store was opened.
    counted_for_room: u64,
}

impl Pending {
    fn accepted_count(&self) -> u64 {
        self.decided_count + self.backlog.len() as u64
    }

    fn push_decided(&mut self, decided: DecidedTransaction) {
        self.decided_count += 1;
        self.decided.push(decided);
    }

    /// How many transactions of the backlog wait for room and were not counted before.
    fn count_newly_waiting(&mut self) -> u64 {
        let before = self.counted_for_room.max(self.decided_count);
        self.counted_for_room = self.accepted_count();
        self.counted_for_room - before
    }

    /// The decided transactions, and the rounds that end with them.
    fn take_decided(&mut self) -> (Vec<DecidedTransaction>, Vec<Round>) {
        let rounds = self.rounds.iter().take_while(|(until, _)| *until <= self.decided_count).count();
        let rounds = self.rounds.drain(..rounds).map(|(_, round)| round).collect();
        (std::mem::take(&mut self.decided), rounds)
    }
}

impl Core {
    /// Drains the queue and applies transactions as far as there is room.
    pub(crate) fn apply_queued(&self, writer: &mut WriterState) {
        self.pipeline.queue.drain(&mut writer.pending.backlog);
        self.apply_backlog(writer);
    }

    /// As [`Core::apply_queued`], for a force that follows.
    fn apply_queued_for_force(&self, writer: &mut WriterState) {
        self.end_round(writer);
        self.apply_backlog(writer);
    }

    /// Drains the queue together with the threads that wait for its transactions.
    fn end_round(&self, writer: &mut WriterState) {
        let pending = &mut writer.pending;
        let round = self.pipeline.queue.take_round(&mut pending.backlog);
        let until = pending.accepted_count();
        pending.rounds.extend(round.map(|round| (until, round)));
    }

    fn apply_backlog(&self, writer: &mut WriterState) {
        if planted(Bug::AppliedOutOfOrder) {
            writer.pending.backlog.make_contiguous().reverse();
        }
        while let Some(job) = writer.pending.backlog.pop_front() {
            if self.is_full(&self.state.view.load()) && self.refusal(writer).is_none() {
                match planted(Bug::WaitingOvertaken) {
                    false => writer.pending.backlog.push_front(job),
                    true => writer.pending.backlog.push_back(job),
                }
                self.counters.waits.fetch_add(writer.pending.count_newly_waiting(), Ordering::Relaxed);
                self.installer.try_wake();
                return;
            }
            let decided = self.apply_or_refuse(writer, job);
            writer.pending.push_decided(decided);
        }
    }

    /// Whether a force has something to apply, to write, or to reply to.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn is_force_wanted(&self) -> bool {
        let writer = self.pipeline.writer.lock();
        let can_apply = || !self.is_full(&self.state.view.load()) || self.refusal(&writer).is_some();
        self.pipeline.queue.has_work()
            || !writer.batch.frames.is_empty()
            || !writer.pending.decided.is_empty()
            || (!writer.pending.backlog.is_empty() && can_apply())
    }

    /// Applies what is queued, forces the batch, makes it visible and sends the replies.
    pub(crate) fn force(&self) -> Result<()> {
        self.force_locked(self.pipeline.force_lock.lock())
    }

    /// As [`Core::force`], with the lock under which batches are forced.
    pub(super) fn force_locked(&self, mut spare: MutexGuard<'_, FrameBatch>) -> Result<()> {
        let Some(durable) = self.durable() else { return Ok(()) };
        let mut writer = self.pipeline.writer.lock();
        self.apply_queued_for_force(&mut writer);
        let mut batch = std::mem::replace(&mut writer.batch, std::mem::take(&mut spare));
        let prev = writer.batch_prev_crc;
        let (mut decided, mut rounds) = writer.pending.take_decided();
        drop(writer);
        let chunks = self.force_chunks(durable, &mut batch, &mut decided, &mut rounds);
        let forced = chunks.and_then(|()| self.write_batch(durable, &batch, prev, &decided));
        let result = forced.map_err(|error| self.roll_back(&error, prev, &mut decided, &mut rounds));
        *spare = batch.into_empty();
        let replying = (!planted(ForceBug::RepliesOvertaken)).then(|| self.pipeline.reply_lock.lock());
        drop(spare);
        if planted(Bug::RepliedOutOfOrder) {
            decided.reverse();
        }
        let replies = decided.len();
        if replies > 0 {
            self.pipeline.last_batch.store(replies, Ordering::Relaxed);
        }
        for DecidedTransaction { result, reply_to, .. } in decided {
            reply_to.send(result);
        }
        drop(rounds);
        if let Some(hook) = &*self.reply_hook.load() {
            hook(replies);
        }
        drop(replying);
        result
    }

    /// Forces the chunks that a batch names, which must be durable before the log names them. Transactions that arrive
    /// meanwhile join the batch, so a series of transactions with chunks does not need a force of the log for each.
    fn force_chunks(
        &self,
        durable: DurableFiles<'_>,
        batch: &mut FrameBatch,
        decided: &mut Vec<DecidedTransaction>,
        rounds: &mut Vec<Round>,
    ) -> Result<(), LogError> {
        if decided.iter().all(|one| one.staged.is_empty()) {
            return Ok(());
        }
        let staged = |decided: &[DecidedTransaction]| durable.files.force(decided.iter().flat_map(|one| &one.staged));
        staged(decided).map_err(LogError::Chunks)?;
        let mut writer = self.pipeline.writer.lock();
        self.apply_queued_for_force(&mut writer);
        batch.append(&mut writer.batch);
        let (more, more_rounds) = writer.pending.take_decided();
        drop(writer);
        let forced = staged(&more);
        decided.extend(more);
        rounds.extend(more_rounds);
        forced.map_err(LogError::Chunks)
    }

    /// Writes and forces a batch and makes it visible.
    fn write_batch(
        &self,
        durable: DurableFiles<'_>,
        batch: &FrameBatch,
        prev: u32,
        decided: &[DecidedTransaction],
    ) -> Result<(), LogError> {
        let Some((_, last, _)) = batch.frames.last() else { return Ok(()) };
        let began = Instant::now();
        if planted(Bug::ShownBeforeForce) {
            self.state.visible_seq.store(*last, Ordering::SeqCst);
        }
        durable.log.append(batch, prev)?;
        if durable.log.needs_spare() {
            self.installer.try_wake();
        }
        self.state.visible_seq.store(*last, Ordering::SeqCst);
        let commits = decided.iter().filter(|one| one.result.is_ok()).count();
        self.counters.record_force(commits, batch.bytes.len(), began.elapsed());
        Ok(())
    }

    /// Rolls back everything that is not durable: the batch after the frame with checksum `prev`, and what was applied
    /// since.
    fn roll_back(
        &self,
        error: &LogError,
        prev: u32,
        decided: &mut Vec<DecidedTransaction>,
        rounds: &mut Vec<Round>,
    ) -> Error {
        let mut writer = self.pipeline.writer.lock();
        let durable = self.state.visible_seq();
        let view = self.state.view.load();
        let frozen = view.frozen.as_ref().filter(|_| !planted(Bug::RollbackForgetsFrozen));
        for mob in [Some(&view.active), frozen].into_iter().flatten() {
            mob.roll_back(LogPosition { seq: durable, crc: prev });
        }
        writer.batch = FrameBatch::default();
        writer.next_seq = durable + 1;
        if !planted(Bug::RollbackKeepsChecksum) {
            writer.crc = prev;
        }
        let unlogged = error.is_before_write();
        if !unlogged && !planted(FaultBug::LogFailureForgotten) {
            writer.log_failure = Some(error.to_string().into());
        }
        self.end_round(&mut writer);
        let (later, later_rounds) = writer.pending.take_decided();
        decided.extend(later);
        // Under the writer's lock: before further changes of these sequences are applied.
        if !planted(Bug::SequenceUnbroken) {
            decided.iter().flat_map(|one| &one.sequences).for_each(RowSequence::mark_broken);
        }
        drop(writer);
        rounds.extend(later_rounds);
        tracing::error!(%error, transactions = decided.len(), "cannot force the log");
        for one in decided {
            if unlogged && !planted(FaultBug::RolledBackChunksKept) {
                self.discard(&one.staged);
            }
            one.result = Err(force_error(error));
        }
        force_error(error)
    }

    /// The loop of the committer's thread.
    pub(crate) fn run_committer(&self) {
        loop {
            let (marked, waiting) = {
                let writer = self.pipeline.writer.lock();
                (writer.has_marker, !writer.pending.backlog.is_empty())
            };
            let at_most = if waiting { Some(ROOM_POLL_INTERVAL) } else { (!marked).then_some(MARKER_DELAY) };
            let forces = self.counters.forces.load(Ordering::Relaxed);
            let rested = self.pipeline.queue.wait(at_most);
            // Other threads may have forced something meanwhile.
            let is_idle = rested == WaitOutcome::Idle && forces == self.counters.forces.load(Ordering::Relaxed);
            if is_idle && !waiting {
                self.write_marker(&mut self.pipeline.writer.lock());
            }
            // The callers of the failed transactions have the error.
            let _ = self.force();
            if rested == WaitOutcome::Closing {
                self.write_marker(&mut self.pipeline.writer.lock());
                let _ = self.force();
                return;
            }
        }
    }

    /// Logs a marker: an empty frame that records what was forced before it, so that damage to the last frames is
    /// noticed.
    pub(crate) fn write_marker(&self, writer: &mut WriterState) {
        let is_due =
            !writer.has_marker && writer.log_failure.is_none() && self.state.visible_seq() + 1 == writer.next_seq;
        if is_due && self.append_frame(writer, &[]).is_ok() {
            writer.next_seq += 1;
        }
        writer.has_marker = true;
    }

    /// Refuses transactions without a reply because the store is closed.
    pub(crate) fn refuse_pending(&self) {
        let mut pending = std::mem::take(&mut self.pipeline.writer.lock().pending);
        let round = self.pipeline.queue.take_round(&mut pending.backlog);
        for job in pending.backlog {
            self.refuse(job, error::closed_error());
        }
        // These were applied after the last force; nothing of them was written.
        for DecidedTransaction { staged, reply_to, .. } in pending.decided {
            self.discard(&staged);
            reply_to.send(Err(error::closed_error()));
        }
        drop((pending.rounds, round));
    }
}

/// The error for transactions whose frames could not be forced.
fn force_error(error: &LogError) -> Error {
    match error {
        LogError::Full(_) => {
            let message = "the disk is full: the log cannot grow; nothing was changed; free disk space and try again";
            Error::new(ErrorKind::Full, message)
        }
        LogError::NoSegment(cause) => {
            let what = format!("another segment of the log could not be made: {cause}; nothing was changed; try again");
            Error::new(ErrorKind::Io, what)
        }
        LogError::Chunks(cause) if disk::is_full(cause) => {
            let message =
                "the disk is full: a blob file cannot grow; nothing was changed; free disk space and try again";
            Error::new(ErrorKind::Full, message)
        }
        LogError::Chunks(cause) => {
            Error::new(ErrorKind::Io, format!("a blob file could not be forced: {cause}; nothing was changed"))
        }
        other => {
            let message = format!(
                "the log failed while the transaction was forced: {other}; restart the server to learn whether it was committed"
            );
            Error::new(ErrorKind::Unknown, message)
        }
    }
}
