//! Which outcomes a participant forgets (rule C3): those that all participants have acknowledged and their client has heard, and those
//! that are older than the horizon.

use model::NodeId;

use super::{Output, Participant, TxnState, first_txn_after};
use crate::commit::Record;
use crate::commit::client_mark::ClientMark;
use crate::ident::{ClientId, HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};

impl<A: Clone, T: Clone> Participant<A, T> {
    /// Transactions at or before the horizon that need no further message, without a scan of the others.
    fn old_finished(&self) -> impl Iterator<Item = (TxnId, &TxnState<T>)> {
        let old = self.finished.range(..first_txn_after(self.horizon));
        old.filter_map(|txn| {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            Some((*txn, self.transactions.get(txn)?))
        })
    }

    pub(crate) fn handle_forget(&mut self, txn: TxnId) {
        if let Some(known @ TxnState::Ended { .. }) = self.transactions.get_mut(&txn)
            && known.set_acknowledged()
        {
            let record = known.record(txn);
            self.set_finished(txn, true);
            self.append(record);
            self.forget_old();
        }
    }

    /// Forgets the outcomes that a client has heard, and makes its mark durable before. A mark that lets nothing be forgotten is not kept,
    /// so a repeated one writes nothing.
    pub(super) fn handle_heard(&mut self, client: ClientId, mark: ClientMark, now_ms: u64) {
        if !self.marks.is_news(client, &mark) {
            return;
        }
        let heard: Vec<TxnId> = self.forgettable_txns(client, &mark).collect();
        if heard.is_empty() {
            return;
        }
        let position = self.append(Record::Heard { client, mark: mark.clone() });
        self.marks.insert(client, mark, position);
        // Every commit after a restart is later than these (V4). The bound is raised in advance, so this rarely writes anything.
        self.promise(self.clock.last(), now_ms);
        self.remove(heard);
    }

    /// Transactions that need no further message, whose records are durable and whose outcomes their client has heard.
    pub(super) fn forgettable_txns<'a>(
        &'a self,
        client: ClientId,
        mark: &'a ClientMark,
    ) -> impl Iterator<Item = TxnId> + 'a {
        let finished = self.finished_of.range((client, HlcTimestamp::ZERO)..(client, mark.below()));
        let txns = finished.map(|(client, start)| TxnId { start: *start, client: *client });
        let ended = |(txn, known): (&TxnId, &TxnState<T>)| matches!(known, TxnState::Ended { .. }).then_some(*txn);
        let early = planted(Bug::HeardBeforeAcknowledged).then(|| self.transactions.iter().filter_map(ended));
        let early = early.into_iter().flatten().filter(move |txn| txn.client == client);
        txns.chain(early).filter(|txn| {
            let is_durable = self.transactions.get(txn).is_some_and(|known| known.position() <= self.forced);
            is_durable && mark.has_heard(txn.start)
        })
    }

    /// Raises the horizon: unknown transactions that began at or before it are refused from now on. The driver chooses
    /// a time so old that it expects no message of such a transaction any more. If no transaction has ended since the
    /// last horizon, nothing can be forgotten and the horizon stays, so an idle brick writes nothing.
    pub fn raise_horizon(&mut self, to: HlcTimestamp) {
        let between = self.transactions.range(first_txn_after(self.horizon)..first_txn_after(to.max(self.horizon)));
        let has_ended = between.into_iter().any(|(_, known)| !matches!(known, TxnState::Prepared { .. }));
        if has_ended || to > self.horizon && self.marks.has_old(to) {
            assert!(to >= self.horizon, "C3: the horizon goes back from {:?} to {to:?}", self.horizon);
            self.horizon = to;
            self.horizon_position = self.append(Record::Horizon(to));
            self.remove_old_marks();
        }
        self.forget_old();
    }

    /// Forgets the marks of clients that the horizon makes superfluous.
    pub(super) fn remove_old_marks(&mut self) {
        let clients = self.marks.remove_old(self.horizon);
        if !clients.is_empty() {
            self.out.push(Output::RemoveMarks(clients));
        }
    }

    /// Raises the bound above old outcomes and forgets them, so that every commit after a restart is later (V4).
    fn forget_old(&mut self) {
        let (forced, bound) = (self.forced, self.bound_appended);
        let is_above = self.old_finished().any(|(_, known)| known.position() <= forced && !known.is_below(bound));
        if is_above {
            self.raise_bound(self.clock.last().next());
        }
        self.remove_forgotten();
    }

    /// Forgets acknowledged outcomes and marks that are old: their transactions are refused by the horizon (C3).
    pub(super) fn remove_forgotten(&mut self) {
        let (forced, bound) = (self.forced, self.bound_appended);
        let dropped: Vec<TxnId> = if planted(Bug::OutcomeForgotten) {
            let ended = |known: &TxnState<T>| matches!(known, TxnState::Ended { .. }) && known.position() <= forced;
            self.transactions.iter().filter(|(_, known)| ended(known)).map(|(txn, _)| *txn).collect()
        } else {
            let old = self.old_finished().filter(|(_, known)| known.position() <= forced && known.is_below(bound));
            old.map(|(txn, _)| txn).collect()
        };
        self.remove(dropped);
    }

    pub(super) fn remove(&mut self, dropped: Vec<TxnId>) {
        if dropped.is_empty() {
            return;
        }
        for txn in &dropped {
            let is_undecided = self.transactions.remove(txn).is_some_and(|known| known.outcome().is_none());
            assert!(!is_undecided, "C3: {txn:?} is prepared, and forgotten");
            self.set_finished(*txn, false);
        }
        self.out.push(Output::RemoveRows(dropped));
    }

    /// Whether a transaction has ended here, and not all participants have acknowledged the outcome.
    #[must_use]
    pub fn is_unacknowledged(&self, txn: TxnId) -> bool {
        self.unacknowledged.contains(&txn)
    }

    /// Transactions whose outcome not all participants have acknowledged, with the participants. If that lasts, their
    /// coordinator is gone: finishing them again collects the acknowledgements, and shows whether a participant has lost its part.
    pub fn unacknowledged_txns(&self) -> impl Iterator<Item = (TxnId, &[NodeId])> {
        self.unacknowledged.iter().filter_map(|txn| match self.transactions.get(txn) {
            Some(TxnState::Ended { participants, .. }) => Some((*txn, &participants[..])),
            _ => None,
        })
    }
}
