//! The driver of one logical node that a brick serves: keeps its pages and transactions as rows of the store.
//!
//! A driver is a machine around the machine [`Brick`]: inputs are its functions, and what it wants done comes out of
//! [`NodeDriver::next_output`], in order. It reads the store, writes it by outputs only, and knows no socket, clock or thread.
//!
//! Each record of the machine becomes rows. What is known of a transaction is one row, replaced when that changes; what it writes are
//! rows of objects. The store makes them durable together, shows them when they are, and frees its log by itself. So nothing is
//! logged twice, and opening a node reads rows.
//!
//! | part | keeps |
//! | --- | --- |
//! | [`row_writer`] | the order of rows to the store, what the store has refused, what is durable |
//! | [`txn_rows`] | the rows of records |
//! | [`page_allocator`] | page numbers that were reserved |
//! | [`index_keeper`] | indexes |
//! | [`staging`] | uploads, and contents that no object has yet |
//! | [`entry_writer`] | entries of collections, and their totals |
//! | [`usage`] | what the objects take, and the quota of the space |
//! | [`removals`] | what is refused because it is being removed, and whether there are objects of it |
//! | [`repairs`] | what a scrub has found wrong and can be put right |
//! | [`admission`] | which transactions are taken in, and what they replace |
//! | [`change_size`] | how much their changes take in the store |
//! | [`undecidable`] | prepared transactions whose outcome cannot be written, because of damage |
//!
//! - **L1.** Nothing is sent that rests on rows which are not durable: the machine hears of them by [`NodeDriver::handle_written`] only.
//! - **C5.** The rows of a [one-phase commit](one_phase) are one change of the store with those of the other logical nodes.
//! - **D2.** What the store shows is durable. If a page is read at a version that the machine has not output yet, the machine is told
//!   first that its records are durable, so holders are told of a change before the page is sent.
//! - **D1, D3.** A page may be read long after it was fetched, and sent long after it was read. The holder was listed before, so it has
//!   received every change above the version that was read.

mod admission;
mod build_paces;
mod change_size;
pub(super) mod change_tracking;
mod contents;
mod entry_writer;
mod index_keeper;
mod indexing;
mod looked_up;
mod one_phase;
mod opening;
mod output;
mod page_allocator;
mod removals;
mod repairs;
mod row_writer;
mod staging;
mod txn_rows;
mod undecidable;
mod uploading;
mod usage;
mod writing;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meta::catalog::Removals;
use model::{Entry, Error, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId, UploadId};
use protocol::brick::{Brick, LockedObject, Output};
use protocol::clock::ClusterTime;
use protocol::commit::coordinator::MixedOutcome;
use protocol::commit::{Answer, Part, Refusal, Rejected, Request};
use protocol::ident::{HlcTimestamp, HolderId, TxnId, Version};
use protocol::lease::Ms;
use protocol::page_cache::PageImage;
use protocol::tree::{Down, Up};
use smallvec::SmallVec;
use tracing::{debug, error, warn};
use wire::cluster::{Message, is_final};

use super::answer_counts::AnswerCounts;
use super::changed_rows::ChangedRows;
use super::consistency::{Problem, is_damage};
use super::node_usage::NodeUsage;
use super::page_rows as rows;
use super::plant::{Bug, planted};
use super::quota::SharedQuota;
use super::recent_pages::RecentPages;
use super::row_reader::RowReader;
use admission::{Admission, DeferredTransaction};
pub(crate) use build_paces::BuildPace;
use entry_writer::EntryWriter;
use index_keeper::IndexKeeper;
pub(crate) use index_keeper::PortionLimits;
use looked_up::LookedUp;
pub(crate) use opening::{OpenSettings, recover_records, recover_transactions};
pub use output::PageRead;
pub(crate) use output::{DriverOutput, Life};
use page_allocator::PageAllocator;
pub(crate) use page_allocator::Reservation;
use protocol::validate::WindowLimits;
pub(crate) use repairs::Repaired;
use row_writer::{Flushed, RowWriter, WriteResult};
pub(crate) use staging::STAGING_LEASE_MS;
use staging::Staging;
use txn_rows::TxnRows;
pub(crate) use txn_rows::txn_pieces;
use undecidable::Undecidable;
pub(crate) use writing::named_contents;

/// Entries that the window of a page may have in a brick that serves.
pub(crate) const WINDOW: usize = 256;
/// Acknowledged changes that a logical node remembers: at 1,000 transactions a second that change four objects each, those
/// of a second. They take a quarter of a MiB at most.
const RETAINED: usize = 4096;
pub(crate) const WINDOWS: WindowLimits = WindowLimits { page: WINDOW, retained: RETAINED };
/// The driver submits the rows of its records when there are this many of them, or when they have this many bytes. Fewer rows wait for
/// the next output, so that more records can be submitted with them.
const ROW_BATCH: usize = 64;
const BYTE_BATCH: usize = 64 << 10;
/// Page numbers that can be reserved; those above are computed.
pub(crate) const RESERVABLE: u64 = (PageId::MAX_NUMBER >> 1) + 1;

/// Who asks a logical node for something. `C` is a connection.
#[derive(Clone, Debug)]
pub(crate) enum Requester<C> {
    /// A coordinator at the other end of a connection.
    Remote(C),
    /// Another logical node of this brick.
    Node(NodeId),
}

/// The driver of a logical node. `C` is a connection.
pub(crate) struct NodeDriver<C> {
    node: NodeId,
    moves: u32,
    reader: RowReader,
    machine: Brick<Requester<C>, Object>,
    /// Where each holder is.
    holders: HashMap<HolderId, C>,
    writer: RowWriter,
    txn_rows: TxnRows,
    pages: PageAllocator,
    index: IndexKeeper,
    staging: Staging,
    entries: EntryWriter,
    /// What the objects take, changes in flight included.
    usage: NodeUsage,
    /// How many batches of rows there were when a scrub corrected that.
    usage_corrected_in: u64,
    /// The quota of the space, if it has one.
    quota: Option<SharedQuota>,
    /// What is being removed.
    removals: Removals,
    admission: Admission,
    /// Prepared transactions whose outcome cannot be written.
    undecidable: Undecidable,
    /// Pages that changed lately.
    recent: RecentPages,
    /// What has changed since another brick began to copy the node.
    changed_since_copy: Option<ChangedRows>,
    /// Why it cannot be served.
    failed: Option<Error>,
    answer_counts: Arc<AnswerCounts>,
    /// Whether any transaction is prepared, for readers that do not hold the driver. It is set before an output tells it.
    has_prepared: Arc<AtomicBool>,
    /// Requests that are to be handled again.
    postponed: VecDeque<(Requester<C>, Request<Object>)>,
    /// What is to be done.
    out: VecDeque<DriverOutput<C>>,
    /// The time of the last input whose rows are awaited and not submitted, or after which requests are to be handled again: see [`NodeDriver::next_output`].
    flush_at: Option<Ms>,
}

impl<C: Clone> NodeDriver<C> {
    /// The logical node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Takes what is to be done next. The rows of all records that were appended since then are submitted together, behind all other
    /// outputs.
    pub(crate) fn next_output(&mut self) -> Option<DriverOutput<C>> {
        while self.out.is_empty()
            && let Some(now) = self.flush_at.take()
        {
            self.handle_postponed(now);
            self.flush(now);
        }
        self.out.pop_front()
    }

    /// Handles the requests that waited for an outcome which is durable now.
    fn handle_postponed(&mut self, now: Ms) {
        while self.failed.is_none()
            && let Some((from, request)) = self.postponed.pop_front()
        {
            let txn = request.txn();
            if let Err(rejected) = self.handle_request(from, request, HlcTimestamp::ZERO, now) {
                // The clock is not trusted any more, say: the coordinator repeats the request.
                debug!(node = %self.node, %rejected, "a postponed request is not handled");
            }
            self.machine.end_postponement(txn);
        }
    }

    /// Ends it: another brick may serve the node, or this one as of another epoch.
    ///
    /// # Panics
    /// If there are outputs that were not taken: rows among them would never be written.
    #[must_use = "the store has to abort these uploads"]
    pub(crate) fn close(&mut self) -> Vec<UploadId> {
        assert!(
            self.out.is_empty() && self.flush_at.is_none(),
            "L1: logical node {:x} is closed with outputs that were not carried out",
            self.node.0
        );
        self.writer.close();
        self.leave_quota();
        self.failed.get_or_insert_with(|| Error::new(ErrorKind::Unavailable, "it is served elsewhere now"));
        self.staging.close()
    }

    /// Whether it has ended, and none of its rows are with the store.
    pub(crate) fn is_closed(&self) -> bool {
        self.failed.is_some() && self.writer.is_idle() && self.pages.is_idle() && self.staging.is_idle()
    }

    fn fail(&mut self, why: Error) {
        error!(node = %self.node, error = %why, "a logical node cannot be served any more");
        self.failed.get_or_insert(why);
    }

    /// Why it cannot be served, if it cannot.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    // -------------------------------------------------------------------------------------------- inputs

    /// From now on, this is the time of the cluster (L2).
    pub(crate) fn set_time(&mut self, time: ClusterTime) {
        self.machine.set_time(time);
    }

    /// Handles a request of a coordinator.
    ///
    /// # Errors
    /// If no coordinator that follows the rules sends it. Nothing has happened then.
    pub(crate) fn handle_request(
        &mut self,
        from: Requester<C>,
        mut request: Request<Object>,
        seen: HlcTimestamp,
        now: Ms,
    ) -> std::result::Result<(), Rejected> {
        if self.is_undecidable(&request, now) {
            self.end_admission();
            return Ok(());
        }
        if let Some(deferred) = self.find_undecidable_holder(&request) {
            let txn = request.txn();
            self.send_deferred(from.clone(), &deferred, txn);
            request = Request::Ask { txn, round: 0 };
        }
        if let Request::Prepare { part: Part { reads, .. }, .. }
        | Request::Commit { part: Part { reads, .. }, .. }
        | Request::Check { reads, .. } = &mut request
        {
            self.distrust_dropped_indexes(reads);
        }
        if let Request::Prepare { txn, part, .. } | Request::Commit { txn, part } = &mut request
            && !self.machine.knows(*txn)
            && let Err(deferred) = self.admit_first(*txn, part)
        {
            self.send_deferred(from.clone(), &deferred, *txn);
            if !is_final(deferred.kind) && !planted(Bug::DeferredIsMarked) {
                return Ok(());
            }
            // Asking for the outcome makes sure that the transaction never commits (C2).
            request = Request::Ask { txn: *txn, round: 0 };
        }
        // What is forgotten of outcomes may be known again after a crash (C3), so these rows may go with others. A joint request has no rows of
        // its own.
        let is_awaited = !matches!(request, Request::Forget { .. } | Request::Heard { .. } | Request::Joint { .. });
        let looked_up = match self.look_up(&request) {
            Ok(looked_up) => looked_up,
            Err(error) => {
                self.fail(error);
                return Ok(());
            }
        };
        if let Some(damage) = looked_up.damage.as_ref().filter(|_| !planted(Bug::DamageIsConflict)) {
            self.send_deferred(from.clone(), damage, request.txn());
        }
        let versions = looked_up.with(&self.recent);
        let handled = self.machine.handle_request(from, request, seen, now, &versions);
        self.process_outputs(is_awaited, now);
        self.end_admission();
        handled
    }

    /// Handles a message of a holder.
    ///
    /// # Errors
    /// If no holder that follows the rules sends it. Nothing has happened then.
    pub(crate) fn handle_up(
        &mut self,
        connection: &C,
        holder: HolderId,
        message: Up<Object>,
        now: Ms,
    ) -> std::result::Result<(), Rejected> {
        if matches!(message, Up::Renew { .. })
            && !(planted(Bug::FirstConnectionKept) && self.holders.contains_key(&holder))
        {
            self.holders.insert(holder, connection.clone());
        }
        let handled = match message {
            Up::Write { write, writes } => {
                let mut part = Part { writes, ..Part::default() };
                if !self.machine.knows(write)
                    && let Err(deferred) = self.admit(write, &mut part)
                {
                    // An aborted write is tried again soon.
                    let why = if is_final(deferred.kind) { Refusal::TooOld } else { Refusal::Aborted };
                    let refused = Down::Written { write, result: Err(why) };
                    let refused = Message::Down { node: self.node, holder, message: refused };
                    for message in [deferred.message(self.node, write), refused] {
                        self.out.push_back(DriverOutput::Send(connection.clone(), message));
                    }
                    return Ok(());
                }
                self.machine.write(holder, write, part, now)
            }
            message => self.machine.handle_up(holder, message, now),
        };
        self.process_outputs(true, now);
        self.end_admission();
        handled
    }

    /// Handles the answer of a participant that this node has asked.
    pub(crate) fn handle_answer(&mut self, node: NodeId, answer: Answer, now: Ms) {
        self.machine.handle_answer(node, answer, now);
        self.process_outputs(false, now);
    }

    /// A logical node defers its part of a transaction: sends the reason to the sender of the joint request (C5).
    pub(crate) fn handle_deferred(&mut self, message: &Message) {
        if let Message::Deferred { txn, .. } = message
            && let Some(Requester::Remote(connection)) = self.machine.joint_requester(*txn)
            && !planted(Bug::JointDeferralDropped)
        {
            self.out.push_back(DriverOutput::Send(connection.clone(), message.clone()));
        }
    }

    /// Does what it is time for.
    pub(crate) fn poll(&mut self, now: Ms) {
        self.machine.poll(now);
        let directory = self.machine.directory();
        self.holders.retain(|holder, _| directory.knows(*holder));
        self.writer.retry(now);
        self.process_outputs(true, now);
        self.poll_indexes(now);
        self.poll_uploads(now);
    }

    /// When [`NodeDriver::poll`] has something to do.
    pub(crate) fn deadline(&self) -> Ms {
        if self.failed.is_some() {
            return Ms::MAX;
        }
        // Nothing expires while the store takes no rows.
        let expiry = if self.writer.full_error().is_some() { Ms::MAX } else { self.staging.due() };
        let own = self.index.due().min(expiry);
        self.machine.deadline().min(self.writer.retry_at().unwrap_or(Ms::MAX)).min(own)
    }

    /// The store has made the oldest submitted rows durable, or has refused them: see [`DriverOutput::SubmitRows`].
    pub(crate) fn handle_written(&mut self, life: Life, result: Result<()>, now: Ms) {
        if self.failed.is_some() {
            // Rows of a node that has ended may be durable nevertheless.
            if let Some(rows) = self.writer.finish_write(life) {
                self.record_changes(&rows);
            }
            return;
        }
        match self.writer.handle_written(life, result, now) {
            WriteResult::Outdated => return,
            WriteResult::Durable(submitted) => {
                self.record_changes(&submitted.rows);
                self.handle_durable(submitted.position, now);
            }
            WriteResult::Deferred { is_first } => {
                if let Some(error) = self.writer.full_error().filter(|_| is_first) {
                    warn!(node = %self.node, %error, "the store has no room: rows wait");
                }
            }
            WriteResult::Failed(error) => self.fail(error),
            WriteResult::Lost => self.lose_rows(),
        }
        self.process_outputs(false, now);
    }

    /// A page was read: see [`DriverOutput::ReadPage`].
    pub(crate) fn handle_page_read(&mut self, read: PageRead, found: Result<PageImage<Object>>, now: Ms) {
        let PageRead { opening, ticket } = read;
        let is_own = opening == self.writer.opening() || planted(Bug::EarlierOpeningAnswered);
        if self.failed.is_some() || !is_own {
            return;
        }
        match found {
            Ok(mut image) => {
                self.on_visible(ticket.page, image.version, now);
                if planted(Bug::ReadTakenForNewest)
                    && let Some(newest) = self.recent.emitted_version(ticket.page)
                {
                    image.version = newest;
                }
                self.machine.complete_read(ticket, image);
            }
            Err(error) if is_damage(&error) && !planted(Bug::DamageEndsNode) => {
                debug!(node = %self.node, %error, "a page that was fetched is damaged");
                self.machine.fail_read(ticket, error.message().to_owned());
            }
            Err(error) => self.fail(error),
        }
        self.process_outputs(false, now);
    }

    /// Reserves page numbers of a space that are handed out once.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] if there are not so many left; or if it cannot be read which were reserved.
    pub(crate) fn reserve(&mut self, space: SpaceId, pages: u64) -> Result<Reservation> {
        self.pages.reserve(space, pages, &self.reader)
    }

    /// The lowest page number that was never reserved.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn next_page(&self, space: SpaceId) -> Result<u64> {
        self.pages.next_page(space, &self.reader)
    }

    /// The rows of a reservation are durable, or were refused.
    pub(crate) fn finish_reservation(&mut self) {
        self.pages.finish();
    }

    // -------------------------------------------------------------------------------------------- looking

    /// The machine, for checkers.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn machine(&self) -> &Brick<Requester<C>, Object> {
        &self.machine
    }

    /// Checks what must always hold of the machine.
    ///
    /// # Errors
    /// The rule that does not hold, and where.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&mut self) -> std::result::Result<(), String> {
        self.machine.check_invariants()
    }

    /// Those entries of collections whose changes are not decided or not durable that `is_wanted` accepts.
    pub(crate) fn unsettled_entries(&self, is_wanted: impl Fn(&Entry) -> bool) -> BTreeSet<Entry> {
        self.machine.unsettled_entries().filter(|entry| is_wanted(entry)).cloned().collect()
    }

    /// Whether an entry is among them.
    pub(crate) fn is_entry_unsettled(&self, entry: &Entry) -> bool {
        self.machine.unsettled_entries().any(|unsettled| unsettled == entry)
    }

    /// Whether any transaction is prepared, as those can see it that do not hold the driver.
    pub(crate) fn has_prepared(&self) -> Arc<AtomicBool> {
        self.has_prepared.clone()
    }

    /// Whether an object is written by a transaction whose outcome is not known or not durable here.
    pub(crate) fn is_unsettled(&self, oid: Oid) -> bool {
        self.machine.is_unsettled(oid)
    }

    /// A time at or after all that was committed here.
    pub(crate) fn clock(&self) -> HlcTimestamp {
        self.machine.clock()
    }

    /// The bound of what was promised or closed (V4).
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn bound(&self) -> HlcTimestamp {
        self.machine.bound()
    }

    /// Transactions that have ended here, and that have the opposite outcome at another logical node.
    pub(crate) fn mixed_outcomes(&self) -> impl Iterator<Item = (TxnId, MixedOutcome)> {
        self.machine.mixed_outcomes()
    }

    /// Why nothing new is written here now, or which transaction cannot be ended or has lost a part, if that is so.
    pub(crate) fn health_problem(&self) -> Option<String> {
        let memory_full = || self.reader.is_memory_full().then_some(admission::STORE_FULL);
        if let Some(full) = self.writer.full_error().map(Error::message).or_else(memory_full) {
            return Some(format!("logical node {:x} takes no changes: {full}", self.node.0));
        }
        if let Some((txn, why)) = self.undecidable.first() {
            let node = self.node.0;
            return Some(format!(
                "logical node {node:x}: transaction {txn:?} is committed and cannot be written, and holds its objects: {why}"
            ));
        }
        let (txn, mixed) = self.mixed_outcomes().next()?;
        let problem = Problem::MixedOutcome { node: self.node, txn, mixed };
        Some(format!("{problem}; see `mortar scrub`"))
    }

    // -------------------------------------------------------------------------------------------- the machine

    /// Reads what the machine looks up for a request.
    fn look_up(&self, request: &Request<Object>) -> Result<LookedUp> {
        let is_unknown = |page: &PageId| self.recent.emitted_version(*page).is_none();
        let mut pages: SmallVec<[PageId; 8]> = self.machine.pages_to_look_up(request).filter(is_unknown).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut damage = None;
        let read = |page| match rows::read_head(&self.reader, page) {
            Ok(head) => Ok((page, head.version)),
            // No read of the page is current (V1), and the client hears why.
            Err(error) if is_damage(&error) => {
                damage = Some(DeferredTransaction::for_damage(&error));
                Ok((page, Version::MAX))
            }
            Err(error) => Err(error),
        };
        let versions = pages.into_iter().map(read).collect::<Result<_>>()?;
        let unbound = match request {
            Request::Prepare { txn, .. } | Request::Commit { txn, .. } => self.admission.unbound_keys(*txn),
            _ => BTreeSet::new(),
        };
        Ok(LookedUp { versions, unbound, damage })
    }

    /// All records up to this position are durable.
    fn handle_durable(&mut self, position: u64, now: Ms) {
        self.writer.advance_durable(position);
        let nothing = LookedUp::default();
        let versions = nothing.with(&self.recent);
        self.machine.handle_forced(position, now, &versions);
    }

    /// Handles the outputs of the machine, in order, and adds their rows to those that were not submitted. If the input is awaited, because a
    /// requester gets its answer when the rows are durable, [`NodeDriver::next_output`] submits all of them. Other rows are submitted together
    /// with those of the next awaited input, which [`NodeDriver::poll`] is, too.
    fn process_outputs(&mut self, is_awaited: bool, now: Ms) {
        self.handle_outputs(now);
        if is_awaited {
            self.flush_at = Some(now);
        }
        if self.writer.unflushed_count() >= ROW_BATCH || self.writer.unflushed_bytes() >= BYTE_BATCH {
            self.flush(now);
        }
    }

    /// Submits the rows of all records. If that makes some records durable, handles the outputs of the machine that follow.
    fn flush(&mut self, now: Ms) {
        self.flush_at = None;
        while self.failed.is_none() && self.flush_records(now) {
            self.handle_outputs(now);
        }
        self.take_submissions();
        // A logical node that has failed does not handle them.
        if !self.postponed.is_empty() && self.failed.is_none() {
            self.flush_at = Some(now);
        }
    }

    /// Handles the outputs of the machine, in order.
    fn handle_outputs(&mut self, now: Ms) {
        while self.failed.is_none() {
            let outputs: Vec<Output<Requester<C>, Object>> = self.machine.outputs().collect();
            let has_outputs = !outputs.is_empty();
            for output in outputs {
                if let Err(error) = self.handle_output(output, now) {
                    self.fail(error);
                }
            }
            if !self.writer.submit_deferred() && !has_outputs {
                break;
            }
        }
        self.take_submissions();
        self.share_prepared();
        self.update_quota();
    }

    /// Turns what the row writer submits into outputs.
    fn take_submissions(&mut self) {
        while let Some((life, rows)) = self.writer.next_submission() {
            self.out.push_back(DriverOutput::SubmitRows { life, rows });
        }
    }

    fn share_prepared(&self) {
        self.has_prepared.store(self.machine.has_prepared(), Ordering::Release);
    }

    /// Submits the rows of all records. Says whether the machine may have more outputs.
    fn flush_records(&mut self, now: Ms) -> bool {
        if self.writer.has_unflushed_records() {
            self.txn_rows.remove_forgotten(self.writer.rows());
        }
        match self.writer.flush_records() {
            Flushed::Nothing | Flushed::WithOthers => false,
            Flushed::Rows if planted(Bug::DurableWhenSubmitted) => {
                self.handle_durable(self.writer.last_position(), now);
                true
            }
            Flushed::Rows => false,
            Flushed::Durable(position) => {
                self.handle_durable(position, now);
                true
            }
        }
    }

    fn handle_output(&mut self, output: Output<Requester<C>, Object>, now: Ms) -> Result<()> {
        match output {
            Output::Append(position, record) => self.append(position, record, now)?,
            Output::RemoveRows(txns) => self.txn_rows.forget(txns),
            Output::RemoveMarks(clients) => self.txn_rows.forget_marks(clients),
            Output::Store(change, _) => self.recent.on_emitted(change.page, change.version),
            Output::Read(ticket) => {
                self.out.push_back(DriverOutput::ReadPage(PageRead { opening: self.writer.opening(), ticket }));
            }
            Output::Answer(to, answer) => self.send_answer(to, answer, now)?,
            Output::Again(from, request) => {
                self.postponed.push_back((from, request));
                self.flush_at = Some(now);
            }
            Output::MixedOutcome(txn, MixedOutcome { committed, aborted }) => {
                error!(
                    ?txn, %committed, %aborted,
                    "a transaction is committed at a logical node and aborted at another one"
                );
            }
            Output::Ask(node, request) => {
                self.out.push_back(DriverOutput::Ask { node, seen: self.machine.clock(), request });
            }
            Output::Down(holder, message) => {
                if let Some(connection) = self.holders.get(&holder) {
                    let message = Message::Down { node: self.node, holder, message };
                    self.out.push_back(DriverOutput::Send(connection.clone(), message));
                }
            }
        }
        Ok(())
    }

    fn send_deferred(&mut self, to: Requester<C>, deferred: &DeferredTransaction, txn: TxnId) {
        let message = deferred.message(self.node, txn);
        self.out.push_back(match to {
            Requester::Remote(connection) => DriverOutput::Send(connection, message),
            Requester::Node(to) => DriverOutput::Deferred { to, message },
        });
    }

    /// The object of a lock that was granted is damaged. Its transaction never commits, so it is marked and holds nothing here any more.
    fn refuse_lock(&mut self, to: Requester<C>, txn: TxnId, error: &Error, now: Ms) {
        self.send_deferred(to.clone(), &DeferredTransaction::for_damage(error), txn);
        if planted(Bug::RefusedLockHeld) {
            return;
        }
        let nothing = LookedUp::default();
        let versions = nothing.with(&self.recent);
        let request = Request::Ask { txn, round: 0 };
        if let Err(rejected) = self.machine.handle_request(to, request, HlcTimestamp::ZERO, now, &versions) {
            // The clock is not trusted, say: the transaction loses its locks when it has been silent for long (W1).
            debug!(node = %self.node, %rejected, "the locks of a refused transaction are not released yet");
        }
        self.flush_at = Some(now);
    }

    fn send_answer(&mut self, to: Requester<C>, answer: Answer, now: Ms) -> Result<()> {
        let locked = match &answer {
            Answer::Locked { txn, oid, mode, .. } => {
                let (head, value) = match rows::read_one(&self.reader, *oid) {
                    Err(error) if is_damage(&error) && !planted(Bug::DamageEndsNode) => {
                        self.refuse_lock(to, *txn, &error, now);
                        return Ok(());
                    }
                    read => read?,
                };
                self.on_visible(oid.page(), head.version, now);
                Some(LockedObject { oid: *oid, mode: *mode, version: head.version, value })
            }
            _ => None,
        };
        if let Some(deferred) = self.undecidable_conflict(&answer) {
            self.send_deferred(to.clone(), &deferred, answer.txn());
        }
        self.answer_counts.count(&answer);
        let (node, seen) = (self.node, self.machine.clock());
        self.out.push_back(match to {
            Requester::Remote(to) => DriverOutput::Send(to, Message::Answer { node, seen, answer, locked }),
            Requester::Node(to) => DriverOutput::Answer { to, answer },
        });
        Ok(())
    }

    /// The store has shown a page at this version: its record is durable, which the machine may not have heard yet (D2).
    fn on_visible(&mut self, page: PageId, version: Version, now: Ms) {
        if self.recent.emitted_version(page).is_some_and(|emitted| emitted < version) && !planted(Bug::ShownBeforeTold)
        {
            self.handle_durable(version.position, now);
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
