//! A participant: one logical node of a brick, or its replica group.
//!
//! Its inputs are requests ([`Participant::handle`]) and the position up to which its log is durable
//! ([`Participant::handle_forced`]). Its outputs are, in order, records to append, answers to send, and changes to
//! report to the holders. An answer or a change is output only when the record that it depends on is durable (L1), so
//! the driver need not track these dependencies.
//!
//! ```text
//!                   Prepare                      durable                    Decide            durable
//!   unknown ───────────────────────▶ preparing ──────────▶ prepared ─────────────────▶ ending ────────▶ ended ──▶ forgotten
//!      │  conflict, Ask                                        (answers Prepared)                    (answers Ended)
//!      └──────────────────▶ marked
//! ```
//!
//! - **L1.** Records are applied in the order of the log, once durable; nothing undurable is shown.
//! - **V4.** A commit's timestamp is larger than every one it read or overwrote, and than every time that was promised
//!   or closed. Promised and closed times stay below a *bound* in the log, which is raised in advance; after a restart
//!   the clock starts above it.
//! - **L2.** A participant whose clock is not trusted makes, logs and promises no timestamp: it takes only what ends transactions.
//! - **G1.** The [closed timestamp](Participant::close_timestamp) is below every proposal that is still prepared.
//! - **W1.** A request waits for no undecided transaction. One that conflicts with an outcome that is in the log is
//!   *postponed* until that is durable (`postponing`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{Entry, NodeId, Oid, PageId};

use super::client_mark::ClientMarks;
use super::{Answer, AppendOffsets, Change, EntryChanges, Outcome, Part, Record, Refusal, Rejected, Request};
use crate::clock::{Clock, ClockSkewError, ClusterTime};
use crate::ident::{ClientId, HlcTimestamp, TxnId, Version};
use crate::lease::Ms;
use crate::locks::LockMode;
use crate::page_cache::{Invalidation, SlotStates};
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::schedule::Schedule;
use crate::validate::{Footprint, NO_STATE, PageVersions, Validator, WindowLimits};

mod deciding;
mod forgetting;
mod locking;
mod one_phase;
mod postponing;
mod promising;
mod restart;

use locking::LockingTxn;
use postponing::PostponedRequest;

/// An output of a participant. `A` is the address of a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Append this record to the log at this position, which is one more than that of the last record. Without a log,
    /// replace the [row](Record::into_row) of the transaction.
    Append(u64, Record<T>),
    /// These transactions are forgotten: without a log, remove their rows, after everything that was appended before.
    RemoveRows(Vec<TxnId>),
    /// Send this answer.
    Answer(A, Answer),
    /// [Handle](Participant::handle) this request again: the outcome that it waited for is durable.
    Again(A, Request<T>),
    /// These clients need no marks any more: without a log, remove their rows, after everything that was appended before.
    RemoveMarks(Vec<ClientId>),
    /// A page has changed durably: store the new states, and inform the holders before any later answer. A page that
    /// was only touched has a new version and no new states.
    Changed(Invalidation, SlotStates<T>),
}

/// The state of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TxnState<T> {
    /// Prepared, by the record at this position.
    Prepared { participants: Vec<NodeId>, part: Part<T>, proposal: HlcTimestamp, position: u64 },
    /// Ended, by the record at this position.
    Ended {
        outcome: Outcome,
        version: Option<Version>,
        /// The offsets of its appends here.
        offsets: AppendOffsets,
        position: u64,
        /// All participants; empty if this is the only one.
        participants: Vec<NodeId>,
        /// Whether all of them have acknowledged the outcome.
        acknowledged: bool,
    },
    /// It was refused, or asked about before it arrived.
    Marked { why: Refusal, position: u64 },
}

impl<T> TxnState<T> {
    fn position(&self) -> u64 {
        match self {
            Self::Prepared { position, .. } | Self::Ended { position, .. } | Self::Marked { position, .. } => *position,
        }
    }

    /// The outcome, if it is decided.
    fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Prepared { .. } => None,
            Self::Ended { outcome, .. } => Some(*outcome),
            Self::Marked { .. } => Some(Outcome::Aborted),
        }
    }

    /// Whether no further message about it is necessary.
    fn is_over(&self) -> bool {
        match self {
            Self::Prepared { .. } => false,
            Self::Ended { participants, acknowledged, .. } => participants.is_empty() || *acknowledged,
            Self::Marked { .. } => true,
        }
    }

    /// Whether it committed before this time.
    fn is_below(&self, bound: HlcTimestamp) -> bool {
        !matches!(self, Self::Ended { outcome: Outcome::Committed(timestamp), .. } if *timestamp >= bound)
    }

    /// Records that every participant has acknowledged the outcome. Returns whether that was unknown.
    fn set_acknowledged(&mut self) -> bool {
        let Self::Ended { participants, acknowledged, .. } = self else { return false };
        !participants.is_empty() && !std::mem::replace(acknowledged, true)
    }

    /// Records that a later record contains the same state.
    fn set_position(&mut self, to: u64) {
        let (Self::Prepared { position, .. } | Self::Ended { position, .. } | Self::Marked { position, .. }) = self;
        *position = to;
    }
}

/// The first transaction that can have begun after a horizon.
const fn first_txn_after(horizon: HlcTimestamp) -> TxnId {
    TxnId { start: HlcTimestamp(horizon.0.saturating_add(1)), client: ClientId(0) }
}

/// An action to take when a record is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DurableAction<A, T> {
    Answer(A, Answer),
    Again(A, Request<T>),
    Apply(Change<T>),
    Release(TxnId),
    Raise(HlcTimestamp),
}

/// The participant. `A` is the address of a requester, `T` is an object.
#[derive(Clone, Debug)]
pub struct Participant<A, T> {
    node: NodeId,
    moves: u32,
    clock: Clock,
    validator: Validator,
    transactions: BTreeMap<TxnId, TxnState<T>>,
    /// The transactions that need no further message.
    finished: BTreeSet<TxnId>,
    /// The transactions that have ended, and whose outcome not all participants have acknowledged.
    unacknowledged: BTreeSet<TxnId>,
    /// Those that need no further message, by their clients.
    finished_of: BTreeSet<(ClientId, HlcTimestamp)>,
    /// What clients have heard.
    marks: ClientMarks,
    /// Datastore transactions that are not prepared.
    locking: BTreeMap<TxnId, LockingTxn<A>>,
    /// When silent datastore transactions are aborted.
    expiring: Schedule<TxnId>,
    /// The position of the last record, and of the last durable one.
    last: u64,
    forced: u64,
    /// Actions that wait for records, in the order of positions.
    waiting: VecDeque<(u64, DurableAction<A, T>)>,
    /// The requests that are among them, or are to be handled again.
    postponed: BTreeMap<TxnId, PostponedRequest>,
    /// How many of them have read each page.
    read_by_postponed: BTreeMap<PageId, u32>,
    /// The durable bound, and the last one that was appended.
    bound: HlcTimestamp,
    bound_appended: HlcTimestamp,
    bound_position: u64,
    horizon: HlcTimestamp,
    horizon_position: u64,
    out: Vec<Output<A, T>>,
    /// Counts visits of old ended transactions, for tests.
    #[cfg(test)]
    visited: std::cell::Cell<u64>,
}

/// The settings of a participant.
#[derive(Clone, Copy, Debug)]
pub struct ParticipantSettings {
    /// The logical node.
    pub node: NodeId,
    /// Its move count.
    pub moves: u32,
    /// The largest allowed difference of clocks, in milliseconds.
    pub skew_ms: u64,
    /// How many changes validation remembers.
    pub windows: WindowLimits,
}

impl<A: Clone, T: Clone> Participant<A, T> {
    /// A participant with an empty log.
    #[must_use]
    pub fn new(settings: ParticipantSettings) -> Self {
        Self {
            node: settings.node,
            moves: settings.moves,
            clock: Clock::new(HlcTimestamp::ZERO, settings.skew_ms),
            validator: Validator::new(settings.windows),
            transactions: BTreeMap::new(),
            finished: BTreeSet::new(),
            unacknowledged: BTreeSet::new(),
            finished_of: BTreeSet::new(),
            marks: ClientMarks::default(),
            locking: BTreeMap::new(),
            expiring: Schedule::default(),
            last: 0,
            forced: 0,
            waiting: VecDeque::new(),
            postponed: BTreeMap::new(),
            read_by_postponed: BTreeMap::new(),
            bound: HlcTimestamp::ZERO,
            bound_appended: HlcTimestamp::ZERO,
            bound_position: 0,
            horizon: HlcTimestamp::ZERO,
            horizon_position: 0,
            out: Vec::new(),
            #[cfg(test)]
            visited: std::cell::Cell::new(0),
        }
    }

    /// Takes the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    // ------------------------------------------------------------------------------------------ requests

    /// The pages whose versions [`Participant::handle`] looks up for a request: those that a new transaction has read
    /// and that have no window here. A page may occur more than once.
    pub fn pages_to_look_up<'a>(&'a self, request: &'a Request<T>) -> impl Iterator<Item = PageId> + 'a {
        let reads = match request {
            Request::Prepare { txn, part, .. } | Request::Commit { txn, part } if !self.knows(*txn) => {
                Some(&part.reads)
            }
            Request::Check { reads, .. } => Some(reads),
            _ => None,
        };
        let mut last = None;
        // Reads are in the order of pages. No version decides about the read of an unbound key.
        let runs = reads.into_iter().flat_map(ReadList::runs);
        let pages = runs.filter(|run| run.seen != NO_STATE).map(|run| run.page);
        pages
            .filter(move |page| last.replace(*page) != Some(*page))
            .filter(|page| self.validator.version(*page).is_none())
    }

    /// Handles a request. `seen` is the largest timestamp that its sender knows. `versions` must have the
    /// [pages to look up](Participant::pages_to_look_up).
    ///
    /// # Errors
    /// If the request violates the protocol. Nothing is changed then.
    pub fn handle(
        &mut self,
        from: A,
        request: Request<T>,
        seen: HlcTimestamp,
        now_ms: u64,
        versions: &dyn PageVersions,
    ) -> Result<(), Rejected> {
        // A request is postponed once.
        let is_postponable = !self.end_postponement(request.txn());
        if !request.is_at(self.node) {
            return Err(Rejected::Elsewhere(request.txn()));
        }
        if request.needs_time() && !self.clock.is_trusted() {
            return Err(Rejected::UntrustedClock);
        }
        self.clock.learn(seen, now_ms)?;
        match request {
            Request::Prepare { .. } | Request::Commit { .. } => {
                self.prepare_or_commit(from, request, now_ms, versions, is_postponable);
            }
            Request::Decide { txn, outcome } => {
                if let Outcome::Committed(timestamp) = outcome {
                    self.clock.learn(timestamp, now_ms)?;
                }
                self.handle_decide(from, txn, outcome)?;
            }
            Request::Ask { txn, round } => self.handle_ask(from, txn, round),
            Request::Forget { txn } => self.handle_forget(txn),
            Request::Heard { txn, mark } => self.handle_heard(txn.client, mark, now_ms),
            Request::Check { txn, reads, at } => {
                let verdict = self.handle_check(txn, &reads, at, now_ms, versions)?;
                if let Err(conflict) = &verdict
                    && is_postponable
                    && let Some(position) = self.outcome_to_await(&reads, conflict)
                {
                    self.postpone(position, from, Request::Check { txn, reads, at });
                    return Ok(());
                }
                let position = if self.bound > at || planted(Bug::PromiseIgnored) { 0 } else { self.bound_position };
                self.run_when_durable(position, DurableAction::Answer(from, Answer::Checked { txn, verdict }));
            }
            Request::Lock { txn, first, oid, mode } => self.handle_lock(from, txn, first, oid, mode, now_ms),
            Request::Joint { txn, .. } => {
                unreachable!("C5: the joint request of {txn:?} was not passed on to its nodes")
            }
        }
        Ok(())
    }

    /// Handles a write outside of transactions. It is never postponed, because later writes of its client must not
    /// overtake it (N1).
    ///
    /// # Errors
    /// If the request violates the protocol. Nothing is changed then.
    pub fn handle_write(&mut self, from: A, write: TxnId, part: Part<T>, now_ms: u64) -> Result<(), Rejected> {
        if !part.is_at(self.node) {
            return Err(Rejected::Elsewhere(write));
        }
        if !self.clock.is_trusted() {
            return Err(Rejected::UntrustedClock);
        }
        self.clock.learn(write.start, now_ms)?;
        let no_reads = BTreeMap::<PageId, Version>::new();
        self.prepare_or_commit(from, Request::Commit { txn: write, part }, now_ms, &no_reads, false);
        Ok(())
    }

    /// From now on, this is the time of the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.clock.set_time(time);
    }

    /// Whether timestamps may be made, logged and promised (L2).
    #[must_use]
    pub fn may_serve(&self) -> bool {
        self.clock.is_trusted()
    }

    /// The time of the cluster, in milliseconds since 1970.
    #[must_use]
    pub fn physical_ms(&self, now_ms: u64) -> u64 {
        self.clock.physical_ms(now_ms)
    }

    /// The bound of what was promised or closed, durable or not (V4). After a restart, the clock starts above it.
    #[must_use]
    pub fn appended_bound(&self) -> HlcTimestamp {
        self.bound_appended
    }

    /// Learns a timestamp from a message that is not for this participant alone (L1).
    ///
    /// # Errors
    /// If it is further ahead than clocks may differ.
    pub fn learn(&mut self, seen: HlcTimestamp, now_ms: u64) -> Result<(), ClockSkewError> {
        self.clock.learn(seen, now_ms)
    }

    // ------------------------------------------------------------------------------------------ the log

    fn append(&mut self, record: Record<T>) -> u64 {
        self.last += 1;
        self.out.push(Output::Append(self.last, record));
        self.last
    }

    fn version_at(&self, position: u64, timestamp: HlcTimestamp) -> Version {
        let position = if planted(Bug::VersionIsTimestamp) { timestamp.0 } else { position };
        Version { moves: self.moves, position }
    }

    /// Takes an action when the log is durable up to `position`.
    fn run_when_durable(&mut self, position: u64, then: DurableAction<A, T>) {
        if position <= self.forced {
            // No action waits for an earlier record, so this one overtakes none.
            return self.run_action(then);
        }
        assert!(position <= self.last, "L1: an action waits for record {position}, but {} is the last one", self.last);
        let at = self.waiting.partition_point(|(other, _)| *other <= position);
        self.waiting.insert(at, (position, then));
    }

    /// Handles that the log is durable up to `position`. `versions` must have all pages that the records up to there
    /// change.
    pub fn handle_forced(&mut self, position: u64, versions: &dyn PageVersions) {
        assert!(position <= self.last, "L1: {position} is durable but was never appended");
        self.forced = self.forced.max(position);
        let reached = if planted(Bug::ShownBeforeForce) { self.last } else { self.forced };
        while let Some((position, then)) = self.waiting.pop_front_if(|(position, _)| *position <= reached) {
            match then {
                DurableAction::Apply(change) => self.apply(change, position, versions),
                then => self.run_action(then),
            }
        }
    }

    fn run_action(&mut self, then: DurableAction<A, T>) {
        match then {
            DurableAction::Answer(to, answer) => self.out.push(Output::Answer(to, answer)),
            DurableAction::Again(from, request) => self.run_postponed(from, request),
            DurableAction::Release(txn) => self.unlock(txn),
            DurableAction::Raise(bound) => self.bound = self.bound.max(bound),
            DurableAction::Apply(_) => unreachable!("a change is applied when its record becomes durable"),
        }
    }

    /// Applies the writes of a durable record, page by page.
    fn apply(&mut self, change: Change<T>, position: u64, versions: &dyn PageVersions) {
        let (txn, timestamp) = (change.txn, change.timestamp);
        let version = self.version_at(position, timestamp);
        for (page, (mut slots, contents)) in change.pages() {
            if planted(Bug::TouchUnseen) {
                slots.retain(|slot| contents.contains_key(slot));
            }
            let previous = self.validator.apply(page, slots.iter().copied(), version, txn, versions);
            if slots.len() > contents.len() {
                self.validator.keep_in_window(page, slots.iter().copied().filter(|slot| !contents.contains_key(slot)));
            }
            let invalidation = Invalidation { page, slots, previous, version, timestamp, txn, digest: None };
            self.out.push(Output::Changed(invalidation, contents));
        }
    }

    /// The version of a page that has a window, with all changes that were output so far.
    #[must_use]
    pub fn window_version(&self, page: PageId) -> Option<Version> {
        self.validator.version(page)
    }

    /// Records that every holder has acknowledged the changes of a page up to `version` that it was sent (V3).
    pub fn acknowledge(&mut self, page: PageId, version: Version) {
        self.validator.acknowledge(page, version);
    }

    /// The logical node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The largest timestamp that it has seen. Messages carry it to others (L1).
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.clock.last()
    }

    /// Whether a transaction is known and not forgotten. A repeated request then gets the first answer (C3).
    #[must_use]
    pub fn knows(&self, txn: TxnId) -> bool {
        self.transactions.contains_key(&txn)
    }

    /// The outcome of a transaction, if it is known and durable.
    #[must_use]
    pub fn outcome(&self, txn: TxnId) -> Option<Outcome> {
        match self.transactions.get(&txn)? {
            TxnState::Ended { outcome, position, .. } if *position <= self.forced => Some(*outcome),
            TxnState::Marked { position, .. } if *position <= self.forced => Some(Outcome::Aborted),
            _ => None,
        }
    }

    /// Prepared transactions with all their participants. Their coordinators may be gone.
    pub fn prepared_txns(&self) -> impl Iterator<Item = (TxnId, &[NodeId])> {
        self.validator.prepared_txns().filter_map(|txn| match self.transactions.get(&txn)? {
            TxnState::Prepared { participants, .. } => Some((txn, &participants[..])),
            _ => None,
        })
    }

    /// The part of a transaction that is prepared and undecided.
    #[must_use]
    pub fn prepared_part(&self, txn: TxnId) -> Option<&Part<T>> {
        match self.transactions.get(&txn)? {
            TxnState::Prepared { part, .. } => Some(part),
            _ => None,
        }
    }

    /// How long the parts of the other participants of a prepared transaction may take to arrive.
    #[must_use]
    pub fn transfer_ms(&self, txn: TxnId) -> Ms {
        match self.transactions.get(&txn) {
            Some(TxnState::Prepared { part, .. }) => part.transfer_ms,
            _ => 0,
        }
    }

    /// The entries of collections that prepared transactions change, and committed ones that are not durable yet.
    pub fn unsettled_entries(&self) -> impl Iterator<Item = &Entry> {
        let prepared = self.validator.prepared_txns().filter_map(|txn| match self.transactions.get(&txn)? {
            TxnState::Prepared { part, .. } => Some(&part.entries),
            _ => None,
        });
        let logged = self.waiting.iter().filter_map(|(_, action)| match action {
            DurableAction::Apply(change) => Some(&change.entries),
            _ => None,
        });
        prepared.chain(logged).flat_map(EntryChanges::keys)
    }

    /// Whether any transaction is prepared, or its end is not durable yet.
    #[must_use]
    pub fn has_prepared(&self) -> bool {
        self.validator.prepared_txns().next().is_some()
    }

    /// Whether a transaction holds an object so that no other one can lock it in this mode.
    #[must_use]
    pub fn is_barred_by(&self, holder: TxnId, oid: Oid, mode: LockMode) -> bool {
        self.validator.is_barred_by(holder, oid, mode)
    }

    /// Transactions that hold or wait for locks and are not prepared.
    pub fn locking_txns(&self) -> impl Iterator<Item = TxnId> {
        self.validator.locking_txns()
    }

    /// Whether a prepared transaction writes an object.
    #[must_use]
    pub fn is_written_by(&self, txn: TxnId, oid: Oid) -> bool {
        self.validator.is_written_by(txn, oid)
    }

    /// Whether a transaction over several logical nodes writes an object, and its outcome is not known or not durable here. Its client may
    /// have heard already that it is committed (C1).
    #[must_use]
    pub fn is_unsettled(&self, oid: Oid) -> bool {
        let is_shared = |txn: &TxnId| match self.transactions.get(txn) {
            Some(TxnState::Prepared { .. }) => true,
            Some(known @ TxnState::Ended { .. }) => !known.is_over(),
            Some(TxnState::Marked { .. }) | None => false,
        };
        self.validator.prepared_txns().filter(is_shared).any(|txn| self.validator.is_written_by(txn, oid))
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        self.validator.check_invariants()?;
        for (txn, known) in &self.transactions {
            if let TxnState::Prepared { part, proposal, .. } = known {
                if *proposal > self.clock.last() {
                    return Err(format!("V4: the proposal {proposal:?} of {txn:?} is ahead of the clock"));
                }
                let locks = self.validator.locks();
                let is_held = |oid: &Oid| locks.holds(*txn, *oid, LockMode::Touch) || planted(Bug::TouchUnheld);
                let Footprint { writes, patches, touches, .. } = part.footprint();
                let held = writes.iter().all(|oid| locks.holds(*txn, *oid, LockMode::Exclusive))
                    && patches.iter().all(|oid| locks.holds(*txn, *oid, LockMode::Patch))
                    && touches.iter().all(is_held);
                if !held {
                    return Err(format!("V2: {txn:?} is prepared but does not hold the objects that it writes"));
                }
            }
            if known.is_over() != self.finished.contains(txn)
                || known.is_over() != self.finished_of.contains(&(txn.client, txn.start))
            {
                return Err(format!("C3: {txn:?} is ended but not listed as finished, or the reverse"));
            }
            let is_unacknowledged = matches!(known, TxnState::Ended { .. }) && !known.is_over();
            if is_unacknowledged != self.unacknowledged.contains(txn) {
                return Err(format!("C3: {txn:?} is not acknowledged but not listed so, or the reverse"));
            }
            if known.position() > self.last {
                return Err(format!("L1: {txn:?} depends on a record that does not exist"));
            }
        }
        if self.waiting.iter().any(|(position, _)| *position <= self.forced || *position > self.last) {
            return Err("L1: an action waits for a record that is durable already or does not exist".to_owned());
        }
        self.check_postponed()
    }
}

#[cfg(test)]
mod tests;
