//! One logical node that a brick serves: drives its machine, and keeps its pages and transactions as rows of the store.
//!
//! Every record of the machine becomes rows: what is known of a transaction is one row, replaced when that changes, and what
//! it writes are rows of objects. The store makes them durable together, shows them when they are, and frees its log by
//! itself: so nothing is logged twice, and opening reads rows.
//!
//! What the store shows is durable. So if a page is found newer than what has come out of the machine, the machine is told
//! first that its records are durable: what changed is told before the page is shown (D2).

pub(super) mod change_tracking;
mod indexing;
mod writing;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use meta::catalog::Schema;
use model::{Error, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId};
use protocol::brick::{Brick, LockedObject, Output, PendingRead};
use protocol::commit::participant::ParticipantSettings;
use protocol::commit::{Answer, Part, Refusal, Rejected, Request};
use protocol::ident::{HlcTimestamp, HolderId, TxnId, Version};
use protocol::lease::Ms;
use protocol::page_cache::{ObjectState, PageImage};
use protocol::tree::{Down, Up};
use protocol::validate::{PageVersions, Read, ReadVersion};
use smallvec::SmallVec;
use store::{RowChanges, RowSequence, Store};
use tracing::{error, warn};
use wire::cluster::{Message, decode_record, is_final};

use super::answer_counts::AnswerCounts;
use super::changed_rows::ChangedRows;
use super::indexes::{Indexes, ReplacedObjects};
use super::node_inbox::{NodeInbox, NodeTask};
use super::page_rows as rows;
use super::recent_pages::RecentPages;
use wire::driving::PeerHandle;

/// How far ahead of use positions are taken from the store.
const POSITION_BATCH: u64 = 1 << 20;
/// How long after the store had no room it is tried again, in milliseconds.
const RETRY_DELAY_MS: Ms = 200;
/// Entries that the window of a page may have.
pub(crate) const WINDOW: usize = 256;
/// Rows that wait for others to go to the store with.
const ROW_BATCH: usize = 64;
/// Rows of transactions that are removed together with others.
const REMOVE_BATCH: usize = 256;
/// Bytes of what is known of a transaction that go into one row.
const PIECE: usize = 4 << 20;
/// What an object takes beside its data, about, and what the head of a page takes.
const OBJECT_OVERHEAD: usize = 256;
const HEAD_SIZE: usize = 256;
/// Why a brick in memory that is full takes nothing that makes it fuller.
const STORE_FULL: &str = "the brick's store in memory has no room: delete something, or start it with more";
/// Page numbers that can be reserved; those above are computed.
pub(crate) const RESERVABLE: u64 = (PageId::MAX_NUMBER >> 1) + 1;

fn next_incarnation() -> u64 {
    static LIVES: AtomicU64 = AtomicU64::new(1);
    LIVES.fetch_add(1, Ordering::Relaxed)
}

/// Who asks a logical node for something.
#[derive(Clone, Debug)]
pub(crate) enum Requester {
    /// Somebody at the other end of a connection.
    Remote(PeerHandle),
    /// Another logical node of this brick.
    Node(NodeId),
}

/// Rows that the store was given, and up to which position they reach.
struct SubmittedRows {
    position: u64,
    rows: RowChanges,
}

/// A logical node.
pub(crate) struct NodeDriver {
    node: NodeId,
    moves: u32,
    skew_ms: u64,
    store: Store,
    in_memory: bool,
    inbox: Arc<NodeInbox>,
    machine: Brick<Requester, Object>,
    /// Where each holder is.
    holders: HashMap<HolderId, PeerHandle>,
    /// Of the rows of this life: once some are refused, none behind them are made.
    sequence: RowSequence,
    /// Rows to be written.
    rows: RowChanges,
    /// The position of the last record, and of the last whose rows went to the store.
    last_position: u64,
    sent_position: u64,
    /// What is with the store, in order.
    in_flight: VecDeque<SubmittedRows>,
    /// How many of these it has refused; then it refuses those behind them too.
    refused_batches: usize,
    /// What waits until the store takes rows again, in order, and when to try.
    deferred: VecDeque<SubmittedRows>,
    retry_at: Option<Ms>,
    /// Why the store takes none.
    full_error: Option<Error>,
    /// No position above it has been used.
    position_limit: u64,
    /// The first page number of each space that was never handed out.
    next_page: HashMap<SpaceId, u64>,
    /// Transactions of which more is known than fits a row, and how many rows that takes.
    pieces: HashMap<TxnId, u16>,
    /// Transactions of which nothing is known any more, whose rows are there still.
    forgotten_txns: VecDeque<TxnId>,
    /// What is known of indexes, and when something is to be done about them.
    indexes: Indexes,
    index_due: Ms,
    /// The schema that they were last made to follow.
    schema: Option<Arc<Schema>>,
    /// How often the catalogue was asked for classes, and that as of which transactions came first with one that is not known.
    schema_refreshes: u64,
    unknown_class_txns: HashMap<TxnId, u64>,
    /// What the transaction replaces that is being taken in, and those that are prepared.
    replaced: Option<(TxnId, ReplacedObjects)>,
    replaced_by_prepared: HashMap<TxnId, ReplacedObjects>,
    /// All up to this position is durable.
    durable_position: u64,
    /// Reservations that are under way.
    reservations_in_flight: Arc<AtomicU64>,
    /// Another number each time it begins: what was written in another life counts no more.
    incarnation: u64,
    /// Why it cannot be served.
    failed: Option<Error>,
    /// Pages that changed lately.
    recent: RecentPages,
    /// What has changed since another brick began to copy it.
    changed_since_copy: Option<ChangedRows>,
    /// What it has answered.
    pub(super) answer_counts: Arc<AnswerCounts>,
}

impl NodeDriver {
    /// Opens a logical node with what the store has of it.
    ///
    /// # Errors
    /// If that cannot be read.
    pub(crate) fn open(
        store: Store,
        (node, moves): (NodeId, u32),
        skew_ms: u64,
        chores: Arc<NodeInbox>,
        now: Ms,
    ) -> Result<Self> {
        let machine = Brick::new(ParticipantSettings { node, moves, skew_ms, window_limit: WINDOW });
        let in_memory = store.status().in_memory;
        let sequence = RowSequence::new();
        let rows = sequence.changes();
        let mut hosted = Self {
            node,
            moves,
            skew_ms,
            store,
            in_memory,
            inbox: chores,
            machine,
            holders: HashMap::new(),
            sequence,
            rows,
            last_position: 0,
            sent_position: 0,
            in_flight: VecDeque::new(),
            refused_batches: 0,
            deferred: VecDeque::new(),
            retry_at: None,
            full_error: None,
            position_limit: 0,
            next_page: HashMap::new(),
            pieces: HashMap::new(),
            forgotten_txns: VecDeque::new(),
            indexes: Indexes::default(),
            index_due: Ms::MAX,
            schema: None,
            schema_refreshes: 0,
            unknown_class_txns: HashMap::new(),
            replaced: None,
            replaced_by_prepared: HashMap::new(),
            durable_position: 0,
            reservations_in_flight: Arc::default(),
            incarnation: next_incarnation(),
            failed: None,
            recent: RecentPages::default(),
            changed_since_copy: None,
            answer_counts: Arc::default(),
        };
        hosted.recover(now)?;
        Ok(hosted)
    }

    fn recover(&mut self, now: Ms) -> Result<()> {
        let settings =
            ParticipantSettings { node: self.node, moves: self.moves, skew_ms: self.skew_ms, window_limit: WINDOW };
        self.machine = Brick::new(settings);
        let (from, to) = rows::txn_range(self.node);
        let (mut failed, mut whole, mut pieces) = (Ok(()), Vec::new(), 0);
        self.pieces.clear();
        let store = self.store.clone();
        store.rows(&from, &to, |key, row| {
            if rows::is_first_piece(key) {
                failed = self.recover_record(&whole, pieces);
                whole.clear();
                pieces = 0;
            }
            whole.extend_from_slice(row);
            pieces += 1;
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed?;
        self.recover_record(&whole, pieces)?;
        for key in [rows::bound_key(self.node), rows::horizon_key(self.node)] {
            self.recover_record(&store.row(&key)?.unwrap_or_default(), 1)?;
        }
        let limit = rows::limit_key(self.node);
        let is_new = store.row(&limit)?.is_none();
        if is_new {
            // From now on there may be holders, who are waited for after a restart even if nothing was written.
            let mut opened = RowChanges::new();
            opened.put(&limit, rows::encode_number(0));
            store.commit_rows(opened)?;
        }
        self.position_limit = rows::read_number(&store, &limit)?;
        (self.last_position, self.sent_position, self.durable_position) =
            (self.position_limit, self.position_limit, self.position_limit);
        if !is_new {
            self.machine.finish_recovery(self.position_limit, now);
        }
        self.open_indexes(now)
    }

    /// Takes up a record again, if it is there.
    fn recover_record(&mut self, record: &[u8], pieces: u16) -> Result<()> {
        if record.is_empty() {
            return Ok(());
        }
        let (at, record) = decode_record(record)?;
        if let Some(txn) = record.txn().filter(|_| pieces > 1) {
            self.pieces.insert(txn, pieces);
        }
        self.machine.recover(at, record);
        Ok(())
    }

    /// Serves nobody any more: another brick may, or this one as of another epoch.
    pub(crate) fn close(&mut self) {
        self.deferred.clear();
        // What the store has refused is with it no more.
        self.in_flight.drain(..std::mem::take(&mut self.refused_batches));
        self.failed.get_or_insert_with(|| Error::new(ErrorKind::Unavailable, "it is served elsewhere now"));
    }

    /// Whether it has ended, and none of its rows are under way.
    pub(crate) fn is_closed(&self) -> bool {
        self.failed.is_some() && self.in_flight.is_empty() && self.reservations_in_flight.load(Ordering::Acquire) == 0
    }

    /// After its end: rows are with the store no more, durable or not.
    pub(crate) fn finish_write(&mut self, life: u64) {
        if life == self.incarnation
            && let Some(sent) = self.in_flight.pop_front()
        {
            self.record_changes(&sent.rows);
        }
    }

    fn fail(&mut self, why: Error) {
        error!(node = %self.node, error = %why, "a logical node cannot be served any more");
        self.failed.get_or_insert(why);
    }

    /// Why it cannot be served, if it cannot.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    // -------------------------------------------------------------------------------------------- what comes

    /// A coordinator asks.
    ///
    /// # Errors
    /// If nobody who follows the rules can have sent it.
    pub(crate) fn handle_request(
        &mut self,
        from: Requester,
        mut request: Request<Object>,
        seen: HlcTimestamp,
        now: Ms,
    ) -> Result<(), Rejected> {
        if let Request::Prepare { txn, part, .. } | Request::Commit { txn, part } = &mut request
            && !self.machine.knows(*txn)
            && let Err(held) = self.admit_transaction(*txn, part)
        {
            if let Requester::Remote(post) = &from {
                post.send(&held.message(self.node, *txn));
            }
            if !is_final(held.kind) {
                return Ok(());
            }
            // Whoever asks how it has ended makes sure that it never happens.
            request = Request::Ask { txn: *txn, round: 0 };
        }
        // If that is lost, it is found out once more (C3): its rows may go with others.
        let is_waited_for = !matches!(request, Request::Forget { .. });
        let looked_up = match self.look_up_versions(&request) {
            Ok(looked_up) => looked_up,
            Err(error) => {
                self.fail(error);
                return Ok(());
            }
        };
        let versions = KnownVersions { recent: &self.recent, looked_up: &looked_up };
        let handled = self.machine.handle_request(from, request, seen, now, &versions);
        self.process_outputs(is_waited_for, now);
        self.replaced = None;
        handled
    }

    /// A holder says something.
    ///
    /// # Errors
    /// If nobody who follows the rules can have sent it.
    pub(crate) fn handle_up(
        &mut self,
        post: &PeerHandle,
        holder: HolderId,
        message: Up<Object>,
        now: Ms,
    ) -> Result<(), Rejected> {
        if matches!(message, Up::Renew { .. }) {
            self.holders.insert(holder, post.clone());
        }
        let handled = match message {
            Up::Write { write, writes } => {
                let mut part = Part { writes, ..Part::default() };
                if !self.machine.knows(write)
                    && let Err(held) = self.admit(write, &mut part)
                {
                    post.send(&held.message(self.node, write));
                    // What is only aborted is tried again soon.
                    let why = if is_final(held.kind) { Refusal::TooOld } else { Refusal::Aborted };
                    let message = Down::Written { write, result: Err(why) };
                    post.send(&Message::Down { node: self.node, holder, message });
                    return Ok(());
                }
                self.machine.write(holder, write, part, now)
            }
            message => self.machine.handle_up(holder, message, now),
        };
        self.process_awaited_outputs(now);
        self.replaced = None;
        handled
    }

    /// A participant answers what this node has asked.
    pub(crate) fn handle_answer(&mut self, node: NodeId, answer: Answer, now: Ms) {
        self.machine.handle_answer(node, answer, now);
        self.process_outputs(false, now);
    }

    /// Does what it is time for.
    pub(crate) fn poll(&mut self, now: Ms) {
        self.machine.poll(now);
        let directory = self.machine.directory();
        self.holders.retain(|holder, _| directory.knows(*holder));
        self.retry_deferred(now);
        self.process_awaited_outputs(now);
        self.poll_indexes(now);
    }

    /// A time at or after all that was committed here.
    pub(crate) fn clock(&self) -> HlcTimestamp {
        self.machine.clock()
    }

    /// How a transaction has ended here, if that is known and durable.
    #[cfg(test)]
    pub(crate) fn outcome(&self, txn: TxnId) -> Option<protocol::commit::Outcome> {
        self.machine.outcome(txn)
    }

    /// When [`Hosted::poll`] has something to do.
    pub(crate) fn deadline(&self) -> Ms {
        if self.failed.is_some() {
            return Ms::MAX;
        }
        self.machine.deadline().min(self.retry_at.unwrap_or(Ms::MAX)).min(self.index_due)
    }

    /// The store has made the oldest rows that are with it durable, or not.
    pub(crate) fn handle_written(&mut self, life: u64, result: Result<()>, now: Ms) {
        if life != self.incarnation {
            return;
        }
        match result {
            Ok(()) => {
                let sent = self.in_flight.pop_front();
                let position = sent.as_ref().map_or(self.sent_position, |sent| sent.position);
                sent.iter().for_each(|sent| self.record_changes(&sent.rows));
                self.full_error = None;
                self.handle_durable(position, now);
            }
            Err(error) => self.handle_refused(error, now),
        }
        self.process_outputs(false, now);
    }

    /// The store takes no rows. If it may again, they wait: nothing that rests on them is said, and all else goes on.
    fn handle_refused(&mut self, error: Error, now: Ms) {
        self.refused_batches += 1;
        // Those behind the first that it refused are told so.
        let is_behind = self.full_error.is_some() && error.kind() == ErrorKind::Unavailable;
        if error.kind() != ErrorKind::Full && !is_behind {
            return self.fail(error);
        }
        if self.full_error.is_none() {
            warn!(node = %self.node, %error, "the store has no room: what is to be written waits");
            self.full_error = Some(error);
        }
        if self.refused_batches == self.in_flight.len() {
            self.refused_batches = 0;
            self.incarnation = next_incarnation();
            self.sequence = RowSequence::new();
            self.in_flight.append(&mut self.deferred);
            self.deferred = std::mem::take(&mut self.in_flight);
            self.retry_at = Some(now + RETRY_DELAY_MS);
        }
    }

    /// Takes a transaction in that has not come before, unless it has to be [held](Self::admit).
    fn admit_transaction(
        &mut self,
        txn: TxnId,
        part: &mut Part<Object>,
    ) -> std::result::Result<(), DeferredTransaction> {
        if self.is_memory_full() {
            self.turn_empty_deletes_into_reads(part);
        }
        self.admit(txn, part)
    }

    /// To delete objects in pages of which nothing is known needs no room: it is only validated that there are none.
    fn turn_empty_deletes_into_reads(&self, part: &mut Part<Object>) {
        let is_nothing =
            |oid: &Oid, content: &mut ObjectState<Object>| *content == ObjectState::Absent && self.is_new(oid.page());
        let nothing: Vec<Oid> = part.writes.extract_if(.., is_nothing).map(|(oid, _)| oid).collect();
        part.reads.extend(nothing.into_iter().map(|oid| Read { oid, seen: ReadVersion::At(Version::ZERO) }));
    }

    /// Whether a page has no head, and none is about to be written.
    fn is_new(&self, page: PageId) -> bool {
        let has_none = || rows::read_head(&self.store, page).is_ok_and(|head| head.version == Version::ZERO);
        self.recent.newest_head(page).is_none() && has_none()
    }

    /// Takes a transaction in, or a write, unless it has to be held: the store may have no room, or it may be wrong in itself. Says
    /// what it touches.
    fn admit(&mut self, txn: TxnId, part: &mut Part<Object>) -> std::result::Result<(), DeferredTransaction> {
        match &self.full_error {
            Some(full) => Err(DeferredTransaction { kind: full.kind(), why: full.message().to_owned() }),
            // What was taken in before is written, room or not.
            None if self.is_memory_full() && self.grows(part) => {
                Err(DeferredTransaction { kind: ErrorKind::Full, why: STORE_FULL.to_owned() })
            }
            None => self.compute_touches(txn, part),
        }
    }

    fn is_memory_full(&self) -> bool {
        self.in_memory && self.store.is_memory_full()
    }

    /// Whether a transaction writes more bytes than it takes away. What cannot be read is found out later.
    fn grows(&self, part: &Part<Object>) -> bool {
        let (mut before, mut after) = (0, 0);
        for (oid, content) in &part.writes {
            after += if let ObjectState::Value(object) = content { OBJECT_OVERHEAD + object.data.len() } else { 0 };
            after += if self.is_new(oid.page()) { HEAD_SIZE } else { 0 };
            if let Ok(Some(object)) = rows::read_object(&self.store, oid.page(), oid.slot()) {
                before += OBJECT_OVERHEAD + object.data.len();
            }
        }
        after > before
    }

    /// Why nothing new is written here now, if that is so.
    pub(crate) fn health_problem(&self) -> Option<String> {
        let full =
            self.full_error.as_ref().map(Error::message).or_else(|| self.is_memory_full().then_some(STORE_FULL))?;
        Some(format!("logical node {:x} takes no changes: {full}", self.node.0))
    }

    /// Reads the versions that the machine looks up for a request, in the order of pages.
    fn look_up_versions(&self, request: &Request<Object>) -> Result<SmallVec<[(PageId, Version); 8]>> {
        let unknown = |page: &PageId| self.recent.emitted_version(*page).is_none();
        let mut pages: SmallVec<[PageId; 8]> = self.machine.pages_to_look_up(request).filter(unknown).collect();
        pages.sort_unstable();
        pages.dedup();
        pages.into_iter().map(|page| Ok((page, rows::read_head(&self.store, page)?.version))).collect()
    }

    fn handle_durable(&mut self, position: u64, now: Ms) {
        self.durable_position = self.durable_position.max(position);
        let versions = KnownVersions { recent: &self.recent, looked_up: &[] };
        self.machine.handle_forced(position, now, &versions);
    }

    // -------------------------------------------------------------------------------------------- what comes out

    /// Does what the machine wants, in order.
    fn process_awaited_outputs(&mut self, now: Ms) {
        self.process_outputs(true, now);
    }

    /// The same. Rows that nobody waits for go to the store with the next that somebody does, at the next [`Hosted::poll`], or when
    /// they are many.
    fn process_outputs(&mut self, is_waited_for: bool, now: Ms) {
        loop {
            let outputs: Vec<Output<Requester, Object>> = self.machine.outputs().collect();
            let is_due = is_waited_for || self.rows.len() >= ROW_BATCH;
            let more = self.failed.is_none()
                && (!outputs.is_empty() || self.submit_deferred(now) || is_due && self.send_rows(now));
            if !more {
                break;
            }
            for output in outputs {
                if let Err(error) = self.handle_output(output, now) {
                    self.fail(error);
                }
            }
        }
        self.inbox.wake_at(self.deadline());
    }

    fn handle_output(&mut self, output: Output<Requester, Object>, now: Ms) -> Result<()> {
        match output {
            Output::Append(position, record) => self.append(position, record)?,
            Output::RemoveRows(txns) => self.forgotten_txns.extend(txns),
            Output::Store(change, _) => self.recent.on_emitted(change.page, change.version),
            Output::Read(ticket) => self.read_page(ticket, now)?,
            Output::Answer(to, answer) => self.send_answer(to, answer, now)?,
            Output::Ask(node, request) => {
                let seen = self.machine.clock();
                self.inbox.add(NodeTask::Ask { from: self.node, node, seen, request });
            }
            Output::Down(holder, message) => {
                if let Some(post) = self.holders.get(&holder) {
                    post.send(&Message::Down { node: self.node, holder, message });
                }
            }
        }
        Ok(())
    }

    fn send_answer(&mut self, to: Requester, answer: Answer, now: Ms) -> Result<()> {
        self.answer_counts.count(&answer);
        let locked = match &answer {
            Answer::Locked { oid, mode, .. } => {
                let (head, value) = rows::read_one(&self.store, *oid)?;
                self.on_visible(oid.page(), head.version, now);
                Some(LockedObject { oid: *oid, mode: *mode, version: head.version, value })
            }
            _ => None,
        };
        let (node, seen) = (self.node, self.machine.clock());
        match to {
            Requester::Remote(post) => post.send(&Message::Answer { node, seen, answer, locked }),
            Requester::Node(to) => self.inbox.add(NodeTask::Answer { to, node, answer }),
        }
        Ok(())
    }

    fn read_page(&mut self, ticket: PendingRead, now: Ms) -> Result<()> {
        let fetched: PageImage<Object> = rows::read_page(&self.store, ticket.page)?;
        self.on_visible(ticket.page, fetched.version, now);
        self.machine.complete_read(ticket, fetched);
        Ok(())
    }

    /// The store has shown a page at this version: so the record is durable, if nobody has said so yet.
    fn on_visible(&mut self, page: PageId, version: Version, now: Ms) {
        if self.recent.emitted_version(page).is_some_and(|out| out < version) {
            self.handle_durable(version.position, now);
        }
    }

    // -------------------------------------------------------------------------------------------- beside the machine

    /// Hands out page numbers of a space that nobody else gets, as many as asked for. `done` learns the first of them, when
    /// that is durable.
    pub(crate) fn reserve(&mut self, space: SpaceId, pages: u64, done: impl FnOnce(Result<u64>) + Send + 'static) {
        let key = rows::free_key(self.node, space);
        let first = match self.next_page.get(&space) {
            Some(free) => *free,
            None => match rows::read_number(&self.store, &key) {
                Ok(free) => free,
                Err(error) => return done(Err(error)),
            },
        };
        let free = first + pages;
        if free > RESERVABLE {
            let what = format!("logical node {:x} has no page numbers left", self.node.0);
            return done(Err(Error::new(ErrorKind::Full, what)));
        }
        self.next_page.insert(space, free);
        let mut changes = RowChanges::new();
        changes.put(&key, rows::encode_number(free));
        let reserving = self.reservations_in_flight.clone();
        reserving.fetch_add(1, Ordering::AcqRel);
        self.store.submit_rows(changes, move |result| {
            done(result.map(|_| first));
            reserving.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

/// Why a transaction is not taken.
pub(super) struct DeferredTransaction {
    pub(super) kind: ErrorKind,
    pub(super) why: String,
}

impl DeferredTransaction {
    /// What whoever brings it is told.
    fn message(&self, node: NodeId, txn: TxnId) -> Message {
        Message::Deferred { node, txn, kind: self.kind, why: self.why.clone() }
    }
}

/// The versions of pages that the machine may look up in one call.
struct KnownVersions<'a> {
    recent: &'a RecentPages,
    /// Those that were read for the call, in the order of pages.
    looked_up: &'a [(PageId, Version)],
}

impl PageVersions for KnownVersions<'_> {
    fn version(&self, page: PageId) -> Version {
        let looked_up = || {
            let at = self.looked_up.binary_search_by_key(&page, |(page, _)| *page).ok()?;
            self.looked_up.get(at).map(|(_, version)| *version)
        };
        let known = self.recent.emitted_version(page).or_else(looked_up);
        // A page that changes is in `recent` until its change was output (rule 3 there); other pages were read before the call.
        known.unwrap_or_else(|| panic!("V1: the version of {page:?} was not read before the machine was called"))
    }
}

#[cfg(test)]
mod tests;
