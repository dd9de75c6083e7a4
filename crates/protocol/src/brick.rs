//! A brick, as far as one logical node of it is concerned: the root of that node's cache tree.
//!
//! It joins the [`Participant`], which decides what happens to the pages, with the [`Directory`] of those who hold copies of
//! them. Whoever drives it has the disk: it appends to the log and says when it is durable, stores what has changed, and
//! reads pages.
//!
//! - **D1, D2.** A holder is listed before its page is read. What has changed is told before any answer that follows.
//! - **V3.** What all holders have heard is retired.
//! - **N1.** A write outside of transactions is *settled* when everybody has heard of it, or has expired. A brick that was
//!   restarted does not know who holds what, and settles nothing before the longest lease that it could have granted.
//! - **C2, C4.** What is prepared and not decided for long is finished here: its coordinator may be gone.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeId, Oid, PageId};

use crate::commit::coordinator::{self, Coordinator};
use crate::commit::participant::{self, Participant, ParticipantSettings};
use crate::commit::{Answer, Change, Outcome, Part, Record, Refusal, Rejected, Request};
use crate::directory::Directory;
use crate::ident::{HlcTimestamp, HolderId, TxnId, Version};
use crate::lease::{Ms, holder_expiry};
use crate::locks::LockMode;
use crate::page_cache::{FetchId, FetchReply, Invalidation, PageImage, SlotStates};
use crate::plant::{Bug, planted};
use crate::tree::{Down, Up};
use crate::upstream::LEASE_MS;
use crate::validate::PageVersions;

/// How often times are closed, in milliseconds (G1).
const CLOSE_MS: u64 = 10;
/// How long a transaction may be prepared before it is finished here, in milliseconds.
const FINISH_MS: u64 = 2_000;
/// How old transactions may become, in milliseconds: what began before is refused (C3).
const HORIZON_MS: u64 = 120_000;
/// How often what is old is looked for, in milliseconds.
const ORPHAN_SCAN_MS: u64 = 1_000;

/// Who asks a participant for something.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requester<A> {
    /// A coordinator at this address.
    Coordinator(A),
    /// A holder that writes outside of transactions.
    Writer(HolderId),
}

/// Something that a brick wants done, in this order. `A` is an address of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Append this to the log, at this position: one more than that of the record before. Without a log, replace the
    /// [row](Record::into_row) of the transaction.
    Append(u64, Record<T>),
    /// Nothing is known of these any more: without a log, remove their rows, after all that was appended before.
    RemoveRows(Vec<TxnId>),
    /// A page has changed, durably: store the new states, and the version also if there are none, for it was only touched.
    Store(Invalidation, SlotStates<T>),
    /// Read a page, and call [`Brick::complete_read`].
    Read(PendingRead),
    /// Answer a coordinator. With [`Answer::Locked`] goes the state of the object.
    Answer(A, Answer),
    /// Ask a participant, perhaps this one, on behalf of this brick, and call [`Brick::handle_answer`].
    Ask(NodeId, Request<T>),
    /// Tell a holder.
    Down(HolderId, Down<T>),
}

/// A page to be read, for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRead {
    /// The page.
    pub page: PageId,
    holder: HolderId,
    fetch: FetchId,
    have: Option<Version>,
}

/// A write of which somebody has still to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnsettledWrite {
    holder: HolderId,
    pages: Vec<PageId>,
    version: Version,
}

/// The brick. `A` is an address of a coordinator, `T` is an object.
#[derive(Clone, Debug)]
pub struct Brick<A, T> {
    participant: Participant<Requester<A>, T>,
    directory: Directory,
    /// The pages of writes that are under way, with who waits for them.
    writing: BTreeMap<TxnId, (HolderId, Vec<PageId>)>,
    settling: BTreeMap<TxnId, UnsettledWrite>,
    /// The same, by the pages of which somebody has still to hear.
    unsettled: BTreeMap<PageId, BTreeSet<TxnId>>,
    /// Until when old copies may be about that this brick knows nothing of.
    unknown_copies_until: Ms,
    /// When what is prepared was first noticed, and those who finish it.
    prepared_since: BTreeMap<TxnId, Ms>,
    finishing: BTreeMap<TxnId, Coordinator<T>>,
    /// Who wants closed timestamps (G1), and when to close one.
    subscribers: BTreeSet<HolderId>,
    next_close: Ms,
    next_orphan_scan: Ms,
    out: Vec<Output<A, T>>,
}

impl<A: Clone, T: Clone> Brick<A, T> {
    /// One with an empty log, that never was another.
    #[must_use]
    pub fn new(settings: ParticipantSettings) -> Self {
        Self {
            participant: Participant::new(settings),
            directory: Directory::default(),
            writing: BTreeMap::new(),
            settling: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            unknown_copies_until: 0,
            prepared_since: BTreeMap::new(),
            finishing: BTreeMap::new(),
            subscribers: BTreeSet::new(),
            next_close: 0,
            next_orphan_scan: 0,
            out: Vec::new(),
        }
    }

    /// Takes up a durable record again: see [`Participant::recover`].
    pub fn recover(&mut self, at: Version, record: Record<T>) -> Option<Change<T>> {
        self.participant.recover(at, record)
    }

    /// All records are taken up: see [`Participant::finish_recovery`]. Holders of before may still use what they have.
    pub fn finish_recovery(&mut self, position: u64, now: Ms) {
        self.participant.finish_recovery(position);
        self.drain(now);
        if !planted(Bug::SettledAtRestart) {
            self.unknown_copies_until = holder_expiry(now, LEASE_MS);
        }
    }

    /// Takes what is wanted, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    fn send_down(&mut self, holder: HolderId, message: Down<T>) {
        self.out.push(Output::Down(holder, message));
    }

    // ------------------------------------------------------------------------------------------ coordinators

    /// The pages whose versions [`Brick::handle_request`] looks up for a request: see [`Participant::pages_to_look_up`].
    pub fn pages_to_look_up<'a>(&'a self, request: &'a Request<T>) -> impl Iterator<Item = PageId> + 'a {
        self.participant.pages_to_look_up(request)
    }

    /// A coordinator asks for something: see [`Participant::handle`].
    ///
    /// # Errors
    /// If nobody who follows the rules can have sent it: nothing has happened.
    pub fn handle_request(
        &mut self,
        from: A,
        request: Request<T>,
        seen: HlcTimestamp,
        now: Ms,
        versions: &dyn PageVersions,
    ) -> Result<(), Rejected> {
        let handled = self.participant.handle(Requester::Coordinator(from), request, seen, now, versions);
        self.drain(now);
        handled
    }

    /// A participant answers what this brick has asked it: see [`Output::Ask`].
    pub fn handle_answer(&mut self, node: NodeId, answer: Answer, now: Ms) {
        let txn = answer.txn();
        let mut out = Vec::new();
        if let Some(coordinator) = self.finishing.get_mut(&txn) {
            coordinator.handle_answer(node, answer, now, &mut out);
        }
        self.finish(txn, out);
    }

    fn finish(&mut self, txn: TxnId, out: Vec<coordinator::Output<T>>) {
        for output in out {
            // Nobody here waits for the outcome itself.
            if let coordinator::Output::Send(node, request) = output {
                self.out.push(Output::Ask(node, request));
            }
        }
        if self.finishing.get(&txn).is_some_and(Coordinator::is_done) {
            self.finishing.remove(&txn);
            self.prepared_since.remove(&txn);
        }
    }

    // ------------------------------------------------------------------------------------------ the log

    /// The log is durable up to `position`.
    pub fn handle_forced(&mut self, position: u64, now: Ms, versions: &dyn PageVersions) {
        self.participant.handle_forced(position, versions);
        self.drain(now);
    }

    /// Appends again what records up to a position still have to say: see [`Participant::carry_forward`].
    pub fn carry_forward(&mut self, upto: u64, now: Ms) {
        self.participant.carry_forward(upto);
        self.drain(now);
    }

    /// Passes on what the participant wants.
    fn drain(&mut self, now: Ms) {
        let outputs: Vec<participant::Output<Requester<A>, T>> = self.participant.outputs().collect();
        for output in outputs {
            match output {
                participant::Output::Append(position, record) => self.out.push(Output::Append(position, record)),
                participant::Output::RemoveRows(txns) => self.out.push(Output::RemoveRows(txns)),
                participant::Output::Changed(invalidation, contents) => {
                    self.publish_change(invalidation, contents, now)
                }
                participant::Output::Answer(Requester::Coordinator(to), answer) => {
                    self.out.push(Output::Answer(to, answer));
                }
                participant::Output::Answer(Requester::Writer(holder), answer) => {
                    self.complete_write(holder, answer, now)
                }
            }
        }
        if planted(Bug::ReplyBeforeInvalidation) {
            let late = |output: &Output<A, T>| matches!(output, Output::Down(_, Down::Invalidate { .. }));
            self.out.sort_by_key(|output| late(output));
        }
    }

    fn publish_change(&mut self, message: Invalidation, contents: SlotStates<T>, now: Ms) {
        let (page, version) = (message.page, message.version);
        self.out.push(Output::Store(message.clone(), contents));
        if planted(Bug::ClosedOvertakes) {
            let (at, subscribers) = (self.participant.clock(), self.subscribers.clone());
            subscribers.into_iter().for_each(|holder| self.send_down(holder, Down::Close { at }));
        }
        for holder in self.directory.mark_changed(page, version, now) {
            self.send_down(holder, Down::Invalidate { message: message.clone(), contents: None });
        }
        self.retire(page);
    }

    /// Retires the changes of a page that every holder has acknowledged (V3).
    fn retire(&mut self, page: PageId) {
        let Some(newest) = self.participant.window_version(page) else { return };
        let settled = self.directory.settled(page).unwrap_or(newest);
        self.participant.retire(page, if planted(Bug::RetiredUnheard) { newest } else { settled });
    }

    // ------------------------------------------------------------------------------------------ holders

    /// A holder says something.
    ///
    /// # Errors
    /// If nobody who follows the rules can have sent it: nothing has happened.
    pub fn handle_up(&mut self, holder: HolderId, message: Up<T>, now: Ms) -> Result<(), Rejected> {
        if let Some(page) = message.foreign_page(self.participant.node()) {
            return Err(Rejected::Foreign(page));
        }
        if let Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces } = message {
            if let Some(before) = replaces {
                self.remove(before, now);
            }
            if !open && !self.directory.knows(holder) {
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

    /// A holder writes something outside of transactions, which touches what whoever drives this says: [`Up::Write`] has no
    /// room for that.
    ///
    /// # Errors
    /// If nobody who follows the rules can have sent it: nothing has happened.
    ///
    /// # Panics
    /// If the part reads something: a write outside of transactions is not validated (N1).
    pub fn write(&mut self, holder: HolderId, write: TxnId, part: Part<T>, now: Ms) -> Result<(), Rejected> {
        assert!(part.reads.is_empty(), "N1: {write:?} is a write outside of transactions, and reads");
        if !self.directory.knows(holder) {
            self.send_down(holder, Down::Closed);
            return Ok(());
        }
        let mut pages: Vec<PageId> = part.writes.keys().map(|oid| oid.page()).collect();
        pages.dedup();
        self.writing.insert(write, (holder, pages));
        let request = Request::Commit { txn: write, part };
        let handled = self.participant.handle(Requester::Writer(holder), request, write.start, now, &BTreeMap::new());
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

    /// Somebody has heard of a page, or has it no more.
    fn handle_heard(&mut self, page: PageId, now: Ms) {
        self.retire(page);
        let writes = self.unsettled.get(&page).map(|writes| writes.iter().copied().collect());
        self.settle(writes.unwrap_or_default(), now);
    }

    /// A page was read, as it is now: see [`Output::Read`].
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

    // ------------------------------------------------------------------------------------------ writes

    /// A write outside of transactions is over (N1).
    fn complete_write(&mut self, holder: HolderId, answer: Answer, now: Ms) {
        let write = answer.txn();
        let result = match answer {
            Answer::Ended { outcome: Outcome::Committed(timestamp), version, .. } => {
                // Whoever has asked last hears of it: the session of who asked first may be over.
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

    /// Tells the writers of these, if everybody has heard of them.
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

    /// Nobody waits for it any more.
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

    /// Does what it is time for.
    pub fn poll(&mut self, now: Ms) {
        for (holder, pages) in self.directory.expire_with_pages(now) {
            let gone = self.settling.iter().filter(|(_, one)| one.holder == holder).map(|(write, _)| *write);
            gone.collect::<Vec<_>>().into_iter().for_each(|write| self.forget_write(write));
            pages.into_iter().for_each(|page| self.handle_heard(page, now));
        }
        if now >= self.next_close {
            self.next_close = now + CLOSE_MS;
            let directory = &self.directory;
            self.subscribers.retain(|holder| directory.knows(*holder));
            let subscribers: Vec<HolderId> = self.subscribers.iter().copied().collect();
            if !subscribers.is_empty() {
                let at = self.participant.close_timestamp(now);
                subscribers.into_iter().for_each(|holder| self.send_down(holder, Down::Close { at }));
            }
        }
        self.participant.expire(now);
        if now >= self.next_orphan_scan {
            self.next_orphan_scan = now + ORPHAN_SCAN_MS;
            self.participant.raise_horizon(HlcTimestamp::at(now.saturating_sub(HORIZON_MS)));
            self.finish_orphans(now);
            let writes = self.settling.keys().copied().collect();
            self.settle(writes, now);
        }
        self.drain(now);
        let finishing: Vec<TxnId> = self.finishing.keys().copied().collect();
        for txn in finishing {
            let mut out = Vec::new();
            if let Some(coordinator) = self.finishing.get_mut(&txn) {
                coordinator.poll(now, &mut out);
            }
            self.finish(txn, out);
        }
    }

    /// Finishes what was prepared long ago, and acknowledges what ended long ago.
    fn finish_orphans(&mut self, now: Ms) {
        let open = self.participant.prepared().chain(self.participant.unacknowledged());
        let open: BTreeMap<TxnId, Vec<NodeId>> = open.map(|(txn, nodes)| (txn, nodes.to_vec())).collect();
        self.prepared_since.retain(|txn, _| open.contains_key(txn));
        for (txn, nodes) in open {
            let since = *self.prepared_since.entry(txn).or_insert(now);
            let is_late = since + FINISH_MS <= now && !self.finishing.contains_key(&txn);
            if is_late && !planted(Bug::NobodyFinishes) {
                let mut out = Vec::new();
                self.finishing.insert(txn, Coordinator::finish(txn, nodes, now, &mut out));
                self.finish(txn, out);
            }
        }
    }

    /// When [`Brick::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Ms {
        let finishing = self.finishing.values().filter_map(Coordinator::deadline);
        let expiry = self.directory.deadline().into_iter().chain(self.participant.next_expiry());
        let close = self.subscribers.first().map(|_| self.next_close);
        finishing.chain(expiry).chain(close).chain([self.next_orphan_scan]).min().unwrap_or(self.next_orphan_scan)
    }

    // ------------------------------------------------------------------------------------------ looking

    /// Whether a transaction has come before: see [`Participant::knows`].
    #[must_use]
    pub fn knows(&self, txn: TxnId) -> bool {
        self.participant.knows(txn)
    }

    /// How a transaction has ended here: see [`Participant::outcome`].
    #[must_use]
    pub fn outcome(&self, txn: TxnId) -> Option<Outcome> {
        self.participant.outcome(txn)
    }

    /// Transactions that are prepared and not decided.
    pub fn prepared(&self) -> impl Iterator<Item = TxnId> {
        self.participant.prepared().map(|(txn, _)| txn)
    }

    /// The largest timestamp that it knows.
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.participant.clock()
    }

    /// Who holds what.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// All that it knows, for the brick that its logical node moves to: see [`Participant::state_records`]. Nothing may be asked of
    /// it any more.
    #[must_use]
    pub fn state_records(&self) -> Vec<Record<T>> {
        self.participant.state_records()
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        self.participant.check_invariants()?;
        let listed = |page: &PageId, write| self.unsettled.get(page).is_some_and(|writes| writes.contains(write));
        let lost = self.settling.iter().find(|(write, one)| !one.pages.iter().all(|page| listed(page, write)));
        match lost {
            Some((write, _)) => Err(format!("N1: nobody looks whether {write:?} is settled")),
            None => self.directory.check_invariants(),
        }
    }
}

/// An object that a datastore transaction has locked, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedObject<T> {
    /// The object.
    pub oid: Oid,
    /// What for.
    pub mode: LockMode,
    /// The version of its page.
    pub version: Version,
    /// The object; `None` if there is none.
    pub value: Option<T>,
}

#[cfg(test)]
mod tests;
