//! A client's copies of pages, kept right by messages that come in any order.
//!
//! The *page cache* and *vcache* of BuddyCache, sections 3.3.1 and 3.3.2, with the rules that make them sound:
//!
//! - **P1.** In a copy of version v every object is either invalid or reflects every transaction on the page up to and
//!   including v.
//! - **P2.** A message whose *previous version* is the copy's version advances the copy. Others change the objects that they
//!   name at once and leave the version alone; the *vcache* says how new such an object is, until the gap closes.
//! - **P3.** The version of a read is fixed at the read. It rises with its copy on each chained message that does not name
//!   the object; a message that names it dooms the transaction; another copy, fetched later, does not raise it.
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

use std::collections::{BTreeMap, BTreeSet};

use model::{Oid, PageId};

use crate::ident::{Timestamp, TxnId, Version};
use crate::validate::{Read, Seen};

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

/// How new an object is that is newer than its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newer {
    At(Version),
    Written(TxnId),
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

#[derive(Clone, Debug)]
struct Fetch<T> {
    id: FetchId,
    messages: Vec<(Invalidation, Option<Contents<T>>)>,
}

/// A read of a running transaction.
#[derive(Clone, Copy, Debug)]
struct Looked {
    seen: Seen,
    copy: u64,
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
    /// What it wrote.
    pub writes: BTreeMap<Oid, Content<T>>,
}

/// The page cache of one client; objects are of type `T`.
#[derive(Clone, Debug)]
pub struct PageCache<T> {
    copies: BTreeMap<PageId, Copy<T>>,
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
            fetches: BTreeMap::new(),
            running: BTreeMap::new(),
            committing: BTreeMap::new(),
            last_copy: 0,
            last_fetch: 0,
        }
    }
}

impl<T: Clone> PageCache<T> {
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
        let looked = Looked { seen: copy.seen(oid.slot()), copy: copy.number };
        let first = running.reads.entry(oid).or_insert(looked);
        // Another state than the first read's: its message has doomed the transaction, or another copy hides it.
        if first.copy != looked.copy && first.seen != looked.seen {
            running.doomed.get_or_insert(oid);
        }
        found
    }

    /// Writes an object in a transaction. Others see it when it is committed.
    pub fn write(&mut self, txn: TxnId, oid: Oid, content: Content<T>) {
        if let Some(running) = self.running.get_mut(&txn) {
            running.writes.insert(oid, content);
        }
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
            let page = committing
                .entry(oid.page())
                .or_insert_with(|| Committing { copy: copy.number, writes: BTreeMap::new() });
            page.writes.insert(oid.slot(), content.clone());
        }
        self.committing.insert(txn, committing);
        let reads = reads.into_iter().map(|(oid, looked)| Read { oid, seen: looked.seen }).collect();
        Ok(Finished { reads, writes })
    }

    /// The outcome of a transaction has come (P4).
    pub fn decided(&mut self, txn: TxnId, committed: bool) {
        let Some(pages) = self.committing.remove(&txn) else { return };
        if !committed {
            return;
        }
        for (page, Committing { copy: number, writes }) in pages {
            // Over another copy it could be older than what is there.
            let Some(copy) = self.copies.get_mut(&page).filter(|copy| copy.number == number) else { continue };
            for (slot, content) in writes {
                copy.put(slot, content, Newer::Written(txn));
            }
        }
    }

    // ------------------------------------------------------------------------------------------ fetching

    /// Begins a fetch of a page, unless one is out already.
    pub fn fetch(&mut self, page: PageId) -> Option<FetchId> {
        if self.fetches.contains_key(&page) {
            return None;
        }
        self.last_fetch += 1;
        let id = FetchId(self.last_fetch);
        self.fetches.insert(page, Fetch { id, messages: Vec::new() });
        Some(id)
    }

    /// The fetch of this page that is out, if one is, will not be answered.
    pub fn give_up(&mut self, page: PageId) {
        self.fetches.remove(&page);
    }

    /// A page has come. Says whether it was the one waited for (D3).
    pub fn fetched(&mut self, page: PageId, id: FetchId, fetched: Fetched<T>) -> bool {
        let Some(fetch) = self.fetches.remove(&page) else { return false };
        if fetch.id != id {
            self.fetches.insert(page, fetch);
            return false;
        }
        self.last_copy += 1;
        let Fetched { version, timestamp, objects } = fetched;
        let slots = objects.into_iter().map(|(slot, value)| (slot, Some(value))).collect();
        let (vcache, ahead) = (BTreeMap::new(), BTreeMap::new());
        self.copies.insert(page, Copy { number: self.last_copy, version, timestamp, slots, vcache, ahead });
        for (message, contents) in fetch.messages {
            self.arrive(&message, contents.as_ref());
        }
        true
    }

    /// Removes a copy. Returns its version and its commit timestamp.
    pub fn evict(&mut self, page: PageId) -> Option<(Version, Timestamp)> {
        self.copies.remove(&page).map(|copy| (copy.version, copy.timestamp))
    }

    // ------------------------------------------------------------------------------------------ messages

    /// A page has changed. `contents` are the new states, if they came along (R2). Returns the version to acknowledge: up to
    /// which nothing old is left here. Behind a gap that is less than the message's.
    pub fn invalidate(&mut self, message: Invalidation, contents: Option<Contents<T>>) -> Version {
        self.arrive(&message, contents.as_ref());
        let heard = self.version(message.page).unwrap_or(message.version);
        if let Some(fetch) = self.fetches.get_mut(&message.page) {
            fetch.messages.push((message, contents));
        }
        heard
    }

    fn arrive(&mut self, message: &Invalidation, contents: Option<&Contents<T>>) {
        self.doom(message);
        // What an own transaction wrote is the update, if none came along.
        let own = self.committing.get(&message.txn).and_then(|pages| pages.get(&message.page)).cloned();
        let contents = contents.or(own.as_ref().map(|own| &own.writes));
        for committing in self.committing.values_mut().filter_map(|pages| pages.get_mut(&message.page)) {
            committing.writes.retain(|slot, _| !message.slots.contains(slot));
        }
        let Some(copy) = self.copies.get_mut(&message.page).filter(|copy| copy.version < message.version) else {
            return;
        };
        for slot in &message.slots {
            copy.change(*slot, message, contents.and_then(|contents| contents.get(slot)));
        }
        copy.ahead.insert(message.previous, message.clone());
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
                    _ => {
                        running.doomed.get_or_insert(*oid);
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

    /// Looks at an object outside of any transaction.
    #[must_use]
    pub fn look(&self, oid: Oid) -> Found<'_, T> {
        self.copies.get(&oid.page()).map_or(Found::Miss, |copy| copy.look(oid.slot()))
    }

    /// The page as another client may have it (R1): only if every object is valid and none is newer than the version says.
    #[must_use]
    pub fn complete(&self, page: PageId) -> Option<Fetched<T>> {
        let copy = self.copies.get(&page)?;
        if !copy.vcache.is_empty() {
            return None;
        }
        let objects: Option<BTreeMap<u16, T>> =
            copy.slots.iter().map(|(slot, value)| Some((*slot, value.clone()?))).collect();
        Some(Fetched { version: copy.version, timestamp: copy.timestamp, objects: objects? })
    }

    /// Every object of the page that is valid, with the version up to which it is (P1): for checkers.
    pub fn valid(&self, page: PageId) -> impl Iterator<Item = (u16, &T, Seen)> {
        let copy = self.copies.get(&page);
        copy.into_iter().flat_map(|copy| {
            copy.slots.iter().filter_map(|(slot, value)| Some((*slot, value.as_ref()?, copy.seen(*slot))))
        })
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn invariants(&self) -> Result<(), String> {
        for (page, copy) in &self.copies {
            for (slot, newer) in &copy.vcache {
                if matches!(newer, Newer::At(version) if *version <= copy.version) {
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
    fn look(&self, slot: u16) -> Found<'_, T> {
        match self.slots.get(&slot) {
            Some(Some(value)) => Found::Value(value),
            Some(None) => Found::Miss,
            None => Found::Absent,
        }
    }

    /// How new an object is.
    fn seen(&self, slot: u16) -> Seen {
        match self.vcache.get(&slot) {
            Some(Newer::At(version)) => Seen::At(*version),
            Some(Newer::Written(txn)) => Seen::Written(*txn),
            None => Seen::At(self.version),
        }
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
        match self.vcache.get(&slot) {
            Some(Newer::At(version)) if *version >= message.version => return,
            Some(Newer::Written(txn)) if *txn == message.txn => {
                self.vcache.insert(slot, Newer::At(message.version));
                return;
            }
            _ => {}
        }
        match content {
            Some(content) => self.put(slot, content.clone(), Newer::At(message.version)),
            None => {
                self.slots.insert(slot, None);
                self.vcache.insert(slot, Newer::At(message.version));
            }
        }
    }

    /// Advances the copy by the message that follows it.
    fn advance(&mut self, message: &Invalidation) {
        self.version = message.version;
        self.timestamp = self.timestamp.max(message.timestamp);
        self.vcache.retain(|_, newer| !matches!(newer, Newer::At(version) if *version <= message.version));
    }
}

#[cfg(test)]
mod tests;
