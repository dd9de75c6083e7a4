//! The order in which the rows of a logical node go to the store, and how far they are durable.
//!
//! ```text
//!   rows ──flush──▶ in flight ──durable──▶ gone
//!                     │    ▲
//!              refused│    │room again
//!                     ▼    │
//!                    deferred
//! ```
//!
//! 1. Rows reach the store in the order of the records that made them. All rows of a life are one [`RowSequence`]: once the store has
//!    refused some, it takes none of those behind them.
//! 2. A store without room refuses rows for now. They wait, in their order, and are submitted again as another life.
//! 3. Rows of a one-phase commit are one change of the store with rows of other logical nodes, and so are never submitted again: they would
//!    become durable alone. If they are refused, all logical nodes of the commit go on from what is stored, as after a restart.
//! 4. A position is used once: the row of the limit is durable with the first record above the last limit.

use std::collections::VecDeque;

use model::{Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use store::{RowChanges, RowSequence};

use super::output::Life;
use crate::brick::page_rows as rows;
use crate::brick::plant::{Bug, planted};

/// How many positions a row of the limit reserves.
const POSITION_BATCH: u64 = if cfg!(test) { 8 } else { 1 << 20 };
/// How long after a refusal rows are submitted again, in milliseconds.
const RETRY_DELAY_MS: Ms = 200;

/// Rows that were submitted to the store, and the position up to which they reach.
#[derive(Debug)]
pub(super) struct SubmittedRows {
    pub(super) position: u64,
    pub(super) rows: RowChanges,
    /// Whether they are one change of the store with rows of other logical nodes.
    is_one_phase: bool,
}

/// What the result of a submission means.
#[derive(Debug)]
pub(super) enum WriteResult {
    /// Nothing: it is of an earlier life.
    Outdated,
    /// These rows are durable, and all records up to their position.
    Durable(SubmittedRows),
    /// The store has no room: the rows wait. Says whether this is the first refusal.
    Deferred { is_first: bool },
    /// The store takes no more rows of this logical node.
    Failed(Error),
    /// The store has no room for rows that cannot be submitted again: the logical node goes on from what is stored.
    Lost,
}

/// What was done with the rows of new records.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// There was nothing to be done.
    Nothing,
    /// Rows are to be submitted, or wait.
    Rows,
    /// The records need no rows, and are as durable as those before them, of which some are not yet.
    WithOthers,
    /// The records need no rows, and all before them are durable.
    Durable(u64),
}

/// Writes the rows of a logical node.
#[derive(Debug)]
pub(super) struct RowWriter {
    node: NodeId,
    life: Life,
    sequence: RowSequence,
    /// The next rows, and whether they are part of a one-phase commit.
    rows: RowChanges,
    is_one_phase: bool,
    /// The position of the last record, of the last whose rows were flushed, and up to which all is durable.
    last_position: u64,
    flushed_position: u64,
    durable_position: u64,
    /// No position above it was used.
    position_limit: u64,
    /// What the store has, in order, and how many of these it has refused.
    in_flight: VecDeque<SubmittedRows>,
    refused: usize,
    /// What the store had no room for, in order, and when to submit it again.
    deferred: VecDeque<SubmittedRows>,
    retry_at: Option<Ms>,
    /// Why the store takes no rows now.
    full_error: Option<Error>,
    /// How often rows were flushed, and how many of these are durable.
    flushed_count: u64,
    durable_count: u64,
    /// What is to be submitted.
    submissions: VecDeque<(Life, RowChanges)>,
}

impl RowWriter {
    /// The number with which the node was opened.
    pub(super) fn opening(&self) -> u64 {
        self.life.opening
    }

    /// The writer of a node that was opened as number `opening`, and has used no position above `position_limit`.
    pub(super) fn open(node: NodeId, opening: u64, position_limit: u64) -> Self {
        let sequence = RowSequence::new();
        Self {
            node,
            life: Life { opening, refusals: 0 },
            rows: sequence.changes(),
            is_one_phase: false,
            sequence,
            last_position: position_limit,
            flushed_position: position_limit,
            durable_position: position_limit,
            position_limit,
            in_flight: VecDeque::new(),
            refused: 0,
            deferred: VecDeque::new(),
            retry_at: None,
            full_error: None,
            flushed_count: 0,
            durable_count: 0,
            submissions: VecDeque::new(),
        }
    }

    /// The next rows, to be added to.
    pub(super) fn rows(&mut self) -> &mut RowChanges {
        &mut self.rows
    }

    /// The next rows are part of a one-phase commit: they become durable together with those of other logical nodes.
    pub(super) fn begin_one_phase(&mut self) {
        self.is_one_phase = true;
    }

    /// How many rows wait to be flushed.
    pub(super) fn unflushed_count(&self) -> usize {
        self.rows.len()
    }

    /// How many bytes the rows take that wait to be flushed, keys included.
    pub(super) fn unflushed_bytes(&self) -> usize {
        self.rows.bytes()
    }

    pub(super) fn last_position(&self) -> u64 {
        self.last_position
    }

    pub(super) fn durable_position(&self) -> u64 {
        self.durable_position
    }

    /// How often rows were flushed. Not all rows are of records, so positions do not say whether they are durable.
    pub(super) fn flushed_count(&self) -> u64 {
        self.flushed_count
    }

    /// How many flushed rows are durable, in their order.
    pub(super) fn durable_count(&self) -> u64 {
        self.durable_count
    }

    /// How many submissions are with the store.
    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether any of these rows changes and is not known to be durable.
    pub(super) fn has_pending(&self, keys: &[Vec<u8>]) -> bool {
        let submitted = self.in_flight.iter().chain(&self.deferred).map(|submitted| &submitted.rows);
        let mut pending = submitted.chain([&self.rows]).flat_map(RowChanges::keys);
        pending.any(|pending| keys.iter().any(|key| **key == *pending))
    }

    /// Why the store takes no rows now.
    pub(super) fn full_error(&self) -> Option<&Error> {
        self.full_error.as_ref()
    }

    /// When rows that the store has refused are to be submitted again.
    pub(super) fn retry_at(&self) -> Option<Ms> {
        self.retry_at
    }

    /// Takes the next submission.
    pub(super) fn next_submission(&mut self) -> Option<(Life, RowChanges)> {
        self.submissions.pop_front()
    }

    /// The machine has appended a record at this position.
    ///
    /// # Panics
    /// If it is not the next position.
    pub(super) fn begin_record(&mut self, position: u64) {
        assert!(position == self.last_position + 1, "L1: position {position} follows {}", self.last_position);
        self.last_position = position;
        if position > self.position_limit && !planted(Bug::LimitNotRaised) {
            self.position_limit = position + POSITION_BATCH;
            self.rows.put(&rows::limit_key(self.node), rows::encode_number(self.position_limit));
        }
    }

    /// All records up to this position are durable.
    pub(super) fn advance_durable(&mut self, position: u64) {
        assert!(position <= self.last_position, "L1: {position} is durable, and was never appended");
        self.durable_position = self.durable_position.max(position);
    }

    /// Submits the next rows, whatever records they are of. Says whether there were any.
    pub(super) fn flush_rows(&mut self) -> bool {
        if self.rows.is_empty() {
            return false;
        }
        let rows = std::mem::replace(&mut self.rows, self.sequence.changes());
        self.flushed_count += 1;
        let is_one_phase = std::mem::take(&mut self.is_one_phase);
        let submitted = SubmittedRows { position: self.last_position, rows, is_one_phase };
        if self.full_error.is_some() {
            self.deferred.push_back(submitted);
        } else {
            self.submit(submitted);
        }
        true
    }

    /// Whether there are records whose rows were not flushed.
    pub(super) fn has_unflushed_records(&self) -> bool {
        self.flushed_position != self.last_position
    }

    /// Submits the rows of all records.
    pub(super) fn flush_records(&mut self) -> Flushed {
        if !self.has_unflushed_records() {
            return Flushed::Nothing;
        }
        self.flushed_position = self.last_position;
        if self.flush_rows() {
            return Flushed::Rows;
        }
        match self.deferred.back_mut().or(self.in_flight.back_mut()) {
            Some(submitted) => {
                submitted.position = self.last_position;
                Flushed::WithOthers
            }
            None => Flushed::Durable(self.last_position),
        }
    }

    fn submit(&mut self, submitted: SubmittedRows) {
        let rows = submitted.rows.clone();
        let rows = if planted(Bug::SequenceNotKept) {
            rows.in_sequence(&RowSequence::new())
        } else {
            rows.in_sequence(&self.sequence)
        };
        self.submissions.push_back((self.life, rows));
        self.in_flight.push_back(submitted);
    }

    /// The store has made the oldest submission durable, or has refused it.
    pub(super) fn handle_written(&mut self, life: Life, result: Result<()>, now: Ms) -> WriteResult {
        if life != self.life && !planted(Bug::OldLifeCounts) {
            return WriteResult::Outdated;
        }
        match result {
            Ok(()) => {
                let Some(submitted) = self.in_flight.pop_front() else { return WriteResult::Outdated };
                self.full_error = None;
                self.durable_count += 1;
                assert!(
                    self.durable_count <= self.flushed_count,
                    "L1: rows of logical node {} are durable {} times, and were flushed {} times",
                    self.node,
                    self.durable_count,
                    self.flushed_count
                );
                WriteResult::Durable(submitted)
            }
            Err(error) => self.handle_refused(error, now),
        }
    }

    fn handle_refused(&mut self, error: Error, now: Ms) -> WriteResult {
        self.refused += 1;
        // The store gives this error to all rows behind the first that it has refused.
        let is_one_phase = self.in_flight.get(self.refused - 1).is_some_and(|submitted| submitted.is_one_phase);
        let is_behind = self.full_error.is_some() && error.kind() == ErrorKind::Unavailable;
        // The store refuses a change of several logical nodes if it refuses the part of one of them, also because the whole change is too large. The
        // errors `Io` and `Unknown` mean that the log has failed: then the store does not know whether the change is durable, and the node ends.
        let is_lost = is_one_phase && !matches!(error.kind(), ErrorKind::Io | ErrorKind::Unknown);
        if error.kind() != ErrorKind::Full && !is_behind && !is_lost {
            return WriteResult::Failed(error);
        }
        let is_first = self.full_error.is_none();
        self.full_error.get_or_insert(error);
        if self.refused == self.in_flight.len() {
            self.refused = 0;
            if self.in_flight.iter().any(|submitted| submitted.is_one_phase) && !planted(Bug::RefusedOnePhaseRetried) {
                self.in_flight.clear();
                return WriteResult::Lost;
            }
            self.life.refusals += 1;
            self.sequence = RowSequence::new();
            if planted(Bug::RefusedRowsBehindLater) {
                self.deferred.append(&mut self.in_flight);
            } else {
                self.in_flight.append(&mut self.deferred);
                self.deferred = std::mem::take(&mut self.in_flight);
            }
            if planted(Bug::RefusedRowsLost) {
                self.deferred.pop_front();
            }
            self.retry_at = Some(now + RETRY_DELAY_MS);
        }
        WriteResult::Deferred { is_first }
    }

    /// Submits the first of the deferred rows again, if it is time: one submission shows whether there is room.
    pub(super) fn retry(&mut self, now: Ms) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            if let Some(submitted) = self.deferred.pop_front() {
                self.submit(submitted);
            }
        }
    }

    /// Submits all deferred rows, if there is room again. Says whether there were any.
    pub(super) fn submit_deferred(&mut self) -> bool {
        if self.full_error.is_some() || self.deferred.is_empty() {
            return false;
        }
        std::mem::take(&mut self.deferred).into_iter().for_each(|submitted| self.submit(submitted));
        true
    }

    /// The node is closed: nothing more is submitted.
    pub(super) fn close(&mut self) {
        self.deferred.clear();
        // What the store has refused is not with it any more.
        self.in_flight.drain(..std::mem::take(&mut self.refused));
    }

    /// After [`RowWriter::close`]: the store has done with the oldest submission. Returns its rows, which may be durable or not.
    pub(super) fn finish_write(&mut self, life: Life) -> Option<RowChanges> {
        if life == self.life { self.in_flight.pop_front().map(|submitted| submitted.rows) } else { None }
    }

    /// Whether nothing is with the store.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() || planted(Bug::ClosedWithRowsInFlight)
    }
}

#[cfg(test)]
mod tests;
