//! Calls of transactions: requests of locks, and the call that ends each transaction. A call is repeated until it is answered.

use model::Oid;

use super::{Output, REPEAT_MS, Session, TxnOutcome};
use crate::brick::LockedObject;
use crate::commit::Refusal;
use crate::commit::coordinator::CommitReply;
use crate::gateway::{Call, Reply};
use crate::ident::TxnId;
use crate::lease::Ms;
use crate::locks::LockMode;
use crate::memory_size::MemorySize;
use crate::plant::{Bug, planted};
use crate::transfer::transfer_ms;

/// A call of a transaction: the request of a lock of this object, or, without an object, the call that ends the transaction.
pub(super) type CallKey = (TxnId, Option<Oid>);

/// Locks that a transaction waits for at a time. A read that needs one more waits until one of them is granted.
pub(super) const LOCKS_AT_ONCE: usize = 64;

/// When a call that is sent now is repeated.
pub(super) fn repeat_at<T: MemorySize>(call: &Call<T>, now: Ms) -> Ms {
    now + REPEAT_MS + transfer_ms(call.memory_size())
}

impl<T: Clone + MemorySize> Session<T> {
    /// Sends a call that ends a transaction. The transaction does not wait for locks any more.
    pub(super) fn send_call(&mut self, txn: TxnId, call: Call<T>, now: Ms) {
        self.remove_calls(txn);
        self.send((txn, None), call, now);
    }

    /// Requests a lock, unless the transaction waits for it already, for another class at its place, or for as many as it may; or it is
    /// ending.
    pub(super) fn request_lock(&mut self, txn: TxnId, first: TxnId, (oid, mode): (Oid, LockMode), now: Ms) {
        let place = (oid.page(), oid.slot());
        let mut waiting = 0;
        for (_, object) in self.calls_of(txn) {
            if object.is_none_or(|other| (other.page(), other.slot()) == place) {
                return;
            }
            waiting += 1;
        }
        if waiting < LOCKS_AT_ONCE {
            self.send((txn, Some(oid)), Call::Lock { first, oid, mode }, now);
        }
    }

    /// No read of this transaction waits for this lock any more. If it is granted, the transaction holds it until it ends.
    pub fn forget_lock(&mut self, txn: TxnId, oid: Oid) {
        self.remove_call((txn, Some(oid)));
    }

    fn send(&mut self, key: CallKey, call: Call<T>, now: Ms) {
        let txn = key.0;
        assert!(self.running.contains_key(&txn), "C3: a call about {txn:?}, which is not running");
        self.repeating.set(key, Some(repeat_at(&call, now)));
        self.out.push(Output::Call(txn, call.clone()));
        self.calls.insert(key, call);
    }

    /// The pending calls of a transaction.
    pub(super) fn calls_of(&self, txn: TxnId) -> impl Iterator<Item = CallKey> {
        self.calls.range((txn, None)..).map(|(key, _)| *key).take_while(move |(of, _)| *of == txn)
    }

    /// The pending call that ends a transaction.
    pub(super) fn ending_call(&self, txn: TxnId) -> Option<&Call<T>> {
        self.calls.get(&(txn, None))
    }

    fn remove_call(&mut self, key: CallKey) -> Option<Call<T>> {
        self.repeating.set(key, None);
        self.calls.remove(&key)
    }

    /// Removes the pending calls of a transaction. Returns the one that ends it.
    pub(super) fn remove_calls(&mut self, txn: TxnId) -> Option<Call<T>> {
        let locks: Vec<CallKey> = self.calls_of(txn).filter(|(_, object)| object.is_some()).collect();
        locks.into_iter().for_each(|key| drop(self.remove_call(key)));
        self.remove_call((txn, None))
    }

    /// A call is answered.
    pub fn handle_reply(&mut self, txn: TxnId, reply: Reply<T>) {
        match (reply, self.ending_call(txn)) {
            (Reply::Locked(locked), _) => self.handle_locked(txn, locked),
            (Reply::Checked(Ok(at)), Some(Call::Check { .. })) => {
                self.finish_txn(txn, TxnOutcome::Committed(at.into()));
            }
            (Reply::Checked(Err(why)), Some(Call::Check { .. })) => self.finish_txn(txn, TxnOutcome::Refused(why)),
            (Reply::Ended(CommitReply::Committed(receipt)), Some(Call::Commit { .. } | Call::Resolve { .. })) => {
                self.finish_txn(txn, TxnOutcome::Committed(receipt));
            }
            (Reply::Ended(CommitReply::Refused(Refusal::TooOld)), _) if self.calls_of(txn).next().is_some() => {
                self.finish_txn(txn, TxnOutcome::Unknown)
            }
            // It may be wounded while no call is pending.
            (Reply::Ended(CommitReply::Refused(why)), _) if self.running.contains_key(&txn) => {
                self.finish_txn(txn, TxnOutcome::Refused(why))
            }
            _ => {}
        }
    }

    fn handle_locked(&mut self, txn: TxnId, locked: LockedObject<T>) {
        let waiting = self.calls_of(txn).next().and_then(|(_, object)| object);
        let oid = if planted(Bug::AnyLockGranted) { waiting.unwrap_or(locked.oid) } else { locked.oid };
        let Some(Call::Lock { mode, .. }) = self.calls.get(&(txn, Some(oid))) else { return };
        if !locked.mode.covers(*mode) && !planted(Bug::AnyModeGranted) {
            return;
        }
        let granted = if planted(Bug::AnyModeGranted) { *mode } else { locked.mode };
        self.remove_call((txn, Some(oid)));
        let Some(running) = self.running.get_mut(&txn) else { return };
        self.locking.insert(txn);
        // An earlier read keeps its version and its mode: its lock may have been lost meanwhile, and the new grant may be weaker.
        let before = running.locked.get_mut(&oid).filter(|(held, _)| *held != LockMode::Touch);
        match before.filter(|_| !planted(Bug::RaisedAnew)) {
            Some((held, _)) => *held = held.join(granted),
            None => drop(running.locked.insert(oid, (granted, locked))),
        }
    }
}
