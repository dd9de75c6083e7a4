//! Who holds which objects of a logical node, and who waits for them (rules V2 and W1).
//!
//! A prepared optimistic transaction and a datastore transaction hold objects in the same table: to validation a lock is
//! what a prepared record is. Optimistic transactions never wait: they take all that they need, or conflict. Datastore
//! transactions wait by *wound-wait*: an older one wounds the younger that are in its way, a younger one waits for the
//! older, so there is no circle of waiting (Rosenkrantz, Stearns and Lewis 1978). They are the transactions of TODS, section
//! 4.5, which lock at the bricks.
//!
//! - **W1.** Prepares never wait. Nobody wounds a transaction that is prepared, and it waits for nothing, so it is soon
//!   gone. A lock that is waited for bars later prepares: a stream of optimistic transactions cannot keep it waiting for
//!   ever. A retry has the age of the first try, so it is the oldest in the end.
//! - What is held is a place: a slot of a page. Two who would put objects of different classes there are in each other's way,
//!   though their identifiers differ.
//! - What a datastore transaction has locked does not change, so its read of that stays current, however much else changes in
//!   the page: with a lock goes the version of the page since when this is so.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassId, Oid, PageId};

use crate::ident::{TxnId, Version};
use crate::plant::{Bug, planted};

/// What an object is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Reading: together with others who read.
    Shared,
    /// Touching a *guard*: together with others who touch it, not with those who read it. A guard is an object without
    /// content that stands for a set, such as the extent of a class or a range of an index. Who looks for members reads it; who
    /// changes what belongs to the set touches it, which says no more than that (the gap locks of Mohan's ARIES/KVL 1990, and
    /// the intention to insert).
    Touch,
    /// Writing: alone.
    Exclusive,
}

impl LockMode {
    fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) | (Self::Touch, Self::Touch) => false,
            (Self::Shared, Self::Touch) | (Self::Touch, Self::Shared) => !planted(Bug::GuardShared),
            _ => true,
        }
    }

    /// Whether whoever holds this may do what the other is for.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        matches!((self, other), (Self::Exclusive, _) | (Self::Shared, Self::Shared) | (Self::Touch, Self::Touch))
    }

    /// The weakest mode that covers both.
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Shared, Self::Shared) => Self::Shared,
            (Self::Touch, Self::Touch) => Self::Touch,
            _ => Self::Exclusive,
        }
    }
}

/// What becomes of a request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockResult {
    /// It is held.
    Granted,
    /// It is waited for. These younger transactions are in the way and must be aborted; [`Locks::release`] says when the
    /// lock is granted.
    Waits {
        /// Who has to go.
        wound: Vec<TxnId>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockWaiter {
    txn: TxnId,
    mode: LockMode,
    /// What it has asked for.
    oid: Oid,
}

/// The identifier that stands for a place, whatever class an object has there.
fn slot_key(oid: Oid) -> Oid {
    if oid.class() == ClassId::NONE { oid } else { Oid::new(ClassId::NONE, oid.page(), oid.slot()) }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lock {
    holders: BTreeMap<TxnId, LockMode>,
    /// By age, the oldest first; tries of one transaction are as old as its first.
    waiters: BTreeMap<(TxnId, TxnId), LockWaiter>,
}

/// The locks of a logical node.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    locks: BTreeMap<Oid, Lock>,
    /// The objects that each transaction holds or waits for.
    by_txn: BTreeMap<TxnId, BTreeSet<Oid>>,
    /// The first tries of datastore transactions: how old they are.
    ages: BTreeMap<TxnId, TxnId>,
    /// Those that are prepared.
    prepared: BTreeSet<TxnId>,
    /// What datastore transactions hold, by page, and the version that the page had until it changed for the first time since.
    stable_since: BTreeMap<PageId, BTreeMap<(TxnId, Oid), Option<Version>>>,
}

impl Locks {
    /// Who stands in the way of a prepare: somebody who holds the object, or waits for it, in a mode that conflicts. Nobody,
    /// if the transaction holds the object already.
    #[must_use]
    pub fn blocker(&self, txn: TxnId, oid: Oid, mode: LockMode) -> Option<TxnId> {
        let lock = self.locks.get(&slot_key(oid))?;
        if lock.holders.get(&txn).is_some_and(|held| held.covers(mode)) {
            return None;
        }
        let holders = lock.holders.iter().map(|(holder, held)| (*holder, *held));
        let waiters = lock.waiters.values().filter(|_| !planted(Bug::PrepareIgnoresWaiters));
        let waiters = waiters.map(|waiter| (waiter.txn, waiter.mode));
        let mut others = holders.chain(waiters).filter(|(other, _)| *other != txn);
        others.find(|(_, held)| held.conflicts(mode)).map(|(other, _)| other)
    }

    /// Takes an object for a transaction that is about to be prepared.
    ///
    /// # Panics
    /// If somebody holds it: [`Locks::blocker`] was not asked.
    pub fn take(&mut self, txn: TxnId, oid: Oid, mode: LockMode) {
        let oid = slot_key(oid);
        let lock = self.locks.entry(oid).or_default();
        let other = lock.holders.iter().find(|(other, held)| **other != txn && held.conflicts(mode));
        let blind = [Bug::HeldReads, Bug::HeldWrites, Bug::TouchUnchecked].into_iter().any(planted);
        assert!(other.is_none() || blind, "V2: {txn:?} takes {oid}, which {other:?} holds");
        let held = lock.holders.entry(txn).or_insert(mode);
        *held = held.join(mode);
        self.by_txn.entry(txn).or_default().insert(oid);
    }

    /// Asks for an object for a datastore transaction, of which `first` was the first try.
    pub fn request(&mut self, txn: TxnId, first: TxnId, oid: Oid, mode: LockMode) -> LockResult {
        let asked = oid;
        let oid = slot_key(oid);
        self.ages.insert(txn, first);
        self.by_txn.entry(txn).or_default().insert(oid);
        let lock = self.locks.entry(oid).or_default();
        let held = lock.holders.get(&txn).copied();
        if held.is_some_and(|held| held.covers(mode)) {
            return LockResult::Granted;
        }
        // Who reads and touches needs it alone.
        let mode = held.map_or(mode, |held| held.join(mode));
        lock.waiters.insert((first, txn), LockWaiter { txn, mode, oid: asked });
        if self.grant(oid).iter().any(|(granted, _)| *granted == txn) {
            return LockResult::Granted;
        }
        LockResult::Waits { wound: self.to_wound(oid, txn, first, mode) }
    }

    /// The younger transactions that hold what an older one asks for, and are not prepared. Those that wait for it hold
    /// nothing here, and are granted it after the older one.
    fn to_wound(&self, oid: Oid, txn: TxnId, first: TxnId, mode: LockMode) -> Vec<TxnId> {
        let Some(lock) = self.locks.get(&oid) else { return Vec::new() };
        let younger = |other: &TxnId| self.ages.get(other).is_some_and(|age| *age > first);
        let holders = lock.holders.iter().filter(|(other, held)| **other != txn && held.conflicts(mode));
        let holders = holders.map(|(other, _)| *other);
        let prepared = |other: &TxnId| self.prepared.contains(other) && !planted(Bug::PreparedWounded);
        holders.filter(|other| younger(other) && !prepared(other) && !planted(Bug::NobodyWounds)).collect()
    }

    /// From now on nobody wounds it, until it is released.
    pub fn prepare(&mut self, txn: TxnId) {
        self.prepared.insert(txn);
    }

    /// Those whose records are being made durable, or are and wait for an outcome.
    pub fn prepared(&self) -> impl Iterator<Item = TxnId> {
        self.prepared.iter().copied()
    }

    /// Lets go of all that a transaction holds or waits for. Returns who is granted what by that.
    pub fn release(&mut self, txn: TxnId) -> Vec<(TxnId, Oid)> {
        self.prepared.remove(&txn);
        let age = self.ages.remove(&txn);
        let mut granted = Vec::new();
        for oid in self.by_txn.remove(&txn).unwrap_or_default() {
            if let Some(lock) = self.locks.get_mut(&oid) {
                lock.holders.remove(&txn);
                if let Some(age) = age {
                    lock.waiters.remove(&(age, txn));
                }
            }
            if let Some(of_page) = self.stable_since.get_mut(&oid.page()) {
                of_page.remove(&(txn, oid));
                if of_page.is_empty() {
                    self.stable_since.remove(&oid.page());
                }
            }
            granted.extend(self.grant(oid));
            if self.locks.get(&oid).is_some_and(|lock| lock.holders.is_empty() && lock.waiters.is_empty()) {
                self.locks.remove(&oid);
            }
        }
        granted
    }

    /// Grants an object to those who wait for it, the oldest first, until one has to wait on.
    fn grant(&mut self, oid: Oid) -> Vec<(TxnId, Oid)> {
        let mut granted = Vec::new();
        let Some(lock) = self.locks.get_mut(&oid) else { return granted };
        while let Some(first) = lock.waiters.first_entry() {
            let LockWaiter { txn, mode, oid: asked } = *first.get();
            if lock.holders.iter().any(|(other, held)| *other != txn && held.conflicts(mode)) {
                break;
            }
            first.remove();
            let held = lock.holders.entry(txn).or_insert(mode);
            *held = held.join(mode);
            self.stable_since.entry(oid.page()).or_default().entry((txn, oid)).or_default();
            granted.push((txn, asked));
        }
        granted
    }

    /// Whether a transaction holds an object in this mode, or a stronger one.
    #[must_use]
    pub fn holds(&self, txn: TxnId, oid: Oid, mode: LockMode) -> bool {
        self.held_mode(txn, oid).is_some_and(|held| held.covers(mode))
    }

    /// How a transaction holds an object, if it does.
    #[must_use]
    pub fn held_mode(&self, txn: TxnId, oid: Oid) -> Option<LockMode> {
        self.locks.get(&slot_key(oid))?.holders.get(&txn).copied()
    }

    /// A page changes, which had this version before.
    pub fn note_change(&mut self, page: PageId, before: Version) {
        for since in self.stable_since.get_mut(&page).into_iter().flat_map(BTreeMap::values_mut) {
            since.get_or_insert(before);
        }
    }

    /// Whether a datastore transaction has locked an object since its page had this version, or an earlier one: then that
    /// state of it is still the newest. Of a page that has not changed since it says no: its version tells as much.
    #[must_use]
    pub fn is_unchanged_since(&self, txn: TxnId, oid: Oid, version: Version) -> bool {
        let since = self.stable_since.get(&oid.page()).and_then(|of_page| of_page.get(&(txn, slot_key(oid))));
        since.copied().flatten().is_some_and(|since| version >= since)
    }

    /// Whether nobody holds or waits for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_txn.is_empty()
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (oid, lock) in &self.locks {
            let mut others = lock.holders.iter().skip(1);
            if let Some((first, mode)) = lock.holders.first_key_value()
                && others.any(|(_, other)| other.conflicts(*mode))
            {
                return Err(format!("V2: {first:?} holds {oid}, and so do {:?}", lock.holders));
            }
            if let Some(waiter) = lock.waiters.values().find(|waiter| self.prepared.contains(&waiter.txn)) {
                return Err(format!("W1: {:?} is prepared and waits for {oid}", waiter.txn));
            }
            let known = |txn: &TxnId| self.by_txn.get(txn).is_some_and(|oids| oids.contains(oid));
            let waiting = lock.waiters.values().map(|waiter| &waiter.txn);
            if let Some(txn) = lock.holders.keys().chain(waiting).find(|txn| !known(txn)) {
                return Err(format!("W1: {txn:?} holds or waits for {oid}, and will never let go"));
            }
            if lock.holders.is_empty() && !lock.waiters.is_empty() {
                return Err(format!("W1: {oid} is free, and {:?} wait for it", lock.waiters));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
