//! A participant: one logical node of a brick, or its replica group.
//!
//! It is driven by [`Participant::handle`] with requests and by [`Participant::forced`] when its log is durable up to a
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

use std::collections::{BTreeMap, VecDeque};

use model::{NodeId, PageId};

use super::{Answer, Outcome, Part, Record, Refusal, Request, Writes};
use crate::clock::{Ahead, Clock};
use crate::ident::{Timestamp, TxnId, Version};
use crate::page_cache::{Contents, Invalidation};
use crate::validate::Validator;

/// How far ahead of need the bound is raised, in milliseconds.
const LEAD_MS: u64 = 10_000;

/// Something that a participant wants done. `A` is who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Append this to the log. Its position is one more than that of the record before.
    Append(Record<T>),
    /// Answer this.
    Answer(A, Answer),
    /// A page has changed, durably: store the new states, and tell the holders, before any answer that follows.
    Changed(Invalidation, Contents<T>),
}

/// What is known of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known<T> {
    /// It is prepared, by the record at this position.
    Prepared { participants: Vec<NodeId>, part: Part<T>, proposal: Timestamp, position: u64 },
    /// It is over, by the record at this position.
    Ended { outcome: Outcome, version: Option<Version>, position: u64, acknowledged: bool },
    /// It was refused, or asked for before it came.
    Marked { why: Refusal, position: u64 },
}

/// What happens when a record is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Then<A, T> {
    Answer(A, Answer),
    Apply { txn: TxnId, timestamp: Timestamp, writes: Writes<T> },
    Release(TxnId),
    Raise(Timestamp),
}

/// The participant. `A` says who asks, `T` is an object.
#[derive(Clone, Debug)]
pub struct Participant<A, T> {
    node: NodeId,
    moves: u32,
    clock: Clock,
    validator: Validator,
    known: BTreeMap<TxnId, Known<T>>,
    /// The position of the last record, and of the last that is durable.
    last: u64,
    forced: u64,
    /// What waits for records, in the order of their positions.
    waiting: VecDeque<(u64, Then<A, T>)>,
    /// The bound that is durable, and the last that was appended.
    bound: Timestamp,
    bound_asked: Timestamp,
    horizon: Timestamp,
    out: Vec<Output<A, T>>,
}

/// What a participant is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
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
    pub fn new(settings: Settings) -> Self {
        Self {
            node: settings.node,
            moves: settings.moves,
            clock: Clock::new(Timestamp::ZERO, settings.skew_ms),
            validator: Validator::new(settings.window_limit),
            known: BTreeMap::new(),
            last: 0,
            forced: 0,
            waiting: VecDeque::new(),
            bound: Timestamp::ZERO,
            bound_asked: Timestamp::ZERO,
            horizon: Timestamp::ZERO,
            out: Vec::new(),
        }
    }

    /// Takes what is wanted, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    // ------------------------------------------------------------------------------------------ requests

    /// A request has come. `seen` is the largest timestamp that whoever sent it knows; `stored` gives the version of a page
    /// that has not changed since the start.
    ///
    /// # Errors
    /// If `seen` is further ahead than clocks may differ: nothing has happened.
    pub fn handle(
        &mut self,
        from: A,
        request: Request<T>,
        seen: Timestamp,
        now_ms: u64,
        stored: &mut dyn FnMut(PageId) -> Version,
    ) -> Result<(), Ahead> {
        self.clock.learn(seen, now_ms)?;
        match request {
            Request::Prepare { txn, participants, part } => {
                self.enter(from, txn, part, now_ms, stored, Some(participants));
            }
            Request::Commit { txn, part } => self.enter(from, txn, part, now_ms, stored, None),
            Request::Decide { txn, outcome } => {
                if let Outcome::Committed(timestamp) = outcome {
                    self.clock.learn(timestamp, now_ms)?;
                }
                self.decide(from, txn, outcome);
            }
            Request::Ask { txn } => self.ask(from, txn),
            Request::Forget { txn } => self.forget(txn),
            Request::Check { txn, reads, at } => {
                self.clock.learn(at, now_ms)?;
                let verdict = self.validator.check(txn, &reads, &Default::default(), stored);
                self.promise(at);
                let position = if self.bound > at { 0 } else { self.last };
                self.when(position, Then::Answer(from, Answer::Checked { txn, verdict }));
            }
        }
        Ok(())
    }

    /// Takes a transaction in: as one participant of several, or as the only one.
    fn enter(
        &mut self,
        from: A,
        txn: TxnId,
        part: Part<T>,
        now_ms: u64,
        stored: &mut dyn FnMut(PageId) -> Version,
        participants: Option<Vec<NodeId>>,
    ) {
        if self.known.contains_key(&txn) {
            return self.tell(from, txn);
        }
        if txn.start <= self.horizon {
            return self.when(0, Then::Answer(from, Answer::Refused { txn, why: Refusal::TooOld }));
        }
        let footprint = part.footprint();
        if let Err(conflict) = self.validator.check(txn, &part.reads, &footprint.writes, stored) {
            self.mark(txn, Refusal::Conflict(conflict));
            return self.tell(from, txn);
        }
        self.validator.hold(txn, &footprint);
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
                self.known.insert(txn, Known::Prepared { participants, part, proposal: timestamp, position });
            }
            None => {
                let Part { writes, .. } = part;
                let position = self.append(Record::Committed { txn, timestamp, writes: writes.clone() });
                self.end(txn, Outcome::Committed(timestamp), writes, position);
            }
        }
        self.tell(from, txn);
    }

    /// The outcome of a transaction has come.
    fn decide(&mut self, from: A, txn: TxnId, outcome: Outcome) {
        match self.known.get(&txn) {
            Some(Known::Prepared { part, .. }) => {
                let writes = part.writes.clone();
                let position = self.append(Record::Decided { txn, outcome });
                self.end(txn, outcome, writes, position);
            }
            Some(Known::Ended { outcome: before, .. }) => {
                assert!(*before == outcome, "C1: {txn:?} has ended as {before:?}, and as {outcome:?}");
            }
            Some(Known::Marked { .. }) => assert!(outcome == Outcome::Aborted, "C2: {txn:?} is marked, and committed"),
            None => {
                assert!(outcome == Outcome::Aborted || txn.start <= self.horizon, "C1: {txn:?} was never prepared");
                if txn.start <= self.horizon {
                    // Forgotten: everybody has acknowledged it.
                    return self.when(0, Then::Answer(from, Answer::Ended { txn, outcome, version: None }));
                }
                self.mark(txn, Refusal::Aborted);
            }
        }
        self.tell(from, txn);
    }

    /// The end of a transaction is logged at `position`: when that is durable, it is applied, and lets go of what it holds.
    fn end(&mut self, txn: TxnId, outcome: Outcome, writes: Writes<T>, position: u64) {
        let mut version = None;
        if let Outcome::Committed(timestamp) = outcome {
            if !writes.is_empty() {
                version = Some(self.version_at(position));
            }
            self.when(position, Then::Apply { txn, timestamp, writes });
        }
        self.when(position, Then::Release(txn));
        self.known.insert(txn, Known::Ended { outcome, version, position, acknowledged: false });
    }

    /// Somebody wants to finish a transaction, or to know its outcome (C2).
    fn ask(&mut self, from: A, txn: TxnId) {
        if !self.known.contains_key(&txn) {
            if txn.start <= self.horizon {
                return self.when(0, Then::Answer(from, Answer::Refused { txn, why: Refusal::TooOld }));
            }
            self.mark(txn, Refusal::Aborted);
        }
        self.tell(from, txn);
    }

    fn mark(&mut self, txn: TxnId, why: Refusal) {
        let position = self.append(Record::Marked { txn });
        self.known.insert(txn, Known::Marked { why, position });
    }

    /// Says what is known of a transaction, when that is durable: the first time, and again whenever it is asked (C3).
    fn tell(&mut self, from: A, txn: TxnId) {
        let Some(known) = self.known.get(&txn) else { return };
        let (position, answer) = match known {
            Known::Prepared { participants, proposal, position, .. } => {
                let participants = participants.clone();
                (*position, Answer::Prepared { txn, proposal: *proposal, participants })
            }
            Known::Ended { outcome, version, position, .. } => {
                (*position, Answer::Ended { txn, outcome: *outcome, version: *version })
            }
            Known::Marked { why, position } => (*position, Answer::Refused { txn, why: *why }),
        };
        self.when(position, Then::Answer(from, answer));
    }

    fn forget(&mut self, txn: TxnId) {
        if let Some(Known::Ended { acknowledged, .. }) = self.known.get_mut(&txn)
            && !std::mem::replace(acknowledged, true)
        {
            self.append(Record::Forgotten { txn });
            self.clean();
        }
    }

    /// Raises the horizon: transactions that began at or before it are refused from now on, if nothing is known of them.
    /// A driver chooses one so old that no message of such a transaction is expected any more.
    pub fn raise_horizon(&mut self, to: Timestamp) {
        if to > self.horizon {
            self.horizon = to;
            self.append(Record::Horizon(to));
            self.clean();
        }
    }

    /// Forgets what is old and acknowledged, and marks that are old: they are refused without (C3).
    fn clean(&mut self) {
        let (horizon, forced) = (self.horizon, self.forced);
        self.known.retain(|txn, known| match known {
            Known::Prepared { .. } => true,
            Known::Ended { acknowledged, position, .. } => txn.start > horizon || !*acknowledged || *position > forced,
            Known::Marked { position, .. } => txn.start > horizon || *position > forced,
        });
    }

    // ------------------------------------------------------------------------------------------ promises

    /// Promises that nothing is committed at or before `at` any more: the clock has learned it, and the bound must be above.
    fn promise(&mut self, at: Timestamp) {
        if at >= self.bound_asked {
            self.bound_asked = Timestamp::at(at.ms() + LEAD_MS);
            let bound = self.bound_asked;
            let position = self.append(Record::Bound(bound));
            self.when(position, Then::Raise(bound));
        }
    }

    /// The closed timestamp (G1): nothing is committed at or before it any more. Below every proposal that is still
    /// prepared and every commit that is not durable, and below the durable bound.
    pub fn close(&mut self, now_ms: u64) -> Timestamp {
        let now = self.clock.tick(now_ms);
        self.promise(now);
        let open = self.known.values().filter_map(|known| match known {
            Known::Prepared { proposal, .. } => Some(*proposal),
            Known::Ended { outcome: Outcome::Committed(timestamp), position, .. } if *position > self.forced => {
                Some(*timestamp)
            }
            _ => None,
        });
        let below = open.chain([self.bound]).min().unwrap_or(self.bound);
        now.min(Timestamp(below.0.saturating_sub(1)))
    }

    // ------------------------------------------------------------------------------------------ the log

    fn append(&mut self, record: Record<T>) -> u64 {
        self.last += 1;
        self.out.push(Output::Append(record));
        self.last
    }

    fn version_at(&self, position: u64) -> Version {
        Version { moves: self.moves, position }
    }

    /// Does something when the log is durable up to `position`.
    fn when(&mut self, position: u64, then: Then<A, T>) {
        if position <= self.forced {
            // Nothing that it could overtake waits for an earlier record.
            return self.done(then);
        }
        let at = self.waiting.partition_point(|(other, _)| *other <= position);
        self.waiting.insert(at, (position, then));
    }

    /// The log is durable up to `position`.
    pub fn forced(&mut self, position: u64, stored: &mut dyn FnMut(PageId) -> Version) {
        assert!(position <= self.last, "L1: {position} is durable, and was never appended");
        self.forced = self.forced.max(position);
        while let Some((position, then)) = self.waiting.pop_front_if(|(position, _)| *position <= self.forced) {
            match then {
                Then::Apply { txn, timestamp, writes } => self.apply(txn, timestamp, writes, position, stored),
                then => self.done(then),
            }
        }
        self.clean();
    }

    fn done(&mut self, then: Then<A, T>) {
        match then {
            Then::Answer(to, answer) => self.out.push(Output::Answer(to, answer)),
            Then::Release(txn) => {
                let granted = self.validator.locks().release(txn);
                assert!(
                    granted.is_empty(),
                    "W1: {granted:?} were waited for, and only prepares come here, which never wait"
                );
            }
            Then::Raise(bound) => self.bound = self.bound.max(bound),
            Then::Apply { .. } => unreachable!("a change is applied when its record becomes durable"),
        }
    }

    /// Applies what a durable record writes, page by page.
    fn apply(
        &mut self,
        txn: TxnId,
        timestamp: Timestamp,
        writes: Writes<T>,
        position: u64,
        stored: &mut dyn FnMut(PageId) -> Version,
    ) {
        let version = self.version_at(position);
        let mut pages: BTreeMap<PageId, Contents<T>> = BTreeMap::new();
        for (oid, content) in writes {
            pages.entry(oid.page()).or_default().insert(oid.slot(), content);
        }
        for (page, contents) in pages {
            let previous = self.validator.apply(page, contents.keys().copied(), version, txn, stored);
            let slots = contents.keys().copied().collect();
            let invalidation = Invalidation { page, slots, previous, version, timestamp, txn };
            self.out.push(Output::Changed(invalidation, contents));
        }
    }

    /// Everybody who was told of changes of a page up to `version` has heard of them (V3).
    pub fn retire(&mut self, page: PageId, version: Version) {
        self.validator.retire(page, version);
    }

    /// The logical node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Transactions that are prepared, with all their participants: whose coordinator may be gone.
    pub fn prepared(&self) -> impl Iterator<Item = (TxnId, &[NodeId])> {
        self.known.iter().filter_map(|(txn, known)| match known {
            Known::Prepared { participants, .. } => Some((*txn, &participants[..])),
            _ => None,
        })
    }

    // ------------------------------------------------------------------------------------------ restart

    /// Takes up a durable record again, in order, after a restart or a move (C4). Returns what it had changed. When all are
    /// taken up, [`Participant::recovered`] ends it.
    pub fn recover(&mut self, record: Record<T>) -> Option<(TxnId, Timestamp, Writes<T>)> {
        self.last += 1;
        self.forced = self.last;
        let position = self.last;
        match record {
            Record::Prepared { txn, participants, part, proposal } => {
                self.validator.hold(txn, &part.footprint());
                self.clock.pass(proposal);
                self.known.insert(txn, Known::Prepared { participants, part, proposal, position });
                None
            }
            Record::Committed { txn, timestamp, writes } => {
                self.recover_end(txn, Outcome::Committed(timestamp), writes)
            }
            Record::Decided { txn, outcome } => {
                let Some(Known::Prepared { part, .. }) = self.known.remove(&txn) else { return None };
                let _ = self.validator.locks().release(txn);
                self.recover_end(txn, outcome, part.writes)
            }
            Record::Marked { txn } => {
                self.known.insert(txn, Known::Marked { why: Refusal::Aborted, position });
                None
            }
            Record::Bound(bound) => {
                (self.bound, self.bound_asked) = (self.bound.max(bound), self.bound_asked.max(bound));
                None
            }
            Record::Horizon(horizon) => {
                self.horizon = self.horizon.max(horizon);
                None
            }
            Record::Forgotten { txn } => {
                if let Some(Known::Ended { acknowledged, .. }) = self.known.get_mut(&txn) {
                    *acknowledged = true;
                }
                None
            }
        }
    }

    fn recover_end(
        &mut self,
        txn: TxnId,
        outcome: Outcome,
        writes: Writes<T>,
    ) -> Option<(TxnId, Timestamp, Writes<T>)> {
        let position = self.last;
        let version = (!writes.is_empty() && outcome != Outcome::Aborted).then(|| self.version_at(position));
        self.known.insert(txn, Known::Ended { outcome, version, position, acknowledged: false });
        let Outcome::Committed(timestamp) = outcome else { return None };
        self.clock.pass(timestamp);
        Some((txn, timestamp, writes))
    }

    /// All records are taken up: the clock starts above all that may have been promised (V4).
    pub fn recovered(&mut self) {
        self.clock.pass(self.bound);
        self.clean();
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn invariants(&mut self) -> Result<(), String> {
        self.validator.invariants()?;
        for (txn, known) in &self.known {
            if let Known::Prepared { part, proposal, .. } = known {
                if *proposal > self.clock.last() {
                    return Err(format!("V4: {txn:?} is proposed at {proposal:?}, and the clock is behind"));
                }
                let locks = self.validator.locks();
                let held = part.writes.keys().all(|oid| locks.holds(*txn, *oid, crate::locks::Mode::Exclusive));
                if !held {
                    return Err(format!("V2: {txn:?} is prepared and does not hold what it writes"));
                }
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
