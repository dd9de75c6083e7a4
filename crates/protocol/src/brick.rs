//! A logical node of a brick: the root of its cache tree.
//!
//! It combines the [`Participant`], which decides about changes of pages, with the [`Directory`] of the holders of
//! copies. Its driver has the disk: it appends to the log and reports when records are durable, stores changed pages,
//! and reads pages.
//!
//! - **D1, D2.** A holder is listed before its page is read. Invalidations are sent before any later answer.
//! - **V3.** Changes that all holders have acknowledged are retired.
//! - **L2.** A brick whose clock is not trusted grants no leases and closes no timestamps.
//! - **N1.** A write outside of transactions is *settled* when every holder has acknowledged it or has expired. A
//!   restarted brick does not know its earlier holders, so it settles nothing before the longest lease that it could
//!   have granted has run out.
//! - **C2, C4.** A transaction that is prepared and undecided for too long is finished here, because its coordinator
//!   may be gone.
//! - **C5.** A joint request is passed on to its logical nodes and answered once (`joint`), or all of them commit at once (`one_phase`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use model::{Entry, NodeId, Oid, PageId};

use crate::clock::ClusterTime;
use crate::commit::coordinator::{self, Coordinator, MixedOutcome};
use crate::commit::joint::CollectedAnswers;
use crate::commit::participant::{self, Participant, ParticipantSettings};
use crate::commit::{Answer, Change, Outcome, Part, Record, Refusal, Rejected, Request};
use crate::directory::Directory;
use crate::ident::{ClientId, HlcTimestamp, HolderId, TxnId, Version};
use crate::lease::{Ms, holder_expiry};
use crate::locks::LockMode;
use crate::page_cache::{FetchId, FetchReply, Invalidation, PageImage, SlotStates};
use crate::plant::{Bug, planted};
use crate::tree::{Down, Up};
use crate::update_digest::UpdateDigest;
use crate::upstream::LEASE_MS;
use crate::validate::PageVersions;

mod joint;
mod one_phase;

use joint::FinishingTxn;

/// The interval of closed timestamps, in milliseconds (G1).
const CLOSE_MS: u64 = 10;
/// Levels below a holder that has a redirector below it: the redirector and its clients.
const LEVELS_WITH_REDIRECTOR: u8 = 2;
/// How long a transaction may be prepared before this brick finishes it, in milliseconds.
const FINISH_MS: u64 = 2_000;
/// The age above which unknown transactions are refused, in milliseconds (C3).
const HORIZON_MS: u64 = 120_000;
/// For how many transactions this brick asks for missing acknowledgements at a time: a participant that was away for long has not
/// acknowledged many of them.
const MAX_ASKED: usize = 1_024;
/// The interval of searches for old transactions, in milliseconds.
const ORPHAN_SCAN_MS: u64 = 1_000;

/// The sender of a request to the participant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requester<A> {
    /// A coordinator at this address.
    Coordinator(A),
    /// A holder with a write outside of transactions.
    Writer(HolderId),
}

/// An output of a brick; the driver carries them out in order. `A` is an address of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Append this record to the log at this position, which is one more than that of the last record. Without a log,
    /// replace the [row](Record::into_row) of the transaction.
    Append(u64, Record<T>),
    /// These transactions are forgotten: without a log, remove their rows, after everything that was appended before.
    RemoveRows(Vec<TxnId>),
    /// These clients need no marks any more: without a log, remove their rows, after everything that was appended before.
    RemoveMarks(Vec<ClientId>),
    /// A page has changed durably: store the new states and the version. A page that was only touched has no new
    /// states.
    Store(Invalidation, SlotStates<T>),
    /// Read a page, and call [`Brick::complete_read`].
    Read(PendingRead),
    /// Answer a coordinator. Send the object's state along with [`Answer::Locked`].
    Answer(A, Answer),
    /// [Handle](Brick::handle_request) this request again: the outcome that it waited for is durable.
    Again(A, Request<T>),
    /// Send a request to a participant, perhaps to this one, and call [`Brick::handle_answer`].
    Ask(NodeId, Request<T>),
    /// Send a message to a holder.
    Down(HolderId, Down<T>),
    /// Report that a transaction has opposite outcomes at two participants.
    MixedOutcome(TxnId, MixedOutcome),
}

/// A page to be read, and the holder that requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRead {
    /// The page.
    pub page: PageId,
    holder: HolderId,
    fetch: FetchId,
    have: Option<Version>,
}

/// A write that not every holder has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnsettledWrite {
    holder: HolderId,
    pages: Vec<PageId>,
    version: Version,
}

/// A logical node of a brick. `A` is an address of a coordinator, `T` is an object.
#[derive(Clone, Debug)]
pub struct Brick<A, T> {
    participant: Participant<Requester<A>, T>,
    directory: Directory,
    /// The pages of writes in progress, with their writers.
    writing: BTreeMap<TxnId, (HolderId, Vec<PageId>)>,
    settling: BTreeMap<TxnId, UnsettledWrite>,
    /// Unsettled writes by the pages that are not acknowledged yet.
    unsettled: BTreeMap<PageId, BTreeSet<TxnId>>,
    /// Pages whose acknowledged changes were not retired, because a postponed request has read them.
    unretired: BTreeSet<PageId>,
    /// Until when copies may exist that this brick does not know.
    unknown_copies_until: Ms,
    /// When each prepared transaction was first noticed, and those that this node finishes.
    prepared_since: BTreeMap<TxnId, Ms>,
    finishing: BTreeMap<TxnId, FinishingTxn<A, T>>,
    /// Transactions of which a participant has another outcome than this node. It does not forget them.
    mixed: BTreeMap<TxnId, MixedOutcome>,
    /// Joint requests whose answers are not all there.
    collecting: BTreeMap<TxnId, CollectedAnswers<A>>,
    /// The holders that subscribe to closed timestamps (G1), and when the next one is due.
    subscribers: BTreeSet<HolderId>,
    next_close: Ms,
    next_orphan_scan: Ms,
    out: Vec<Output<A, T>>,
}

impl<A: Clone, T: Clone + Hash> Brick<A, T> {
    /// A brick with an empty log that never existed before.
    #[must_use]
    pub fn new(settings: ParticipantSettings) -> Self {
        Self {
            participant: Participant::new(settings),
            directory: Directory::default(),
            writing: BTreeMap::new(),
            settling: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            unretired: BTreeSet::new(),
            unknown_copies_until: 0,
            prepared_since: BTreeMap::new(),
            finishing: BTreeMap::new(),
            mixed: BTreeMap::new(),
            collecting: BTreeMap::new(),
            subscribers: BTreeSet::new(),
            next_close: 0,
            next_orphan_scan: 0,
            out: Vec::new(),
        }
    }

    /// The transaction whose record, restored before, contradicts this one: both are prepared, and hold the same object (V2).
    #[must_use]
    pub fn contradicting(&self, record: &Record<T>) -> Option<TxnId> {
        self.participant.contradicting(record)
    }

    /// Restores a durable record: see [`Participant::recover`].
    pub fn recover(&mut self, at: Version, record: Record<T>) -> Option<Change<T>> {
        self.participant.recover(at, record)
    }

    /// Ends the recovery: see [`Participant::finish_recovery`]. Earlier holders may still use their copies.
    pub fn finish_recovery(&mut self, position: u64, now: Ms) {
        self.participant.finish_recovery(position);
        self.drain(now);
        if !planted(Bug::SettledAtRestart) {
            self.unknown_copies_until = holder_expiry(now, LEASE_MS);
        }
    }

    /// From now on, this is the time of the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.participant.set_time(time);
    }

    /// The bound of what was promised or closed: see `Participant::appended_bound`.
    #[must_use]
    pub fn bound(&self) -> HlcTimestamp {
        self.participant.appended_bound()
    }

    /// Takes the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    fn send_down(&mut self, holder: HolderId, message: Down<T>) {
        self.out.push(Output::Down(holder, message));
    }

    // ------------------------------------------------------------------------------------------ coordinators

    /// The pages whose versions [`Brick::handle_request`] looks up for a request: see
    /// [`Participant::pages_to_look_up`].
    pub fn pages_to_look_up<'a>(&'a self, request: &'a Request<T>) -> impl Iterator<Item = PageId> + 'a {
        self.participant.pages_to_look_up(request)
    }

    /// Handles a request of a coordinator: see [`Participant::handle`].
    ///
    /// # Errors
    /// If the request violates the protocol. Nothing is changed then.
    pub fn handle_request(
        &mut self,
        from: A,
        request: Request<T>,
        seen: HlcTimestamp,
        now: Ms,
        versions: &dyn PageVersions,
    ) -> Result<(), Rejected> {
        let handled = match request {
            Request::Joint { .. } => self.handle_joint(from, request, seen, now),
            request => self.participant.handle(Requester::Coordinator(from), request, seen, now, versions),
        };
        self.drain(now);
        self.retire_unread();
        handled
    }

    /// Handles the answer to an [`Output::Ask`].
    pub fn handle_answer(&mut self, node: NodeId, answer: Answer, now: Ms) {
        let txn = answer.txn();
        if self.learn_from(&answer, now).is_err() {
            // What a clock says that is too far ahead decides nothing (L1).
            return;
        }
        self.collect_answer(node, &answer);
        let answer = self.receive_vote(node, answer);
        let mut out = Vec::new();
        if let Some(one) = self.finishing.get_mut(&txn) {
            one.coordinator.handle_answer(node, answer, now, &mut out);
        }
        self.finish(txn, out);
    }

    fn finish(&mut self, txn: TxnId, out: Vec<coordinator::Output<T>>) {
        for output in out {
            match output {
                coordinator::Output::Send(node, request) | coordinator::Output::Repeat(node, request) => {
                    self.out.push(Output::Ask(node, request));
                }
                coordinator::Output::Reply(reply) => self.conclude(txn, reply),
            }
        }
        if self.finishing.get(&txn).is_some_and(|one| one.coordinator.is_done())
            && let Some(done) = self.finishing.remove(&txn)
        {
            self.prepared_since.remove(&txn);
            if let Some(mixed) = done.coordinator.mixed_outcome() {
                self.mixed.insert(txn, mixed);
                self.out.push(Output::MixedOutcome(txn, mixed));
            }
        }
    }

    // ------------------------------------------------------------------------------------------ the log

    /// Handles that the log is durable up to `position`.
    pub fn handle_forced(&mut self, position: u64, now: Ms, versions: &dyn PageVersions) {
        self.participant.handle_forced(position, versions);
        self.drain(now);
    }

    /// Appends records again whose content is still needed: see [`Participant::carry_forward`].
    pub fn carry_forward(&mut self, upto: u64, now: Ms) {
        self.participant.carry_forward(upto);
        self.drain(now);
    }

    /// Carries out the outputs of the participant.
    fn drain(&mut self, now: Ms) {
        let outputs: Vec<participant::Output<Requester<A>, T>> = self.participant.outputs().collect();
        for output in outputs {
            match output {
                participant::Output::Append(position, record) => self.out.push(Output::Append(position, record)),
                participant::Output::RemoveRows(txns) => self.out.push(Output::RemoveRows(txns)),
                participant::Output::RemoveMarks(clients) => self.out.push(Output::RemoveMarks(clients)),
                participant::Output::Changed(invalidation, contents) => {
                    self.publish_change(invalidation, contents, now)
                }
                participant::Output::Answer(Requester::Coordinator(to), answer) => {
                    self.out.push(Output::Answer(to, answer));
                }
                participant::Output::Answer(Requester::Writer(holder), answer) => {
                    self.complete_write(holder, answer, now)
                }
                participant::Output::Again(Requester::Coordinator(from), request) => {
                    self.out.push(Output::Again(from, request));
                }
                participant::Output::Again(Requester::Writer(_), request) => {
                    unreachable!("N1: the write {:?} is postponed, so later ones can overtake it", request.txn())
                }
            }
        }
        if planted(Bug::ReplyBeforeInvalidation) {
            let late = |output: &Output<A, T>| matches!(output, Output::Down(_, Down::Invalidate { .. }));
            self.out.sort_by_key(|output| late(output));
        }
    }

    fn publish_change(&mut self, mut message: Invalidation, contents: SlotStates<T>, now: Ms) {
        let page = message.page;
        let holders = self.directory.mark_changed(page, message.version, now);
        let is_redirected = self.directory.has_levels_below(&holders, LEVELS_WITH_REDIRECTOR);
        if is_redirected && !planted(Bug::UpdateNotProven) {
            message.digest = Some(UpdateDigest::of(&contents));
        }
        self.out.push(Output::Store(message.clone(), contents));
        if planted(Bug::ClosedOvertakes) {
            let (at, subscribers) = (self.participant.clock(), self.subscribers.clone());
            subscribers.into_iter().for_each(|holder| self.send_down(holder, Down::Close { at }));
        }
        for holder in holders {
            self.send_down(holder, Down::Invalidate { message: message.clone(), contents: None });
        }
        self.retire(page);
    }

    /// Retires the changes of a page that every holder has acknowledged (V3).
    fn retire(&mut self, page: PageId) {
        if self.participant.is_read_by_postponed(page) {
            self.unretired.insert(page);
            return;
        }
        let Some(newest) = self.participant.window_version(page) else { return };
        let settled = self.directory.settled_version(page).unwrap_or(newest);
        self.participant.acknowledge(page, if planted(Bug::RetiredUnheard) { newest } else { settled });
    }

    /// Retires the changes of pages that a postponed request had read, and none has read any more.
    fn retire_unread(&mut self) {
        if self.unretired.is_empty() {
            return;
        }
        let participant = &self.participant;
        let unread: Vec<PageId> =
            self.unretired.extract_if(.., |page| !participant.is_read_by_postponed(*page)).collect();
        unread.into_iter().for_each(|page| self.retire(page));
    }

    // ------------------------------------------------------------------------------------------ holders

    /// Handles a message of a holder.
    ///
    /// # Errors
    /// If the message violates the protocol. Nothing is changed then.
    pub fn handle_up(&mut self, holder: HolderId, message: Up<T>, now: Ms) -> Result<(), Rejected> {
        if let Some(page) = message.foreign_page(self.participant.node()) {
            return Err(Rejected::Foreign(page));
        }
        if let Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces } = message {
            if let Some(before) = replaces {
                self.remove(before, now);
            }
            if !open && !self.directory.knows(holder) || !self.participant.may_serve() {
                self.send_down(holder, Down::Closed);
            } else {
                let lease_ms = self.renew(holder, height, wanted_ms, subscribe, now);
                self.send_down(holder, Down::Leased { asked, lease_ms, sync });
            }
            return Ok(());
        }
        if !self.directory.knows(holder) {
            self.send_down(holder, Down::Closed);
            return Ok(());
        }
        match message {
            Up::Renew { .. } | Up::Helped { .. } => {}
            Up::Fetch { page, fetch, have } => {
                if !planted(Bug::LateListing) {
                    self.directory.list(page, holder, fetch);
                }
                self.out.push(Output::Read(PendingRead { page, holder, fetch, have }));
            }
            Up::Acknowledge { page, version } => {
                self.directory.acknowledge(holder, page, version);
                self.handle_heard(page, now);
            }
            Up::Evict { page, fetch } => {
                self.directory.evict(page, holder, fetch);
                self.handle_heard(page, now);
            }
            Up::Write { write, writes } => {
                return self.write(holder, write, Part { writes, ..Part::default() }, now);
            }
        }
        Ok(())
    }

    /// Handles a write outside of transactions. The driver adds the touches to `part`, because [`Up::Write`] has none.
    ///
    /// # Errors
    /// If the write violates the protocol. Nothing is changed then.
    ///
    /// # Panics
    /// If the part has reads, because a write outside of transactions is not validated (N1).
    pub fn write(&mut self, holder: HolderId, write: TxnId, part: Part<T>, now: Ms) -> Result<(), Rejected> {
        assert!(part.reads.is_empty(), "N1: {write:?} is a write outside of transactions but has reads");
        if !self.directory.knows(holder) {
            self.send_down(holder, Down::Closed);
            return Ok(());
        }
        let mut pages: Vec<PageId> = part.writes.keys().map(|oid| oid.page()).collect();
        pages.dedup();
        self.writing.insert(write, (holder, pages));
        let handled = self.participant.handle_write(Requester::Writer(holder), write, part, now);
        if handled.is_err() {
            self.writing.remove(&write);
        }
        self.drain(now);
        handled
    }

    fn renew(&mut self, holder: HolderId, height: u8, wanted_ms: u64, subscribe: bool, now: Ms) -> u64 {
        let lease_ms = self.directory.grant(holder, height, now, wanted_ms.min(LEASE_MS), u64::MAX);
        if subscribe && lease_ms > 0 {
            self.subscribers.insert(holder);
        }
        lease_ms
    }

    fn remove(&mut self, holder: HolderId, now: Ms) {
        let pages: Vec<PageId> = self.directory.pages(holder).collect();
        self.directory.remove(holder);
        pages.into_iter().for_each(|page| self.handle_heard(page, now));
    }

    /// Handles an acknowledgement of a page, or an eviction.
    fn handle_heard(&mut self, page: PageId, now: Ms) {
        self.retire(page);
        let writes = self.unsettled.get(&page).map(|writes| writes.iter().copied().collect());
        self.settle(writes.unwrap_or_default(), now);
    }

    /// Handles the result of [`Output::Read`].
    pub fn complete_read(&mut self, ticket: PendingRead, fetched: PageImage<T>) {
        let PendingRead { page, holder, fetch, have } = ticket;
        if planted(Bug::LateListing) {
            self.directory.list(page, holder, fetch);
        }
        let reply = match have {
            None => FetchReply::Page(fetched),
            Some(version) if version == fetched.version || planted(Bug::StaleCalledCurrent) => FetchReply::Current,
            Some(_) => FetchReply::Stale,
        };
        if self.directory.knows(holder) {
            self.send_down(holder, Down::Fetched { page, fetch, reply });
        }
    }

    /// Handles an [`Output::Read`] of a page that is damaged, for this reason.
    pub fn fail_read(&mut self, ticket: PendingRead, why: String) {
        let PendingRead { page, holder, fetch, .. } = ticket;
        if self.directory.knows(holder) {
            self.send_down(holder, Down::Fetched { page, fetch, reply: FetchReply::Damaged(why) });
        }
    }

    // ------------------------------------------------------------------------------------------ writes

    /// Answers a write outside of transactions that has ended (N1).
    fn complete_write(&mut self, holder: HolderId, answer: Answer, now: Ms) {
        let write = answer.txn();
        let result = match answer {
            Answer::Ended { outcome: Outcome::Committed(timestamp), version, .. } => {
                // The last session that sent the write gets the answer; earlier ones may have ended.
                if let (Some((last, pages)), Some(version)) = (self.writing.remove(&write), version) {
                    for page in &pages {
                        self.unsettled.entry(*page).or_default().insert(write);
                    }
                    self.settling.insert(write, UnsettledWrite { holder: last, pages, version });
                }
                Ok(timestamp)
            }
            Answer::Refused { why, .. } => Err(why),
            _ => Err(Refusal::Aborted),
        };
        self.writing.remove(&write);
        self.send_down(holder, Down::Written { write, result });
        self.settle(vec![write], now);
    }

    /// Reports to writers that every holder has acknowledged their writes.
    fn settle(&mut self, writes: Vec<TxnId>, now: Ms) {
        if now < self.unknown_copies_until {
            return;
        }
        for write in writes {
            let Some(one) = self.settling.get(&write) else { continue };
            let holder = one.holder;
            if one.pages.iter().all(|page| self.directory.is_settled(*page, one.version)) {
                self.forget_write(write);
                self.send_down(holder, Down::Settled { write });
            }
        }
    }

    /// Forgets a write whose writer is gone.
    fn forget_write(&mut self, write: TxnId) {
        for page in self.settling.remove(&write).map(|one| one.pages).unwrap_or_default() {
            if let Some(writes) = self.unsettled.get_mut(&page) {
                writes.remove(&write);
                if writes.is_empty() {
                    self.unsettled.remove(&page);
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------ time

    /// Handles everything that is due.
    pub fn poll(&mut self, now: Ms) {
        for (holder, pages) in self.directory.expire(now) {
            let expired = self.settling.iter().filter(|(_, one)| one.holder == holder).map(|(write, _)| *write);
            expired.collect::<Vec<_>>().into_iter().for_each(|write| self.forget_write(write));
            pages.into_iter().for_each(|page| self.handle_heard(page, now));
        }
        if now >= self.next_close {
            self.next_close = now + CLOSE_MS;
            let directory = &self.directory;
            self.subscribers.retain(|holder| directory.knows(*holder));
            let subscribers: Vec<HolderId> = self.subscribers.iter().copied().collect();
            if !subscribers.is_empty() && self.participant.may_serve() {
                let at = self.participant.close_timestamp(now);
                subscribers.into_iter().for_each(|holder| self.send_down(holder, Down::Close { at }));
            }
        }
        self.participant.expire(now);
        if now >= self.next_orphan_scan {
            self.next_orphan_scan = now + ORPHAN_SCAN_MS;
            if self.participant.may_serve() {
                let before = self.participant.physical_ms(now).saturating_sub(HORIZON_MS);
                self.participant.raise_horizon(HlcTimestamp::at(before));
            }
            self.drop_unanswered(now);
            self.finish_orphans(now);
            let writes = self.settling.keys().copied().collect();
            self.settle(writes, now);
        }
        self.drain(now);
        let finishing: Vec<TxnId> = self.finishing.keys().copied().collect();
        for txn in finishing {
            let mut out = Vec::new();
            if let Some(one) = self.finishing.get_mut(&txn) {
                one.poll(now, &mut out);
            }
            self.finish(txn, out);
        }
    }

    /// Finishes transactions that were prepared long ago, and asks for acknowledgements that have been missing for long.
    fn finish_orphans(&mut self, now: Ms) {
        let participant = &self.participant;
        self.mixed.retain(|txn, _| participant.is_unacknowledged(*txn));
        let is_asked = |txn: TxnId| self.finishing.contains_key(&txn) || self.mixed.contains_key(&txn);
        let room = MAX_ASKED.saturating_sub(self.finishing.len());
        let ended = self.participant.unacknowledged_txns().filter(|(txn, _)| !is_asked(*txn)).take(room);
        let open = self.participant.prepared_txns().chain(ended);
        let open: BTreeMap<TxnId, Vec<NodeId>> = open.map(|(txn, nodes)| (txn, nodes.to_vec())).collect();
        self.prepared_since.retain(|txn, _| open.contains_key(txn));
        for (txn, nodes) in open {
            let since = *self.prepared_since.entry(txn).or_insert(now);
            let patience = FINISH_MS.saturating_add(self.participant.transfer_ms(txn));
            let is_late = since.saturating_add(patience) <= now && !self.finishing.contains_key(&txn);
            if is_late && !planted(Bug::CoordinatorNotReplaced) {
                let mut out = Vec::new();
                // A joint request may ask for its outcome later, and for the offsets of all appends.
                let coordinator = Coordinator::finish(txn, nodes.clone(), now, &mut out).with_appends(nodes);
                self.finishing.insert(txn, FinishingTxn::orphan(coordinator));
                self.finish(txn, out);
            }
        }
    }

    /// When [`Brick::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Ms {
        let finishing = self.finishing.values().filter_map(FinishingTxn::deadline);
        let expiry = self.directory.deadline().into_iter().chain(self.participant.next_expiry());
        let close = self.subscribers.first().map(|_| self.next_close);
        finishing.chain(expiry).chain(close).chain([self.next_orphan_scan]).min().unwrap_or(self.next_orphan_scan)
    }

    // ------------------------------------------------------------------------------------------ state

    /// Whether a transaction is known: see [`Participant::knows`].
    #[must_use]
    pub fn knows(&self, txn: TxnId) -> bool {
        self.participant.knows(txn)
    }

    /// The outcome of a transaction here: see [`Participant::outcome`].
    #[must_use]
    pub fn outcome(&self, txn: TxnId) -> Option<Outcome> {
        self.participant.outcome(txn)
    }

    /// Transactions that are prepared and undecided.
    pub fn prepared_txns(&self) -> impl Iterator<Item = TxnId> {
        self.participant.prepared_txns().map(|(txn, _)| txn)
    }

    /// Transactions that hold or wait for locks and are not prepared.
    pub fn locking_txns(&self) -> impl Iterator<Item = TxnId> {
        self.participant.locking_txns()
    }

    /// The part of a transaction that is prepared and undecided.
    #[must_use]
    pub fn prepared_part(&self, txn: TxnId) -> Option<&Part<T>> {
        self.participant.prepared_part(txn)
    }

    /// Whether a transaction holds an object so that no other one can lock it in this mode.
    #[must_use]
    pub fn is_barred_by(&self, holder: TxnId, oid: Oid, mode: LockMode) -> bool {
        self.participant.is_barred_by(holder, oid, mode)
    }

    /// Whether a prepared transaction writes an object.
    #[must_use]
    pub fn is_written_by(&self, txn: TxnId, oid: Oid) -> bool {
        self.participant.is_written_by(txn, oid)
    }

    /// Entries of collections whose changes are not decided or not durable: see [`Participant::unsettled_entries`].
    pub fn unsettled_entries(&self) -> impl Iterator<Item = &Entry> {
        self.participant.unsettled_entries()
    }

    /// Transactions that have ended here, and of which a participant has the opposite outcome.
    pub fn mixed_outcomes(&self) -> impl Iterator<Item = (TxnId, MixedOutcome)> {
        self.mixed.iter().map(|(txn, mixed)| (*txn, *mixed))
    }

    /// Forgets a postponed request that was to be handled again, and was not, because its driver has deferred it.
    pub fn end_postponement(&mut self, txn: TxnId) {
        self.participant.end_postponement(txn);
        self.retire_unread();
    }

    /// Lets a transaction be forgotten although its outcome is mixed. Says whether it was.
    pub fn give_up_mixed_outcome(&mut self, txn: TxnId, now: Ms) -> bool {
        let was_mixed = self.mixed.remove(&txn).is_some();
        if was_mixed {
            self.participant.handle_forget(txn);
            self.drain(now);
        }
        was_mixed
    }

    /// Whether any transaction is prepared: see [`Participant::has_prepared`].
    #[must_use]
    pub fn has_prepared(&self) -> bool {
        self.participant.has_prepared()
    }

    /// Whether the outcome of a write of an object is not known or not durable: see [`Participant::is_unsettled`].
    #[must_use]
    pub fn is_unsettled(&self, oid: Oid) -> bool {
        self.participant.is_unsettled(oid)
    }

    /// The largest timestamp that it has seen.
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.participant.clock()
    }

    /// The directory of holders.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The state as records, for the brick that the logical node moves to: see [`Participant::state_records`]. Send
    /// this brick no requests afterwards.
    #[must_use]
    pub fn state_records(&self) -> Vec<Record<T>> {
        self.participant.state_records()
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        self.participant.check_invariants()?;
        let listed = |page: &PageId, write| self.unsettled.get(page).is_some_and(|writes| writes.contains(write));
        let lost = self.settling.iter().find(|(write, one)| !one.pages.iter().all(|page| listed(page, write)));
        match lost {
            Some((write, _)) => Err(format!("N1: {write:?} is unsettled but not listed by its pages")),
            None => self.directory.check_invariants(),
        }
    }
}

/// An object that a datastore transaction has locked, with its current state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedObject<T> {
    /// The object.
    pub oid: Oid,
    /// The mode of the lock.
    pub mode: LockMode,
    /// The version of its page.
    pub version: Version,
    /// The object; `None` if it does not exist.
    pub value: Option<T>,
}

#[cfg(test)]
mod tests;
