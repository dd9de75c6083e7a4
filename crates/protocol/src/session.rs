//! A client: its transactions, its copies, and its sessions with what is above it.
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
//! Outside of transactions objects are read from the copies, and written in order ([`crate::pram`], N1). Whatever the
//! client calls for it repeats until it is answered; each call names its transaction, so it happens once (C3). A session
//! that ends puts its copies aside; they are validated in the next (D4, R4). What it says to the nodes above, and hears from
//! them, is in `upper`.

mod upper;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use model::{NodeId, Oid, PageId};

use crate::brick::Locked;
use crate::clock::Clock;
use crate::commit::coordinator;
use crate::commit::{Part, Refusal};
use crate::gateway::{Call, Reply};
use crate::ident::{ClientId, HolderId, Timestamp, TxnId};
use crate::lease::Ms;
use crate::locks::Mode;
use crate::page_cache::{AsOf, Content, FetchId, Finished, Found, PageCache, Snapshot};
use crate::plant::{Bug, planted};
use crate::pram::Pram;
use crate::schedule::Schedule;
use crate::tree::{Down, Up};
use crate::upstream::Upstream;
use crate::validate::{Read, Seen};
use crate::weigh::Weigh;

/// How long an answer is waited for before a call is repeated, in milliseconds.
const REPEAT_MS: u64 = 1_000;
/// How long after a write was refused it is tried again, in milliseconds.
const RETRY_MS: u64 = 20;

/// What a transaction wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Read copies, and validate at the end.
    Optimistic,
    /// Only read, as of one time, a little ago.
    Snapshot,
    /// Lock at the bricks what is read and written. The first try says how old it is.
    Locks {
        /// The first try, if this is a retry.
        first: Option<TxnId>,
    },
}

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction that was refused has changed nothing"]
pub enum Ended {
    /// It happened, at this time.
    Committed(Timestamp),
    /// It did not: for this object's sake, as this client knew by itself.
    Doomed(Oid),
    /// It did not: a participant refused it.
    Refused(Refusal),
    /// Whether it happened is not known any more: it is too old (C3).
    Unknown,
}

/// Why an object was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// There is no such transaction, or it is ending.
    NotRunning,
    /// A group snapshot only reads.
    OnlyReads,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRunning => "the transaction is over, or about to end: begin another",
            Self::OnlyReads => "a group snapshot only reads: write in a transaction of another level",
        })
    }
}

impl Error for Unwritten {}

/// Something that a client wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Tell the node above, in this session, in the tree of this logical node.
    Up(NodeId, HolderId, Up<T>),
    /// Call a gateway.
    Call(TxnId, Call<T>),
    /// A transaction has ended.
    Ended(TxnId, Ended),
    /// A write is durable: the number that it was given.
    Written(u64),
    /// Whether a write happened is not known any more: it was sent too long ago (C3).
    Unknown(u64),
}

/// A transaction of this client.
#[derive(Clone, Debug)]
struct Running<T> {
    level: Level,
    /// Where a datastore transaction has asked for locks: it may hold some there that it has not heard of.
    asked: BTreeSet<NodeId>,
    /// What it has locked, and writes.
    locked: BTreeMap<Oid, (Mode, Locked<T>)>,
    writes: BTreeMap<Oid, Content<T>>,
    /// Guards that it touches.
    touches: BTreeSet<Oid>,
    /// What it relies on that it has not read here, and a time at or after all of that.
    relied: Vec<Read>,
    relied_at: Timestamp,
}

impl<T> Running<T> {
    fn new(level: Level) -> Self {
        Self {
            level,
            asked: BTreeSet::new(),
            locked: BTreeMap::new(),
            writes: BTreeMap::new(),
            touches: BTreeSet::new(),
            relied: Vec::new(),
            relied_at: Timestamp::ZERO,
        }
    }

    /// Whether it has changed nothing.
    fn only_reads(&self) -> bool {
        self.writes.is_empty() && self.touches.is_empty()
    }
}

/// A client. `T` is an object.
#[derive(Clone, Debug)]
pub struct Session<T> {
    client: ClientId,
    clock: Clock,
    cache: PageCache<T>,
    upstreams: BTreeMap<NodeId, Upstream>,
    /// Sessions are counted from here.
    first_holder: HolderId,
    /// The fetch that brought each copy.
    brought: BTreeMap<PageId, FetchId>,
    pram: Pram<T>,
    /// When to try a refused write again.
    retry: Option<Ms>,
    /// When to say that datastore transactions are still there.
    keep: Ms,
    running: BTreeMap<TxnId, Running<T>>,
    calls: BTreeMap<TxnId, Call<T>>,
    /// When they are repeated.
    repeating: Schedule<TxnId>,
    /// Datastore transactions that hold something.
    locking: BTreeSet<TxnId>,
    /// Group snapshots that wait for closed timestamps.
    waiting: Vec<TxnId>,
    /// Closed timestamps are wanted.
    subscribe: bool,
    /// The largest timestamp of what this client did (G2).
    last: Timestamp,
    out: Vec<Output<T>>,
}

impl<T: Clone + Weigh> Session<T> {
    /// A client that is not connected. Nobody else ever has its number, nor the session numbers from `first_holder` on, of
    /// which it needs one for each connection.
    #[must_use]
    pub fn new(client: ClientId, first_holder: HolderId, skew_ms: u64) -> Self {
        Self {
            client,
            clock: Clock::new(Timestamp::ZERO, skew_ms),
            cache: PageCache::default(),
            upstreams: BTreeMap::new(),
            first_holder,
            brought: BTreeMap::new(),
            pram: Pram::default(),
            retry: None,
            keep: 0,
            running: BTreeMap::new(),
            calls: BTreeMap::new(),
            repeating: Schedule::default(),
            locking: BTreeSet::new(),
            waiting: Vec::new(),
            subscribe: false,
            last: Timestamp::ZERO,
            out: Vec::new(),
        }
    }

    /// Takes what is wanted, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<T>> {
        self.out.drain(..)
    }

    /// From its next sessions on this client hears closed timestamps, and can take group snapshots.
    pub fn subscribe(&mut self) {
        self.subscribe = true;
    }

    fn next_txn(&mut self, now: Ms) -> TxnId {
        TxnId { start: self.clock.tick(now), client: self.client }
    }

    // ------------------------------------------------------------------------------------------ transactions

    /// Begins a transaction.
    pub fn begin(&mut self, level: Level, now: Ms) -> TxnId {
        let txn = self.next_txn(now);
        self.running.insert(txn, Running::new(level));
        if !matches!(level, Level::Locks { .. }) {
            self.cache.begin(txn);
        }
        txn
    }

    /// Reads an object in a transaction. A miss is fetched, or locked; read again when something has come.
    pub fn read(&mut self, txn: TxnId, oid: Oid, now: Ms) -> Found<'_, T> {
        self.read_for(txn, oid, Mode::Shared, now)
    }

    /// Reads an object in a transaction, which will write it if the mode is exclusive: a datastore transaction locks it so.
    pub fn read_for(&mut self, txn: TxnId, oid: Oid, mode: Mode, now: Ms) -> Found<'_, T> {
        match self.running.get(&txn).map(|running| running.level) {
            Some(Level::Locks { first }) => self.read_locked(txn, first.unwrap_or(txn), oid, mode, now),
            Some(_) => {
                let node = oid.page().node;
                if !self.is_valid(node, now) {
                    self.open(node, now);
                    return Found::Miss;
                }
                if matches!(self.cache.read(txn, oid), Found::Miss) {
                    self.fetch(oid.page());
                    return Found::Miss;
                }
                self.cache.read(txn, oid)
            }
            None => Found::Miss,
        }
    }

    fn read_locked(&mut self, txn: TxnId, first: TxnId, oid: Oid, mode: Mode, now: Ms) -> Found<'_, T> {
        let held = self.running.get(&txn).and_then(|running| running.locked.get(&oid)).map(|(held, _)| *held);
        if !held.is_some_and(|held| held.covers(mode)) {
            if let Some(running) = self.running.get_mut(&txn) {
                running.asked.insert(oid.page().node);
            }
            self.call(txn, Call::Lock { first, oid, mode }, now);
            return Found::Miss;
        }
        let Some(running) = self.running.get(&txn) else { return Found::Miss };
        match (running.writes.get(&oid), running.locked.get(&oid).and_then(|(_, locked)| locked.value.as_ref())) {
            (Some(Content::Value(value)), _) | (None, Some(value)) => Found::Value(value),
            (Some(Content::Absent), _) | (None, None) => Found::Absent,
        }
    }

    /// Writes an object in a transaction. A datastore transaction has read it [to write](Session::read_for) before, so that it
    /// is locked; of what is not, such as a new object in a place of its own, the commit may conflict.
    ///
    /// # Errors
    /// Why it was not written: the transaction goes on without.
    pub fn write(&mut self, txn: TxnId, oid: Oid, content: Content<T>) -> Result<(), Unwritten> {
        let running = self.ongoing(txn)?;
        match running.level {
            Level::Optimistic => self.cache.write(txn, oid, content).then_some(()).ok_or(Unwritten::NotRunning),
            Level::Locks { .. } => {
                running.writes.insert(oid, content);
                Ok(())
            }
            Level::Snapshot => Err(Unwritten::OnlyReads),
        }
    }

    /// Touches a guard in a transaction: whoever has read it, to know what belongs to a set, has not seen what this changes
    /// (V2). Says whether it is done: a datastore transaction locks the guard first, and touches it again when something has
    /// come.
    ///
    /// # Errors
    /// Why it cannot be touched.
    pub fn touch(&mut self, txn: TxnId, guard: Oid, now: Ms) -> Result<bool, Unwritten> {
        let running = self.ongoing(txn)?;
        match running.level {
            Level::Snapshot => return Err(Unwritten::OnlyReads),
            Level::Optimistic => {}
            Level::Locks { first } => {
                if !running.locked.get(&guard).is_some_and(|(mode, _)| mode.covers(Mode::Touch)) {
                    let _ = self.read_locked(txn, first.unwrap_or(txn), guard, Mode::Touch, now);
                    return Ok(false);
                }
            }
        }
        self.ongoing(txn)?.touches.insert(guard);
        Ok(true)
    }

    /// A transaction relies on what others have read for it, at the bricks or in their copies: the guards of what was looked
    /// through, and objects that were followed. Each counts as of the state that was seen, all at or before a time; they are
    /// validated with what the transaction reads itself (V1). A copy here that changes does not doom it for their sake.
    ///
    /// # Errors
    /// Why it cannot. A group snapshot only knows the times of what it reads from copies.
    pub fn rely(&mut self, txn: TxnId, reads: impl IntoIterator<Item = Read>, at: Timestamp) -> Result<(), Unwritten> {
        let running = self.ongoing(txn)?;
        if running.level == Level::Snapshot {
            return Err(Unwritten::OnlyReads);
        }
        running.relied.extend(reads);
        running.relied_at = running.relied_at.max(at);
        Ok(())
    }

    /// A transaction that has not begun to end.
    fn ongoing(&mut self, txn: TxnId) -> Result<&mut Running<T>, Unwritten> {
        let is_ending = !matches!(self.calls.get(&txn), None | Some(Call::Lock { .. }));
        self.running.get_mut(&txn).filter(|_| !is_ending).ok_or(Unwritten::NotRunning)
    }

    /// An object because of which a transaction cannot commit any more.
    #[must_use]
    pub fn doomed(&self, txn: TxnId) -> Option<Oid> {
        self.cache.doomed(txn)
    }

    /// Ends a transaction. The outcome comes as [`Output::Ended`].
    pub fn commit(&mut self, txn: TxnId, now: Ms) {
        let Some(running) = self.running.get(&txn) else { return };
        match running.level {
            Level::Snapshot => self.snapshot(txn),
            Level::Optimistic => match self.cache.finish(txn) {
                Ok(finished) => self.finish(txn, finished, now),
                Err(Some(object)) => self.ended(txn, Ended::Doomed(object)),
                Err(None) => {}
            },
            Level::Locks { .. } => {
                let seen = |locked: &Locked<T>| Read { oid: locked.oid, seen: Seen::At(locked.version) };
                // What it only touches it has not read: others may touch it too.
                let read = running.locked.values().filter(|(mode, _)| *mode != Mode::Touch);
                let reads = read.map(|(_, locked)| seen(locked)).collect();
                let writes = running.writes.clone();
                self.finish(txn, Finished { reads, seen: Timestamp::ZERO, writes }, now);
            }
        }
    }

    fn finish(&mut self, txn: TxnId, finished: Finished<T>, now: Ms) {
        let Finished { mut reads, mut seen, writes } = finished;
        let mut touches = BTreeSet::new();
        if let Some(running) = self.running.get(&txn) {
            touches.clone_from(&running.touches);
            reads.extend_from_slice(&running.relied);
            seen = seen.max(running.relied_at);
        }
        let only_reads = writes.is_empty() && touches.is_empty();
        let mut parts: BTreeMap<NodeId, Part<T>> = BTreeMap::new();
        for read in reads {
            parts.entry(read.oid.page().node).or_default().reads.push(read);
        }
        for (oid, content) in writes {
            parts.entry(oid.page().node).or_default().writes.insert(oid, content);
        }
        for oid in touches {
            parts.entry(oid.page().node).or_default().touches.insert(oid);
        }
        let call = if only_reads {
            let reads = parts.into_iter().map(|(node, part)| (node, part.reads)).collect();
            Call::Check { reads, seen: seen.max(self.last) }
        } else {
            Call::Commit { parts, creates: false }
        };
        self.call(txn, call, now);
    }

    /// Forgets a transaction. Of one that is being committed nobody will say how it ends.
    pub fn abort(&mut self, txn: TxnId) {
        self.cache.abort(txn);
        self.cache.decided(txn, None);
        self.answered(txn);
        self.waiting.retain(|waiting| *waiting != txn);
        self.locking.remove(&txn);
        if let Some(running) = self.running.remove(&txn) {
            self.release(txn, &running);
        }
    }

    /// Ends this client: lets go of its locks and its copies, so that nobody waits until its leases have run out. What is being
    /// committed, or was written, goes on.
    pub fn leave(&mut self) {
        let commits = |txn: &TxnId| matches!(self.calls.get(txn), Some(Call::Commit { .. } | Call::Resolve { .. }));
        let running: Vec<TxnId> = self.running.keys().copied().filter(|txn| !commits(txn)).collect();
        running.into_iter().for_each(|txn| self.abort(txn));
        let pages: Vec<PageId> = self.brought.keys().copied().collect();
        pages.into_iter().for_each(|page| self.evict(page));
    }

    /// Wants to know at last how a transaction has ended whose commit is not answered: if it has not happened, it never will.
    pub fn resolve(&mut self, txn: TxnId, now: Ms) {
        let Some(Call::Commit { parts, .. }) = self.calls.get(&txn) else { return };
        let participants = parts.keys().copied().collect();
        self.call(txn, Call::Resolve { participants }, now);
    }

    /// A transaction that may have locked something, and has not written, lets go of it.
    fn release(&mut self, txn: TxnId, running: &Running<T>) {
        let participants: Vec<NodeId> = running.asked.iter().copied().collect();
        if !participants.is_empty() {
            self.out.push(Output::Call(txn, Call::Release { participants }));
        }
    }

    fn ended(&mut self, txn: TxnId, ended: Ended) {
        self.answered(txn);
        self.locking.remove(&txn);
        let running = self.running.remove(&txn);
        match ended {
            Ended::Committed(timestamp) => {
                self.last = self.last.max(timestamp);
                // Refused only if the clocks of the machines differ too much, which those above have found out before.
                let _ = self.clock.learn(timestamp, timestamp.ms());
                self.cache.decided(txn, Some(timestamp));
            }
            _ => {
                self.cache.decided(txn, None);
                self.cache.abort(txn);
            }
        }
        if let Some(running) = running.filter(|running| running.only_reads() || !matches!(ended, Ended::Committed(_))) {
            self.release(txn, &running);
        }
        self.out.push(Output::Ended(txn, ended));
    }

    /// Ends a group snapshot, now or when enough is closed (G2).
    fn snapshot(&mut self, txn: TxnId) {
        match self.cache.snapshot(txn, self.last) {
            Some(Snapshot::At(at)) => self.ended(txn, Ended::Committed(at)),
            Some(Snapshot::Conflict(oid)) => self.ended(txn, Ended::Doomed(oid)),
            Some(Snapshot::Wait(..)) => self.waiting.push(txn),
            None => {}
        }
    }

    // ------------------------------------------------------------------------------------------ outside of transactions

    /// Reads an object. A miss is fetched; read again when something has come.
    pub fn get(&mut self, oid: Oid, now: Ms) -> Found<'_, T> {
        if matches!(self.peek(oid, now), Found::Miss) {
            let node = oid.page().node;
            if self.is_valid(node, now) {
                self.fetch(oid.page());
            } else {
                self.open(node, now);
            }
            return Found::Miss;
        }
        self.peek(oid, now)
    }

    /// The same of what is at hand; nothing is fetched.
    #[must_use]
    pub fn peek(&self, oid: Oid, now: Ms) -> Found<'_, T> {
        match self.pram.look(oid) {
            Some(Content::Value(value)) => Found::Value(value),
            Some(Content::Absent) => Found::Absent,
            None if self.is_valid(oid.page().node, now) => self.cache.look(oid),
            None => Found::Miss,
        }
    }

    /// The same, and how new it is by the page's copy: what this client wrote lately is newer.
    #[must_use]
    pub fn peek_closely(&self, oid: Oid, now: Ms) -> (Found<'_, T>, AsOf) {
        match self.pram.look(oid) {
            None if self.is_valid(oid.page().node, now) => self.cache.look_closely(oid),
            _ => (self.peek(oid, now), self.cache.look_closely(oid).1),
        }
    }

    /// Writes an object. [`Output::Written`] says this number when it is durable.
    pub fn put(&mut self, oid: Oid, content: Content<T>, number: u64, now: Ms) {
        self.pram.put(oid, content, number);
        self.send_writes(now);
    }

    /// Whether all writes are durable, and everybody has heard of them.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pram.is_settled()
    }

    fn send_writes(&mut self, now: Ms) {
        let Some(node) = self.pram.next().filter(|_| self.retry.is_none_or(|retry| retry <= now)) else { return };
        if !self.is_valid(node, now) {
            return self.open(node, now);
        }
        self.retry = None;
        let write = self.next_txn(now);
        if let Some(batch) = self.pram.send(write) {
            let writes = batch.writes.clone();
            self.up(node, Up::Write { write, writes });
        }
    }

    // ------------------------------------------------------------------------------------------ calls

    fn call(&mut self, txn: TxnId, call: Call<T>, now: Ms) {
        if let (Some(Call::Lock { oid: before, .. }), Call::Lock { oid, .. }) = (self.calls.get(&txn), &call)
            && before == oid
        {
            return;
        }
        self.out.push(Output::Call(txn, call.clone()));
        self.calls.insert(txn, call);
        self.repeating.set(txn, Some(now + REPEAT_MS));
    }

    /// Nothing is called for any more.
    fn answered(&mut self, txn: TxnId) {
        self.calls.remove(&txn);
        self.repeating.set(txn, None);
    }

    /// A call is answered.
    pub fn reply(&mut self, txn: TxnId, reply: Reply<T>) {
        match (reply, self.calls.get(&txn)) {
            (Reply::Locked(locked), Some(Call::Lock { oid, mode, .. }))
                if *oid == locked.oid && locked.mode.covers(*mode) =>
            {
                self.answered(txn);
                if let Some(running) = self.running.get_mut(&txn) {
                    self.locking.insert(txn);
                    // What was read before counts as it was then, and still counts as read: its lock may have been lost
                    // meanwhile, and what is granted now be less.
                    let before = running.locked.get_mut(&locked.oid).filter(|(held, _)| *held != Mode::Touch);
                    match before.filter(|_| !planted(Bug::RaisedAnew)) {
                        Some((held, _)) => *held = held.and(locked.mode),
                        None => drop(running.locked.insert(locked.oid, (locked.mode, locked))),
                    }
                }
            }
            (Reply::Checked(Ok(at)), Some(Call::Check { .. })) => self.ended(txn, Ended::Committed(at)),
            (Reply::Checked(Err(why)), Some(Call::Check { .. })) => self.ended(txn, Ended::Refused(why)),
            (Reply::Ended(coordinator::Reply::Committed(at)), Some(Call::Commit { .. } | Call::Resolve { .. })) => {
                self.ended(txn, Ended::Committed(at));
            }
            (Reply::Ended(coordinator::Reply::Refused(Refusal::TooOld)), Some(_)) => self.ended(txn, Ended::Unknown),
            (Reply::Ended(coordinator::Reply::Refused(why)), Some(_)) => self.ended(txn, Ended::Refused(why)),
            // It was wounded while it waited for nothing.
            (Reply::Ended(coordinator::Reply::Refused(why)), None) if self.running.contains_key(&txn) => {
                self.ended(txn, Ended::Refused(why));
            }
            _ => {}
        }
    }

    /// The copies, for checkers.
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

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn invariants(&self) -> Result<(), String> {
        self.cache.invariants()
    }
}

#[cfg(test)]
mod tests;
