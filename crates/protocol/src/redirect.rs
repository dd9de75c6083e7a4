//! The part of a cache node (a peer server or a redirector) for the pages of one logical node.
//!
//! To the node above it is one holder; to its holders it is the node above. It stores no pages. A redirector may ask
//! its holders to [help](Helpers) each other: the *peer fetch* and *peer update* of BuddyCache, sections 3.1, 3.2 and
//! 4.4. A cache at this node itself is one more holder, with a local connection.
//!
//! - **R1.** A helper serves only complete pages, and is connected; the choice spreads the load; if it does not answer
//!   in time, the fetch goes up. Only the holder that was asked may answer. Concurrent fetches of a page are one fetch
//!   above. A holder that joins a pending fetch first receives the messages that the others were sent since it began.
//! - **R2.** The node retains the updates of commits that pass through it. An invalidation proves the commit: the node
//!   then sends the retained update to every listed holder, including fetching ones and the writer, in the brick's
//!   order. Without an update, or if its digest is not that of what the brick has applied, it forwards the invalidation.
//! - **R3.** A slow or dead holder costs the others nothing: only acknowledgements upward wait for it.
//! - **R4.** A holder that comes from another redirector fetches its pages with their versions: it is listed here, and
//!   this node is listed above, before the versions are compared. A disconnected holder is not asked for help.
//! - **N1.** A session below opens after the root has answered, so that everything that the holder has seen elsewhere
//!   has arrived here.
//! - **D4.** No granted lease exceeds the node's own one. When the session above ends, all sessions below end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;

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
use crate::update_digest::UpdateDigest;
use crate::upstream::Upstream;

mod digests;
mod fetching;
mod resting;
mod retained;

use digests::{Comparison, PageDigests};
use fetching::{FetchStage, FetchWaiter, PageFetch};
use resting::RestingHelpers;
use retained::RetainedUpdates;

/// The levels that a redirector says it has below it, at least.
const LEVELS_OF_REDIRECTOR: u8 = 2;

/// Which holders may be asked to help with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helpers {
    /// None: this node only forwards.
    None,
    /// All holders: this node is a redirector.
    All,
}

/// An output of a redirector. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send a message to the node above, in this session.
    Up(HolderId, Up<T>),
    /// Send a message to a holder.
    Down(HolderId, Down<T>),
}

/// What a redirector has done since it started: pages and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedirectorCounts {
    /// Pages that holders asked for.
    pub fetches: u64,
    /// Pages that the node above was asked for.
    pub fetched_above: u64,
    /// Pages that a holder has helped with.
    pub helped: u64,
    /// The approximate memory of the objects in these pages, in bytes.
    pub helped_bytes: u64,
    /// Copies of holders that were not what had passed, and updates that were not what the brick has applied.
    pub forged: u64,
    /// Copies of holders that were of another version than what had passed. No holder that follows the rules gives one.
    pub other_versions: u64,
    /// Messages with new states that holders were sent (peer update).
    pub updates: u64,
    /// Invalidations that holders were sent.
    pub invalidations: u64,
}

impl std::ops::AddAssign for RedirectorCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { fetches, fetched_above, helped, helped_bytes, forged, other_versions, updates, invalidations } =
            other;
        self.fetches += fetches;
        self.fetched_above += fetched_above;
        self.helped += helped;
        self.helped_bytes += helped_bytes;
        self.forged += forged;
        self.other_versions += other_versions;
        self.updates += updates;
        self.invalidations += invalidations;
    }
}

/// A session that waits for the root's answer before it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpeningSession {
    holder: HolderId,
    height: u8,
    asked: Ms,
    wanted_ms: u64,
    sync: u64,
}

/// A cache node's part of one tree. `T` is an object.
#[derive(Clone, Debug)]
pub struct Redirector<T> {
    helpers: Helpers,
    upstream: Upstream,
    directory: Directory,
    /// Holders with a complete copy, as far as this node knows, and how often each has helped.
    complete: BTreeMap<PageId, BTreeSet<HolderId>>,
    help_counts: BTreeMap<HolderId, u64>,
    /// Holders that have not helped in time, or have given something wrong.
    resting: RestingHelpers,
    /// What has passed of the pages that holders have.
    digests: PageDigests,
    fetching: BTreeMap<PageId, PageFetch<T>>,
    /// Deadlines of helpers.
    helping: Schedule<PageId>,
    /// The fetch by which this node is listed above, for each page.
    listed: BTreeMap<PageId, FetchId>,
    last_fetch: u64,
    retained: RetainedUpdates<T>,
    /// Opening sessions, each with the number of the question that the root has to answer.
    syncing: VecDeque<(u64, OpeningSession)>,
    /// Holders that subscribe to closed timestamps (G1).
    subscribers: BTreeSet<HolderId>,
    /// Holders that wait for the reply to a write.
    writers: BTreeMap<TxnId, HolderId>,
    counts: RedirectorCounts,
    /// The largest closed timestamp that holders were sent.
    closed: Option<HlcTimestamp>,
    out: Vec<Output<T>>,
}

impl<T: Clone + MemorySize + Hash> Redirector<T> {
    /// A node without holders. The session numbers from `holder` on are unique for ever.
    #[must_use]
    pub fn new(helpers: Helpers, holder: HolderId) -> Self {
        Self {
            helpers,
            upstream: Upstream::new(holder),
            directory: Directory::default(),
            complete: BTreeMap::new(),
            help_counts: BTreeMap::new(),
            resting: RestingHelpers::default(),
            digests: PageDigests::default(),
            fetching: BTreeMap::new(),
            helping: Schedule::default(),
            listed: BTreeMap::new(),
            last_fetch: 0,
            retained: RetainedUpdates::default(),
            syncing: VecDeque::new(),
            subscribers: BTreeSet::new(),
            writers: BTreeMap::new(),
            counts: RedirectorCounts::default(),
            closed: None,
            out: Vec::new(),
        }
    }

    /// With a secret that begins the digests of pages: holders must not know it.
    #[must_use]
    pub fn with_secret(mut self, secret: u128) -> Self {
        self.digests.set_secret(secret);
        self
    }

    /// Removes and returns the outputs, in order.
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

    /// Handles a message from a holder.
    pub fn handle_up(&mut self, holder: HolderId, message: Up<T>, now: Ms) {
        if let Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces } = message {
            if !open && !self.directory.knows(holder) {
                return self.send_down(holder, Down::Closed);
            }
            if let Some(before) = replaces.filter(|_| !planted(Bug::ReplacedHolderKept)) {
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
            // No holder evicts what it waits for. The fetch would count no more, and go on.
            Up::Evict { page, fetch } if self.is_waiting(page, holder, fetch) => {}
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

    /// Opens a session after the root has answered a question that was sent after this call (N1).
    fn open(&mut self, opening: OpeningSession, now: Ms) {
        if planted(Bug::OpenedUnsynced) {
            return self.grant(opening, now);
        }
        let next = self.upstream.last_sync() + 1;
        // A holder that repeats its request before the question was sent waits once.
        self.syncing.retain(|(number, other)| *number < next || other.holder != opening.holder);
        self.syncing.push_back((next, opening));
        self.ask_root(now);
    }

    /// The levels below this node, with those of holders that open sessions: the brick knows of a redirector before it has an update to prove
    /// to it (R2). A redirector counts as one more level, also if it is directly below the brick.
    fn height(&self) -> u8 {
        let least =
            if self.helpers == Helpers::All && !planted(Bug::LevelNotReported) { LEVELS_OF_REDIRECTOR } else { 1 };
        let opening = self.syncing.iter().map(|(_, opening)| opening.height.saturating_add(1));
        opening.fold(self.directory.height().max(least), u8::max)
    }

    /// Sends the question to the root for waiting sessions, if there is an open session and it is not sent yet.
    fn ask_root(&mut self, now: Ms) {
        let asked = self.upstream.last_sync();
        if self.upstream.is_valid(now) && self.syncing.back().is_some_and(|(number, _)| *number > asked) {
            let (height, subscribe) = (self.height(), !self.subscribers.is_empty());
            let renew = self.upstream.sync(now, height, subscribe);
            self.send_up(renew);
            let (last, asked) = (self.syncing.back().map(|(number, _)| *number), self.upstream.last_sync());
            assert!(
                last <= Some(asked),
                "N1: a session waits for question {last:?}, but {asked} is the last that was sent"
            );
        }
    }

    fn grant(&mut self, opening: OpeningSession, now: Ms) {
        let OpeningSession { holder, height, asked, wanted_ms, sync } = opening;
        let lease_ms = self.directory.grant(holder, height, now, wanted_ms, self.upstream.remaining_ms(now));
        self.send_down(holder, Down::Leased { asked, lease_ms, sync });
        self.acknowledge();
    }

    /// Removes a holder that has expired, or has nothing left of its session.
    fn remove_holder(&mut self, holder: HolderId, now: Ms) {
        let pages: Vec<PageId> = self.directory.pages(holder).collect();
        self.directory.remove(holder);
        self.handle_removed(holder, pages, now);
    }

    /// Handles the end of a holder that had these pages.
    fn handle_removed(&mut self, holder: HolderId, pages: Vec<PageId>, now: Ms) {
        self.handle_disconnected(holder, now);
        pages.into_iter().for_each(|page| self.unlist(page));
    }

    /// Handles the loss of the connection to a holder: it is not asked for help, and fetches that wait for its help
    /// continue elsewhere (R4). It may use its copies until its lease ends.
    pub fn handle_disconnected(&mut self, holder: HolderId, now: Ms) {
        self.help_counts.remove(&holder);
        self.resting.remove(holder);
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
            let before = fetching.waiters.len();
            fetching.waiters.retain(|waiter| waiter.holder != holder || planted(Bug::GoneWaiterKept));
            if fetching.waiters.len() < before {
                self.directory.set_unconfirmed(page, holder, false);
            }
            let is_helper = matches!(fetching.stage, FetchStage::Helping { helper, .. } if helper == holder);
            if is_helper && !planted(Bug::GoneHelperAwaited) {
                self.dispatch(page, now);
            }
        }
    }

    /// Reports an eviction upward when no holder has or fetches the page.
    fn unlist(&mut self, page: PageId) {
        let is_held = self.directory.holders(page).next().is_some() && !planted(Bug::EvictedForAll);
        let is_wanted = self.fetching.contains_key(&page) || is_held || planted(Bug::EvictionNotReported);
        if !is_wanted && let Some(fetch) = self.listed.remove(&page) {
            self.digests.forget(page);
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

    /// Acknowledges upward what all holders have acknowledged (D2).
    fn acknowledge(&mut self) {
        for (page, version) in self.directory.acknowledge_upward() {
            self.send_up(Up::Acknowledge { page, version });
        }
    }

    // ------------------------------------------------------------------------------------------ from above

    /// Handles a message from the node above in the session with this number.
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
                let is_current = |out: FetchId| out == fetch || planted(Bug::AnyPageFromAbove);
                let is_it = |fetching: &PageFetch<T>| matches!(fetching.stage, FetchStage::Above { fetch: out, .. } if is_current(out));
                if self.fetching.get(&page).is_some_and(is_it) {
                    if let (FetchReply::Page(image), Helpers::All) = (&reply, self.helpers) {
                        self.note_page(page, image);
                    }
                    self.handle_arrived(page, reply, now);
                }
            }
            Down::Invalidate { message, contents } => self.invalidate(message, contents, now),
            // This node stores no pages, and does not ask its holders on behalf of others: that path would be longer.
            Down::Help { page, help } => self.send_up(Up::Helped { page, help, copy: None }),
            Down::Close { at } => {
                self.closed = self.closed.max(Some(at));
                let directory = &self.directory;
                let subscribers = self.subscribers.iter().copied().filter(|_| !planted(Bug::CloseNotForwarded));
                let below = subscribers.filter(|holder| directory.knows(*holder));
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

    /// The retained update of a page that an invalidation proves: what has passed here is what the brick has applied. A member may have
    /// sent something else there.
    fn proven_update(&mut self, message: &Invalidation) -> Option<SlotStates<T>> {
        let mut update = self.retained.take(message.txn, message.page)?;
        // A deletion of nothing changes no slot.
        update.retain(|slot, _| message.slots.contains(slot) || planted(Bug::DeletionOfNothingKept));
        if message.digest.is_none() && planted(Bug::UpdateWithoutProof) {
            return Some(update);
        }
        let digest = message.digest?;
        let is_forged = UpdateDigest::of(&update) != digest && !planted(Bug::UpdateNotCompared);
        self.counts.forged += u64::from(is_forged);
        Some(update).filter(|_| !is_forged)
    }

    fn invalidate(&mut self, message: Invalidation, contents: Option<SlotStates<T>>, now: Ms) {
        let contents = match contents.filter(|_| !planted(Bug::UpdateFromAboveIgnored)) {
            None => self.proven_update(&message),
            // A redirector above has proven it: what is retained of it here serves for nothing more.
            update => {
                self.forget_page_of_update(&message);
                update
            }
        };
        self.digests.note_message(&message, contents.as_ref());
        if contents.is_none() && !planted(Bug::HoleCalledComplete) {
            self.complete.remove(&message.page);
        }
        let page = message.page;
        let fetching = self.fetching.get(&page).filter(|_| planted(Bug::FetchersNotTold));
        let fetching: Vec<HolderId> =
            fetching.iter().flat_map(|fetching| &fetching.waiters).map(|waiter| waiter.holder).collect();
        let writer = self.writer(message.txn).filter(|_| planted(Bug::WriterNotTold));
        for holder in self.told_holders(&message, contents.is_some(), now) {
            if fetching.contains(&holder) || writer == Some(holder) {
                continue;
            }
            match contents {
                Some(_) => self.counts.updates += 1,
                None => self.counts.invalidations += 1,
            }
            if self.skips_lower_redirector(holder, &message) {
                continue;
            }
            self.send_down(holder, Down::Invalidate { message: message.clone(), contents: contents.clone() });
        }
        if contents.is_none() || !planted(Bug::UpdateNotBuffered) {
            self.buffer_message(page, message, contents);
        }
    }

    fn forget_page_of_update(&mut self, message: &Invalidation) {
        if !planted(Bug::RetainedBesideUpdate) {
            self.retained.take(message.txn, message.page);
        }
    }

    /// Planted bugs: a redirector below need not acknowledge, or is not even told. Returns whether it is not.
    fn skips_lower_redirector(&mut self, holder: HolderId, message: &Invalidation) -> bool {
        let is_planted = planted(Bug::LowerRedirectorNotTold) || planted(Bug::LowerRedirectorNotAwaited);
        if !is_planted || self.helpers == Helpers::None || !self.directory.has_levels_below(&[holder], 1) {
            return false;
        }
        self.directory.acknowledge(holder, message.page, message.version);
        planted(Bug::LowerRedirectorNotTold)
    }

    /// The holders that are sent a message: those that have the page, or fetch it.
    fn told_holders(&mut self, message: &Invalidation, is_update: bool, now: Ms) -> Vec<HolderId> {
        let holders = self.directory.mark_passed_on(message.page, message.version, now);
        if is_update && planted(Bug::UpdateToUnlisted) { self.directory.all_holders().collect() } else { holders }
    }

    // ------------------------------------------------------------------------------------------ the session above

    /// Handles a new connection to the node above.
    pub fn connect(&mut self, now: Ms) {
        self.upstream.connect(now);
    }

    /// Handles the loss of the connection to the node above.
    pub fn disconnect(&mut self, now: Ms) {
        self.upstream.disconnect(now);
        self.close_all();
    }

    /// Ends all sessions below, because the session above is over (D4): their data came through it.
    fn close_all(&mut self) {
        if !planted(Bug::FetchOutlivesSession) {
            self.fetching.clear();
            self.helping.clear();
        }
        let waiting = std::mem::take(&mut self.syncing);
        self.subscribers.clear();
        if !planted(Bug::HelpersOutliveSession) {
            self.complete.clear();
        }
        self.help_counts.clear();
        self.resting = RestingHelpers::default();
        self.digests.clear();
        self.listed.clear();
        self.writers.clear();
        self.closed = None;
        if planted(Bug::SessionNotReset) {
            return;
        }
        // Opening sessions ask again: the question that was sent for them will not be answered.
        let waiting = waiting.into_iter().map(|(_, opening)| opening.holder);
        for holder in self.directory.clear().into_iter().chain(waiting) {
            self.send_down(holder, Down::Closed);
        }
    }

    /// Performs the actions that are due.
    pub fn poll(&mut self, now: Ms) {
        if self.upstream.has_lapsed(now) {
            self.upstream.close(now);
            self.close_all();
        }
        if self.upstream.is_due(now) && self.is_used() {
            let (height, subscribe) = (self.height(), !self.subscribers.is_empty());
            let renew = self.upstream.poll(now, height, subscribe);
            renew.into_iter().for_each(|renew| self.send_up(renew));
        }
        for (holder, pages) in self.directory.expire(now) {
            self.handle_removed(holder, pages, now);
        }
        for page in self.helping.due(now).into_iter().filter(|_| !planted(Bug::PatienceWithHelpers)) {
            if let Some(FetchStage::Helping { helper, .. }) = self.fetching.get(&page).map(|fetching| fetching.stage) {
                self.mark_incomplete(page, helper);
                self.resting.note_late(helper, now);
            }
            self.fetch_above(page);
        }
        self.acknowledge();
    }

    /// When [`Redirector::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let upstream = if self.is_used() { self.upstream.deadline() } else { self.upstream.lease_end() };
        let others = [self.helping.first(), self.directory.deadline(), upstream];
        others.into_iter().flatten().min()
    }

    /// Whether any holder has data through this tree, or waits for it. If not, the lease may end: there is no data that
    /// could be used beyond it.
    fn is_used(&self) -> bool {
        let is_held = !self.listed.is_empty() || !self.fetching.is_empty() || !self.writers.is_empty();
        is_held || !self.syncing.is_empty() || self.directory.all_holders().next().is_some()
    }

    // ------------------------------------------------------------------------------------------ commits that pass

    /// Retains the writes of a commit on its way up (R2). The caller omits commits that create objects with temporary
    /// identifiers. A node without helpers retains nothing.
    pub fn retain(&mut self, txn: TxnId, writes: &Writes<T>) {
        if self.helpers == Helpers::None {
            return;
        }
        self.retained.retain(txn, writes);
        if planted(Bug::UpdateAtCommit) {
            self.update_at_once(txn, writes);
        }
    }

    /// The holder that waits for the reply to a write.
    #[must_use]
    pub fn writer(&self, write: TxnId) -> Option<HolderId> {
        self.writers.get(&write).copied()
    }

    /// Forgets the update of a refused commit: no invalidation will prove it.
    pub fn forget_update(&mut self, txn: TxnId) {
        if !planted(Bug::RefusedUpdateKept) {
            self.retained.forget(txn);
        }
    }

    /// A planted bug: holders see writes that are not committed.
    fn update_at_once(&mut self, txn: TxnId, writes: &Writes<T>) {
        for (oid, content) in writes {
            let slots: BTreeSet<u16> = [oid.slot()].into();
            let contents = [(oid.slot(), content.clone())].into();
            let (previous, version) =
                (Version { moves: 0, position: u64::MAX - 1 }, Version { moves: 0, position: u64::MAX });
            let timestamp = HlcTimestamp::ZERO;
            let (page, digest) = (oid.page(), None);
            let message = Invalidation { page, slots, previous, version, timestamp, txn, digest };
            let holders: Vec<HolderId> = self.directory.holders(oid.page()).collect();
            for holder in holders {
                let (message, contents) = (message.clone(), Some(Clone::clone(&contents)));
                self.send_down(holder, Down::Invalidate { message, contents });
            }
        }
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> RedirectorCounts {
        self.counts
    }

    /// The largest closed timestamp that subscribers were sent; `None` without subscribers.
    #[must_use]
    pub fn closed_timestamp(&self) -> Option<HlcTimestamp> {
        self.closed.filter(|_| !self.subscribers.is_empty())
    }

    /// The session above.
    #[must_use]
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The directory of the holders.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.directory.check_invariants()?;
        for (page, fetching) in &self.fetching {
            for waiter in &fetching.waiters {
                if !self.directory.holders(*page).any(|holder| holder == waiter.holder) {
                    return Err(format!("D1: {:?} waits for {page:?} but is not listed", waiter.holder));
                }
            }
            if matches!(fetching.stage, FetchStage::Helping { .. }) != self.helping.at(*page).is_some() {
                return Err(format!("R1: the wait for a helper with {page:?} has no deadline"));
            }
            if matches!(fetching.stage, FetchStage::Above { .. }) && !self.listed.contains_key(page) {
                return Err(format!("D1: {page:?} is fetched above, but the fetch is not recorded"));
            }
        }
        for (page, holders) in &self.complete {
            if let Some(holder) = holders.iter().find(|holder| !self.directory.knows(**holder)) {
                return Err(format!("R1: {holder:?} may be asked to help with {page:?} but is not listed"));
            }
        }
        Ok(())
    }

    fn handle_helped(&mut self, page: PageId, helper: HolderId, help: FetchId, copy: Option<PageImage<T>>, now: Ms) {
        // Numbers of requests can be guessed: only the holder that was asked may answer.
        let is_asked = |asked: HolderId| asked == helper || planted(Bug::AnyHelper);
        let is_it = |fetching: &PageFetch<T>| match fetching.stage {
            FetchStage::Helping { helper, help: out } => out == help && is_asked(helper) || planted(Bug::AnyReply),
            FetchStage::Above { .. } => planted(Bug::AnyReply),
        };
        if !self.fetching.get(&page).is_some_and(is_it) {
            return;
        }
        match copy {
            Some(copy) => self.take_copy(page, helper, copy, now),
            None => {
                self.mark_incomplete(page, helper);
                self.dispatch(page, now);
            }
        }
    }

    /// Gives a helper's copy to those who wait for the page, if it is what has passed of the page.
    fn take_copy(&mut self, page: PageId, helper: HolderId, copy: PageImage<T>, now: Ms) {
        let meanwhile = self.fetching.get(&page).map(|fetching| &*fetching.buffered).unwrap_or_default();
        match self.digests.compare(page, &copy, meanwhile) {
            Comparison::Equal => {
                self.counts.helped += 1;
                self.counts.helped_bytes += copy.objects.values().map(MemorySize::memory_size).sum::<usize>() as u64;
                self.resting.note_helped(helper);
                self.handle_arrived(page, FetchReply::Page(copy), now);
            }
            Comparison::Unknown => self.fetch_above(page),
            Comparison::OtherVersion => {
                self.counts.other_versions += 1;
                if !planted(Bug::OtherVersionForgiven) {
                    self.resting.note_late(helper, now);
                }
                self.mark_incomplete(page, helper);
                self.fetch_above(page);
            }
            Comparison::Forged => {
                self.counts.forged += 1;
                self.resting.exclude(helper);
                self.mark_incomplete(page, helper);
                self.fetch_above(page);
            }
        }
    }

    /// A page comes from the node above. What passed since the fetch began is newer, or in it.
    fn note_page(&mut self, page: PageId, image: &PageImage<T>) {
        if planted(Bug::PageNotNoted) {
            return;
        }
        self.digests.note_page(page, image);
        let meanwhile = self.fetching.get(&page).map(|fetching| &*fetching.buffered).unwrap_or_default();
        for (message, contents) in meanwhile.iter().filter(|(message, _)| message.version > image.version) {
            self.digests.note_message(message, contents.as_ref());
        }
    }
}
