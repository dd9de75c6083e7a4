//! A node in the middle of a cache tree: a peer server or a redirector, for the pages of one logical node.
//!
//! To the node above it is one holder; to those below it is the node above. It keeps no pages. What makes it a redirector
//! is that it may ask those below to [help](Helpers) each other: the *peer fetch* and *peer update* of BuddyCache, sections
//! 3.1, 3.2 and 4.4. A cache at this node itself is one more holder below it, whose connection is short.
//!
//! - **R1.** A helper serves only complete pages, and is alive; the choice spreads the load; if it does not answer in time,
//!   the fetch goes up. Concurrent fetches of a page are one fetch above. Who joins one that is out first hears what the
//!   others were told since it began.
//! - **R2.** The updates of a commit that passes are retained. An invalidation proves the commit: with it the retained
//!   update goes at once to every listed holder, those that fetch and the writer too, in the order in which the brick says
//!   it. Without the update, the invalidation goes.
//! - **R3.** A slow or dead holder costs the others nothing: nobody waits for it but for acknowledging upward.
//! - **R4.** A holder that comes from another redirector fetches what it has, saying which version that is: it is listed
//!   here, and here is listed above, before anybody compares. A helper that is gone is asked no more.
//! - **N1.** A session below opens when the root has answered, so that whatever the holder has seen elsewhere has come here.
//! - **D4.** No lease is granted beyond the own one, and when the session above ends all below end with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::PageId;

use crate::commit::Writes;
use crate::directory::Directory;
use crate::ident::{HlcTimestamp, HolderId, TxnId, Version};
use crate::lease::Ms;
use crate::memory_size::MemorySize;
use crate::page_cache::{FetchId, FetchReply, Invalidation, PageImage, SlotStates};
use crate::plant::{Bug, planted};
use crate::schedule::Schedule;
use crate::tree::{Down, Up};
use crate::upstream::Upstream;

mod fetching;
mod retained;

use fetching::{FetchStage, FetchWaiter, PageFetch};
use retained::RetainedUpdates;

/// Who may be asked to help with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helpers {
    /// Nobody: this node only passes on.
    None,
    /// Everybody below: this node is a redirector.
    All,
}

/// Something that a redirector wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Tell the node above, in this session.
    Up(HolderId, Up<T>),
    /// Tell a holder below.
    Down(HolderId, Down<T>),
}

/// A session that waits for the root before it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpeningSession {
    holder: HolderId,
    height: u8,
    asked: Ms,
    wanted_ms: u64,
    sync: u64,
}

/// A node in the middle. `T` is an object.
#[derive(Clone, Debug)]
pub struct Redirector<T> {
    helpers: Helpers,
    upstream: Upstream,
    directory: Directory,
    /// Who below has a complete copy, as far as is known here, and how often each has helped.
    complete: BTreeMap<PageId, BTreeSet<HolderId>>,
    help_counts: BTreeMap<HolderId, u64>,
    fetching: BTreeMap<PageId, PageFetch<T>>,
    /// Until when helpers are waited for.
    helping: Schedule<PageId>,
    /// The fetch by which this node is listed above, for each page.
    listed: BTreeMap<PageId, FetchId>,
    last_fetch: u64,
    retained: RetainedUpdates<T>,
    /// Who waits for the answer of the root to which question.
    syncing: VecDeque<(u64, OpeningSession)>,
    /// Who wants closed timestamps (G1).
    subscribers: BTreeSet<HolderId>,
    /// Who waits for the reply to a write.
    writers: BTreeMap<TxnId, HolderId>,
    out: Vec<Output<T>>,
}

impl<T: Clone + MemorySize> Redirector<T> {
    /// One that knows nobody. Nobody else ever has the session numbers from `holder` on.
    #[must_use]
    pub fn new(helpers: Helpers, holder: HolderId) -> Self {
        Self {
            helpers,
            upstream: Upstream::new(holder),
            directory: Directory::default(),
            complete: BTreeMap::new(),
            help_counts: BTreeMap::new(),
            fetching: BTreeMap::new(),
            helping: Schedule::default(),
            listed: BTreeMap::new(),
            last_fetch: 0,
            retained: RetainedUpdates::default(),
            syncing: VecDeque::new(),
            subscribers: BTreeSet::new(),
            writers: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// Takes what is wanted, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<T>> {
        self.out.drain(..)
    }

    fn send_up(&mut self, message: Up<T>) {
        self.out.push(Output::Up(self.upstream.holder(), message));
    }

    fn send_down(&mut self, holder: HolderId, message: Down<T>) {
        self.out.push(Output::Down(holder, message));
    }

    // ------------------------------------------------------------------------------------------ from below

    /// A holder below says something.
    pub fn handle_up(&mut self, holder: HolderId, message: Up<T>, now: Ms) {
        if let Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces } = message {
            if !open && !self.directory.knows(holder) {
                return self.send_down(holder, Down::Closed);
            }
            if let Some(before) = replaces {
                self.remove_holder(before, now);
            }
            if subscribe {
                self.subscribers.insert(holder);
            }
            let opening = OpeningSession { holder, height, asked, wanted_ms, sync };
            return if sync == 0 { self.grant(opening, now) } else { self.open(opening, now) };
        }
        if !self.directory.knows(holder) {
            return self.send_down(holder, Down::Closed);
        }
        match message {
            Up::Renew { .. } => {}
            Up::Fetch { page, fetch, have } => self.fetch(page, FetchWaiter { holder, fetch, have }, now),
            Up::Acknowledge { page, version } => self.directory.acknowledge(holder, page, version),
            Up::Evict { page, fetch } => {
                self.directory.evict(page, holder, fetch);
                self.mark_incomplete(page, holder);
                self.unlist(page);
            }
            Up::Helped { page, help, copy } => self.handle_helped(page, holder, help, copy, now),
            Up::Write { write, writes } => {
                self.retain(write, &writes);
                self.writers.insert(write, holder);
                self.send_up(Up::Write { write, writes });
            }
        }
        self.acknowledge();
    }

    /// A session below opens when the root has answered a question that was asked after this (N1).
    fn open(&mut self, opening: OpeningSession, now: Ms) {
        if planted(Bug::OpenedUnsynced) {
            return self.grant(opening, now);
        }
        let next = self.upstream.last_sync() + 1;
        // Whoever asks again before anything was asked here waits once.
        self.syncing.retain(|(number, other)| *number < next || other.holder != opening.holder);
        self.syncing.push_back((next, opening));
        self.ask_root(now);
    }

    /// Asks the root for those who wait for it, if there is a session to ask in, and that is not done.
    fn ask_root(&mut self, now: Ms) {
        let asked = self.upstream.last_sync();
        if self.upstream.is_valid(now) && self.syncing.back().is_some_and(|(number, _)| *number > asked) {
            let (height, subscribe) = (self.directory.height(), !self.subscribers.is_empty());
            let renew = self.upstream.sync(now, height, subscribe);
            self.send_up(renew);
            let (last, asked) = (self.syncing.back().map(|(number, _)| *number), self.upstream.last_sync());
            assert!(last <= Some(asked), "N1: question {last:?} is waited for, and {asked} is the last that was asked");
        }
    }

    fn grant(&mut self, opening: OpeningSession, now: Ms) {
        let OpeningSession { holder, height, asked, wanted_ms, sync } = opening;
        let lease_ms = self.directory.grant(holder, height, now, wanted_ms, self.upstream.remaining_ms(now));
        self.send_down(holder, Down::Leased { asked, lease_ms, sync });
        self.acknowledge();
    }

    /// A holder is gone, or says that it has nothing of that session any more.
    fn remove_holder(&mut self, holder: HolderId, now: Ms) {
        self.directory.remove(holder);
        self.handle_disconnected(holder, now);
        let pages: Vec<PageId> = self.listed.keys().copied().collect();
        pages.into_iter().for_each(|page| self.unlist(page));
    }

    /// The connection to a holder is gone: it is not asked for help, and who waits for its help is sent elsewhere (R4).
    /// What it holds it may still use until its lease runs out.
    pub fn handle_disconnected(&mut self, holder: HolderId, now: Ms) {
        self.help_counts.remove(&holder);
        self.subscribers.remove(&holder);
        if !planted(Bug::GoneHelperAsked) {
            self.complete.retain(|_, holders| {
                holders.remove(&holder);
                !holders.is_empty()
            });
        }
        self.writers.retain(|_, writer| *writer != holder);
        let pages: Vec<PageId> = self.fetching.keys().copied().collect();
        for page in pages {
            let Some(fetching) = self.fetching.get_mut(&page) else { continue };
            fetching.waiters.retain(|waiter| waiter.holder != holder);
            if matches!(fetching.stage, FetchStage::Helping { helper, .. } if helper == holder) {
                self.dispatch(page, now);
            }
        }
    }

    /// Nobody below has this page any more: neither has this node.
    fn unlist(&mut self, page: PageId) {
        let is_wanted = self.fetching.contains_key(&page) || self.directory.holders(page).next().is_some();
        if !is_wanted && let Some(fetch) = self.listed.remove(&page) {
            self.send_up(Up::Evict { page, fetch });
        }
    }

    fn mark_incomplete(&mut self, page: PageId, holder: HolderId) {
        if let Some(holders) = self.complete.get_mut(&page) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.complete.remove(&page);
            }
        }
    }

    /// Acknowledges upward what all below have heard (D2).
    fn acknowledge(&mut self) {
        for (page, version) in self.directory.acknowledge_upward() {
            self.send_up(Up::Acknowledge { page, version });
        }
    }

    // ------------------------------------------------------------------------------------------ from above

    /// The node above says something, in the session of this number.
    pub fn handle_down(&mut self, session: HolderId, message: Down<T>, now: Ms) {
        if session != self.upstream.holder() {
            return;
        }
        match message {
            Down::Leased { asked, lease_ms, sync } => {
                self.upstream.handle_leased(asked, lease_ms, now);
                let sync = if planted(Bug::AnyLeaseOpens) { u64::MAX } else { sync };
                while let Some((_, opening)) = self.syncing.pop_front_if(|(number, _)| *number <= sync) {
                    self.grant(opening, now);
                }
                self.ask_root(now);
            }
            Down::Closed => {
                self.upstream.close(now);
                self.close_all();
            }
            Down::Fetched { page, fetch, reply } => {
                let is_it = |fetching: &PageFetch<T>| matches!(fetching.stage, FetchStage::Above { fetch: out, .. } if out == fetch);
                if self.fetching.get(&page).is_some_and(is_it) {
                    self.handle_arrived(page, reply, now);
                }
            }
            Down::Invalidate { message, contents } => self.invalidate(message, contents, now),
            // Nothing is kept here, and those below are not asked for others: that would be a longer way.
            Down::Help { page, help } => self.send_up(Up::Helped { page, help, copy: None }),
            Down::Close { at } => {
                let directory = &self.directory;
                let below = self.subscribers.iter().copied().filter(|holder| directory.knows(*holder));
                let below: Vec<HolderId> = below.collect();
                below.into_iter().for_each(|holder| self.send_down(holder, Down::Close { at }));
            }
            Down::Written { write, result } => {
                let Some(writer) = self.writers.get(&write).copied() else { return };
                if result.is_err() {
                    self.retained.forget(write);
                    self.writers.remove(&write);
                }
                self.send_down(writer, Down::Written { write, result });
            }
            Down::Settled { write } => {
                if let Some(writer) = self.writers.remove(&write) {
                    self.send_down(writer, Down::Settled { write });
                }
            }
        }
        self.acknowledge();
    }

    fn invalidate(&mut self, message: Invalidation, contents: Option<SlotStates<T>>, now: Ms) {
        let contents = contents.or_else(|| self.retained.take(message.txn, message.page));
        if contents.is_none() && !planted(Bug::HoleCalledComplete) {
            self.complete.remove(&message.page);
        }
        let page = message.page;
        let fetching = self.fetching.get(&page).filter(|_| planted(Bug::FetchersNotTold));
        let fetching: Vec<HolderId> =
            fetching.iter().flat_map(|fetching| &fetching.waiters).map(|waiter| waiter.holder).collect();
        for holder in self.directory.mark_passed_on(page, message.version, now) {
            if fetching.contains(&holder) {
                continue;
            }
            self.send_down(holder, Down::Invalidate { message: message.clone(), contents: contents.clone() });
        }
        self.buffer_message(page, message, contents);
    }

    // ------------------------------------------------------------------------------------------ the session above

    /// There is a connection to the node above.
    pub fn connect(&mut self, now: Ms) {
        self.upstream.connect(now);
    }

    /// The connection to the node above is gone.
    pub fn disconnect(&mut self, now: Ms) {
        self.upstream.disconnect(now);
        self.close_all();
    }

    /// The session above is over, and with it all below (D4): what they have came by it.
    fn close_all(&mut self) {
        self.fetching.clear();
        self.helping.clear();
        let waiting = std::mem::take(&mut self.syncing);
        self.subscribers.clear();
        self.complete.clear();
        self.help_counts.clear();
        self.listed.clear();
        self.writers.clear();
        if planted(Bug::SessionNotReset) {
            return;
        }
        // Those who wait to be let in ask again: what was asked above for them will not be answered.
        let waiting = waiting.into_iter().map(|(_, opening)| opening.holder);
        for holder in self.directory.clear().into_iter().chain(waiting) {
            self.send_down(holder, Down::Closed);
        }
    }

    /// Does what it is time for.
    pub fn poll(&mut self, now: Ms) {
        if self.upstream.has_lapsed(now) {
            self.upstream.close(now);
            self.close_all();
        }
        if self.upstream.is_due(now) && self.is_used() {
            let (height, subscribe) = (self.directory.height(), !self.subscribers.is_empty());
            let renew = self.upstream.poll(now, height, subscribe);
            renew.into_iter().for_each(|renew| self.send_up(renew));
        }
        for holder in self.directory.expire(now) {
            self.remove_holder(holder, now);
        }
        for page in self.helping.due(now).into_iter().filter(|_| !planted(Bug::PatienceWithHelpers)) {
            if let Some(FetchStage::Helping { helper, .. }) = self.fetching.get(&page).map(|fetching| fetching.stage) {
                self.mark_incomplete(page, helper);
            }
            self.fetch_above(page);
        }
        self.acknowledge();
    }

    /// When [`Redirector::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let upstream = if self.is_used() { self.upstream.deadline() } else { self.upstream.lease_end() };
        let others = [self.helping.first(), self.directory.deadline(), upstream];
        others.into_iter().flatten().min()
    }

    /// Whether anybody below has something by this tree, or waits for it. If nobody does, its lease may end: there is nothing that
    /// could be used beyond it.
    fn is_used(&self) -> bool {
        let is_held = !self.listed.is_empty() || !self.fetching.is_empty() || !self.writers.is_empty();
        is_held || !self.syncing.is_empty() || self.directory.all_holders().next().is_some()
    }

    // ------------------------------------------------------------------------------------------ commits that pass

    /// A commit passes on its way up: what it writes here is retained (R2). Not if it creates objects: who has them below
    /// would not know what they are called in the end. Nor if those below do not help each other: then this node only passes on.
    pub fn retain(&mut self, txn: TxnId, writes: &Writes<T>) {
        if self.helpers == Helpers::None {
            return;
        }
        self.retained.retain(txn, writes);
        if planted(Bug::UpdateAtCommit) {
            self.update_at_once(txn, writes);
        }
    }

    /// It was refused: nothing will prove it.
    pub fn forget_update(&mut self, txn: TxnId) {
        self.retained.forget(txn);
    }

    /// The planted mistake: whoever has the page sees what nobody has committed.
    fn update_at_once(&mut self, txn: TxnId, writes: &Writes<T>) {
        for (oid, content) in writes {
            let slots: BTreeSet<u16> = [oid.slot()].into();
            let contents = [(oid.slot(), content.clone())].into();
            let (previous, version) =
                (Version { moves: 0, position: u64::MAX - 1 }, Version { moves: 0, position: u64::MAX });
            let timestamp = HlcTimestamp::ZERO;
            let message = Invalidation { page: oid.page(), slots, previous, version, timestamp, txn };
            let holders: Vec<HolderId> = self.directory.holders(oid.page()).collect();
            for holder in holders {
                let (message, contents) = (message.clone(), Some(Clone::clone(&contents)));
                self.send_down(holder, Down::Invalidate { message, contents });
            }
        }
    }

    /// The session above.
    #[must_use]
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Who holds what below.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.directory.check_invariants()?;
        for (page, fetching) in &self.fetching {
            for waiter in &fetching.waiters {
                if !self.directory.holders(*page).any(|holder| holder == waiter.holder) {
                    return Err(format!("D1: {:?} waits for {page:?} and is not listed", waiter.holder));
                }
            }
            if matches!(fetching.stage, FetchStage::Helping { .. }) != self.helping.at(*page).is_some() {
                return Err(format!("R1: a helper is waited for with {page:?} for ever"));
            }
            if matches!(fetching.stage, FetchStage::Above { .. }) && !self.listed.contains_key(page) {
                return Err(format!("D1: {page:?} is fetched above, and the fetch is forgotten"));
            }
        }
        for (page, holders) in &self.complete {
            if let Some(holder) = holders.iter().find(|holder| !self.directory.knows(**holder)) {
                return Err(format!("R1: {holder:?} is to help with {page:?} and is not there"));
            }
        }
        Ok(())
    }

    fn handle_helped(&mut self, page: PageId, helper: HolderId, help: FetchId, copy: Option<PageImage<T>>, now: Ms) {
        let is_it = |fetching: &PageFetch<T>| {
            matches!(fetching.stage, FetchStage::Helping { help: out, .. } if out == help) || planted(Bug::AnyReply)
        };
        if !self.fetching.get(&page).is_some_and(is_it) {
            return;
        }
        match copy {
            Some(copy) => self.handle_arrived(page, FetchReply::Page(copy), now),
            None => {
                self.mark_incomplete(page, helper);
                self.dispatch(page, now);
            }
        }
    }
}
