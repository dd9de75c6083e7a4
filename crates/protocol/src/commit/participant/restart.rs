//! The state of a participant over a restart, a move, and the freeing of log segments (rule C4).

use model::NodeId;

use super::{Participant, TxnState};
use crate::commit::{AppendOffsets, Change, Outcome, Record, Refusal};
use crate::ident::{HlcTimestamp, TxnId, Version};
use crate::plant::{Bug, planted};

impl<A: Clone, T: Clone> Participant<A, T> {
    /// The transaction whose record, restored before, contradicts this one: both are prepared, and hold the same object (V2).
    pub fn contradicting(&self, record: &Record<T>) -> Option<TxnId> {
        let Record::Prepared { txn, part, .. } = record else { return None };
        self.validator.barring(*txn, &part.footprint())
    }

    /// Restores a durable record after a restart or a move (C4): the records of a log in their order, or
    /// [rows](Record::into_row) in any order. `at` is its position and the move count when it was appended: the version
    /// of its changes, which a repeated answer contains again (C3). Returns the changes.
    /// [`Participant::finish_recovery`] ends the recovery.
    ///
    /// # Panics
    /// If the record [contradicts](Participant::contradicting) an earlier one.
    pub fn recover(&mut self, at: Version, record: Record<T>) -> Option<Change<T>> {
        let position = at.position;
        (self.last, self.forced) = (position.max(self.last), position.max(self.forced));
        match record {
            Record::Prepared { .. } if planted(Bug::PreparedForgotten) => None,
            Record::Prepared { txn, participants, part, proposal } => {
                if !planted(Bug::LocksForgotten) {
                    let wound = self.validator.hold(txn, &part.footprint());
                    assert!(wound.is_empty(), "W1: {txn:?} is prepared, and {wound:?} hold what it has locked");
                }
                self.clock.advance_past(proposal);
                self.set_state(txn, TxnState::Prepared { participants, part, proposal, position });
                None
            }
            Record::Committed { txn, timestamp, writes, touches, entries, offsets } => {
                let change = Change { txn, timestamp, writes, touches, entries, offsets };
                self.recover_end(at, Outcome::Committed(timestamp), change, Vec::new())
            }
            Record::Decided { txn, outcome, writes, touches, entries, offsets, participants } => {
                let _ = self.validator.locks().release(txn);
                let timestamp =
                    if let Outcome::Committed(timestamp) = outcome { timestamp } else { HlcTimestamp::ZERO };
                let change = Change { txn, timestamp, writes, touches, entries, offsets };
                self.recover_end(at, outcome, change, participants)
            }
            Record::Marked { txn } => {
                if !planted(Bug::MarksForgotten) {
                    self.set_state(txn, TxnState::Marked { why: Refusal::Aborted, position });
                }
                None
            }
            Record::Bound(bound) => {
                if !planted(Bug::BoundForgotten) {
                    (self.bound, self.bound_appended) = (self.bound.max(bound), self.bound_appended.max(bound));
                    self.bound_position = position.max(self.bound_position);
                }
                None
            }
            Record::Horizon(horizon) => {
                self.horizon = self.horizon.max(horizon);
                self.horizon_position = position.max(self.horizon_position);
                None
            }
            Record::Heard { client, mark } => {
                if !planted(Bug::MarkForgotten) && self.marks.is_news(client, &mark) {
                    self.marks.insert(client, mark, position);
                }
                None
            }
            Record::Ended { txn, outcome, version, offsets, participants, acknowledged } => {
                if let Outcome::Committed(timestamp) = outcome {
                    self.clock.advance_past(timestamp);
                }
                let offsets = known_offsets(offsets);
                let ended = TxnState::Ended { outcome, version, offsets, position, participants, acknowledged };
                self.set_state(txn, ended);
                None
            }
        }
    }

    fn recover_end(
        &mut self,
        at: Version,
        outcome: Outcome,
        change: Change<T>,
        participants: Vec<NodeId>,
    ) -> Option<Change<T>> {
        let (position, txn) = (at.position, change.txn);
        let version = match outcome {
            Outcome::Committed(timestamp) if !change.is_empty() => {
                Some(Version { moves: at.moves, ..self.version_at(position, timestamp) })
            }
            _ => None,
        };
        let offsets = known_offsets(change.offsets.clone());
        let ended = TxnState::Ended { outcome, version, offsets, position, participants, acknowledged: false };
        self.set_state(txn, ended);
        let Outcome::Committed(timestamp) = outcome else { return None };
        self.clock.advance_past(timestamp);
        Some(change)
    }

    /// Ends the recovery. `position` is that of the last record that was ever durable, whether it still exists or not.
    /// The next records and page versions are numbered from there. The clock starts above everything that may have been
    /// promised (V4).
    pub fn finish_recovery(&mut self, position: u64) {
        (self.last, self.forced) = (position.max(self.last), position.max(self.forced));
        self.clock.advance_past(self.bound);
        self.remove_forgotten();
        self.remove_old_marks();
        let (marks, bound) = (&self.marks, self.bound_appended);
        let heard = marks.iter().flat_map(|(client, mark, _)| self.forgettable_txns(client, mark));
        let heard = heard.filter(|txn| self.transactions.get(txn).is_some_and(|known| known.is_below(bound)));
        let heard: Vec<TxnId> = heard.collect();
        self.remove(heard);
    }

    /// The state of this participant as records, to begin another log or to continue at another brick (section 5 of the
    /// design). Pages are handed over separately.
    ///
    /// # Panics
    /// If not all of the log is durable.
    pub fn state_records(&self) -> Vec<Record<T>> {
        assert!(self.forced == self.last, "L1: the log is handed over but not durable to its end");
        let mut records = vec![Record::Bound(self.bound), Record::Horizon(self.horizon)];
        records.extend(self.marks.iter().map(|(client, mark, _)| Record::Heard { client, mark: mark.clone() }));
        records.extend(self.transactions.iter().map(|(txn, known)| known.record(*txn)));
        records
    }

    /// Appends the records up to a position again whose content is still needed; the log is installed up to there. When
    /// the log is durable to its end, it can be freed up to that position.
    pub fn carry_forward(&mut self, upto: u64) {
        if self.bound_position <= upto && self.bound_appended > HlcTimestamp::ZERO {
            self.bound_position = self.append(Record::Bound(self.bound_appended));
        }
        if self.horizon_position <= upto && self.horizon > HlcTimestamp::ZERO {
            self.horizon_position = self.append(Record::Horizon(self.horizon));
        }
        let old_marks = self.marks.iter().filter(|(.., position)| *position <= upto);
        let old_marks: Vec<_> = old_marks.map(|(client, mark, _)| (client, mark.clone())).collect();
        for (client, mark) in old_marks {
            let position = self.append(Record::Heard { client, mark: mark.clone() });
            self.marks.insert(client, mark, position);
        }
        let old = self.transactions.iter().filter(|(_, known)| known.position() <= upto);
        let old: Vec<(TxnId, Record<T>)> = old.map(|(txn, known)| (*txn, known.record(*txn))).collect();
        for (txn, record) in old {
            if planted(Bug::SegmentFreed) && matches!(record, Record::Prepared { .. }) {
                continue;
            }
            self.append(record);
            if let Some(known) = self.transactions.get_mut(&txn) {
                known.set_position(self.last);
            }
        }
    }
}

/// The offsets that an ended transaction has after a restart: those of its record, unless a bug is planted.
fn known_offsets(recorded: AppendOffsets) -> AppendOffsets {
    if planted(Bug::OffsetsForgotten) { AppendOffsets::new() } else { recorded }
}

impl<T: Clone> TxnState<T> {
    /// The record of the current state of a transaction.
    pub(super) fn record(&self, txn: TxnId) -> Record<T> {
        match self {
            Self::Prepared { participants, part, proposal, .. } => {
                let (participants, part) = (participants.clone(), part.clone());
                Record::Prepared { txn, participants, part, proposal: *proposal }
            }
            Self::Ended { outcome, version, offsets, participants, acknowledged, .. } => {
                let (offsets, participants) = (offsets.clone(), participants.clone());
                let (outcome, version, acknowledged) = (*outcome, *version, *acknowledged);
                Record::Ended { txn, outcome, version, offsets, participants, acknowledged }
            }
            Self::Marked { .. } => Record::Marked { txn },
        }
    }
}
