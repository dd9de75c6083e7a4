//! Promises that nothing commits at or before a time any more, to transactions that only read (V4) and for group snapshots (G1).

use super::{DurableAction, Participant, TxnState};
use crate::clock::LEAD_MS;
use crate::commit::{Outcome, Record, Rejected};
use crate::ident::{HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::validate::{Cause, PageVersions, ValidationConflict};

impl<A: Clone, T: Clone> Participant<A, T> {
    /// Handles a check of reads: they must be current, and no prepared transaction may write the objects. Promises that
    /// nothing commits at or before `at` any more.
    pub(super) fn handle_check(
        &mut self,
        txn: TxnId,
        reads: &ReadList,
        at: HlcTimestamp,
        now_ms: u64,
        versions: &dyn PageVersions,
    ) -> Result<Result<(), ValidationConflict>, Rejected> {
        if planted(Bug::PromiseIgnored) {
            return Ok(self.validator.check(txn, reads, &Default::default(), versions));
        }
        self.clock.learn(at, now_ms)?;
        let mut verdict = self.validator.check(txn, reads, &Default::default(), versions);
        if let Err(conflict) = verdict
            && let Cause::Held(holder) = conflict.cause
            && matches!(self.transactions.get(&holder), Some(TxnState::Prepared { proposal, .. }) if *proposal > at)
            && planted(Bug::CheckIgnoresPrepared)
        {
            verdict = Ok(());
        }
        self.promise(at, now_ms);
        Ok(verdict)
    }

    /// Promises that nothing commits at or before `at` any more: the clock moves up to it, and the bound must be above
    /// it. The bound is raised in advance, but not further ahead of the time of the cluster than other processes accept (L2).
    pub(super) fn promise(&mut self, at: HlcTimestamp, now_ms: u64) {
        if at >= self.bound_appended {
            self.raise_bound(HlcTimestamp::at(self.physical_ms(now_ms) + LEAD_MS).max(at.next()));
        }
    }

    pub(super) fn raise_bound(&mut self, bound: HlcTimestamp) {
        let before = std::mem::replace(&mut self.bound_appended, bound);
        assert!(before <= bound, "V4: the bound goes back from {before:?} to {bound:?}");
        let position = self.append(Record::Bound(bound));
        self.bound_position = position;
        self.run_when_durable(position, DurableAction::Raise(bound));
    }

    /// The closed timestamp (G1): nothing commits at or before it any more. It is below every prepared proposal, every
    /// commit that is not durable, and the durable bound.
    pub fn close_timestamp(&mut self, now_ms: u64) -> HlcTimestamp {
        let now = self.clock.tick(now_ms);
        self.promise(now, now_ms);
        let in_flight = self.validator.prepared_txns();
        let open = in_flight.filter_map(|txn| self.transactions.get(&txn)).filter_map(|known| match known {
            TxnState::Prepared { .. } if planted(Bug::ClosedAbovePrepared) => None,
            TxnState::Prepared { proposal, .. } => Some(*proposal),
            TxnState::Ended { outcome: Outcome::Committed(timestamp), position, .. } if *position > self.forced => {
                Some(*timestamp)
            }
            _ => None,
        });
        let below = open.chain([self.bound]).min().unwrap_or(self.bound);
        now.min(HlcTimestamp(below.0.saturating_sub(1)))
    }
}
