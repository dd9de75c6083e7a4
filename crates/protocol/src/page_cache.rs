//! A client's copies of pages, kept right by messages that come in any order.
//!
//! The *page cache* and *vcache* of BuddyCache, sections 3.3.1 and 3.3.2, with the rules that make them sound:
//!
//! - **P1.** In a copy of version v every object is either invalid or reflects every transaction on the page up to and
//!   including v.
//! - **P2.** A message whose *previous version* is the copy's version advances the copy. Others change the objects that they
//!   name at once and leave the version alone; the *vcache* says how new such an object is, until the gap closes.
//! - **P3.** The version of a read is fixed at the read. It rises with its copy on each chained message that does not name
//!   the object; a message that names it dooms the transaction; another copy, fetched later, does not raise it (but the read
//!   goes on rising with that, if it was at just its version).
//! - **P4.** The reply to a commit puts own writes into the vcache under their [`TxnId`], but only over the copy that was
//!   held at the commit, and only if no message has named the object since. The chained message of that transaction ends
//!   the entry.
//! - **D3.** While a fetch is out, messages for the page are kept, and those above the version of the reply are applied to
//!   what it brings. A reply to another fetch than the one that is out is dropped.
//!
//! ```text
//!   copy v4   a=1 b=1 c=1          message 5→6 names b, with b=9: out of order
//!   copy v4   a=1 b=9 c=1          vcache b→6: a read of b is at 6, a read of a at 4
//!                                  message 4→5 names c
//!   copy v6   a=1 b=9 c=–          the gap has closed; c is invalid, and a read of a is at 6
//! ```
//!
//! What a transaction writes stays in the transaction until it commits: to undo one is to forget it.
//!
//! # After the end of a session
//!
//! When it is unsure whether a node's messages still come, its copies are put [aside](PageCache::suspend), and nothing of
//! them is used. A fetch then says which version is there, and if that is current the copy is taken up again (D4, R4):
//! *revalidation* is a fetch that often needs to bring nothing.
//!
//! # Group snapshots
//!
//! - **G2.** Each read has an interval of time: from the largest commit timestamp of its copy (of an own write, from that
//!   commit's) to the next change of the object. A transaction that only reads may commit at a time that lies in all
//!   intervals, not before its client's last one, and at or below the closed timestamp of every node that it read from.
//! - **G3.** A closed timestamp counts only for pages that were fetched or validated in the session that it came in. When a
//!   page is evicted or replaced, the intervals of its reads end at the closed timestamp that is held then: what changes
//!   later would not be heard.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeId, Oid, PageId};

use crate::ident::{Timestamp, TxnId, Version};
use crate::plant::{Bug, planted};
use crate::validate::{Read, Seen};
use crate::weigh::Weigh;

/// What a brick says of a durable change of a page (rule D2).
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
    pub timestamp: Timestamp,
    /// The transaction.
    pub txn: TxnId,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<T> {
    /// It is this.
    Value(T),
    /// There is none.
    Absent,
}

/// States of objects of a page, by slot.
pub type Contents<T> = BTreeMap<u16, Content<T>>;

/// Whole pages come with every object that they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched<T> {
    /// The version of the page.
    pub version: Version,
    /// The largest commit timestamp of the page.
    pub timestamp: Timestamp,
    /// Its objects.
    pub objects: BTreeMap<u16, T>,
}

/// The answer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The page.
    Page(Fetched<T>),
    /// The version that is there is the page's.
    Current,
    /// The version that is there is not the page's any more.
    Stale,
}

/// The number of a fetch; each has its own (rule D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// What a look at the cache finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a, T> {
    /// The object.
    Value(&'a T),
    /// There is no such object.
    Absent,
    /// It is not here: fetch its page.
    Miss,
}

/// How new an object is that is newer than its copy, and when its state was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Newer {
    seen: Seen,
    timestamp: Timestamp,
}

/// How new something is that was found in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The version of the page's copy.
    pub version: Version,
    /// Which state of the object it is.
    pub seen: Seen,
    /// A time at or after which that was committed.
    pub timestamp: Timestamp,
}

impl Default for AsOf {
    fn default() -> Self {
        Self { version: Version::ZERO, seen: Seen::At(Version::ZERO), timestamp: Timestamp::ZERO }
    }
}

#[derive(Clone, Debug)]
struct Copy<T> {
    /// Which copy of the page it is: each fetch brings another.
    number: u64,
    version: Version,
    timestamp: Timestamp,
    /// `None` is invalid. What is not there does not exist.
    slots: BTreeMap<u16, Option<T>>,
    vcache: BTreeMap<u16, Newer>,
    /// Messages behind a gap, by the version that they follow.
    ahead: BTreeMap<Version, Invalidation>,
}

/// How much of the messages is kept that come while a fetch is out, in bytes.
pub(crate) const MESSAGES_LIMIT: usize = 8 << 20;
/// What a message takes without new states, in bytes.
const MESSAGE: usize = 1 << 10;

/// About how many bytes a message takes.
pub(crate) fn message_weight<T: Weigh>(contents: Option<&Contents<T>>) -> usize {
    MESSAGE + contents.map_or(0, Weigh::weight)
}

#[derive(Clone, Debug)]
struct Fetch<T> {
    id: FetchId,
    messages: Vec<(Invalidation, Option<Contents<T>>)>,
    /// About how many bytes they are. If it is too much they are gone, and what the fetch brings is of no use.
    weight: usize,
}

/// A read of a running transaction.
#[derive(Clone, Copy, Debug)]
struct Looked {
    seen: Seen,
    copy: u64,
    /// Its interval (G2): from here,
    from: Timestamp,
    /// to before here, if it has ended.
    until: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Running<T> {
    reads: BTreeMap<Oid, Looked>,
    writes: BTreeMap<Oid, Content<T>>,
    doomed: Option<Oid>,
}

/// What a committing transaction writes to one page.
#[derive(Clone, Debug)]
struct Committing<T> {
    copy: u64,
    /// Without those that a message has named since.
    writes: Contents<T>,
}

/// What a transaction has done: what its commit sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished<T> {
    /// What it read.
    pub reads: Vec<Read>,
    /// The largest commit timestamp of the copies that it read.
    pub seen: Timestamp,
    /// What it wrote.
    pub writes: BTreeMap<Oid, Content<T>>,
}

/// Whether a transaction that only reads is a group snapshot (G2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// It is: of this time.
    At(Timestamp),
    /// It will be when this node has closed this time.
    Wait(NodeId, Timestamp),
    /// No time lies in all intervals; this object's had ended.
    Conflict(Oid),
}

/// The page cache of one client; objects are of type `T`.
#[derive(Clone, Debug)]
pub struct PageCache<T> {
    copies: BTreeMap<PageId, Copy<T>>,
    /// Copies of whose pages no messages may have come lately.
    aside: BTreeMap<PageId, Copy<T>>,
    /// Up to when each node's changes have been heard, in the session that is open (G1).
    closed: BTreeMap<NodeId, Timestamp>,
    fetches: BTreeMap<PageId, Fetch<T>>,
    running: BTreeMap<TxnId, Running<T>>,
    committing: BTreeMap<TxnId, BTreeMap<PageId, Committing<T>>>,
    last_copy: u64,
    last_fetch: u64,
}

impl<T> Default for PageCache<T> {
    fn default() -> Self {
        Self {
            copies: BTreeMap::new(),
            aside: BTreeMap::new(),
            closed: BTreeMap::new(),
            fetches: BTreeMap::new(),
            running: BTreeMap::new(),
            committing: BTreeMap::new(),
            last_copy: 0,
            last_fetch: 0,
        }
    }
}

impl<T: Clone + Weigh> PageCache<T> {
    // ------------------------------------------------------------------------------------------ transactions

    /// Begins a transaction.
    pub fn begin(&mut self, txn: TxnId) {
        let running = Running { reads: BTreeMap::new(), writes: BTreeMap::new(), doomed: None };
        let before = self.running.insert(txn, running);
        assert!(before.is_none() && !self.committing.contains_key(&txn), "{txn:?} has begun already");
    }

    /// Reads an object in a transaction: its own write, else the copy. The version is fixed by the first read (P3).
    pub fn read(&mut self, txn: TxnId, oid: Oid) -> Found<'_, T> {
        let Some(running) = self.running.get_mut(&txn) else { return Found::Miss };
        if let Some(written) = running.writes.get(&oid) {
            return match written {
                Content::Value(value) => Found::Value(value),
                Content::Absent => Found::Absent,
            };
        }
        let Some(copy) = self.copies.get(&oid.page()) else { return Found::Miss };
        let found = copy.look(oid.slot());
        if found.is_miss() {
            return found;
        }
        let Newer { seen, timestamp } = copy.newer(oid.slot());
        let looked = Looked { seen, copy: copy.number, from: timestamp, until: None };
        let first = running.reads.entry(oid).or_insert(looked);
        // Another state than the first read's: its message has doomed the transaction, or another copy hides it.
        if first.seen != looked.seen {
            first.until = Some(Timestamp::ZERO);
            running.doomed.get_or_insert(oid);
        }
        found
    }

    /// Writes an object in a transaction. Others see it when it is committed. Says whether the transaction is running.
    pub fn write(&mut self, txn: TxnId, oid: Oid, content: Content<T>) -> bool {
        let Some(running) = self.running.get_mut(&txn) else { return false };
        running.writes.insert(oid, content);
        true
    }

    /// An object because of which the transaction cannot commit any more.
    #[must_use]
    pub fn doomed(&self, txn: TxnId) -> Option<Oid> {
        self.running.get(&txn).and_then(|running| running.doomed)
    }

    /// Forgets a transaction.
    pub fn abort(&mut self, txn: TxnId) {
        self.running.remove(&txn);
    }

    /// Ends a transaction's reading and writing. What it wrote is kept until [`PageCache::decided`].
    ///
    /// # Errors
    /// The object that dooms it; it is forgotten then.
    pub fn finish(&mut self, txn: TxnId) -> Result<Finished<T>, Option<Oid>> {
        let Running { reads, writes, doomed } = self.running.remove(&txn).ok_or(None)?;
        if doomed.is_some() {
            return Err(doomed);
        }
        let mut committing: BTreeMap<PageId, Committing<T>> = BTreeMap::new();
        for (oid, content) in &writes {
            let Some(copy) = self.copies.get(&oid.page()) else { continue };
            // Nothing changes where nothing is: the copy is right as it is, and a brick may send no message for that.
            if matches!((content, copy.look(oid.slot())), (Content::Absent, Found::Absent)) {
                continue;
            }
            let page = committing
                .entry(oid.page())
                .or_insert_with(|| Committing { copy: copy.number, writes: BTreeMap::new() });
            page.writes.insert(oid.slot(), content.clone());
        }
        self.committing.insert(txn, committing);
        let seen = reads.values().map(|looked| looked.from).max().unwrap_or_default();
        let late = planted(Bug::VersionAtCommit);
        let now = |oid: &Oid| self.copies.get(&oid.page()).map(|copy| Seen::At(copy.version)).filter(|_| late);
        let reads =
            reads.into_iter().map(|(oid, looked)| Read { oid, seen: now(&oid).unwrap_or(looked.seen) }).collect();
        Ok(Finished { reads, seen, writes })
    }

    /// The outcome of a transaction has come: when it committed, if it did (P4).
    pub fn decided(&mut self, txn: TxnId, committed: Option<Timestamp>) {
        let (Some(pages), Some(timestamp)) = (self.committing.remove(&txn), committed) else { return };
        for (page, Committing { copy: number, writes }) in pages {
            // Over another copy it could be older than what is there.
            let same = |copy: &&mut Copy<T>| copy.number == number || planted(Bug::OwnWriteBlind);
            let Some(copy) = self.copies.get_mut(&page).filter(same) else { continue };
            for (slot, content) in writes {
                copy.put(slot, content, Newer { seen: Seen::Written(txn), timestamp });
            }
        }
    }

    /// Ends a transaction that has only read as a group snapshot, not before `last`, if it can be one (G2). It is forgotten,
    /// unless it has to wait. `None` if there is no such transaction.
    pub fn snapshot(&mut self, txn: TxnId, last: Timestamp) -> Option<Snapshot> {
        let running = self.running.get(&txn)?;
        let from = running.reads.values().map(|looked| looked.from).max().unwrap_or(last).max(last);
        let ends = running.reads.iter().filter_map(|(oid, looked)| Some((looked.until?, *oid)));
        let first = ends.min();
        let closed = running.reads.keys().map(|oid| (self.closed(oid.page().node), oid.page().node));
        let found = match (first, closed.min()) {
            (Some((until, oid)), _) if until <= from => Snapshot::Conflict(oid),
            (_, Some((closed, node))) if closed < from && !planted(Bug::BeyondClosed) => {
                return Some(Snapshot::Wait(node, from));
            }
            (first, Some((closed, _))) => {
                let latest = first.map_or(closed, |(until, _)| closed.min(Timestamp(until.0 - 1)));
                Snapshot::At(latest.max(from))
            }
            (_, None) => Snapshot::At(from),
        };
        self.running.remove(&txn);
        Some(found)
    }

    /// A node has closed a time: all changes of pages that are held, up to then, have come (G1).
    pub fn close(&mut self, node: NodeId, at: Timestamp) {
        let closed = self.closed.entry(node).or_default();
        *closed = at.max(*closed);
    }

    /// The closed timestamp of a node, in the session that is open.
    #[must_use]
    pub fn closed(&self, node: NodeId) -> Timestamp {
        self.closed.get(&node).copied().unwrap_or_default()
    }

    /// A copy goes: the intervals of what was read from it end where changes are known to have been heard (G3).
    fn end_intervals(&mut self, page: PageId, copy: u64) {
        if planted(Bug::EvictionForgotten) {
            return;
        }
        let end = self.closed(page.node).next();
        let reads = self.running.values_mut().flat_map(|running| running.reads.iter_mut());
        for (_, looked) in reads.filter(|(oid, looked)| oid.page() == page && looked.copy == copy) {
            looked.until = Some(looked.until.map_or(end, |until| until.min(end)));
        }
    }

    // ------------------------------------------------------------------------------------------ fetching

    /// Begins a fetch of a page, unless one is out already. Returns its number, and the version of the copy that was put
    /// aside, if one was: it may still be current.
    pub fn fetch(&mut self, page: PageId) -> Option<(FetchId, Option<Version>)> {
        if self.fetches.contains_key(&page) {
            return None;
        }
        self.last_fetch += 1;
        let id = FetchId(self.last_fetch);
        self.fetches.insert(page, Fetch { id, messages: Vec::new(), weight: 0 });
        Some((id, self.aside.get(&page).map(|copy| copy.version)))
    }

    /// A fetch is answered. Says whether it was the one waited for (D3). If more has come meanwhile than can be kept, what it
    /// brings is not taken, and whoever needs it fetches it again.
    pub fn fetched(&mut self, page: PageId, id: FetchId, reply: Reply<T>) -> bool {
        let Some(fetch) = self.fetches.remove(&page) else { return false };
        if fetch.id != id && !planted(Bug::AnyReply) {
            self.fetches.insert(page, fetch);
            return false;
        }
        let aside = self.aside.remove(&page);
        if fetch.weight > MESSAGES_LIMIT {
            return true;
        }
        let copy = match reply {
            Reply::Page(fetched) => {
                self.last_copy += 1;
                Some(Copy::new(self.last_copy, fetched))
            }
            // The same copy as before: nothing on its page has changed.
            Reply::Current => aside,
            Reply::Stale => None,
        };
        let Some(copy) = copy else { return true };
        let number = copy.number;
        let before = self.copies.insert(page, copy);
        for (message, contents) in fetch.messages {
            self.arrive(&message, contents.as_ref());
        }
        if let (Some(before), Some(version)) = (before, self.version(page)) {
            self.carry_over(page, before.number, number, version);
            self.end_intervals(page, before.number);
        }
        true
    }

    /// A copy takes the place of another. What was read at just its version is in it as it was read, and rises with it from
    /// now on.
    fn carry_over(&mut self, page: PageId, before: u64, number: u64, version: Version) {
        let reads = self.running.values_mut().flat_map(|running| running.reads.iter_mut());
        for (_, looked) in reads.filter(|(oid, looked)| oid.page() == page && looked.copy == before) {
            if looked.seen == Seen::At(version) {
                looked.copy = number;
            }
        }
    }

    /// Removes a copy. Says whether there was one.
    pub fn evict(&mut self, page: PageId) -> bool {
        self.aside.remove(&page);
        let Some(copy) = self.copies.remove(&page) else { return false };
        self.end_intervals(page, copy.number);
        true
    }

    /// From now on messages of a node may be missed: its copies are put aside until they are found to be current, and its
    /// fetches will not be answered.
    pub fn suspend(&mut self, node: NodeId) {
        self.fetches.retain(|page, _| page.node != node);
        if planted(Bug::SessionNotReset) {
            return;
        }
        let pages: Vec<PageId> = self.copies.keys().copied().filter(|page| page.node == node).collect();
        for page in pages {
            let Some(copy) = self.copies.remove(&page) else { continue };
            self.end_intervals(page, copy.number);
            // What is newer than the copy's version shows that the version is not the page's any more.
            if copy.vcache.is_empty() {
                self.aside.insert(page, copy);
            }
        }
        self.closed.remove(&node);
    }

    /// Pages of a node whose copies are aside.
    pub fn aside(&self, node: NodeId) -> impl Iterator<Item = PageId> {
        self.aside.keys().copied().filter(move |page| page.node == node)
    }

    // ------------------------------------------------------------------------------------------ messages

    /// A page has changed. `contents` are the new states, if they came along (R2). Returns the version to acknowledge: up to
    /// which nothing old is left here. Behind a gap that is less than the message's.
    pub fn invalidate(&mut self, message: Invalidation, contents: Option<Contents<T>>) -> Version {
        self.arrive(&message, contents.as_ref());
        let heard = self.version(message.page).unwrap_or(message.version);
        if let Some(fetch) = self.fetches.get_mut(&message.page).filter(|_| !planted(Bug::NoCrossingLog)) {
            fetch.weight += message_weight(contents.as_ref());
            fetch.messages.push((message, contents));
            if fetch.weight > MESSAGES_LIMIT {
                fetch.messages.clear();
            }
        }
        heard
    }

    fn arrive(&mut self, message: &Invalidation, contents: Option<&Contents<T>>) {
        self.doom(message);
        // What an own transaction wrote is the update, if none came along.
        let own = || self.committing.get(&message.txn)?.get(&message.page).map(|own| own.writes.clone());
        let own = if contents.is_none() { own() } else { None };
        let contents = contents.or(own.as_ref());
        for committing in self.committing.values_mut().filter_map(|pages| pages.get_mut(&message.page)) {
            committing.writes.retain(|slot, _| !message.slots.contains(slot));
        }
        let Some(copy) = self.copies.get_mut(&message.page).filter(|copy| copy.version < message.version) else {
            return;
        };
        for slot in &message.slots {
            copy.change(*slot, message, contents.and_then(|contents| contents.get(slot)));
        }
        let previous = if planted(Bug::GapsIgnored) { copy.version } else { message.previous };
        copy.ahead.insert(previous, message.clone());
        while let Some(next) = copy.ahead.remove(&copy.version) {
            copy.advance(&next);
            let number = copy.number;
            for running in self.running.values_mut() {
                running.rise(&next, number);
            }
        }
        copy.ahead.retain(|previous, _| *previous > copy.version);
    }

    /// A message that names what a running transaction has read dooms it (P3).
    fn doom(&mut self, message: &Invalidation) {
        let named = |oid: &Oid| oid.page() == message.page && message.slots.contains(&oid.slot());
        for running in self.running.values_mut() {
            for (oid, looked) in running.reads.iter_mut().filter(|(oid, _)| named(oid)) {
                match looked.seen {
                    Seen::At(version) if version >= message.version => {}
                    Seen::Written(writer) if writer == message.txn => looked.seen = Seen::At(message.version),
                    _ if planted(Bug::NoDoom) => {}
                    _ => {
                        running.doomed.get_or_insert(*oid);
                        let end = message.timestamp;
                        looked.until = Some(looked.until.map_or(end, |until| until.min(end)));
                    }
                }
            }
        }
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

    /// Looks at an object outside of any transaction.
    #[must_use]
    pub fn look(&self, oid: Oid) -> Found<'_, T> {
        self.copies.get(&oid.page()).map_or(Found::Miss, |copy| copy.look(oid.slot()))
    }

    /// The same, and how new it is.
    #[must_use]
    pub fn look_closely(&self, oid: Oid) -> (Found<'_, T>, AsOf) {
        let Some(copy) = self.copies.get(&oid.page()) else { return (Found::Miss, AsOf::default()) };
        let Newer { seen, timestamp } = copy.newer(oid.slot());
        (copy.look(oid.slot()), AsOf { version: copy.version, seen, timestamp })
    }

    /// The page as another client may have it (R1): only if every object is valid and none is newer than the version says.
    #[must_use]
    pub fn complete(&self, page: PageId) -> Option<Fetched<T>> {
        let copy = self.copies.get(&page)?;
        if !copy.vcache.is_empty() && !planted(Bug::NewerCalledComplete) {
            return None;
        }
        let whole = copy.slots.iter().filter(|(_, value)| value.is_some() || !planted(Bug::HoleCalledComplete));
        let objects: Option<BTreeMap<u16, T>> = whole.map(|(slot, value)| Some((*slot, value.clone()?))).collect();
        Some(Fetched { version: copy.version, timestamp: copy.timestamp, objects: objects? })
    }

    /// Every object of the page that is valid, with the version up to which it is (P1): for checkers.
    pub fn valid(&self, page: PageId) -> impl Iterator<Item = (u16, &T, Seen)> {
        let copy = self.copies.get(&page);
        copy.into_iter().flat_map(|copy| {
            copy.slots.iter().filter_map(|(slot, value)| Some((*slot, value.as_ref()?, copy.newer(*slot).seen)))
        })
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn invariants(&self) -> Result<(), String> {
        for (page, copy) in &self.copies {
            for (slot, newer) in &copy.vcache {
                if matches!(newer.seen, Seen::At(version) if version <= copy.version) {
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

impl<T> Found<'_, T> {
    fn is_miss(&self) -> bool {
        matches!(self, Self::Miss)
    }
}

impl<T> Running<T> {
    /// A copy has advanced: reads of it that the message does not name rise with it (P3).
    fn rise(&mut self, message: &Invalidation, copy: u64) {
        for (oid, looked) in &mut self.reads {
            let same = oid.page() == message.page && looked.copy == copy && !message.slots.contains(&oid.slot());
            if let (true, Seen::At(version)) = (same, looked.seen) {
                looked.seen = Seen::At(version.max(message.version));
            }
        }
    }
}

impl<T: Clone> Copy<T> {
    fn new(number: u64, fetched: Fetched<T>) -> Self {
        let Fetched { version, timestamp, objects } = fetched;
        let slots = objects.into_iter().map(|(slot, value)| (slot, Some(value))).collect();
        Self { number, version, timestamp, slots, vcache: BTreeMap::new(), ahead: BTreeMap::new() }
    }

    fn look(&self, slot: u16) -> Found<'_, T> {
        match self.slots.get(&slot) {
            Some(Some(value)) => Found::Value(value),
            Some(None) => Found::Miss,
            None => Found::Absent,
        }
    }

    /// How new an object is.
    fn newer(&self, slot: u16) -> Newer {
        let copy = Newer { seen: Seen::At(self.version), timestamp: self.timestamp };
        self.vcache.get(&slot).copied().unwrap_or(copy)
    }

    fn put(&mut self, slot: u16, content: Content<T>, newer: Newer) {
        match content {
            Content::Value(value) => self.slots.insert(slot, Some(value)),
            Content::Absent => self.slots.remove(&slot),
        };
        self.vcache.insert(slot, newer);
    }

    /// Changes an object that a message names, unless it is as new already.
    fn change(&mut self, slot: u16, message: &Invalidation, content: Option<&Content<T>>) {
        let newer = Newer { seen: Seen::At(message.version), timestamp: message.timestamp };
        match self.vcache.get(&slot).map(|newer| newer.seen) {
            Some(Seen::At(version)) if version >= message.version && !planted(Bug::OldUpdates) => return,
            Some(Seen::Written(txn)) if txn == message.txn => {
                self.vcache.insert(slot, newer);
                return;
            }
            _ => {}
        }
        match content {
            Some(content) => self.put(slot, content.clone(), newer),
            None => {
                self.slots.insert(slot, None);
                self.vcache.insert(slot, newer);
            }
        }
    }

    /// Advances the copy by the message that follows it.
    fn advance(&mut self, message: &Invalidation) {
        self.version = message.version;
        self.timestamp = self.timestamp.max(message.timestamp);
        self.vcache.retain(|_, newer| !matches!(newer.seen, Seen::At(version) if version <= message.version));
    }
}

#[cfg(test)]
mod tests;
