//! A client's copies of pages, which stay correct while messages arrive in any order.
//!
//! The *page cache* and *vcache* of BuddyCache, sections 3.3.1 and 3.3.2, with the rules that make them sound:
//!
//! - **P1.** In a copy of version v every object is either invalid or reflects every transaction on the page up to and
//!   including v.
//! - **P2.** A message whose *previous version* is the copy's version advances the copy. Others change the objects that they
//!   name at once and leave the version alone; the *vcache* says how new such an object is, until the gap closes.
//! - **P3.** The version of a read is fixed at the read. It rises with its copy on each chained message that does not
//!   name the object; a message that names it dooms the transaction; a copy that is fetched later does not raise it
//!   (but if the read was at exactly the version of that copy, it rises with it from then on).
//! - **P4.** The reply to a commit puts own writes into the vcache under their [`TxnId`], but only over the copy that was
//!   held at the commit, and only if no message has named the object since, except messages of changes that the transaction has read: its
//!   write came after them. If the page was being fetched at the commit, the copy must be older than the commit, by its timestamp; if it may be
//!   newer, these objects become invalid. The chained message of that transaction ends the entry.
//! - **D3.** During a fetch, messages for the page are kept, and those above the version of the reply are applied to
//!   its page. A reply to any other fetch is dropped. What the client's own transactions have written meanwhile comes with their messages.
//!
//! ```text
//!   copy v4   a=1 b=1 c=1          message 5→6 names b, with b=9: out of order
//!   copy v4   a=1 b=9 c=1          vcache b→6: a read of b is at 6, a read of a at 4
//!                                  message 4→5 names c
//!   copy v6   a=1 b=9 c=–          the gap has closed; c is invalid, and a read of a is at 6
//! ```
//!
//! Writes stay in the transaction until it commits, so an abort only forgets them.
//!
//! # After the end of a session
//!
//! When messages of a node may be lost, its copies are [suspended](PageCache::suspend) and not used. A fetch then names
//! the version of the suspended copy, which is resumed if it is current (D4, R4). So *revalidation* is a fetch that
//! often returns no data.
//!
//! # Group snapshots
//!
//! - **G2.** Each read has an interval of time: from the largest commit timestamp of its copy (of an own write, from that
//!   commit's) to the next change of the object. A transaction that only reads may commit at a time that lies in all
//!   intervals, not before its client's last one, and at or below the closed timestamp of every node that it read from.
//! - **G3.** A closed timestamp counts only for pages that were fetched or validated in the session that it came in.
//!   When a page is evicted or replaced, the intervals of its reads end at the closed timestamp at that moment: later
//!   changes would not be received.

mod cached_page;
mod pending_fetches;
mod running_txns;
mod slots;
mod txn_reads;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{NodeId, Oid, PageId};

use crate::ident::{HlcTimestamp, TxnId, Version};
use crate::memory_size::MemorySize;
use crate::page_map::{PageMap, remove_page};
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::update_digest::UpdateDigest;
use crate::validate::{Read, ReadVersion};
use cached_page::{CachedPage, VcacheEntry};
use pending_fetches::PendingFetches;
use running_txns::RunningTxns;
use txn_reads::TrackedRead;

/// A brick's message about a durable change of a page (rule D2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// The page.
    pub page: PageId,
    /// The slots that changed.
    pub slots: BTreeSet<u16>,
    /// The version of the page before.
    pub previous: Version,
    /// Its version since.
    pub version: Version,
    /// When the transaction committed.
    pub timestamp: HlcTimestamp,
    /// The transaction.
    pub txn: TxnId,
    /// What it has made of the objects that it has written (R2). A brick states it if there are redirectors below.
    pub digest: Option<UpdateDigest>,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState<T> {
    /// It is this.
    Value(T),
    /// There is none.
    Absent,
    /// The brick computes it from the state before and this change. Until the object is fetched again, a copy does not have it.
    Changed(T),
}

/// States of objects of a page, by slot.
pub type SlotStates<T> = BTreeMap<u16, ObjectState<T>>;

/// A page with all its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageImage<T> {
    /// The version of the page.
    pub version: Version,
    /// The largest commit timestamp of the page.
    pub timestamp: HlcTimestamp,
    /// Its objects.
    pub objects: BTreeMap<u16, T>,
}

/// The answer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchReply<T> {
    /// The page.
    Page(PageImage<T>),
    /// The version at hand is current.
    Current,
    /// The version at hand is outdated, or the connection has no room for the page now.
    Stale,
    /// The stored page is damaged and cannot be read, for this reason. A copy that was to be revalidated is dropped, because it may be outdated.
    Damaged(String),
}

/// The number of a fetch; each has its own (rule D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a, T> {
    /// The object.
    Value(&'a T),
    /// There is no such object.
    Absent,
    /// The object is not in the cache: fetch its page.
    Miss,
}

/// A value that the user of the cache has made from an object, such as a decoded struct. The cache keeps it with the object and drops it
/// when the object changes or leaves the cache, so it is always that of the current state.
#[derive(Clone, Debug)]
pub struct DerivedValue {
    /// The value.
    pub value: Arc<dyn Any + Send + Sync>,
    /// Its approximate memory in bytes.
    pub bytes: usize,
}

/// The version and time of an object in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The version of the page's copy.
    pub version: Version,
    /// Which state of the object it is.
    pub seen: ReadVersion,
    /// A time at or after which that was committed.
    pub timestamp: HlcTimestamp,
}

impl Default for AsOf {
    fn default() -> Self {
        Self { version: Version::ZERO, seen: ReadVersion::At(Version::ZERO), timestamp: HlcTimestamp::ZERO }
    }
}

/// The limit for messages that are kept during a fetch, in bytes.
pub(crate) const MESSAGES_LIMIT_BYTES: usize = 8 << 20;
/// The memory of a message without new states, in bytes.
const MESSAGE_BYTES: usize = 1 << 10;

/// The approximate memory of a message, in bytes.
pub(crate) fn message_bytes<T: MemorySize>(contents: Option<&SlotStates<T>>) -> usize {
    MESSAGE_BYTES + contents.map_or(0, MemorySize::memory_size)
}

/// The writes of a committing transaction to one page.
#[derive(Clone, Debug)]
struct CommittingWrites<T> {
    /// The copy that was held at the commit. None if the page was being fetched.
    copy: Option<u64>,
    /// When it committed, if that is known, and the page is being fetched still.
    committed: Option<HlcTimestamp>,
    /// Without slots that a later change has named.
    writes: SlotStates<T>,
    /// Which states of these slots the transaction has read, as far as it has.
    reads: BTreeMap<u16, ReadVersion>,
}

impl<T: Clone> CommittingWrites<T> {
    /// Puts what has committed into a copy of the page, if the copy is older (P4).
    fn install(self, copy: &mut CachedPage<T>, txn: TxnId, timestamp: HlcTimestamp) {
        let is_older = match self.copy {
            // In another copy it could replace a newer state.
            Some(held) if held != copy.number && !planted(Bug::OwnWriteBlind) => return,
            Some(_) => true,
            // The timestamp of a page is the largest of its changes, so a copy below that of the commit does not contain it.
            None => copy.timestamp < timestamp || planted(Bug::OwnWriteInFetched),
        };
        for (slot, content) in self.writes {
            match (&content, copy.lookup(slot)) {
                // The brick may have sent no message about a deletion of nothing, which would end the entry.
                (ObjectState::Absent, Lookup::Absent) => {}
                _ if is_older => copy.put(slot, content, VcacheEntry { seen: ReadVersion::Written(txn), timestamp }),
                // The copy may have the state before, and the message about the change is still to come.
                _ => copy.slots.set(slot, None),
            }
        }
    }

    /// Drops the writes of slots that a message names, unless the transaction has read what the message tells: if it commits, it has
    /// replaced that.
    fn handle_message(&mut self, message: &Invalidation) {
        let Self { writes, reads, .. } = self;
        writes.retain(|slot, _| {
            if !message.slots.contains(slot) {
                return true;
            }
            match reads.get_mut(slot).filter(|_| !planted(Bug::OwnWriteDropped)) {
                Some(ReadVersion::At(version)) => *version >= message.version || planted(Bug::OwnWriteKept),
                Some(seen) if *seen == ReadVersion::Written(message.txn) => {
                    *seen = ReadVersion::At(message.version);
                    true
                }
                _ => false,
            }
        });
    }
}

/// The reads and writes of a finished transaction, for its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTxn<T> {
    /// What it read.
    pub reads: ReadList,
    /// The largest commit timestamp of the copies that it read.
    pub seen: HlcTimestamp,
    /// What it wrote.
    pub writes: BTreeMap<Oid, ObjectState<T>>,
}

/// Whether a transaction that only reads is a group snapshot (G2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotCheck {
    /// It is: of this time.
    At(HlcTimestamp),
    /// It will be when this node has closed this time.
    Wait(NodeId, HlcTimestamp),
    /// No time lies in all intervals; this object's had ended.
    Conflict(Oid),
}

/// The page cache of one client; objects are of type `T`.
#[derive(Clone, Debug)]
pub struct PageCache<T> {
    copies: PageMap<CachedPage<T>>,
    /// Suspended copies, whose pages may have changed without a message.
    suspended: BTreeMap<PageId, CachedPage<T>>,
    /// The closed timestamp of each node in its open session (G1).
    closed: BTreeMap<NodeId, HlcTimestamp>,
    fetches: PendingFetches<T>,
    running: RunningTxns<T>,
    committing: BTreeMap<TxnId, BTreeMap<PageId, CommittingWrites<T>>>,
    last_copy: u64,
    last_fetch: u64,
}

impl<T> Default for PageCache<T> {
    fn default() -> Self {
        Self {
            copies: PageMap::default(),
            suspended: BTreeMap::new(),
            closed: BTreeMap::new(),
            fetches: PendingFetches::default(),
            running: RunningTxns::default(),
            committing: BTreeMap::new(),
            last_copy: 0,
            last_fetch: 0,
        }
    }
}

impl<T: Clone + MemorySize> PageCache<T> {
    // ------------------------------------------------------------------------------------------ transactions

    /// Begins a transaction.
    pub fn begin(&mut self, txn: TxnId) {
        let is_running = self.running.begin(txn);
        assert!(!is_running && !self.committing.contains_key(&txn), "C3: {txn:?} begins twice");
    }

    /// Reads an object in a transaction: its own write, else the copy. The version is fixed by the first read (P3).
    pub fn read(&mut self, txn: TxnId, oid: Oid) -> Lookup<'_, T> {
        self.read_derived(txn, oid).0
    }

    /// The same, with the value that was [derived](PageCache::attach) from the object, if the copy has one.
    pub fn read_derived(&mut self, txn: TxnId, oid: Oid) -> (Lookup<'_, T>, Option<&DerivedValue>) {
        let Some((running, readers)) = self.running.get_reader(txn) else { return (Lookup::Miss, None) };
        if running.writes.contains_key(&oid) {
            return (self.own_write(txn, oid), None);
        }
        let Some(copy) = self.copies.get(&oid.page()) else { return (Lookup::Miss, None) };
        let (found, derived) = copy.lookup_derived(oid.slot());
        if found.is_miss() {
            return (found, None);
        }
        let VcacheEntry { seen, timestamp } = copy.vcache_entry(oid.slot());
        running.record_read(oid, TrackedRead { seen, copy: copy.number, from: timestamp, until: None }, readers);
        (found, derived)
    }

    /// What a transaction has written as an object.
    fn own_write(&self, txn: TxnId, oid: Oid) -> Lookup<'_, T> {
        match self.running.get(txn).and_then(|running| running.writes.get(&oid)) {
            Some(ObjectState::Value(value)) => Lookup::Value(value),
            Some(ObjectState::Absent) => Lookup::Absent,
            Some(ObjectState::Changed(_)) | None => Lookup::Miss,
        }
    }

    /// Keeps a value that was derived from an object, as long as the copy has the object. `is_source` says whether the object that the
    /// copy has now is the one that the value was derived from. Returns the bytes of all derived values of the page, or `None` if the
    /// value is not kept.
    pub fn attach(&mut self, oid: Oid, is_source: impl FnOnce(&T) -> bool, derived: DerivedValue) -> Option<usize> {
        let copy = self.copies.get_mut(&oid.page())?;
        let is_kept = copy.slots.attach(oid.slot(), is_source, derived);
        is_kept.then(|| copy.slots.derived_bytes())
    }

    /// The bytes of all derived values of a page.
    #[must_use]
    pub fn derived_bytes(&self, page: PageId) -> usize {
        self.copies.get(&page).map_or(0, |copy| copy.slots.derived_bytes())
    }

    /// Drops the derived values of a page.
    pub fn drop_derived(&mut self, page: PageId) {
        for copy in [self.copies.get_mut(&page), self.suspended.get_mut(&page)].into_iter().flatten() {
            copy.slots.drop_derived();
        }
    }

    /// Writes an object in a transaction. Other transactions see it after the commit. Returns whether the transaction
    /// is running.
    pub fn write(&mut self, txn: TxnId, oid: Oid, content: ObjectState<T>) -> bool {
        let Some(running) = self.running.get_mut(txn) else { return false };
        running.writes.insert(oid, content);
        true
    }

    /// The object that prevents the transaction from committing.
    #[must_use]
    pub fn conflicting_object(&self, txn: TxnId) -> Option<Oid> {
        self.running.get(txn).and_then(|running| running.doomed)
    }

    /// Pages in which a transaction writes whole objects, and that are neither cached nor being fetched.
    #[must_use]
    pub fn missing_written_pages(&self, txn: TxnId) -> Vec<PageId> {
        let written = self.running.get(txn).into_iter().flat_map(|running| &running.writes);
        let whole = written.filter(|(_, content)| matches!(content, ObjectState::Value(_)));
        let mut pages: Vec<PageId> = Vec::new();
        for page in whole.map(|(oid, _)| oid.page()) {
            // Objects of one page and class follow one another.
            if pages.last() != Some(&page) {
                pages.push(page);
            }
        }
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|page| !self.copies.contains_key(page) && self.fetches.get(*page).is_none());
        pages
    }

    /// Forgets a transaction.
    pub fn abort(&mut self, txn: TxnId) {
        self.running.remove(txn);
    }

    /// How many objects a running transaction has read.
    #[must_use]
    pub fn read_count(&self, txn: TxnId) -> usize {
        self.running.get(txn).map_or(0, |running| running.reads.len())
    }

    /// What a running transaction has read.
    #[must_use]
    pub fn read_list(&self, txn: TxnId) -> ReadList {
        let mut reads = ReadList::with_capacity(self.read_count(txn));
        if let Some(running) = self.running.get(txn) {
            running.reads.for_each(|oid, read| reads.push(Read { oid, seen: read.seen }));
        }
        reads
    }

    /// Ends a transaction's reading and writing. What it wrote is kept until [`PageCache::handle_outcome`].
    ///
    /// # Errors
    /// The object that dooms the transaction, which is then forgotten.
    pub fn finish(&mut self, txn: TxnId) -> Result<FinishedTxn<T>, Option<Oid>> {
        let running = self.running.remove(txn).ok_or(None)?;
        if running.doomed.is_some() {
            return Err(running.doomed);
        }
        let mut committing: BTreeMap<PageId, CommittingWrites<T>> = BTreeMap::new();
        for (oid, content) in &running.writes {
            let copy = self.copies.get(&oid.page());
            if copy.is_none() && self.fetches.get(oid.page()).is_none() {
                continue;
            }
            // Deleting an absent object changes nothing: the copy is correct, and the brick may send no message.
            let before = copy.map(|copy| copy.lookup(oid.slot()));
            if matches!((content, before), (ObjectState::Absent, Some(Lookup::Absent))) {
                continue;
            }
            let page = committing.entry(oid.page()).or_insert_with(|| CommittingWrites {
                copy: copy.map(|copy| copy.number),
                committed: None,
                writes: BTreeMap::new(),
                reads: BTreeMap::new(),
            });
            page.writes.insert(oid.slot(), content.clone());
            page.reads.extend(running.reads.get(*oid).map(|read| (oid.slot(), read.seen)));
        }
        let before = self.committing.insert(txn, committing);
        assert!(before.is_none(), "C3: {txn:?} commits twice");
        let seen = running.reads.latest_from().unwrap_or_default();
        let mut reads = ReadList::with_capacity(running.reads.len());
        running.reads.for_each(|oid, read| reads.push(Read { oid, seen: read.seen }));
        if planted(Bug::VersionAtCommit) {
            let now = |oid: Oid| self.version(oid.page()).map(ReadVersion::At);
            reads = reads.iter().map(|read| Read { seen: now(read.oid).unwrap_or(read.seen), ..read }).collect();
        }
        Ok(FinishedTxn { reads, seen, writes: running.writes })
    }

    /// The outcome of a transaction has come: when it committed, if it did (P4).
    pub fn handle_outcome(&mut self, txn: TxnId, committed: Option<HlcTimestamp>) {
        let (Some(pages), Some(timestamp)) = (self.committing.remove(&txn), committed) else { return };
        let mut awaited = BTreeMap::new();
        for (page, own) in pages {
            let is_fetched = own.copy.is_none() && self.fetches.get(page).is_some();
            if is_fetched && !planted(Bug::OwnOutcomeForgotten) {
                awaited.insert(page, CommittingWrites { committed: Some(timestamp), ..own.clone() });
            }
            if let Some(copy) = self.copies.get_mut(&page) {
                own.install(copy, txn, timestamp);
            }
        }
        if !awaited.is_empty() {
            self.committing.insert(txn, awaited);
        }
    }

    /// Removes and returns what committed transactions have written to a page that is not being fetched any more, in the order of commits.
    fn take_committed(&mut self, page: PageId) -> Vec<(TxnId, HlcTimestamp, CommittingWrites<T>)> {
        let mut taken = Vec::new();
        self.committing.retain(|txn, pages| {
            let Some(timestamp) = pages.get(&page).and_then(|own| own.committed) else { return true };
            taken.extend(pages.remove(&page).map(|own| (*txn, timestamp, own)));
            !pages.is_empty()
        });
        taken.sort_by_key(|(_, timestamp, _)| *timestamp);
        taken
    }

    /// Ends a read-only transaction as a group snapshot at a time not before `last`, if possible (G2). The transaction
    /// is forgotten unless it has to wait. `None` if there is no such transaction.
    pub fn snapshot(&mut self, txn: TxnId, last: HlcTimestamp) -> Option<SnapshotCheck> {
        let running = self.running.get(txn)?;
        let from = running.reads.latest_from().unwrap_or(last).max(last);
        let first = running.reads.first_ended();
        let nodes = running.reads.pages().map(|page| page.node);
        let closed = nodes.map(|node| (self.closed_timestamp(node), node));
        let found = match (first, closed.min()) {
            (Some((until, oid)), _) if until <= from => SnapshotCheck::Conflict(oid),
            (_, Some((closed, node))) if closed < from && !planted(Bug::BeyondClosed) => {
                return Some(SnapshotCheck::Wait(node, from));
            }
            (first, Some((closed, _))) => {
                let latest = first.map_or(closed, |(until, _)| closed.min(HlcTimestamp(until.0 - 1)));
                assert!(
                    latest >= from || planted(Bug::BeyondClosed),
                    "G2: {txn:?} may read from {from:?} to {latest:?}"
                );
                SnapshotCheck::At(latest.max(from))
            }
            (_, None) => SnapshotCheck::At(from),
        };
        self.running.remove(txn);
        Some(found)
    }

    /// A node has closed a time: all changes of cached pages up to then have arrived (G1).
    pub fn close(&mut self, node: NodeId, at: HlcTimestamp) {
        let closed = self.closed.entry(node).or_default();
        *closed = at.max(*closed);
    }

    /// The closed timestamp of a node, in the session that is open.
    #[must_use]
    pub fn closed_timestamp(&self, node: NodeId) -> HlcTimestamp {
        self.closed.get(&node).copied().unwrap_or_default()
    }

    /// A copy is removed: the intervals of its reads end at the closed timestamp (G3).
    fn end_intervals(&mut self, page: PageId, copy: u64) {
        if planted(Bug::EvictionForgotten) {
            return;
        }
        let end = self.closed_timestamp(page.node).next();
        self.running.each_read_of(page, |_, read, _| {
            if read.copy == copy {
                read.end_interval(end);
            }
        });
    }

    // ------------------------------------------------------------------------------------------ fetching

    /// Begins a fetch of a page, unless one is pending. Returns its number, and the version of the suspended copy if
    /// there is one: it may still be current.
    pub fn fetch(&mut self, page: PageId) -> Option<(FetchId, Option<Version>)> {
        if self.fetches.get(page).is_some() {
            return None;
        }
        self.last_fetch += 1;
        let id = FetchId(self.last_fetch);
        self.fetches.insert(page, id);
        Some((id, self.suspended.get(&page).map(|copy| copy.version)))
    }

    /// The number of pending fetches.
    #[must_use]
    pub fn fetch_count(&self) -> usize {
        self.fetches.len()
    }

    /// The number of pending fetches at the logical node of a page.
    #[must_use]
    pub fn fetch_count_at(&self, page: PageId) -> usize {
        self.fetches.count_at(page)
    }

    /// The number of the pending fetch of a page.
    #[must_use]
    pub fn pending_fetch(&self, page: PageId) -> Option<FetchId> {
        self.fetches.get(page).map(|fetch| fetch.id)
    }

    /// Handles the reply to a fetch. Returns whether that fetch was pending (D3). If the messages of the meantime
    /// exceeded the limit, the reply is discarded, and the page has to be fetched again.
    pub fn handle_fetched(&mut self, page: PageId, id: FetchId, reply: FetchReply<T>) -> bool {
        if self.pending_fetch(page).is_none_or(|pending| pending != id && !planted(Bug::AnyReply)) {
            return false;
        }
        let Some(fetch) = self.fetches.remove(page) else { return false };
        let committed = self.take_committed(page);
        let aside = self.suspended.remove(&page);
        if fetch.bytes > MESSAGES_LIMIT_BYTES {
            return true;
        }
        let copy = match reply {
            FetchReply::Page(fetched) => {
                self.last_copy += 1;
                Some(CachedPage::new(self.last_copy, fetched))
            }
            // The same copy as before: nothing on its page has changed.
            FetchReply::Current => aside,
            FetchReply::Stale | FetchReply::Damaged(_) => None,
        };
        let Some(copy) = copy else { return true };
        let number = copy.number;
        let before = self.copies.insert(page, copy);
        for (message, contents) in fetch.messages {
            self.apply_message(&message, contents.as_ref());
        }
        if let Some(copy) = self.copies.get_mut(&page) {
            for (txn, timestamp, own) in committed {
                own.install(copy, txn, timestamp);
            }
        }
        if let (Some(before), Some(version)) = (before, self.version(page)) {
            self.carry_over(page, before.number, number, version);
            self.end_intervals(page, before.number);
        }
        true
    }

    /// A copy replaces another one. A read at exactly its version is unchanged in it, and rises with it from now on.
    fn carry_over(&mut self, page: PageId, before: u64, number: u64, version: Version) {
        self.running.each_read_of(page, |_, read, _| {
            if read.copy == before && read.seen == ReadVersion::At(version) {
                read.copy = number;
            }
        });
    }

    /// Removes a copy. Returns whether there was one.
    pub fn evict(&mut self, page: PageId) -> bool {
        self.suspended.remove(&page);
        let Some(copy) = remove_page(&mut self.copies, page) else { return false };
        self.end_intervals(page, copy.number);
        true
    }

    /// Messages of a node may be lost from now on: its copies are suspended until they are revalidated, and its fetches
    /// are dropped.
    pub fn suspend(&mut self, node: NodeId) {
        self.fetches.remove_node(node);
        self.committing.retain(|_, pages| {
            let before = pages.len();
            pages.retain(|page, own| page.node != node || own.committed.is_none());
            before == pages.len() || !pages.is_empty()
        });
        if planted(Bug::SessionNotReset) {
            return;
        }
        let pages: Vec<PageId> = self.copies.keys().copied().filter(|page| page.node == node).collect();
        for page in pages {
            let Some(copy) = remove_page(&mut self.copies, page) else { continue };
            self.end_intervals(page, copy.number);
            // An object that is newer than the copy shows that the copy's version is outdated.
            if copy.vcache.is_empty() {
                self.suspended.insert(page, copy);
            }
        }
        self.closed.remove(&node);
    }

    /// The pages of a node with suspended copies.
    pub fn suspended_pages(&self, node: NodeId) -> impl Iterator<Item = PageId> {
        self.suspended.keys().copied().filter(move |page| page.node == node)
    }

    // ------------------------------------------------------------------------------------------ messages

    /// Handles a change of a page. `contents` are the new states, if they were sent (R2). Returns the version to
    /// acknowledge: nothing older is left here. Behind a gap it is less than the version of the message.
    pub fn invalidate(&mut self, message: Invalidation, contents: Option<SlotStates<T>>) -> Version {
        let contents = contents.or_else(|| self.own_update(&message));
        self.apply_message(&message, contents.as_ref());
        let heard = self.version(message.page).unwrap_or(message.version);
        if let Some(fetch) = self.fetches.get_mut(message.page).filter(|_| !planted(Bug::NoCrossingLog)) {
            fetch.bytes += message_bytes(contents.as_ref());
            fetch.messages.push((message, contents));
            if fetch.bytes > MESSAGES_LIMIT_BYTES {
                fetch.messages.clear();
            }
        }
        heard
    }

    /// What the client's own transaction has written to a page, if this is the message about it: the update, if none was sent.
    fn own_update(&self, message: &Invalidation) -> Option<SlotStates<T>> {
        let mistaken = || self.committing.values().find(|pages| pages.contains_key(&message.page));
        let own = self.committing.get(&message.txn);
        let pages = own.or_else(|| mistaken().filter(|_| planted(Bug::OwnUpdateMistaken)))?;
        pages.get(&message.page).map(|own| own.writes.clone())
    }

    fn apply_message(&mut self, message: &Invalidation, contents: Option<&SlotStates<T>>) {
        self.doom_readers(message);
        for committing in self.committing.values_mut().filter_map(|pages| pages.get_mut(&message.page)) {
            committing.handle_message(message);
        }
        let Some(copy) = self.copies.get_mut(&message.page).filter(|copy| copy.version < message.version) else {
            return;
        };
        for slot in &message.slots {
            copy.change_slot(*slot, message, contents.and_then(|contents| contents.get(slot)));
        }
        let previous = if planted(Bug::GapsIgnored) { copy.version } else { message.previous };
        copy.ahead.insert(previous, message.clone());
        while let Some(next) = copy.ahead.remove(&copy.version) {
            copy.advance(&next);
            advance_reads(&mut self.running, &next, copy.number);
        }
        copy.ahead.retain(|previous, _| *previous > copy.version);
    }

    /// A message that names what a running transaction has read dooms it (P3).
    fn doom_readers(&mut self, message: &Invalidation) {
        self.running.each_read_of(message.page, |oid, read, doomed| {
            if !message.slots.contains(&oid.slot()) {
                return;
            }
            match read.seen {
                ReadVersion::At(version) if version >= message.version => {}
                ReadVersion::Written(writer) if writer == message.txn => read.seen = ReadVersion::At(message.version),
                _ if planted(Bug::NoDoom) => {}
                _ => {
                    doomed.get_or_insert(oid);
                    read.end_interval(message.timestamp);
                }
            }
        });
    }

    // ------------------------------------------------------------------------------------------ looking

    /// The version of a copy.
    #[must_use]
    pub fn version(&self, page: PageId) -> Option<Version> {
        self.copies.get(&page).map(|copy| copy.version)
    }

    /// All copies, with their versions.
    pub fn copies(&self) -> impl Iterator<Item = (PageId, Version)> {
        self.copies.iter().map(|(page, copy)| (*page, copy.version))
    }

    /// Looks up an object outside of transactions.
    #[must_use]
    pub fn lookup(&self, oid: Oid) -> Lookup<'_, T> {
        self.copies.get(&oid.page()).map_or(Lookup::Miss, |copy| copy.lookup(oid.slot()))
    }

    /// The same, with version and time.
    #[must_use]
    pub fn lookup_versioned(&self, oid: Oid) -> (Lookup<'_, T>, AsOf) {
        let Some(copy) = self.copies.get(&oid.page()) else { return (Lookup::Miss, AsOf::default()) };
        let VcacheEntry { seen, timestamp } = copy.vcache_entry(oid.slot());
        (copy.lookup(oid.slot()), AsOf { version: copy.version, seen, timestamp })
    }

    /// The page for another client (R1): only if every object is valid and none is newer than the version of the copy.
    #[must_use]
    pub fn complete_page(&self, page: PageId) -> Option<PageImage<T>> {
        let copy = self.copies.get(&page)?;
        if !copy.vcache.is_empty() && !planted(Bug::NewerCalledComplete) {
            return None;
        }
        let whole = copy.slots.iter().filter(|(_, it)| it.value.is_some() || !planted(Bug::HoleCalledComplete));
        let objects: Option<BTreeMap<u16, T>> = whole.map(|(slot, it)| Some((slot, it.value.clone()?))).collect();
        Some(PageImage { version: copy.version, timestamp: copy.timestamp, objects: objects? })
    }

    /// Every object of the page that is valid, with the version up to which it is (P1): for checkers.
    pub fn valid_objects(&self, page: PageId) -> impl Iterator<Item = (u16, &T, ReadVersion)> {
        let copy = self.copies.get(&page);
        copy.into_iter().flat_map(|copy| {
            copy.slots.iter().filter_map(|(slot, it)| Some((slot, it.value.as_ref()?, copy.vcache_entry(slot).seen)))
        })
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.running.check_invariants()?;
        for (page, copy) in &self.copies {
            for (slot, newer) in &copy.vcache {
                if matches!(newer.seen, ReadVersion::At(version) if version <= copy.version) {
                    return Err(format!("P2: slot {slot} of {page:?} is at {newer:?}, the copy at {:?}", copy.version));
                }
            }
            if let Some((previous, message)) = copy.ahead.first_key_value()
                && *previous <= copy.version
            {
                return Err(format!("P2: {page:?} at {:?} keeps {previous:?} → {:?}", copy.version, message.version));
            }
        }
        Ok(())
    }
}

impl<T> Lookup<'_, T> {
    fn is_miss(&self) -> bool {
        matches!(self, Self::Miss)
    }
}

/// A copy has advanced: reads of it that the message does not name rise with it (P3).
fn advance_reads<T>(running: &mut RunningTxns<T>, message: &Invalidation, copy: u64) {
    running.each_read_of(message.page, |oid, read, _| {
        let is_unnamed = read.copy == copy && !message.slots.contains(&oid.slot());
        if let (true, ReadVersion::At(version)) = (is_unnamed, read.seen) {
            read.seen = ReadVersion::At(version.max(message.version));
        }
    });
}

#[cfg(test)]
mod tests;
