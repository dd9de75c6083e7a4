//! Prepares and commits transactions, and ends them with their outcomes (C1, C2).

use model::NodeId;

use super::{DurableAction, Participant, TxnState};
use crate::commit::{Answer, AppendOffsets, Change, Outcome, Part, Record, Refusal, Rejected, Request, Writes};
use crate::ident::{HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};
use crate::validate::{Footprint, PageVersions};

/// The record of an outcome.
fn decided_record<T>(outcome: Outcome, change: Change<T>, participants: Vec<NodeId>) -> Record<T> {
    let Change { txn, writes, touches, mut entries, offsets, .. } = change;
    let writes = if planted(Bug::OutcomeAlone) { Writes::new() } else { writes };
    if planted(Bug::EntriesNotDecided) {
        entries.clear();
    }
    Record::Decided { txn, outcome, writes, touches, entries, offsets, participants }
}

impl<A: Clone, T: Clone> Participant<A, T> {
    /// Prepares a transaction with several participants, or commits one that has no other.
    pub(super) fn prepare_or_commit(
        &mut self,
        from: A,
        request: Request<T>,
        now_ms: u64,
        versions: &dyn PageVersions,
        is_postponable: bool,
    ) {
        let (Request::Prepare { txn, part, .. } | Request::Commit { txn, part }) = &request else { return };
        let txn = *txn;
        let again = match self.transactions.get(&txn) {
            Some(TxnState::Ended { .. }) => planted(Bug::ExecutedTwice) && matches!(request, Request::Commit { .. }),
            Some(_) => planted(Bug::PrepareTwice),
            None => true,
        };
        if !again {
            return self.answer(from, txn);
        }
        if let Some(since) = self.too_old_since(txn) {
            return self.refuse_too_old(from, txn, since);
        }
        let footprint = part.footprint();
        if let Err(conflict) = self.validator.check(txn, &part.reads, &footprint, versions) {
            if is_postponable && let Some(position) = self.outcome_to_await(&part.reads, &conflict) {
                return self.postpone(position, from, request);
            }
            let why = Refusal::Conflict(conflict);
            if planted(Bug::VolatileRefusal) {
                return self.run_when_durable(0, DurableAction::Answer(from, Answer::Refused { txn, why }));
            }
            self.mark(txn, why);
            return self.answer(from, txn);
        }
        let timestamp = self.clock.tick(now_ms);
        match request {
            Request::Prepare { participants, part, .. } => {
                self.hold(txn, &footprint);
                let record = Record::Prepared {
                    txn,
                    participants: participants.clone(),
                    part: part.clone(),
                    proposal: timestamp,
                };
                let position = self.append(record);
                self.set_state(txn, TxnState::Prepared { participants, part, proposal: timestamp, position });
            }
            Request::Commit { part, .. } => {
                self.commit(txn, part, &footprint, timestamp);
            }
            _ => {}
        }
        self.answer(from, txn);
    }

    /// Holds what a transaction that conflicts with nothing reads and writes, and aborts the younger ones that it wounds.
    pub(super) fn hold(&mut self, txn: TxnId, footprint: &Footprint) {
        for younger in self.validator.hold(txn, footprint) {
            self.wound(younger);
        }
        self.locking.remove(&txn);
        self.expiring.set(txn, None);
    }

    /// Commits a transaction that conflicts with nothing, without preparing it. Returns the position of its record.
    pub(super) fn commit(&mut self, txn: TxnId, part: Part<T>, footprint: &Footprint, timestamp: HlcTimestamp) -> u64 {
        self.hold(txn, footprint);
        let change = Change::of_part(txn, timestamp, part);
        let Change { writes, touches, entries, offsets, .. } = change.clone();
        let position = self.append(Record::Committed { txn, timestamp, writes, touches, entries, offsets });
        self.end(Outcome::Committed(timestamp), change, position, Vec::new());
        position
    }

    /// Handles the outcome of a transaction. A participant with the opposite outcome answers with that one, and a participant that
    /// knows nothing of a committed transaction answers that it never commits here: the coordinator reports the
    /// [mixed outcome](crate::commit::coordinator::MixedOutcome).
    pub(super) fn handle_decide(&mut self, from: A, txn: TxnId, outcome: Outcome) -> Result<(), Rejected> {
        match self.transactions.get(&txn) {
            Some(TxnState::Prepared { part, participants, proposal, .. }) => {
                let participants = participants.clone();
                // No outcome is below a proposal, unless a client names two transactions alike: then its own suffer (V4).
                let outcome = match outcome {
                    Outcome::Committed(timestamp) if !planted(Bug::FirstProposal) => {
                        Outcome::Committed(timestamp.max(*proposal))
                    }
                    outcome => outcome,
                };
                let change = match outcome {
                    Outcome::Committed(timestamp) => Change::of_part(txn, timestamp, part.clone()),
                    Outcome::Aborted => Change::empty(txn),
                };
                let position = self.append(decided_record(outcome, change.clone(), participants.clone()));
                self.end(outcome, change, position, participants);
            }
            Some(_) => {}
            None if let Some(since) = self.too_old_since(txn) => {
                // Forgotten, so every participant has acknowledged it.
                let answer = Answer::Ended { txn, outcome, version: None, offsets: AppendOffsets::new() };
                self.run_when_durable(since, DurableAction::Answer(from, answer));
                return Ok(());
            }
            None => self.mark(txn, Refusal::Aborted),
        }
        self.answer(from, txn);
        Ok(())
    }

    /// Ends a transaction by the record at `position`: when that is durable, the changes are applied and the locks
    /// released. `participants` have to acknowledge the outcome.
    pub(super) fn end(&mut self, outcome: Outcome, mut change: Change<T>, position: u64, participants: Vec<NodeId>) {
        let (txn, offsets) = (change.txn, std::mem::take(&mut change.offsets));
        let mut version = None;
        if let Outcome::Committed(timestamp) = outcome {
            assert!(timestamp <= self.clock.last(), "V4: {txn:?} commits at {timestamp:?}, ahead of the clock");
            if !change.is_empty() {
                version = Some(self.version_at(position, timestamp));
            }
            self.validator.locks().set_logged(txn);
            self.run_when_durable(position, DurableAction::Apply(change));
        }
        self.run_when_durable(if planted(Bug::ReleasedEarly) { 0 } else { position }, DurableAction::Release(txn));
        let ended = TxnState::Ended { outcome, version, offsets, position, participants, acknowledged: false };
        self.set_state(txn, ended);
    }

    /// Handles a question of a coordinator that finishes a transaction or resolves its outcome (C2).
    pub(super) fn handle_ask(&mut self, from: A, txn: TxnId, round: u32) {
        if !self.transactions.contains_key(&txn) {
            if let Some(since) = self.too_old_since(txn) {
                return self.refuse_too_old(from, txn, since);
            }
            if planted(Bug::NoAbortMark) {
                let why = Refusal::Aborted;
                return self.run_when_durable(0, DurableAction::Answer(from, Answer::Refused { txn, why }));
            }
            self.mark(txn, Refusal::Aborted);
        }
        self.answer_in_round(from, txn, round);
    }

    /// The position of the record by which an unknown transaction is too old: the horizon, or the mark of its client.
    pub(super) fn too_old_since(&self, txn: TxnId) -> Option<u64> {
        let by_horizon = (txn.start <= self.horizon).then_some(self.horizon_position);
        by_horizon.or_else(|| self.marks.heard_position(txn))
    }

    /// Refuses an unknown transaction that is too old, as soon as the record at `since` is durable, by which it is.
    pub(super) fn refuse_too_old(&mut self, from: A, txn: TxnId, since: u64) {
        self.run_when_durable(since, DurableAction::Answer(from, Answer::Refused { txn, why: Refusal::TooOld }));
    }

    /// Marks a transaction as aborted for ever at this participant, and releases its locks.
    pub(super) fn mark(&mut self, txn: TxnId, why: Refusal) {
        let is_prepared = matches!(self.transactions.get(&txn), Some(TxnState::Prepared { .. }));
        assert!(!is_prepared, "C1: {txn:?} is prepared, and aborted without an outcome");
        let position = self.append(Record::Marked { txn });
        self.set_state(txn, TxnState::Marked { why, position });
        self.unlock(txn);
    }

    /// Answers with the state of a transaction when it is durable: the first time, and whenever it is asked again (C3).
    pub(super) fn answer(&mut self, from: A, txn: TxnId) {
        self.answer_in_round(from, txn, 0);
    }

    pub(super) fn answer_in_round(&mut self, from: A, txn: TxnId, round: u32) {
        let Some(known) = self.transactions.get(&txn) else { return };
        let (position, answer) = match known {
            TxnState::Prepared { participants, part, proposal, position } => {
                let (participants, offsets) = (participants.clone(), part.offsets.clone());
                let position = if planted(Bug::VoteBeforeForce) { 0 } else { *position };
                (position, Answer::Prepared { txn, proposal: *proposal, participants, round, offsets })
            }
            TxnState::Ended { outcome, version, offsets, position, .. } => {
                let offsets = offsets.clone();
                (*position, Answer::Ended { txn, outcome: *outcome, version: *version, offsets })
            }
            TxnState::Marked { why, position } => (*position, Answer::Refused { txn, why: *why }),
        };
        self.run_when_durable(position, DurableAction::Answer(from, answer));
    }

    /// Sets the state of a transaction.
    pub(super) fn set_state(&mut self, txn: TxnId, known: TxnState<T>) {
        self.set_finished(txn, known.is_over());
        if matches!(known, TxnState::Ended { .. }) && !known.is_over() {
            self.unacknowledged.insert(txn);
        }
        let outcome = known.outcome();
        let before = self.transactions.insert(txn, known).and_then(|before| before.outcome());
        assert!(before.is_none() || before == outcome, "C2: {txn:?} has ended as {before:?}, and is {outcome:?} now");
    }

    pub(super) fn set_finished(&mut self, txn: TxnId, is_finished: bool) {
        self.unacknowledged.remove(&txn);
        if is_finished {
            self.finished.insert(txn);
            self.finished_of.insert((txn.client, txn.start));
        } else {
            self.finished.remove(&txn);
            self.finished_of.remove(&(txn.client, txn.start));
        }
    }
}
