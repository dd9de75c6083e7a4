//! The committer: one thread that takes transactions in, applies them, and writes and forces their frames together.
//!
//! What comes while it forces is the next batch, so concurrency costs no extra forces. If a force fails, all that were
//! in the batch fail with it, and their changes are taken back. Transactions for which the buffer has no room stay in
//! the backlog until the installer has made some.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, Outcome, Result};

use crate::commit::{Decided, Intake, Job, Writer};
use crate::core::{Core, Durable};
use crate::disk;
use crate::entry::Entry;
use crate::error;
use crate::log::{Batch, LogError};
use crate::round::Round;

/// How long the log rests before a mark says that its last frames were forced.
const REST: Duration = Duration::from_millis(20);
/// How long the committer waits for room before it looks itself.
const NO_ROOM: Duration = Duration::from_millis(20);

/// What was taken in and not answered yet.
#[derive(Default)]
pub(crate) struct Pending {
    /// Transactions that wait for room.
    pub(crate) backlog: VecDeque<Job>,
    /// Transactions that wait for the batch to be forced.
    decided: Vec<Decided>,
    /// Rounds, each with how many transactions had been taken in at its end.
    rounds: VecDeque<(u64, Round)>,
    taken_in: u64,
    /// How many of them were looked at for room.
    counted: u64,
}

impl Pending {
    /// How many of the backlog wait for room that did not before.
    fn newly_waiting(&mut self) -> u64 {
        let before = self.counted.max(self.taken_in - self.backlog.len() as u64);
        self.counted = self.taken_in;
        self.taken_in - before
    }

    /// What is answered when all that is decided holds.
    fn answered(&mut self) -> (Vec<Decided>, Vec<Round>) {
        let decided = self.taken_in - self.backlog.len() as u64;
        let rounds = self.rounds.iter().take_while(|(until, _)| *until <= decided).count();
        let rounds = self.rounds.drain(..rounds).map(|(_, round)| round).collect();
        (std::mem::take(&mut self.decided), rounds)
    }
}

impl Core {
    /// Applies what was taken in, as far as there is room; its frames go into the batch.
    pub(crate) fn gather(&self, writer: &mut Writer) {
        {
            let mut intake = self.intake.lock();
            let pending = &mut writer.pending;
            intake.unforced |= !intake.jobs.is_empty();
            pending.taken_in += intake.jobs.len() as u64;
            pending.backlog.extend(intake.jobs.drain(..));
            if let Some(round) = intake.round.take() {
                pending.rounds.push_back((pending.taken_in, round));
            }
        }
        while let Some(job) = writer.pending.backlog.pop_front() {
            if self.is_full(&self.view.load()) && self.refusal(writer).is_none() {
                writer.pending.backlog.push_front(job);
                self.counters.waits.fetch_add(writer.pending.newly_waiting(), Ordering::Relaxed);
                self.chores.notify_one();
                return;
            }
            let decided = self.apply_or_refuse(writer, job);
            writer.pending.decided.push(decided);
        }
    }

    /// Applies what was taken in, forces what is in the batch, shows it and gives the answers.
    pub(crate) fn force(&self) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let mut spare = self.forcing.lock();
        let mut writer = self.writer.lock();
        self.gather(&mut writer);
        self.intake.lock().unforced = false;
        let mut batch = std::mem::replace(&mut writer.batch, std::mem::take(&mut spare));
        let prev = writer.batch_prev;
        let (mut decided, mut rounds) = writer.pending.answered();
        drop(writer);
        let chunks = self.force_chunks(durable, &mut batch, &mut decided, &mut rounds);
        let forced = chunks.and_then(|()| self.write(durable, &batch, prev, &decided));
        let result = forced.map_err(|error| self.take_back(&error, prev, &mut decided, &mut rounds));
        *spare = batch.emptied();
        drop(spare);
        for Decided { result, answer, .. } in decided {
            answer.give(result);
        }
        drop(rounds);
        result
    }

    /// Forces the chunks that a batch names: they must be durable before the log names them. What has come meanwhile goes
    /// into the same batch, so that a row of transactions with chunks does not force the log for each.
    fn force_chunks(
        &self,
        durable: &Durable,
        batch: &mut Batch,
        decided: &mut Vec<Decided>,
        rounds: &mut Vec<Round>,
    ) -> Result<(), LogError> {
        if decided.iter().all(|one| one.staged.is_empty()) {
            return Ok(());
        }
        let staged = |decided: &[Decided]| durable.files.force(decided.iter().flat_map(|one| &one.staged));
        staged(decided).map_err(LogError::Chunks)?;
        let mut writer = self.writer.lock();
        self.gather(&mut writer);
        self.intake.lock().unforced = false;
        batch.append(&mut writer.batch);
        let (more, more_rounds) = writer.pending.answered();
        drop(writer);
        let forced = staged(&more);
        decided.extend(more);
        rounds.extend(more_rounds);
        forced.map_err(LogError::Chunks)
    }

    /// Writes and forces a batch, and shows it.
    fn write(&self, durable: &Durable, batch: &Batch, prev: u32, decided: &[Decided]) -> Result<(), LogError> {
        let Some((_, last, _)) = batch.frames.last() else { return Ok(()) };
        let began = Instant::now();
        durable.log.append(batch, prev)?;
        if durable.log.needs_spare() {
            self.chores.notify_one();
        }
        self.visible.store(*last, Ordering::SeqCst);
        let commits = decided.iter().filter(|one| matches!(one.result, Ok(Outcome::Committed(_)))).count();
        self.counters.forced(commits, batch.bytes.len(), began.elapsed());
        Ok(())
    }

    /// Takes back everything that is not durable: the batch behind checksum `prev`, and what was applied since.
    fn take_back(&self, error: &LogError, prev: u32, decided: &mut Vec<Decided>, rounds: &mut Vec<Round>) -> Error {
        let mut writer = self.writer.lock();
        let durable = self.visible();
        let view = self.view.load();
        for mob in [Some(&view.active), view.frozen.as_ref()].into_iter().flatten() {
            mob.roll_back(durable);
        }
        writer.batch = Batch::default();
        (writer.next, writer.crc) = (durable + 1, prev);
        let unlogged = matches!(error, LogError::Full(_) | LogError::Chunks(_));
        if !unlogged {
            writer.failed = Some(error.to_string().into());
        }
        let (later, later_rounds) = writer.pending.answered();
        drop(writer);
        decided.extend(later);
        rounds.extend(later_rounds);
        tracing::error!(%error, transactions = decided.len(), "cannot force the log");
        for one in decided {
            if unlogged {
                self.discard(&one.staged);
            }
            one.result = Err(not_forced(error));
        }
        not_forced(error)
    }

    /// The committer's life.
    pub(crate) fn run_committer(&self) {
        loop {
            let (marked, waiting) = {
                let writer = self.writer.lock();
                (writer.marked, !writer.pending.backlog.is_empty())
            };
            let mut intake = self.intake.lock();
            if intake.is_idle() && !intake.closing {
                if waiting {
                    self.work.wait_for(&mut intake, NO_ROOM);
                } else if marked {
                    self.work.wait(&mut intake);
                } else if self.work.wait_for(&mut intake, REST).timed_out() && intake.is_idle() {
                    drop(intake);
                    self.mark(&mut self.writer.lock());
                    intake = self.intake.lock();
                }
            }
            let closing = intake.closing;
            drop(intake);
            // What failed was told to those who waited for it.
            let _ = self.force();
            if closing {
                self.mark(&mut self.writer.lock());
                let _ = self.force();
                return;
            }
        }
    }

    /// Logs a frame that only says what was forced before it, so that damage to the last ones would be noticed.
    pub(crate) fn mark(&self, writer: &mut Writer) {
        if !writer.marked && writer.failed.is_none() && self.visible() + 1 == writer.next {
            let entry = Entry::default();
            if self.frame(writer, &entry).is_ok() {
                writer.next += 1;
            }
        }
        writer.marked = true;
    }

    /// Refuses new transactions and lets the committer end.
    pub(crate) fn close_intake(&self) {
        self.intake.lock().closing = true;
        self.work.notify_all();
    }

    /// Tells those who were not answered that they will not be.
    pub(crate) fn refuse_the_rest(&self) {
        let closed = Intake { closing: true, ..Intake::default() };
        let left = std::mem::replace(&mut *self.intake.lock(), closed);
        let pending = std::mem::take(&mut self.writer.lock().pending);
        for job in pending.backlog.into_iter().chain(left.jobs) {
            self.refuse(job, error::closed());
        }
    }
}

/// What those learn whose frames could not be forced.
fn not_forced(error: &LogError) -> Error {
    match error {
        LogError::Full(_) => {
            let message = "the disk is full: the log cannot grow; nothing was changed; make room and try again";
            Error::new(ErrorKind::Full, message)
        }
        LogError::Chunks(cause) if disk::is_full(cause) => {
            let message = "the disk is full: a blob file cannot grow; nothing was changed; make room and try again";
            Error::new(ErrorKind::Full, message)
        }
        LogError::Chunks(cause) => {
            Error::new(ErrorKind::Io, format!("a blob file could not be forced: {cause}; nothing was changed"))
        }
        other => {
            let message = format!("the log failed while the transaction was forced: {other}; restart to find out");
            Error::new(ErrorKind::Unknown, message)
        }
    }
}
