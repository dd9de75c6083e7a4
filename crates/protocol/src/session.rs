//! A client: its transactions, its copies, and its sessions with the nodes above it.
//!
//! ```text
//!               begin            commit                     reply
//!   (nothing) ────────▶ running ────────▶ committing ───────────────▶ ended
//!                          │ doomed            │ given up ──▶ resolving ──▶ ended
//!                          └──────────────────▶ ended
//! ```
//!
//! | level | reads | is | ends by |
//! | --- | --- | --- | --- |
//! | [`Level::Optimistic`] | copies | strictly serializable | a commit; a check, if nothing was written |
//! | [`Level::Snapshot`] | copies | serializable, of a bounded age (G1 to G3) | nothing that is sent |
//! | [`Level::Locks`] | the bricks | strictly serializable, waits instead of conflicts (W1) | a commit; a check, if nothing was written |
//!
//! Outside of transactions, objects are read from copies and written in order ([`crate::pram`], N1). The client repeats
//! each call until it is answered; a call names its transaction, so it takes effect once (C3). At the end of a session
//! its copies are suspended; the next session revalidates them (D4, R4). The module `upstreams` has the messages from
//! and to the nodes above.

mod calls;
mod fetch_queue;
mod heard;
mod read_back;
mod upstreams;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use model::{Entry, NodeId, Oid, PageId};

use crate::brick::LockedObject;
use crate::clock::{Clock, ClusterTime};
use crate::commit::coordinator::CommitReceipt;
use crate::commit::{EntryChanges, Part, Refusal, changes_head_bytes, participants_head_bytes};
use crate::gateway::Call;
use crate::ident::{ClientId, HlcTimestamp, HolderId, TxnId};
use crate::lease::Ms;
use crate::locks::LockMode;
use crate::memory_size::MemorySize;
use crate::page_cache::{AsOf, DerivedValue, FetchId, FinishedTxn, Lookup, ObjectState, PageCache, SnapshotCheck};
use crate::plant::{Bug, planted};
use crate::pram::Pram;
use crate::schedule::Schedule;
use crate::tree::{Down, Up};
use crate::upstream::Upstream;
use crate::validate::{Read, ReadVersion};

use calls::CallKey;
pub use fetch_queue::FetchLimits;
use fetch_queue::FetchQueue;
use heard::HeardOutcomes;
use read_back::ReadBack;

/// How long the client waits for an answer before it repeats a call, besides the time in which the call is sent, in milliseconds.
const REPEAT_MS: u64 = 1_000;
/// The delay before a refused write is retried, in milliseconds.
const RETRY_MS: u64 = 20;

/// The isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Reads copies and validates them at the commit.
    Optimistic,
    /// Only reads, as of one time in the recent past.
    Snapshot,
    /// Locks what it reads and writes at the bricks. The first attempt determines its age.
    Locks {
        /// The first attempt, if this is a retry.
        first: Option<TxnId>,
    },
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a transaction that was refused has changed nothing"]
pub enum TxnOutcome {
    /// It committed.
    Committed(CommitReceipt),
    /// It did not commit: the client knew that this object had changed.
    Doomed(Oid),
    /// It did not commit: a participant refused it.
    Refused(Refusal),
    /// The outcome is no longer known: the transaction is too old (C3).
    Unknown,
}

/// Why an object was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The transaction does not exist, or is ending.
    NotRunning,
    /// A group snapshot only reads.
    ReadOnly,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning => "the transaction is over, or about to end: begin another",
            Self::ReadOnly => "a group snapshot only reads: write in a transaction of another level",
        })
    }
}

impl Error for WriteError {}

/// An output of a client. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send a message to the node above, in this session of the tree of this logical node.
    Up(NodeId, HolderId, Up<T>),
    /// Send a call to a gateway.
    Call(TxnId, Call<T>),
    /// Send a call again. It need not be sent if the former one may still be on its way.
    Repeat(TxnId, Call<T>),
    /// A transaction has ended.
    Ended(TxnId, TxnOutcome),
    /// The write with this number is durable.
    Written(u64),
    /// The outcome of this write is no longer known: it was sent too long ago (C3).
    Unknown(u64),
}

/// A transaction of this client.
#[derive(Clone, Debug)]
struct RunningTxn<T> {
    level: Level,
    /// Nodes where a datastore transaction has requested locks: it may hold locks there without knowing.
    asked: BTreeSet<NodeId>,
    /// Its locked objects, and its writes.
    locked: BTreeMap<Oid, (LockMode, LockedObject<T>)>,
    writes: BTreeMap<Oid, ObjectState<T>>,
    /// The guards that it touches, apart from those of its entries.
    touches: BTreeSet<Oid>,
    /// The entries of collections that it changes.
    entries: EntryChanges,
    /// Reads that others made for it, and a time at or after all of them.
    relied: BTreeSet<Read>,
    relied_at: HlcTimestamp,
}

impl<T> RunningTxn<T> {
    fn new(level: Level) -> Self {
        Self {
            level,
            asked: BTreeSet::new(),
            locked: BTreeMap::new(),
            writes: BTreeMap::new(),
            touches: BTreeSet::new(),
            entries: EntryChanges::new(),
            relied: BTreeSet::new(),
            relied_at: HlcTimestamp::ZERO,
        }
    }

    /// Whether it has no writes, no touches and no changed entries.
    fn only_reads(&self) -> bool {
        self.writes.is_empty() && self.touches.is_empty() && self.entries.is_empty()
    }
}

/// A client. `T` is an object.
#[derive(Clone, Debug)]
pub struct Session<T> {
    client: ClientId,
    clock: Clock,
    cache: PageCache<T>,
    upstreams: BTreeMap<NodeId, Upstream>,
    /// The number of the first session.
    first_holder: HolderId,
    /// The fetch that returned each copy.
    fetch_ids: BTreeMap<PageId, FetchId>,
    /// How many fetches are under way at most, and the pages that wait for that.
    fetch_limits: FetchLimits,
    unfetched: FetchQueue,
    read_back: ReadBack,
    pram: Pram<T>,
    /// When to retry a refused write.
    retry: Option<Ms>,
    /// When to renew the locks of datastore transactions.
    next_keepalive: Ms,
    running: BTreeMap<TxnId, RunningTxn<T>>,
    /// Calls that are not answered.
    calls: BTreeMap<CallKey, Call<T>>,
    /// When calls are repeated.
    repeating: Schedule<CallKey>,
    /// Datastore transactions that hold locks.
    locking: BTreeSet<TxnId>,
    /// Group snapshots that wait for closed timestamps.
    waiting: Vec<TxnId>,
    /// Whether the client subscribes to closed timestamps.
    subscribe: bool,
    /// The largest timestamp of the client's operations (G2).
    last: HlcTimestamp,
    /// Outcomes that it has heard and not told the participants.
    heard: HeardOutcomes,
    out: Vec<Output<T>>,
}

impl<T: Clone + MemorySize> Session<T> {
    /// A client that is not connected. Its number and the session numbers from `first_holder` on are unique for ever;
    /// it uses one session number for each connection.
    #[must_use]
    pub fn new(client: ClientId, first_holder: HolderId, skew_ms: u64) -> Self {
        Self {
            client,
            clock: Clock::new(HlcTimestamp::ZERO, skew_ms),
            cache: PageCache::default(),
            upstreams: BTreeMap::new(),
            first_holder,
            fetch_ids: BTreeMap::new(),
            fetch_limits: FetchLimits::default(),
            unfetched: FetchQueue::default(),
            read_back: ReadBack::default(),
            pram: Pram::default(),
            retry: None,
            next_keepalive: 0,
            running: BTreeMap::new(),
            calls: BTreeMap::new(),
            repeating: Schedule::default(),
            locking: BTreeSet::new(),
            waiting: Vec::new(),
            subscribe: false,
            last: HlcTimestamp::ZERO,
            heard: HeardOutcomes::default(),
            out: Vec::new(),
        }
    }

    /// Has at most so many fetches under way.
    #[must_use]
    pub const fn with_fetch_limits(mut self, limits: FetchLimits) -> Self {
        self.fetch_limits = limits;
        self
    }

    /// Fetches from the beginning what it writes to without a copy, as a client does that has read back what it had written.
    #[must_use]
    pub fn fetching_written(mut self) -> Self {
        self.read_back = ReadBack::eager();
        self
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Removes and returns the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<T>> {
        self.out.drain(..)
    }

    /// Subscribes to closed timestamps from the next session on, so that the client can take group snapshots.
    pub fn subscribe(&mut self) {
        self.subscribe = true;
    }

    /// The time of the cluster, by which transactions begin from now on (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.clock.set_time(time);
    }

    fn next_txn(&mut self, now: Ms) -> TxnId {
        TxnId { start: self.clock.tick(now), client: self.client }
    }

    // ------------------------------------------------------------------------------------------ transactions

    /// Begins a transaction.
    pub fn begin(&mut self, level: Level, now: Ms) -> TxnId {
        let txn = self.next_txn(now);
        let before = self.running.insert(txn, RunningTxn::new(level));
        assert!(before.is_none(), "C3: {txn:?} begins twice");
        if !matches!(level, Level::Locks { .. }) {
            self.cache.begin(txn);
        }
        txn
    }

    /// Reads an object in a transaction. On a miss the page is fetched, or the object locked; read again after the next
    /// input.
    pub fn read(&mut self, txn: TxnId, oid: Oid, now: Ms) -> Lookup<'_, T> {
        self.read_for(txn, oid, LockMode::Shared, now)
    }

    /// Reads an object in a transaction. A datastore transaction locks it in this mode; use the exclusive mode before a
    /// write.
    pub fn read_for(&mut self, txn: TxnId, oid: Oid, mode: LockMode, now: Ms) -> Lookup<'_, T> {
        match self.running.get(&txn).map(|running| running.level) {
            Some(Level::Locks { first }) => self.read_locked(txn, first.unwrap_or(txn), oid, mode, now),
            Some(_) => {
                let node = oid.page().node;
                if !self.is_valid(node, now) {
                    self.open(node, now);
                    return Lookup::Miss;
                }
                if matches!(self.cache.read(txn, oid), Lookup::Miss) {
                    self.fetch_missing(oid.page());
                    return Lookup::Miss;
                }
                self.cache.read(txn, oid)
            }
            None => Lookup::Miss,
        }
    }

    /// Reads the local copy of an object in a transaction, and the value that was derived from it; fetches and locks nothing. A datastore
    /// transaction reads no copies.
    pub fn read_copy(&mut self, txn: TxnId, oid: Oid, now: Ms) -> (Lookup<'_, T>, Option<&DerivedValue>) {
        let level = self.running.get(&txn).map(|running| running.level);
        match level {
            Some(Level::Locks { .. }) | None => (Lookup::Miss, None),
            Some(_) if self.is_valid(oid.page().node, now) => self.cache.read_derived(txn, oid),
            Some(_) => (Lookup::Miss, None),
        }
    }

    /// See [`PageCache::attach`].
    pub fn attach(&mut self, oid: Oid, is_source: impl FnOnce(&T) -> bool, derived: DerivedValue) -> Option<usize> {
        self.cache.attach(oid, is_source, derived)
    }

    /// See [`PageCache::drop_derived`].
    pub fn drop_derived(&mut self, page: PageId) {
        self.cache.drop_derived(page);
    }

    fn read_locked(&mut self, txn: TxnId, first: TxnId, oid: Oid, mode: LockMode, now: Ms) -> Lookup<'_, T> {
        let held = self.running.get(&txn).and_then(|running| running.locked.get(&oid)).map(|(held, _)| *held);
        if !held.is_some_and(|held| held.covers(mode)) {
            if let Some(running) = self.running.get_mut(&txn) {
                running.asked.insert(oid.page().node);
            }
            self.request_lock(txn, first, (oid, mode), now);
            return Lookup::Miss;
        }
        let Some(running) = self.running.get(&txn) else { return Lookup::Miss };
        match (running.writes.get(&oid), running.locked.get(&oid).and_then(|(_, locked)| locked.value.as_ref())) {
            (Some(ObjectState::Value(value)), _) | (None, Some(value)) => Lookup::Value(value),
            (Some(ObjectState::Absent), _) | (None, None) => Lookup::Absent,
            (Some(ObjectState::Changed(_)), _) => Lookup::Miss,
        }
    }

    /// Writes an object in a transaction. A datastore transaction should have read it [in exclusive
    /// mode](Session::read_for) before, so that it is locked; for an object that is not, such as a new one, the commit
    /// may conflict.
    ///
    /// # Errors
    /// Why the object was not written; the transaction continues without the write.
    pub fn write(&mut self, txn: TxnId, oid: Oid, content: ObjectState<T>) -> Result<(), WriteError> {
        let running = self.running_txn(txn)?;
        match running.level {
            Level::Optimistic => self.cache.write(txn, oid, content).then_some(()).ok_or(WriteError::NotRunning),
            Level::Locks { .. } => {
                running.writes.insert(oid, content);
                Ok(())
            }
            Level::Snapshot => Err(WriteError::ReadOnly),
        }
    }

    /// Touches a guard in a transaction: it conflicts with transactions that read the guard to query its set (V2).
    /// Returns whether this is done: a datastore transaction locks the guard first; call again after the next input.
    ///
    /// # Errors
    /// Why the guard cannot be touched.
    pub fn touch(&mut self, txn: TxnId, guard: Oid, now: Ms) -> Result<bool, WriteError> {
        let running = self.running_txn(txn)?;
        match running.level {
            Level::Snapshot => return Err(WriteError::ReadOnly),
            Level::Optimistic => {}
            Level::Locks { first } => {
                if !running.locked.get(&guard).is_some_and(|(mode, _)| mode.covers(LockMode::Touch)) {
                    let _ = self.read_locked(txn, first.unwrap_or(txn), guard, LockMode::Touch, now);
                    return Ok(false);
                }
            }
        }
        self.running_txn(txn)?.touches.insert(guard);
        Ok(true)
    }

    /// Changes an entry of a collection in a transaction: sets its target, or removes it. The transaction should have
    /// read the collection, so that it conflicts with one that deletes it. A datastore transaction should have locked
    /// the [guard of the key](crate::entries::key_guard) and touched that of the collection; otherwise the commit may
    /// conflict.
    ///
    /// # Errors
    /// Why the entry was not changed; the transaction continues without the change.
    pub fn change_entry(&mut self, txn: TxnId, entry: Entry, target: Option<Oid>) -> Result<(), WriteError> {
        let running = self.running_txn(txn)?;
        if running.level == Level::Snapshot {
            return Err(WriteError::ReadOnly);
        }
        running.entries.insert(entry, target);
        Ok(())
    }

    /// Adds reads that other nodes made for a transaction: guards of scanned sets and objects that a query followed.
    /// Each has the version that was read, at or before the time `at`; the commit validates them with the transaction's
    /// own reads (V1). A change of a local copy does not doom the transaction for these reads.
    ///
    /// # Errors
    /// Why the reads cannot be added. A group snapshot knows only the times of its own reads from copies.
    pub fn rely_on(
        &mut self,
        txn: TxnId,
        reads: impl IntoIterator<Item = Read>,
        at: HlcTimestamp,
    ) -> Result<(), WriteError> {
        let running = self.running_txn(txn)?;
        if running.level == Level::Snapshot {
            return Err(WriteError::ReadOnly);
        }
        running.relied.extend(reads);
        running.relied_at = running.relied_at.max(at);
        Ok(())
    }

    /// A transaction whose commit has not begun.
    fn running_txn(&mut self, txn: TxnId) -> Result<&mut RunningTxn<T>, WriteError> {
        let is_ending = self.ending_call(txn).is_some();
        self.running.get_mut(&txn).filter(|_| !is_ending).ok_or(WriteError::NotRunning)
    }

    /// The object that prevents a transaction from committing.
    #[must_use]
    pub fn conflicting_object(&self, txn: TxnId) -> Option<Oid> {
        self.cache.conflicting_object(txn)
    }

    /// How many reads a transaction relies on.
    #[must_use]
    pub fn read_count(&self, txn: TxnId) -> usize {
        let others = self.running.get(&txn).map_or(0, |running| running.relied.len() + running.locked.len());
        self.cache.read_count(txn) + others
    }

    /// The bytes of the commit of a transaction in messages, at most, without the contents of objects, if it makes these changes: see
    /// [`Call::head_bytes`].
    pub fn head_bytes<'a>(
        &self,
        txn: TxnId,
        writes: impl Iterator<Item = Oid>,
        entries: impl Iterator<Item = &'a Entry> + Clone,
    ) -> usize {
        let mut reads = self.cache.read_list(txn);
        let mut touches = 0;
        if let Some(running) = self.running.get(&txn) {
            let locked = running.locked.values().map(|(_, locked)| locked);
            reads.extend(locked.map(|locked| Read { oid: locked.oid, seen: ReadVersion::At(locked.version) }));
            reads.extend(running.relied.iter().copied());
            touches = running.touches.len();
        }
        let mut nodes: BTreeSet<NodeId> = reads.pages().map(|page| page.node).collect();
        nodes.extend(entries.clone().map(|entry| entry.collection.page().node));
        let mut written = 0;
        nodes.extend(writes.map(|oid| oid.page().node).inspect(|_| written += 1));
        reads.message_bytes() + changes_head_bytes(written, touches, entries) + participants_head_bytes(nodes.len())
    }

    /// Commits a transaction. [`Output::Ended`] reports the outcome.
    pub fn commit(&mut self, txn: TxnId, now: Ms) {
        let Some(running) = self.running.get(&txn) else { return };
        match running.level {
            Level::Snapshot => self.snapshot(txn),
            Level::Optimistic => {
                self.fetch_written(txn, now);
                match self.cache.finish(txn) {
                    Ok(finished) => self.finish(txn, finished, now),
                    Err(Some(object)) => self.finish_txn(txn, TxnOutcome::Doomed(object)),
                    Err(None) => {}
                }
            }
            Level::Locks { .. } => {
                let seen = |locked: &LockedObject<T>| Read { oid: locked.oid, seen: ReadVersion::At(locked.version) };
                // An object that is only touched is not read: others may touch it, too.
                let read = running.locked.values().filter(|(mode, _)| *mode != LockMode::Touch);
                let reads = read.map(|(_, locked)| seen(locked)).collect();
                let writes = running.writes.clone();
                self.finish(txn, FinishedTxn { reads, seen: HlcTimestamp::ZERO, writes }, now);
            }
        }
    }

    fn finish(&mut self, txn: TxnId, finished: FinishedTxn<T>, now: Ms) {
        let FinishedTxn { mut reads, mut seen, writes } = finished;
        let (mut touches, mut entries) = (BTreeSet::new(), EntryChanges::new());
        if let Some(running) = self.running.get(&txn) {
            touches.clone_from(&running.touches);
            entries.clone_from(&running.entries);
            reads.extend(running.relied.iter().copied());
            seen = seen.max(running.relied_at);
        }
        let only_reads = writes.is_empty() && touches.is_empty() && entries.is_empty();
        let mut parts: BTreeMap<NodeId, Part<T>> = BTreeMap::new();
        for run in reads.runs() {
            parts.entry(run.page.node).or_default().reads.push_run(run);
        }
        for (oid, content) in writes {
            parts.entry(oid.page().node).or_default().writes.insert(oid, content);
        }
        for oid in touches {
            parts.entry(oid.page().node).or_default().touches.insert(oid);
        }
        for (entry, target) in entries {
            parts.entry(entry.collection.page().node).or_default().entries.insert(entry, target);
        }
        let call = if only_reads {
            let reads = parts.into_iter().map(|(node, part)| (node, part.reads)).collect();
            Call::Check { reads, seen: seen.max(self.last) }
        } else {
            Call::Commit { parts, creates: false }
        };
        self.send_call(txn, call, now);
    }

    /// Forgets a transaction. If it is committing, its outcome is not reported.
    pub fn abort(&mut self, txn: TxnId) {
        self.cache.abort(txn);
        self.cache.handle_outcome(txn, None);
        self.remove_calls(txn);
        self.waiting.retain(|waiting| *waiting != txn);
        self.locking.remove(&txn);
        if let Some(running) = self.running.remove(&txn) {
            self.release(txn, &running);
            self.note_heard(txn, running.asked);
        }
    }

    /// Ends this client: releases its locks and copies, so that no writer waits for its leases to end. Commits and
    /// writes that are under way continue.
    pub fn close(&mut self) {
        let running: Vec<TxnId> = self.running.keys().copied().filter(|txn| !self.is_committing(*txn)).collect();
        running.into_iter().for_each(|txn| self.abort(txn));
        let pages: Vec<PageId> = self.fetch_ids.keys().copied().collect();
        pages.into_iter().for_each(|page| self.evict(page));
    }

    /// Whether a transaction was begun, and neither aborted nor ended.
    #[must_use]
    pub fn is_running(&self, txn: TxnId) -> bool {
        self.running.contains_key(&txn)
    }

    /// Whether a transaction is being committed, and its outcome is not known.
    #[must_use]
    pub fn is_committing(&self, txn: TxnId) -> bool {
        matches!(self.ending_call(txn), Some(Call::Commit { .. } | Call::Resolve { .. }))
    }

    /// The logical nodes that are asked whether what a transaction has read, which ends without writes, is current.
    #[must_use]
    pub fn checked_nodes(&self, txn: TxnId) -> Vec<NodeId> {
        match self.ending_call(txn) {
            Some(Call::Check { reads, .. }) => reads.keys().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Resolves a transaction whose commit is not answered: if it has not committed, it never will.
    pub fn resolve(&mut self, txn: TxnId, now: Ms) {
        let Some(call @ Call::Commit { parts, .. }) = self.ending_call(txn) else { return };
        let (participants, patched) = (parts.keys().copied().collect(), call.patched_nodes());
        self.send_call(txn, Call::Resolve { participants, patched }, now);
    }

    /// Releases the locks of a transaction that has not written.
    fn release(&mut self, txn: TxnId, running: &RunningTxn<T>) {
        let participants: Vec<NodeId> = running.asked.iter().copied().collect();
        if !participants.is_empty() {
            self.out.push(Output::Call(txn, Call::Release { participants }));
        }
    }

    fn finish_txn(&mut self, txn: TxnId, ended: TxnOutcome) {
        let call = self.remove_calls(txn);
        self.locking.remove(&txn);
        let running = self.running.remove(&txn);
        assert!(running.is_some(), "C3: {txn:?} ends as {ended:?}, and has ended before");
        match &ended {
            TxnOutcome::Committed(CommitReceipt { timestamp, .. }) => {
                let timestamp = *timestamp;
                self.last = self.last.max(timestamp);
                self.clock.learn_checked(timestamp);
                self.cache.handle_outcome(txn, Some(timestamp));
            }
            _ => {
                self.cache.handle_outcome(txn, None);
                self.cache.abort(txn);
            }
        }
        let mut released = BTreeSet::new();
        if let Some(running) =
            running.filter(|running| running.only_reads() || !matches!(ended, TxnOutcome::Committed(_)))
        {
            self.release(txn, &running);
            released = running.asked;
        }
        self.out.push(Output::Ended(txn, ended));
        match call {
            Some(Call::Commit { parts, .. }) => self.note_heard(txn, parts.into_keys()),
            Some(Call::Resolve { participants, .. }) => self.note_heard(txn, participants),
            // To release locks leaves an outcome, too.
            _ => self.note_heard(txn, released),
        }
    }

    /// Ends a group snapshot, now or when the closed timestamps allow it (G2).
    fn snapshot(&mut self, txn: TxnId) {
        match self.cache.snapshot(txn, self.last) {
            Some(SnapshotCheck::At(at)) => self.finish_txn(txn, TxnOutcome::Committed(at.into())),
            Some(SnapshotCheck::Conflict(oid)) => self.finish_txn(txn, TxnOutcome::Doomed(oid)),
            Some(SnapshotCheck::Wait(..)) => self.waiting.push(txn),
            None => {}
        }
    }

    // ------------------------------------------------------------------------------------------ outside of transactions

    /// Reads an object. On a miss the page is fetched; read again after the next input.
    pub fn get(&mut self, oid: Oid, now: Ms) -> Lookup<'_, T> {
        if matches!(self.peek(oid, now), Lookup::Miss) {
            let node = oid.page().node;
            if self.is_valid(node, now) {
                self.fetch_missing(oid.page());
            } else {
                self.open(node, now);
            }
            return Lookup::Miss;
        }
        self.peek(oid, now)
    }

    /// The same from local copies; fetches nothing.
    #[must_use]
    pub fn peek(&self, oid: Oid, now: Ms) -> Lookup<'_, T> {
        match self.pram.lookup(oid) {
            Some(ObjectState::Value(value)) => Lookup::Value(value),
            Some(ObjectState::Absent) => Lookup::Absent,
            Some(ObjectState::Changed(_)) => Lookup::Miss,
            None if self.is_valid(oid.page().node, now) => self.cache.lookup(oid),
            None => Lookup::Miss,
        }
    }

    /// The same, with the version of the page's copy; the client's own recent writes are newer.
    #[must_use]
    pub fn peek_versioned(&self, oid: Oid, now: Ms) -> (Lookup<'_, T>, AsOf) {
        match self.pram.lookup(oid) {
            None if self.is_valid(oid.page().node, now) => self.cache.lookup_versioned(oid),
            _ => (self.peek(oid, now), self.cache.lookup_versioned(oid).1),
        }
    }

    // ------------------------------------------------------------------------------------------ checks

    /// The page cache, for checkers.
    #[must_use]
    pub fn cache(&self) -> &PageCache<T> {
        &self.cache
    }

    /// The number of its session for a node.
    #[must_use]
    pub fn holder(&self, node: NodeId) -> Option<HolderId> {
        self.upstreams.get(&node).map(Upstream::holder)
    }

    /// Whether copies of a node may be used now.
    #[must_use]
    pub fn may_use(&self, node: NodeId, now: Ms) -> bool {
        self.is_valid(node, now)
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        let FetchLimits { total, least, .. } = self.fetch_limits;
        let (most, found) = (total + least * self.upstreams.len(), self.cache.fetch_count());
        if found > most {
            return Err(format!("D3: {found} fetches are under way, and {most} may be"));
        }
        if let Some(page) = self.unfetched.needlessly_waiting(|page| self.fetch_limits.have_room(&self.cache, page)) {
            return Err(format!("D3: {page:?} waits to be fetched, and there is room"));
        }
        self.cache.check_invariants()
    }
}

#[cfg(test)]
mod tests;
