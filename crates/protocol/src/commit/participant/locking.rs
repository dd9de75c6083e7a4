//! Datastore transactions at a participant (rule W1): strict two-phase locks.
//!
//! They lock objects before they read or write them, and commit like other transactions. Locks are only in memory:
//! after a restart, reads are validated as usual, so a lost lock costs a conflict and never a wrong commit. A
//! transaction that has been silent for `IDLE_MS` is aborted and its locks are released.

use std::collections::BTreeMap;

use model::Oid;

use super::{DurableAction, Participant, TxnState};
use crate::commit::{Answer, Refusal};
use crate::ident::TxnId;
use crate::lease::Ms;
use crate::locks::{LockMode, LockResult};
use crate::plant::{Bug, planted};

/// How long a datastore transaction may be silent, in milliseconds.
pub(super) const IDLE_MS: u64 = 5_000;

/// A datastore transaction that is not prepared.
#[derive(Clone, Debug)]
pub(super) struct LockingTxn<A> {
    /// The sender of its last request, which is informed of its end.
    from: A,
    /// The locks that it waits for, and the requesters.
    waits: BTreeMap<Oid, A>,
}

impl<A: Clone, T: Clone> Participant<A, T> {
    /// Handles a lock request of a datastore transaction.
    pub(super) fn handle_lock(&mut self, from: A, txn: TxnId, first: TxnId, oid: Oid, mode: LockMode, now: Ms) {
        if self.transactions.contains_key(&txn) {
            return self.answer(from, txn);
        }
        if let Some(since) = self.too_old_since(txn) {
            return self.refuse_too_old(from, txn, since);
        }
        let fresh = || LockingTxn { from: from.clone(), waits: BTreeMap::new() };
        let locking = self.locking.entry(txn).or_insert_with(fresh);
        locking.from = from.clone();
        self.expiring.set(txn, Some(now + IDLE_MS));
        match self.validator.locks().request(txn, first, oid, mode) {
            LockResult::Granted => {
                let mode = self.validator.locks().held_mode(txn, oid).unwrap_or(mode);
                self.run_when_durable(0, DurableAction::Answer(from, Answer::Locked { txn, oid, mode }));
            }
            LockResult::Waits { wound } => {
                locking.waits.insert(oid, from);
                for younger in wound {
                    self.wound(younger);
                }
            }
        }
    }

    /// Aborts a transaction that blocks an older one, or is silent.
    pub(super) fn wound(&mut self, txn: TxnId) {
        let from = self.locking.get(&txn).map(|locking| locking.from.clone());
        if matches!(self.transactions.get(&txn), Some(TxnState::Ended { .. })) {
            return;
        }
        self.mark(txn, Refusal::Aborted);
        if let Some(from) = from {
            self.answer(from, txn);
        }
    }

    /// Releases everything that a transaction holds or waits for, and answers the requests that are granted thereby.
    pub(super) fn unlock(&mut self, txn: TxnId) {
        self.locking.remove(&txn);
        self.expiring.set(txn, None);
        for (txn, oid) in self.validator.locks().release(txn) {
            let waiting = self.locking.get_mut(&txn).and_then(|locking| locking.waits.remove(&oid));
            if let (Some(from), Some(mode)) = (waiting, self.validator.locks().held_mode(txn, oid)) {
                self.run_when_durable(0, DurableAction::Answer(from, Answer::Locked { txn, oid, mode }));
            }
        }
    }

    /// Aborts datastore transactions that have been silent for too long.
    pub fn expire(&mut self, now: Ms) {
        for txn in self.expiring.due(now).into_iter().filter(|_| !planted(Bug::LocksOutlive)) {
            self.wound(txn);
        }
    }

    /// When [`Participant::expire`] is due.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Ms> {
        self.expiring.first()
    }
}
