//! The locks on objects of a logical node: holders and waiters (rules V2 and W1).
//!
//! Prepared optimistic transactions and datastore transactions hold objects in the same table: validation treats a lock
//! like a prepared record. An optimistic transaction waits for no lock: it takes all its objects, or conflicts. Datastore
//! transactions use *wound-wait*: an older one wounds younger holders, a younger one waits for older holders, so waits
//! never form a cycle (Rosenkrantz, Stearns and Lewis 1978). They are the transactions of TODS, section 4.5, which lock
//! at the bricks.
//!
//! - **W1.** Prepares never wait for locks. A prepared transaction is never wounded and waits for nothing, so it ends soon. A
//!   waiting lock bars later prepares: a stream of optimistic transactions cannot block it for ever. A retry has the
//!   age of the first attempt, so it becomes the oldest eventually.
//! - The prepare of a datastore transaction may take what it has not locked, or has locked in a weaker mode: only the
//!   brick knows the guards that a write touches. It wounds younger holders, as a lock request does, and passes younger
//!   waiters. Otherwise two transactions that lock a set for reading and then insert into it refuse each other,
//!   attempt after attempt.
//! - A lock covers a place: a slot of a page. Two transactions that create objects of different classes in one slot
//!   conflict, although the identifiers differ.
//! - An object that a datastore transaction has locked does not change, so its read stays current while other objects
//!   of the page change. Each lock stores the page version since which this holds.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassId, Oid, PageId};

use crate::entries::is_guard_page;
use crate::ident::{TxnId, Version};
use crate::plant::{Bug, planted};
use crate::small_map::SmallMap;

/// What an object is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Reading; compatible with other reads.
    Shared,
    /// Touching a *guard*; compatible with other touches, not with reads. A guard is an object without content that
    /// stands for a set, such as the extent of a class or a range of an index. A query for members reads it; a change
    /// of the membership touches it (compare the gap locks of Mohan's ARIES/KVL 1990, and insert intention locks).
    Touch,
    /// Changing a part of a blob without having read it. It is compatible with the same mode of transactions that are
    /// [logged](Locks::set_logged), whose records come first in the log. Only a commit takes this mode; no lock request asks for it.
    Patch,
    /// Writing; exclusive.
    Exclusive,
}

impl LockMode {
    pub(crate) fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) | (Self::Touch, Self::Touch) => false,
            (Self::Shared, Self::Touch) | (Self::Touch, Self::Shared) => !planted(Bug::GuardShared),
            _ => true,
        }
    }

    /// Whether a holder of this mode may do what the other mode allows.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Exclusive, _)
                | (Self::Shared, Self::Shared)
                | (Self::Touch, Self::Touch)
                | (Self::Patch, Self::Patch)
        )
    }

    /// The weakest mode that covers both.
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Shared, Self::Shared) => Self::Shared,
            (Self::Touch, Self::Touch) => Self::Touch,
            (Self::Patch, Self::Patch) => Self::Patch,
            _ => Self::Exclusive,
        }
    }
}

/// The result of a lock request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockResult {
    /// The lock is held.
    Granted,
    /// The request waits. The younger transactions in `wound` hold the lock and must be aborted; [`Locks::release`]
    /// returns the grant.
    Waits {
        /// Transactions to abort.
        wound: Vec<TxnId>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockWaiter {
    txn: TxnId,
    mode: LockMode,
    /// The requested object; it may name another class than the lock's key.
    oid: Oid,
}

/// The identifier of a place, independent of the class of the object in it. Guards of entries are places of their own.
fn slot_key(oid: Oid) -> Oid {
    let is_place = oid.class() == ClassId::NONE || is_guard_page(oid.page());
    if is_place { oid } else { Oid::new(ClassId::NONE, oid.page(), oid.slot()) }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lock {
    holders: SmallMap<TxnId, LockMode, 1>,
    /// By age, the oldest first; all attempts of one transaction have the age of the first.
    waiters: BTreeMap<(TxnId, TxnId), LockWaiter>,
}

/// The locks of a logical node.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    locks: BTreeMap<Oid, Lock>,
    /// The objects that each transaction holds or waits for.
    by_txn: BTreeMap<TxnId, BTreeSet<Oid>>,
    /// The first attempts of datastore transactions, which define their ages.
    ages: BTreeMap<TxnId, TxnId>,
    /// Prepared transactions, and whether each is *logged*: committed by a record in the log, which may not be durable.
    prepared: BTreeMap<TxnId, bool>,
    /// Locks of datastore transactions by page, but for touches, and the version that the page had before its first change
    /// since the grant.
    stable_since: BTreeMap<PageId, BTreeMap<(TxnId, Oid), Option<Version>>>,
}

impl Locks {
    /// The transaction that bars a prepare: one that holds the object, or waits for it, in a conflicting mode, and does
    /// not give way: younger datastore transactions do. `None` if `txn` holds the object already.
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
        let is_barring =
            |(other, held): &(TxnId, LockMode)| self.bars_prepare(*other, *held, mode) && !self.gives_way(*other, txn);
        others.find(is_barring).map(|(other, _)| other)
    }

    /// Whether a transaction may hold, or wait for, an object in this page.
    #[must_use]
    pub fn may_hold_in(&self, page: PageId) -> bool {
        if is_guard_page(page) {
            // The locks of guards of different classes do not follow one another.
            return !self.locks.is_empty();
        }
        let key = |slot| Oid::new(ClassId::NONE, page, slot);
        self.locks.range(key(0)..=key(u16::MAX)).next().is_some()
    }

    /// Whether a lock that `other` holds in the mode `held` conflicts with a prepare in `mode`. A patch does not conflict with a logged
    /// patch: its record follows the other one in the log, and a crash never loses a record without all those after it (V2).
    fn bars_prepare(&self, other: TxnId, held: LockMode, mode: LockMode) -> bool {
        let are_patches = held == LockMode::Patch && mode == LockMode::Patch;
        let is_logged = || self.prepared.get(&other).is_some_and(|is_logged| *is_logged);
        let follows = are_patches && (is_logged() || planted(Bug::ChangePassesPrepared));
        held.conflicts(mode) && !follows
    }

    /// Whether a datastore transaction is aborted, or keeps waiting, so that an older one can be prepared.
    fn gives_way(&self, other: TxnId, txn: TxnId) -> bool {
        self.ages.get(&txn).is_some_and(|first| self.is_wounded_by(other, *first)) && !planted(Bug::YoungerBarsPrepare)
    }

    /// Whether a transaction whose first attempt was `first` wounds another one: the other one is a younger datastore
    /// transaction, and is not prepared.
    fn is_wounded_by(&self, other: TxnId, first: TxnId) -> bool {
        let is_younger = self.ages.get(&other).is_some_and(|age| *age > first);
        is_younger && (!self.prepared.contains_key(&other) || planted(Bug::PreparedWounded))
    }

    /// Locks an object for a transaction that is about to be prepared. Returns the younger holders that give way: they
    /// must be aborted.
    ///
    /// # Panics
    /// If another transaction holds it: [`Locks::blocker`] was not called.
    #[must_use]
    pub fn take(&mut self, txn: TxnId, oid: Oid, mode: LockMode) -> Vec<TxnId> {
        let oid = slot_key(oid);
        let holders = self.locks.get(&oid).into_iter().flat_map(|lock| lock.holders.iter());
        let others = holders.filter(|(other, held)| **other != txn && self.bars_prepare(**other, **held, mode));
        let (wound, barring): (Vec<TxnId>, Vec<TxnId>) =
            others.map(|(other, _)| *other).partition(|other| self.gives_way(*other, txn));
        let blind = [Bug::HeldReads, Bug::HeldWrites, Bug::TouchUnchecked].into_iter().any(planted);
        assert!(barring.is_empty() || blind, "V2: {txn:?} locks {oid}, but {barring:?} hold it");
        let held = self.locks.entry(oid).or_default().holders.get_or_insert(txn, mode);
        *held = held.join(mode);
        self.by_txn.entry(txn).or_default().insert(oid);
        wound
    }

    /// Requests a lock for a datastore transaction whose first attempt was `first`.
    pub fn request(&mut self, txn: TxnId, first: TxnId, oid: Oid, mode: LockMode) -> LockResult {
        let asked = oid;
        let oid = slot_key(oid);
        // The first request counts: `release` finds the waiters of a transaction by its age.
        let age = self.ages.entry(txn).or_insert(first);
        if planted(Bug::AgeChanged) {
            *age = first;
        }
        let first = *age;
        self.by_txn.entry(txn).or_default().insert(oid);
        let lock = self.locks.entry(oid).or_default();
        let held = lock.holders.get(&txn).copied();
        if held.is_some_and(|held| held.covers(mode)) {
            return LockResult::Granted;
        }
        // Reading and touching together require the exclusive mode.
        let mode = held.map_or(mode, |held| held.join(mode));
        lock.waiters.insert((first, txn), LockWaiter { txn, mode, oid: asked });
        if self.grant(oid).iter().any(|(granted, _)| *granted == txn) {
            return LockResult::Granted;
        }
        LockResult::Waits { wound: self.to_wound(oid, txn, first, mode) }
    }

    /// The younger, unprepared holders of an object that an older transaction requests. Younger waiters hold nothing
    /// here, and are granted the lock after the older one.
    fn to_wound(&self, oid: Oid, txn: TxnId, first: TxnId, mode: LockMode) -> Vec<TxnId> {
        let Some(lock) = self.locks.get(&oid) else { return Vec::new() };
        let holders = lock.holders.iter().filter(|(other, held)| **other != txn && held.conflicts(mode));
        let holders = holders.map(|(other, _)| *other);
        holders.filter(|other| self.is_wounded_by(*other, first) && !planted(Bug::WoundOmitted)).collect()
    }

    /// Marks a transaction as prepared: it is not wounded until it is released.
    pub fn prepare(&mut self, txn: TxnId) {
        self.prepared.insert(txn, false);
    }

    /// Marks a prepared transaction as logged: its patches do not bar later ones.
    ///
    /// # Panics
    /// If it is not prepared.
    pub fn set_logged(&mut self, txn: TxnId) {
        let Some(is_logged) = self.prepared.get_mut(&txn) else {
            panic!("V2: {txn:?} is committed, and does not hold what it changes");
        };
        *is_logged = true;
    }

    /// Transactions whose prepared records are being forced, or that wait for an outcome.
    pub fn prepared_txns(&self) -> impl Iterator<Item = TxnId> {
        self.prepared.keys().copied()
    }

    /// Transactions that hold or wait for something and are not prepared.
    pub fn unprepared_txns(&self) -> impl Iterator<Item = TxnId> {
        self.by_txn.keys().copied().filter(|txn| !self.prepared.contains_key(txn))
    }

    /// Releases everything that a transaction holds or waits for. Returns the locks that are granted to others.
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

    /// Grants an object to its waiters, the oldest first, until one has to keep waiting.
    fn grant(&mut self, oid: Oid) -> Vec<(TxnId, Oid)> {
        let mut granted = Vec::new();
        let Some(lock) = self.locks.get_mut(&oid) else { return granted };
        while let Some(first) = lock.waiters.first_entry() {
            let LockWaiter { txn, mode, oid: asked } = *first.get();
            if lock.holders.iter().any(|(other, held)| *other != txn && held.conflicts(mode)) {
                break;
            }
            first.remove();
            let held = lock.holders.get_or_insert(txn, mode);
            *held = held.join(mode);
            // Others may touch it, too, so a touch does not keep it as it is.
            if *held != LockMode::Touch || planted(Bug::TouchKeepsReads) {
                self.stable_since.entry(oid.page()).or_default().entry((txn, oid)).or_default();
            }
            granted.push((txn, asked));
        }
        granted
    }

    /// Whether a transaction holds an object in this mode, or a stronger one.
    #[must_use]
    pub fn holds(&self, txn: TxnId, oid: Oid, mode: LockMode) -> bool {
        self.held_mode(txn, oid).is_some_and(|held| held.covers(mode))
    }

    /// The mode in which a transaction holds an object.
    #[must_use]
    pub fn held_mode(&self, txn: TxnId, oid: Oid) -> Option<LockMode> {
        self.locks.get(&slot_key(oid))?.holders.get(&txn).copied()
    }

    /// Records that a page, which has this version, changes.
    pub fn note_change(&mut self, page: PageId, before: Version) {
        for since in self.stable_since.get_mut(&page).into_iter().flat_map(BTreeMap::values_mut) {
            since.get_or_insert(before);
        }
    }

    /// Whether a datastore transaction has held an object since its page had this version, or an earlier one: then that
    /// state is still current. Returns false if the page has not changed since; its version then shows that the state
    /// is current.
    #[must_use]
    pub fn is_unchanged_since(&self, txn: TxnId, oid: Oid, version: Version) -> bool {
        let since = self.stable_since.get(&oid.page()).and_then(|of_page| of_page.get(&(txn, slot_key(oid))));
        since.copied().flatten().is_some_and(|since| version >= since)
    }

    /// Whether there are no holders and no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_txn.is_empty()
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (oid, lock) in &self.locks {
            for (holder, mode) in lock.holders.iter() {
                let mut others = lock.holders.iter().filter(|(other, _)| *other != holder);
                // One of two has followed the other.
                let is_apart = |other: &TxnId, held: &LockMode| {
                    self.bars_prepare(*other, *held, *mode) && self.bars_prepare(*holder, *mode, *held)
                };
                if others.any(|(other, held)| is_apart(other, held)) {
                    return Err(format!("V2: {holder:?} holds {oid}, but so do {:?}", lock.holders));
                }
            }
            if let Some(waiter) = lock.waiters.values().find(|waiter| self.prepared.contains_key(&waiter.txn)) {
                return Err(format!("W1: {:?} is prepared but waits for {oid}", waiter.txn));
            }
            let known = |txn: &TxnId| self.by_txn.get(txn).is_some_and(|oids| oids.contains(oid));
            let waiting = lock.waiters.values().map(|waiter| &waiter.txn);
            if let Some(txn) = lock.holders.keys().chain(waiting).find(|txn| !known(txn)) {
                return Err(format!("W1: {txn:?} holds or waits for {oid}, but would not be released"));
            }
            if lock.holders.is_empty() && !lock.waiters.is_empty() {
                return Err(format!("W1: {oid} is free, but {:?} wait for it", lock.waiters));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
