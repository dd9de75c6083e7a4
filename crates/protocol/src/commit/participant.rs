//! A participant: one logical node of a brick, or its replica group.
//!
//! It is driven by [`Participant::handle`] with requests and by [`Participant::handle_forced`] when its log is durable up to a
//! position. What it wants done comes out in order: records to append, answers to send, changes to tell the holders of. No
//! answer and no change comes out before the record that it rests on is durable (L1), so whoever drives it need not know
//! which depends on which.
//!
//! ```text
//!                   Prepare                      durable                    Decide            durable
//!   unknown ───────────────────────▶ preparing ──────────▶ prepared ─────────────────▶ ending ────────▶ ended ──▶ forgotten
//!      │  conflict, Ask                                        (answers Prepared)                    (answers Ended)
//!      └──────────────────▶ marked
//! ```
//!
//! - **L1.** Records are applied in the order of the log, once durable; nothing undurable is shown.
//! - **V4.** A commit's timestamp is larger than every one it read or overwrote, and than every time that was promised or
//!   closed. What is promised or closed stays below a *bound* in the log, which is raised ahead of need; after a restart the
//!   clock starts above it.
//! - **G1.** The [closed timestamp](Participant::close_timestamp) is below every proposal that is still prepared.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{NodeId, Oid, PageId};

use super::{Answer, Change, Outcome, Part, Record, Refusal, Rejected, Request, Writes};
use crate::clock::{Clock, LEAD_MS};
use crate::ident::{ClientId, HlcTimestamp, TxnId, Version};
use crate::locks::LockMode;
use crate::page_cache::{Invalidation, SlotStates};
use crate::plant::{Bug, planted};
use crate::schedule::Schedule;
use crate::validate::{Cause, PageVersions, Read, ValidationConflict, Validator};

mod locking;
mod restart;

use locking::LockingTxn;

/// Something that a participant wants done. `A` is who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Append this to the log, at this position: one more than that of the record before. Without a log, replace the
    /// [row](Record::into_row) of the transaction.
    Append(u64, Record<T>),
    /// Nothing is known of these any more: without a log, remove their rows, after all that was appended before.
    RemoveRows(Vec<TxnId>),
    /// Answer this.
    Answer(A, Answer),
    /// A page has changed, durably: store the new states, and tell the holders, before any answer that follows. If it was only
    /// touched there are no new states, and it has another version nevertheless.
    Changed(Invalidation, SlotStates<T>),
}

/// What is known of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TxnState<T> {
    /// It is prepared, by the record at this position.
    Prepared { participants: Vec<NodeId>, part: Part<T>, proposal: HlcTimestamp, position: u64 },
    /// It is over, by the record at this position.
    Ended {
        outcome: Outcome,
        version: Option<Version>,
        position: u64,
        /// Who may not have acknowledged the outcome yet: nobody, if that is known of all, or there is only this one.
        participants: Vec<NodeId>,
    },
    /// It was refused, or asked for before it came.
    Marked { why: Refusal, position: u64 },
}

impl<T> TxnState<T> {
    fn position(&self) -> u64 {
        match self {
            Self::Prepared { position, .. } | Self::Ended { position, .. } | Self::Marked { position, .. } => *position,
        }
    }

    /// Whether nothing is to be done about it any more.
    fn is_over(&self) -> bool {
        match self {
            Self::Prepared { .. } => false,
            Self::Ended { participants, .. } => participants.is_empty(),
            Self::Marked { .. } => true,
        }
    }

    /// Whether it was committed before this, if it was.
    fn is_below(&self, bound: HlcTimestamp) -> bool {
        !matches!(self, Self::Ended { outcome: Outcome::Committed(timestamp), .. } if *timestamp >= bound)
    }

    /// Everybody has acknowledged the outcome. Says whether that is news.
    fn set_acknowledged(&mut self) -> bool {
        let Self::Ended { participants, .. } = self else { return false };
        !std::mem::take(participants).is_empty()
    }

    /// A later record says the same.
    fn set_position(&mut self, to: u64) {
        let (Self::Prepared { position, .. } | Self::Ended { position, .. } | Self::Marked { position, .. }) = self;
        *position = to;
    }
}

/// The first transaction that can have begun after this: a horizon is before it, and all that it is the horizon of.
const fn first_txn_after(horizon: HlcTimestamp) -> TxnId {
    TxnId { start: HlcTimestamp(horizon.0.saturating_add(1)), client: ClientId(0) }
}

/// The record of an outcome.
fn decided_record<T>(outcome: Outcome, change: Change<T>, participants: Vec<NodeId>) -> Record<T> {
    let Change { txn, writes, touches, .. } = change;
    let writes = if planted(Bug::OutcomeAlone) { Writes::new() } else { writes };
    Record::Decided { txn, outcome, writes, touches, participants }
}

/// What happens when a record is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DurableAction<A, T> {
    Answer(A, Answer),
    Apply(Change<T>),
    Release(TxnId),
    Raise(HlcTimestamp),
}

/// The participant. `A` says who asks, `T` is an object.
#[derive(Clone, Debug)]
pub struct Participant<A, T> {
    node: NodeId,
    moves: u32,
    clock: Clock,
    validator: Validator,
    transactions: BTreeMap<TxnId, TxnState<T>>,
    /// Those of them about which nothing is to be done any more.
    finished: BTreeSet<TxnId>,
    /// Datastore transactions that are not prepared.
    locking: BTreeMap<TxnId, LockingTxn<A>>,
    /// When those are given up that are not heard of.
    expiring: Schedule<TxnId>,
    /// The position of the last record, and of the last that is durable.
    last: u64,
    forced: u64,
    /// What waits for records, in the order of their positions.
    waiting: VecDeque<(u64, DurableAction<A, T>)>,
    /// The bound that is durable, and the last that was appended.
    bound: HlcTimestamp,
    bound_appended: HlcTimestamp,
    bound_position: u64,
    horizon: HlcTimestamp,
    horizon_position: u64,
    out: Vec<Output<A, T>>,
    /// How often something was looked at that is over and old.
    #[cfg(test)]
    visited: std::cell::Cell<u64>,
}

/// What a participant is made with.
#[derive(Clone, Copy, Debug)]
pub struct ParticipantSettings {
    /// The logical node.
    pub node: NodeId,
    /// How often it has moved.
    pub moves: u32,
    /// How far the clocks of machines may differ.
    pub skew_ms: u64,
    /// Entries that the window of a page may have.
    pub window_limit: usize,
}

impl<A: Clone, T: Clone> Participant<A, T> {
    /// One with an empty log.
    #[must_use]
    pub fn new(settings: ParticipantSettings) -> Self {
        Self {
            node: settings.node,
            moves: settings.moves,
            clock: Clock::new(HlcTimestamp::ZERO, settings.skew_ms),
            validator: Validator::new(settings.window_limit),
            transactions: BTreeMap::new(),
            finished: BTreeSet::new(),
            locking: BTreeMap::new(),
            expiring: Schedule::default(),
            last: 0,
            forced: 0,
            waiting: VecDeque::new(),
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

    /// Takes what is wanted, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    // ------------------------------------------------------------------------------------------ requests

    /// The pages whose versions [`Participant::handle`] looks up for a request: those that a new transaction has read and that have no
    /// window here. A page may occur more than once.
    pub fn pages_to_look_up<'a>(&'a self, request: &'a Request<T>) -> impl Iterator<Item = PageId> + 'a {
        let reads = match request {
            Request::Prepare { txn, part, .. } | Request::Commit { txn, part } if !self.knows(*txn) => &part.reads[..],
            Request::Check { reads, .. } => reads,
            _ => &[],
        };
        reads.iter().map(|read| read.oid.page()).filter(|page| self.validator.version(*page).is_none())
    }

    /// Handles a request. `seen` is the largest timestamp that its sender knows. `versions` must have the
    /// [pages to look up](Participant::pages_to_look_up).
    ///
    /// # Errors
    /// If no sender that follows the rules sends such a request. Nothing has happened then.
    pub fn handle(
        &mut self,
        from: A,
        request: Request<T>,
        seen: HlcTimestamp,
        now_ms: u64,
        versions: &dyn PageVersions,
    ) -> Result<(), Rejected> {
        if !request.is_at(self.node) {
            return Err(Rejected::Elsewhere(request.txn()));
        }
        self.clock.learn(seen, now_ms)?;
        match request {
            Request::Prepare { txn, participants, part } => {
                self.prepare_or_commit(from, txn, part, now_ms, versions, Some(participants));
            }
            Request::Commit { txn, part } => self.prepare_or_commit(from, txn, part, now_ms, versions, None),
            Request::Decide { txn, outcome } => {
                if let Outcome::Committed(timestamp) = outcome {
                    self.clock.learn(timestamp, now_ms)?;
                }
                self.handle_decide(from, txn, outcome)?;
            }
            Request::Ask { txn, round } => self.handle_ask(from, txn, round),
            Request::Forget { txn } => self.handle_forget(txn),
            Request::Check { txn, reads, at } => {
                let verdict = self.handle_check(txn, &reads, at, now_ms, versions)?;
                let position = if self.bound > at || planted(Bug::PromiseIgnored) { 0 } else { self.bound_position };
                self.run_when_durable(position, DurableAction::Answer(from, Answer::Checked { txn, verdict }));
            }
            Request::Lock { txn, first, oid, mode } => self.handle_lock(from, txn, first, oid, mode, now_ms),
        }
        Ok(())
    }

    /// Takes a transaction in: as one participant of several, or as the only one.
    fn prepare_or_commit(
        &mut self,
        from: A,
        txn: TxnId,
        part: Part<T>,
        now_ms: u64,
        versions: &dyn PageVersions,
        participants: Option<Vec<NodeId>>,
    ) {
        let again = match self.transactions.get(&txn) {
            Some(TxnState::Ended { .. }) => planted(Bug::ExecutedTwice) && participants.is_none(),
            Some(_) => planted(Bug::PrepareTwice),
            None => true,
        };
        if !again {
            return self.answer(from, txn);
        }
        if txn.start <= self.horizon {
            return self.refuse_too_old(from, txn);
        }
        let footprint = part.footprint();
        if let Err(conflict) = self.validator.check(txn, &part.reads, &footprint, versions) {
            let why = Refusal::Conflict(conflict);
            if planted(Bug::VolatileRefusal) {
                return self.run_when_durable(0, DurableAction::Answer(from, Answer::Refused { txn, why }));
            }
            self.mark(txn, why);
            return self.answer(from, txn);
        }
        self.validator.hold(txn, &footprint);
        self.locking.remove(&txn);
        self.expiring.set(txn, None);
        let timestamp = self.clock.tick(now_ms);
        match participants {
            Some(participants) => {
                let record = Record::Prepared {
                    txn,
                    participants: participants.clone(),
                    part: part.clone(),
                    proposal: timestamp,
                };
                let position = self.append(record);
                self.set_state(txn, TxnState::Prepared { participants, part, proposal: timestamp, position });
            }
            None => {
                let Part { writes, touches, .. } = part;
                let (again, others) = (writes.clone(), touches.clone());
                let position = self.append(Record::Committed { txn, timestamp, writes: again, touches: others });
                self.end(
                    Outcome::Committed(timestamp),
                    Change { txn, timestamp, writes, touches },
                    position,
                    Vec::new(),
                );
            }
        }
        self.answer(from, txn);
    }

    /// The outcome of a transaction has come.
    fn handle_decide(&mut self, from: A, txn: TxnId, outcome: Outcome) -> Result<(), Rejected> {
        match self.transactions.get(&txn) {
            Some(TxnState::Prepared { part, participants, .. }) => {
                let participants = participants.clone();
                let change = match outcome {
                    Outcome::Committed(timestamp) => {
                        Change { txn, timestamp, writes: part.writes.clone(), touches: part.touches.clone() }
                    }
                    Outcome::Aborted => Change::empty(txn),
                };
                let position = self.append(decided_record(outcome, change.clone(), participants.clone()));
                self.end(outcome, change, position, participants);
            }
            Some(TxnState::Ended { outcome: before, .. }) if *before != outcome => {
                return Err(Rejected::Contradiction(txn));
            }
            Some(TxnState::Marked { .. }) if outcome != Outcome::Aborted => return Err(Rejected::Contradiction(txn)),
            Some(_) => {}
            None if txn.start <= self.horizon => {
                // Forgotten: everybody has acknowledged it.
                let answer = Answer::Ended { txn, outcome, version: None };
                self.run_when_durable(self.horizon_position, DurableAction::Answer(from, answer));
                return Ok(());
            }
            None if outcome == Outcome::Aborted => self.mark(txn, Refusal::Aborted),
            None => return Err(Rejected::Contradiction(txn)),
        }
        self.answer(from, txn);
        Ok(())
    }

    /// The end of a transaction is logged at `position`: when that is durable, it is applied, and lets go of what it holds.
    /// These `participants` have to acknowledge the outcome.
    fn end(&mut self, outcome: Outcome, change: Change<T>, position: u64, participants: Vec<NodeId>) {
        let txn = change.txn;
        let mut version = None;
        if let Outcome::Committed(timestamp) = outcome {
            if !change.is_empty() {
                version = Some(self.version_at(position, timestamp));
            }
            self.run_when_durable(position, DurableAction::Apply(change));
        }
        self.run_when_durable(if planted(Bug::ReleasedEarly) { 0 } else { position }, DurableAction::Release(txn));
        self.set_state(txn, TxnState::Ended { outcome, version, position, participants });
    }

    /// Somebody wants to finish a transaction, or to know its outcome (C2).
    fn handle_ask(&mut self, from: A, txn: TxnId, round: u32) {
        if !self.transactions.contains_key(&txn) {
            let why = if txn.start <= self.horizon { Refusal::TooOld } else { Refusal::Aborted };
            if why == Refusal::TooOld {
                return self.refuse_too_old(from, txn);
            }
            if planted(Bug::NoAbortMark) {
                return self.run_when_durable(0, DurableAction::Answer(from, Answer::Refused { txn, why }));
            }
            self.mark(txn, Refusal::Aborted);
        }
        self.answer_in_round(from, txn, round);
    }

    /// Nothing is known of a transaction, and it is older than the horizon, which is durable when this is said.
    fn refuse_too_old(&mut self, from: A, txn: TxnId) {
        self.run_when_durable(
            self.horizon_position,
            DurableAction::Answer(from, Answer::Refused { txn, why: Refusal::TooOld }),
        );
    }

    /// Makes sure that a transaction never commits here, and lets go of what it has locked.
    fn mark(&mut self, txn: TxnId, why: Refusal) {
        let position = self.append(Record::Marked { txn });
        self.set_state(txn, TxnState::Marked { why, position });
        self.unlock(txn);
    }

    /// Says what is known of a transaction, when that is durable: the first time, and again whenever it is asked (C3).
    fn answer(&mut self, from: A, txn: TxnId) {
        self.answer_in_round(from, txn, 0);
    }

    fn answer_in_round(&mut self, from: A, txn: TxnId, round: u32) {
        let Some(known) = self.transactions.get(&txn) else { return };
        let (position, answer) = match known {
            TxnState::Prepared { participants, proposal, position, .. } => {
                let participants = participants.clone();
                let position = if planted(Bug::VoteBeforeForce) { 0 } else { *position };
                (position, Answer::Prepared { txn, proposal: *proposal, participants, round })
            }
            TxnState::Ended { outcome, version, position, .. } => {
                (*position, Answer::Ended { txn, outcome: *outcome, version: *version })
            }
            TxnState::Marked { why, position } => (*position, Answer::Refused { txn, why: *why }),
        };
        self.run_when_durable(position, DurableAction::Answer(from, answer));
    }

    /// This is known of a transaction now.
    fn set_state(&mut self, txn: TxnId, known: TxnState<T>) {
        if known.is_over() {
            self.finished.insert(txn);
        } else {
            self.finished.remove(&txn);
        }
        self.transactions.insert(txn, known);
    }

    /// What is over and old, of whatever else much is known.
    fn old_finished(&self) -> impl Iterator<Item = (TxnId, &TxnState<T>)> {
        let old = self.finished.range(..first_txn_after(self.horizon));
        old.filter_map(|txn| {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            Some((*txn, self.transactions.get(txn)?))
        })
    }

    fn handle_forget(&mut self, txn: TxnId) {
        if let Some(known @ TxnState::Ended { .. }) = self.transactions.get_mut(&txn)
            && known.set_acknowledged()
        {
            self.finished.insert(txn);
            let record = known.record(txn);
            self.append(record);
            self.forget_old();
        }
    }

    /// Raises the horizon: transactions that began at or before it are refused from now on, if nothing is known of them.
    /// A driver chooses one so old that no message of such a transaction is expected any more. If nothing has ended between the
    /// last one and this, there is nothing to be forgotten, and the horizon stays: a brick that is idle writes nothing.
    pub fn raise_horizon(&mut self, to: HlcTimestamp) {
        let between = self.transactions.range(first_txn_after(self.horizon)..first_txn_after(to.max(self.horizon)));
        if between.into_iter().any(|(_, known)| !matches!(known, TxnState::Prepared { .. })) {
            self.horizon = to;
            self.horizon_position = self.append(Record::Horizon(to));
        }
        self.forget_old();
    }

    /// Forgets what is old, after raising the bound above it, so that whatever is committed after a restart is later (V4).
    fn forget_old(&mut self) {
        let (forced, bound) = (self.forced, self.bound_appended);
        let is_above = self.old_finished().any(|(_, known)| known.position() <= forced && !known.is_below(bound));
        if is_above {
            self.raise_bound(self.clock.last().next());
        }
        self.remove_forgotten();
    }

    /// Forgets what is old and acknowledged, and marks that are old: they are refused without (C3).
    fn remove_forgotten(&mut self) {
        let (forced, bound) = (self.forced, self.bound_appended);
        let dropped: Vec<TxnId> = if planted(Bug::OutcomeForgotten) {
            let ended = |known: &TxnState<T>| matches!(known, TxnState::Ended { .. }) && known.position() <= forced;
            self.transactions.iter().filter(|(_, known)| ended(known)).map(|(txn, _)| *txn).collect()
        } else {
            let old = self.old_finished().filter(|(_, known)| known.position() <= forced && known.is_below(bound));
            old.map(|(txn, _)| txn).collect()
        };
        if !dropped.is_empty() {
            for txn in &dropped {
                self.transactions.remove(txn);
                self.finished.remove(txn);
            }
            self.out.push(Output::RemoveRows(dropped));
        }
    }

    /// Transactions that are over and older than the horizon, and not known to be acknowledged by these participants:
    /// whoever brought them to their end has died. They can be finished again, which changes nothing but that.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (TxnId, &[NodeId])> {
        self.transactions.range(..first_txn_after(self.horizon)).filter_map(|(txn, known)| match known {
            TxnState::Ended { participants, .. } if !participants.is_empty() => Some((*txn, &participants[..])),
            _ => None,
        })
    }

    // ------------------------------------------------------------------------------------------ promises

    /// Whether reads are current and nobody is about to write what was read; promises that nothing is committed at or before
    /// `at` any more.
    fn handle_check(
        &mut self,
        txn: TxnId,
        reads: &[Read],
        at: HlcTimestamp,
        now_ms: u64,
        versions: &dyn PageVersions,
    ) -> Result<Result<(), ValidationConflict>, Rejected> {
        if planted(Bug::PromiseIgnored) {
            return Ok(self.validator.check(txn, reads, &Default::default(), versions));
        }
        self.clock.learn(at, now_ms)?;
        let mut verdict = self.validator.check(txn, reads, &Default::default(), versions);
        if let Err(conflict) = verdict
            && let Cause::Held(holder) = conflict.cause
            && matches!(self.transactions.get(&holder), Some(TxnState::Prepared { proposal, .. }) if *proposal > at)
            && planted(Bug::CheckIgnoresPrepared)
        {
            verdict = Ok(());
        }
        self.promise(at, now_ms);
        Ok(verdict)
    }

    /// Promises that nothing is committed at or before `at` any more: the clock has learned it, and the bound must be above.
    /// That is raised ahead of need, but no further ahead of the physical clock than others believe.
    fn promise(&mut self, at: HlcTimestamp, now_ms: u64) {
        if at >= self.bound_appended {
            self.raise_bound(HlcTimestamp::at(now_ms + LEAD_MS).max(at.next()));
        }
    }

    fn raise_bound(&mut self, bound: HlcTimestamp) {
        self.bound_appended = bound;
        let position = self.append(Record::Bound(bound));
        self.bound_position = position;
        self.run_when_durable(position, DurableAction::Raise(bound));
    }

    /// The closed timestamp (G1): nothing is committed at or before it any more. Below every proposal that is still
    /// prepared and every commit that is not durable, and below the durable bound.
    pub fn close_timestamp(&mut self, now_ms: u64) -> HlcTimestamp {
        let now = self.clock.tick(now_ms);
        self.promise(now, now_ms);
        let in_flight = self.validator.prepared();
        let open = in_flight.filter_map(|txn| self.transactions.get(&txn)).filter_map(|known| match known {
            TxnState::Prepared { .. } if planted(Bug::ClosedAbovePrepared) => None,
            TxnState::Prepared { proposal, .. } => Some(*proposal),
            TxnState::Ended { outcome: Outcome::Committed(timestamp), position, .. } if *position > self.forced => {
                Some(*timestamp)
            }
            _ => None,
        });
        let below = open.chain([self.bound]).min().unwrap_or(self.bound);
        now.min(HlcTimestamp(below.0.saturating_sub(1)))
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

    /// Does something when the log is durable up to `position`.
    fn run_when_durable(&mut self, position: u64, then: DurableAction<A, T>) {
        if position <= self.forced {
            // Nothing that it could overtake waits for an earlier record.
            return self.run_action(then);
        }
        let at = self.waiting.partition_point(|(other, _)| *other <= position);
        self.waiting.insert(at, (position, then));
    }

    /// The log is durable up to `position`. `versions` must have all pages that the records up to there change.
    pub fn handle_forced(&mut self, position: u64, versions: &dyn PageVersions) {
        assert!(position <= self.last, "L1: {position} is durable, and was never appended");
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
            DurableAction::Release(txn) => self.unlock(txn),
            DurableAction::Raise(bound) => self.bound = self.bound.max(bound),
            DurableAction::Apply(_) => unreachable!("a change is applied when its record becomes durable"),
        }
    }

    /// Applies what a durable record writes, page by page.
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
            let invalidation = Invalidation { page, slots, previous, version, timestamp, txn };
            self.out.push(Output::Changed(invalidation, contents));
        }
    }

    /// The version of a page that has a window, with all changes that were output so far.
    #[must_use]
    pub fn window_version(&self, page: PageId) -> Option<Version> {
        self.validator.version(page)
    }

    /// Every holder that was sent changes of a page up to `version` has acknowledged them (V3).
    pub fn retire(&mut self, page: PageId, version: Version) {
        self.validator.retire(page, version);
    }

    /// The logical node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The largest timestamp that it knows: what others are to learn (L1).
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.clock.last()
    }

    /// Whether a transaction has come before, and is not forgotten: asked again, it is answered as the first time (C3).
    #[must_use]
    pub fn knows(&self, txn: TxnId) -> bool {
        self.transactions.contains_key(&txn)
    }

    /// How a transaction has ended, if that is known and durable.
    #[must_use]
    pub fn outcome(&self, txn: TxnId) -> Option<Outcome> {
        match self.transactions.get(&txn)? {
            TxnState::Ended { outcome, position, .. } if *position <= self.forced => Some(*outcome),
            TxnState::Marked { position, .. } if *position <= self.forced => Some(Outcome::Aborted),
            _ => None,
        }
    }

    /// Transactions that are prepared, with all their participants: whose coordinator may be gone.
    pub fn prepared(&self) -> impl Iterator<Item = (TxnId, &[NodeId])> {
        self.validator.prepared().filter_map(|txn| match self.transactions.get(&txn)? {
            TxnState::Prepared { participants, .. } => Some((txn, &participants[..])),
            _ => None,
        })
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        self.validator.check_invariants()?;
        for (txn, known) in &self.transactions {
            if let TxnState::Prepared { part, proposal, .. } = known {
                if *proposal > self.clock.last() {
                    return Err(format!("V4: {txn:?} is proposed at {proposal:?}, and the clock is behind"));
                }
                let locks = self.validator.locks();
                let is_held = |oid: &Oid| locks.holds(*txn, *oid, LockMode::Touch) || planted(Bug::TouchUnheld);
                let held = part.writes.keys().all(|oid| locks.holds(*txn, *oid, LockMode::Exclusive))
                    && part.touches.iter().all(is_held);
                if !held {
                    return Err(format!("V2: {txn:?} is prepared and does not hold what it writes"));
                }
            }
            if known.is_over() != self.finished.contains(txn) {
                return Err(format!("C3: {txn:?} would be kept for ever, or forgotten too soon"));
            }
            if known.position() > self.last {
                return Err(format!("L1: {txn:?} is known by a record that there is not"));
            }
        }
        if self.waiting.iter().any(|(position, _)| *position <= self.forced || *position > self.last) {
            return Err("L1: something waits for a record that is durable, or that there is not".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
