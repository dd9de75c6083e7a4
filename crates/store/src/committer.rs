//! The committer: one thread that takes transactions in, applies them, and writes and forces their frames together.
//!
//! What comes while it forces is the next batch, so concurrency costs no extra forces. If a force fails, all that were
//! in the batch fail with it, and their changes are taken back. Transactions for which the buffer has no room stay in
//! the backlog until the installer has made some.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, Outcome, Result};

use crate::commit::{Decided, Job, Writer};
use crate::core::{Core, Durable};
use crate::disk;
use crate::entry::Entry;
use crate::error;
use crate::intake::Rested;
use crate::log::{Batch, LogError};
use crate::round::Round;
use crate::rows::RowSequence;

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
    /// Rounds, each with how many transactions must be settled before it ends.
    rounds: VecDeque<(u64, Round)>,
    /// How many were ever decided.
    settled: u64,
    /// How many of all were looked at for room.
    counted: u64,
}

impl Pending {
    fn taken_in(&self) -> u64 {
        self.settled + self.backlog.len() as u64
    }

    fn settle(&mut self, decided: Decided) {
        self.settled += 1;
        self.decided.push(decided);
    }

    /// How many of the backlog wait for room that did not before.
    fn newly_waiting(&mut self) -> u64 {
        let before = self.counted.max(self.settled);
        self.counted = self.taken_in();
        self.counted - before
    }

    /// What is answered when all that is decided holds.
    fn answered(&mut self) -> (Vec<Decided>, Vec<Round>) {
        let rounds = self.rounds.iter().take_while(|(until, _)| *until <= self.settled).count();
        let rounds = self.rounds.drain(..rounds).map(|(_, round)| round).collect();
        (std::mem::take(&mut self.decided), rounds)
    }
}

impl Core {
    /// Applies what was taken in, as far as there is room; its frames go into the batch.
    pub(crate) fn gather(&self, writer: &mut Writer) {
        self.intake.take(&mut writer.pending.backlog);
        self.apply_backlog(writer);
    }

    /// The same for a force that follows.
    fn gather_to_force(&self, writer: &mut Writer) {
        self.end_round(writer);
        self.apply_backlog(writer);
    }

    /// Takes in what there is, with those who wait for it.
    fn end_round(&self, writer: &mut Writer) {
        let pending = &mut writer.pending;
        let round = self.intake.take_round(&mut pending.backlog);
        let until = pending.taken_in();
        pending.rounds.extend(round.map(|round| (until, round)));
    }

    fn apply_backlog(&self, writer: &mut Writer) {
        while let Some(job) = writer.pending.backlog.pop_front() {
            if self.is_full(&self.view.load()) && self.refusal(writer).is_none() {
                writer.pending.backlog.push_front(job);
                self.counters.waits.fetch_add(writer.pending.newly_waiting(), Ordering::Relaxed);
                self.chores.notify_one();
                return;
            }
            let decided = self.apply_or_refuse(writer, job);
            writer.pending.settle(decided);
        }
    }

    /// Applies what was taken in, forces what is in the batch, shows it and gives the answers.
    pub(crate) fn force(&self) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let mut spare = self.forcing.lock();
        let mut writer = self.writer.lock();
        self.gather_to_force(&mut writer);
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
        self.gather_to_force(&mut writer);
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
        self.end_round(&mut writer);
        let (later, later_rounds) = writer.pending.answered();
        decided.extend(later);
        // Before the next are applied.
        decided.iter().filter_map(|one| one.sequence.as_ref()).for_each(RowSequence::break_off);
        drop(writer);
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
            let at_most = if waiting { Some(NO_ROOM) } else { (!marked).then_some(REST) };
            let rested = self.intake.rest(at_most);
            if rested == Rested::Idle && !waiting {
                self.mark(&mut self.writer.lock());
            }
            // What failed was told to those who waited for it.
            let _ = self.force();
            if rested == Rested::Closing {
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

    /// Tells those who were not answered that they will not be.
    pub(crate) fn refuse_the_rest(&self) {
        let mut pending = std::mem::take(&mut self.writer.lock().pending);
        let round = self.intake.take_round(&mut pending.backlog);
        for job in pending.backlog {
            self.refuse(job, error::closed());
        }
        // Applied after the last force; nothing of it was written.
        for Decided { staged, answer, .. } in pending.decided {
            self.discard(&staged);
            answer.give(Err(error::closed()));
        }
        drop((pending.rounds, round));
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
