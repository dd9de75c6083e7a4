//! Requests that conflict with outcomes that are in the log and not durable yet.
//!
//! A transaction holds its objects until its outcome is durable (V2). Its client may know the outcome before: one of
//! several participants is told when all have prepared (C1). The next transaction of that client then comes while the
//! outcome is being forced, and there is no reason to refuse it. So its request is *postponed*: it is handled again when
//! the outcome is durable, as if the network had delivered it later.
//!
//! - **W1.** This is no wait for another transaction: the outcome becomes durable whatever other nodes do. A request
//!   that conflicts with an undecided transaction is refused at once.
//! - What has certainly read an outdated state is refused at once, too.

use std::collections::BTreeSet;

use super::{DurableAction, Outcome, Output, Participant, TxnState};
use crate::commit::Request;
use crate::ident::TxnId;
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::validate::{Cause, ReadVersion, ValidationConflict};

impl<A: Clone, T: Clone> Participant<A, T> {
    /// The position of the outcome by which a conflict may be over. `None` if the transaction must be refused.
    pub(super) fn outcome_to_await(&self, reads: &ReadList, conflict: &ValidationConflict) -> Option<u64> {
        let oid = conflict.oid;
        let other = match conflict.cause {
            Cause::Held(other) => other,
            Cause::Stale(_) => match reads.state_of(oid)? {
                ReadVersion::Written(writer) => writer,
                ReadVersion::At(_) => return None,
            },
        };
        let Some(TxnState::Ended { outcome, position, .. }) = self.transactions.get(&other) else { return None };
        let is_replaced = *outcome != Outcome::Aborted
            && self.validator.is_written_by(other, oid)
            && matches!(reads.state_of(oid), Some(ReadVersion::At(_)));
        (*position > self.forced && !is_replaced && !planted(Bug::CommittedRefuses)).then_some(*position)
    }

    /// Handles a request again when the log is durable up to `position`. A repeated request is dropped meanwhile.
    pub(super) fn postpone(&mut self, position: u64, from: A, request: Request<T>) {
        if self.postponed.insert(request.txn()) {
            self.run_when_durable(position, DurableAction::Again(from, request));
        }
    }

    /// Transactions whose outcome is in the log and not durable yet: a request that conflicts with one of them may wait.
    pub fn logged_outcomes(&self) -> impl Iterator<Item = TxnId> {
        self.validator.prepared().filter(|txn| {
            matches!(self.transactions.get(txn), Some(TxnState::Ended { position, .. }) if *position > self.forced)
        })
    }

    /// Checks that each postponed request waits for a record.
    pub(super) fn check_postponed(&self) -> Result<(), String> {
        let waiting = self.waiting.iter().filter_map(|(_, action)| match action {
            DurableAction::Again(_, request) => Some(request.txn()),
            _ => None,
        });
        let waiting: BTreeSet<TxnId> = waiting.collect();
        match self.postponed.symmetric_difference(&waiting).next() {
            Some(txn) => Err(format!("W1: {txn:?} is postponed and waits for no record, or the reverse")),
            None => Ok(()),
        }
    }

    pub(super) fn run_postponed(&mut self, from: A, request: Request<T>) {
        if planted(Bug::PostponedForgotten) {
            return;
        }
        self.postponed.remove(&request.txn());
        self.out.push(Output::Again(from, request));
    }
}
