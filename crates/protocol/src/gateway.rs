//! The coordinating part of a peer server, which handles the calls of clients (TODS, sections 4.2 and 4.5).
//!
//! A client repeats each call until it is answered; every call names its transaction, so repetitions are recognized
//! (C3). A gateway keeps no durable state. If it fails, its clients call another one.
//!
//! - **C1, C2, C3.** A [`Coordinator`] commits a transaction, or resolves its outcome.
//! - **Read-only transactions.** Their time is the maximum of this clock and the timestamps of all reads. Each
//!   participant checks that every read is current and that no prepared transaction writes it, and promises that no
//!   later commit gets a timestamp at or below that time: one round trip, no force.
//! - **L2.** A gateway whose clock is not trusted takes no commits, checks and locks.
//! - A client abandons a commit if it disappears or only asks for the outcome. The gateway then finishes the
//!   transaction as any coordinator may (C2): it prepares no further participant and drops the writes.
//! - The memory of calls that wait for unreachable participants has a limit ([`Gateway::with_limit`]), and so has that of the calls of one
//!   client. Above it a call is treated as lost, and its client is informed: this gateway sent nothing for it.
//! - **W1.** Locks are requested from the participant of the object. A transaction that gives up, or has only read,
//!   releases them by an abort.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeId, Oid};

use crate::brick::LockedObject;
use crate::clock::{Clock, ClockSkewError, ClusterTime};
use crate::commit::client_mark::ClientMark;
use crate::commit::coordinator::{self, Coordinator, MixedOutcome};
use crate::commit::joint;
use crate::commit::{Answer, Outcome, Part, Refusal, Rejected, Request, participants_head_bytes, patched_nodes};
use crate::ident::{HlcTimestamp, TxnId};
use crate::lease::Ms;
use crate::locks::LockMode;
use crate::memory_size::MemorySize;
use crate::page_cache::ObjectState;
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::schedule::Schedule;
use crate::transfer::{brick_transfer_ms, transfer_ms};

mod backlog;

use backlog::{Backlog, ClientBytes, TRANSACTION_OVERHEAD_BYTES};

/// How long the gateway waits for an answer before it repeats a question, in milliseconds.
const REPEAT_MS: u64 = 200;
/// A commit is abandoned after this time without a call from its client, in milliseconds: clients repeat their calls each second.
const ABANDON_AFTER_MS: Ms = 10_000;
/// A large commit is abandoned later, by this many times the time in which it is sent: its client repeats it later, too.
const ABANDON_AFTER_TRANSFERS: Ms = 10;
/// The limit for transactions that wait for participants, in bytes.
const BACKLOG_LIMIT_BYTES: usize = 256 << 20;
/// Most datastore transactions of one client that hold locks, or wait for them. They are counted only while there are more of all clients.
const MAX_LOCKING: usize = 8_192;
/// Most locks that one of them waits for.
const MAX_WAITING_LOCKS: usize = 256;

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<T> {
    /// Commit a transaction.
    Commit {
        /// The reads and writes at each logical node.
        parts: BTreeMap<NodeId, Part<T>>,
        /// It creates objects with temporary identifiers (R2).
        creates: bool,
    },
    /// Return the outcome of a commit whose client does not know it, or abort the transaction.
    Resolve {
        /// The participants of the commit.
        participants: Vec<NodeId>,
        /// Those at which it changes a part of an object: the offsets of its appends there are part of the outcome.
        patched: Vec<NodeId>,
    },
    /// Check a read-only transaction: were all reads current at one time?
    Check {
        /// What was read at each logical node.
        reads: BTreeMap<NodeId, ReadList>,
        /// The largest timestamp of the reads.
        seen: HlcTimestamp,
    },
    /// Lock an object and return its state.
    Lock {
        /// The first attempt of the transaction (W1).
        first: TxnId,
        /// The object.
        oid: Oid,
        /// The mode of the lock.
        mode: LockMode,
    },
    /// The client has heard these outcomes (C3). Not answered: the next call of this kind says it again.
    Heard {
        /// Participants of its last transactions.
        nodes: Vec<NodeId>,
        /// What it has heard.
        mark: ClientMark,
    },
    /// Release the locks of a transaction.
    Release {
        /// The nodes where it may hold locks.
        participants: Vec<NodeId>,
    },
}

impl<T: MemorySize> Call<T> {
    /// The approximate memory of the call until it is complete, in bytes.
    pub(crate) fn memory_size(&self) -> usize {
        match self {
            Self::Commit { parts, .. } => parts.values().map(Part::memory_size).sum(),
            Self::Check { reads, .. } => bytes_of_reads(reads),
            Self::Resolve { .. } | Self::Lock { .. } => 0,
            Self::Heard { .. } | Self::Release { .. } => 0,
        }
    }
}

impl<T> Call<T> {
    /// The logical nodes at which a commit changes a part of an object.
    pub fn patched_nodes(&self) -> Vec<NodeId> {
        match self {
            Self::Commit { parts, .. } => patched_nodes(parts),
            _ => Vec::new(),
        }
    }

    /// Whether the call ends its transaction, with the reads and writes that the client has collected. The client repeats it as it is.
    pub(crate) fn ends(&self) -> bool {
        matches!(self, Self::Commit { .. } | Self::Check { .. })
    }

    /// The bytes of the call in a message, at most, without the contents of objects; the requests to participants that it leads to have no
    /// more together.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        match self {
            Self::Commit { parts, .. } => {
                parts.values().map(Part::head_bytes).sum::<usize>() + participants_head_bytes(parts.len())
            }
            Self::Check { reads, .. } => {
                reads.values().map(ReadList::message_bytes).sum::<usize>() + participants_head_bytes(reads.len())
            }
            Self::Lock { .. } | Self::Resolve { .. } | Self::Heard { .. } | Self::Release { .. } => 0,
        }
    }

    /// A participant that the call names.
    pub(crate) fn first_node(&self) -> Option<NodeId> {
        match self {
            Self::Commit { parts, .. } => parts.keys().next().copied(),
            Self::Check { reads, .. } => reads.keys().next().copied(),
            Self::Lock { oid, .. } => Some(oid.page().node),
            Self::Resolve { participants: nodes, .. }
            | Self::Release { participants: nodes }
            | Self::Heard { nodes, .. } => nodes.first().copied(),
        }
    }

    /// Whether the call stores nothing. A call that only deletes makes room, for which others may wait.
    fn stores_nothing(&self) -> bool {
        match self {
            Self::Commit { parts, .. } => parts.values().all(|part| {
                part.writes.values().all(|content| matches!(content, ObjectState::Absent))
                    && part.entries.values().all(Option::is_none)
            }),
            Self::Check { .. } | Self::Resolve { .. } | Self::Lock { .. } => true,
            Self::Heard { .. } | Self::Release { .. } => true,
        }
    }

    /// Whether the call needs timestamps (L2). Others end transactions.
    fn needs_time(&self) -> bool {
        match self {
            Self::Commit { .. } | Self::Check { .. } | Self::Lock { .. } => true,
            Self::Resolve { .. } | Self::Heard { .. } | Self::Release { .. } => false,
        }
    }

    /// Whether every object in the part of a logical node belongs to that node.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        match self {
            Self::Commit { parts, .. } => parts.iter().all(|(node, part)| part.is_at(*node)),
            Self::Check { reads, .. } => reads.iter().all(|(node, reads)| reads.pages().all(|page| page.node == *node)),
            Self::Resolve { .. } | Self::Lock { .. } | Self::Heard { .. } | Self::Release { .. } => true,
        }
    }
}

/// The answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The outcome of the transaction.
    Ended(coordinator::CommitReply),
    /// The transaction committed at this time, or was refused.
    Checked(Result<HlcTimestamp, Refusal>),
    /// An object is locked.
    Locked(LockedObject<T>),
}

/// An output of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Send a question to the participant of a logical node, with the gateway's clock.
    Ask(NodeId, Request<T>),
    /// Answer a client.
    Reply(A, TxnId, Reply<T>),
    /// Tell a client that its call was not accepted, because of this limit.
    Busy(A, TxnId, CallLimit),
    /// Report that a transaction has opposite outcomes at two participants.
    MixedOutcome(TxnId, MixedOutcome),
}

/// A limit because of which a call is not accepted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallLimit {
    /// Too many calls wait for this participant, which does not answer in time.
    Participant(NodeId),
    /// Too many calls of the client wait. This is a participant of the new one.
    Client(NodeId),
    /// Too many calls of all clients wait. This is a participant of the new one.
    Total(NodeId),
}

impl CallLimit {
    /// The participant.
    #[must_use]
    pub fn node(self) -> NodeId {
        let (Self::Participant(node) | Self::Client(node) | Self::Total(node)) = self;
        node
    }
}

/// A read-only transaction.
#[derive(Clone, Debug)]
struct PendingCheck<A> {
    from: A,
    at: HlcTimestamp,
    reads: BTreeMap<NodeId, ReadList>,
    /// The memory that is counted for it.
    bytes: usize,
    /// Participants that have not answered.
    open: BTreeSet<NodeId>,
    repeat: Ms,
}

/// A transaction that is committing.
#[derive(Clone, Debug)]
struct PendingCommit<A, T> {
    client: A,
    /// The time of its last call.
    last_call: Ms,
    coordinator: Coordinator<T>,
}

/// A datastore transaction that locks objects.
#[derive(Clone, Debug)]
struct LockingTxn<A> {
    client: A,
    /// The locks that it waits for, each with the first attempt of the transaction and the mode.
    waiting: BTreeMap<Oid, (TxnId, LockMode)>,
    /// The participants at which the transaction may hold locks.
    participants: BTreeSet<NodeId>,
}

/// The gateway. `A` is the address of a client, `T` is an object.
#[derive(Clone, Debug)]
pub struct Gateway<A, T> {
    clock: Clock,
    coordinators: BTreeMap<TxnId, PendingCommit<A, T>>,
    checking: BTreeMap<TxnId, PendingCheck<A>>,
    checking_bytes: ClientBytes,
    /// When each commit and each check repeats its unanswered questions.
    coordinating: Schedule<TxnId>,
    asking: Schedule<TxnId>,
    /// Datastore transactions that have requested locks through this gateway and are not ending yet.
    locking: BTreeMap<TxnId, LockingTxn<A>>,
    /// The bricks of logical nodes, as far as they are known (C5).
    bricks: BTreeMap<NodeId, u32>,
    backlog: Backlog,
    out: Vec<Output<A, T>>,
}

impl<A: Clone + PartialEq, T: Clone + MemorySize> Gateway<A, T> {
    /// A gateway that accepts timestamps that are at most `skew_ms` ahead of its clock.
    #[must_use]
    pub fn new(skew_ms: u64) -> Self {
        Self {
            clock: Clock::new(HlcTimestamp::ZERO, skew_ms),
            coordinators: BTreeMap::new(),
            checking: BTreeMap::new(),
            checking_bytes: ClientBytes::default(),
            coordinating: Schedule::default(),
            asking: Schedule::default(),
            locking: BTreeMap::new(),
            bricks: BTreeMap::new(),
            backlog: Backlog::new(BACKLOG_LIMIT_BYTES),
            out: Vec::new(),
        }
    }

    /// Sets the memory limit for transactions that wait for participants, in bytes. The default is 256 MiB.
    #[must_use]
    pub fn with_limit(mut self, bytes: usize) -> Self {
        self.backlog = Backlog::new(bytes);
        self
    }

    /// Sets which brick serves each logical node: those of one brick share the messages of a transaction (C5). Without it no
    /// messages are shared. A map that is wrong or old costs messages, never correctness.
    pub fn set_bricks(&mut self, bricks: BTreeMap<NodeId, u32>) {
        self.bricks = bricks;
    }

    /// The approximate memory of pending commits, in bytes.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.backlog.bytes()
    }

    /// The limit because of which a call is not accepted now: a participant does not answer and the memory limit for waiting transactions is
    /// reached, or much of the client waits already. Accepted transactions continue, and repetitions of their calls are accepted.
    #[must_use]
    pub fn reached_limit(&self, txn: TxnId, call: &Call<T>, now: Ms) -> Option<CallLimit> {
        if self.coordinators.contains_key(&txn) {
            return None;
        }
        let (client, is_little) = (txn.client, call.stores_nothing());
        let nodes: Vec<NodeId> = match call {
            Call::Check { reads, .. } => {
                let first = *reads.keys().next().filter(|_| !self.checking.contains_key(&txn))?;
                let limit = self.backlog.limit();
                let is_full = self.checking_bytes.is_client_full(client, limit);
                return match self.checking_bytes.is_full(limit) {
                    true => Some(CallLimit::Total(first)),
                    false => is_full.then_some(CallLimit::Client(first)),
                };
            }
            Call::Lock { oid, .. } => {
                if let Some(locking) = self.locking.get(&txn) {
                    let is_full = locking.waiting.len() >= MAX_WAITING_LOCKS && !locking.waiting.contains_key(oid);
                    return is_full.then_some(CallLimit::Client(oid.page().node));
                }
                if self.locking.len() < MAX_LOCKING {
                    return None;
                }
                let of_client = self.locking.keys().filter(|other| other.client == client).count();
                return (of_client >= MAX_LOCKING).then_some(CallLimit::Client(oid.page().node));
            }
            Call::Heard { .. } | Call::Release { .. } => return None,
            Call::Commit { .. } | Call::Resolve { .. } if self.backlog.bytes() < self.backlog.limit() => return None,
            Call::Commit { parts, .. } => parts.keys().copied().collect(),
            Call::Resolve { participants, .. } => participants.clone(),
        };
        let first = *nodes.first()?;
        if self.backlog.is_client_full(client, is_little) {
            return Some(CallLimit::Client(first));
        }
        if self.backlog.is_full(is_little) {
            return Some(CallLimit::Total(first));
        }
        self.backlog.full_participant(nodes, is_little, now).map(CallLimit::Participant)
    }

    /// Removes and returns the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    /// The largest timestamp that it knows. Every question carries it to its participant (L1).
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.clock.last()
    }

    /// From now on, this is the time of the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.clock.set_time(time);
    }

    /// Learns a timestamp from a message.
    ///
    /// # Errors
    /// If it is further ahead than clocks may differ.
    pub fn learn(&mut self, seen: HlcTimestamp, now: Ms) -> Result<(), ClockSkewError> {
        self.clock.learn(seen, now)
    }

    /// Handles a call of a client.
    ///
    /// # Errors
    /// If no process that follows the rules sends this call. The state is unchanged.
    pub fn handle_call(&mut self, from: A, txn: TxnId, call: Call<T>, now: Ms) -> Result<(), Rejected> {
        if !call.is_consistent() {
            return Err(Rejected::Elsewhere(txn));
        }
        if call.needs_time() && !self.clock.is_trusted() {
            return Err(Rejected::UntrustedClock);
        }
        if let Some(limit) = self.reached_limit(txn, &call, now) {
            self.out.push(if planted(Bug::BusyIsRefused) {
                Output::Reply(from, txn, Reply::Ended(coordinator::CommitReply::Refused(Refusal::Aborted)))
            } else {
                Output::Busy(from, txn, limit)
            });
            return Ok(());
        }
        let bytes = call.memory_size();
        match call {
            // An empty commit succeeds.
            Call::Commit { parts, .. } if parts.is_empty() => {
                let reply = coordinator::CommitReply::Committed(self.clock.tick(now).into());
                self.out.push(Output::Reply(from, txn, Reply::Ended(reply)));
            }
            // No participant can know the outcome.
            Call::Resolve { participants, .. } if participants.is_empty() => {
                let reply = coordinator::CommitReply::Refused(Refusal::TooOld);
                self.out.push(Output::Reply(from, txn, Reply::Ended(reply)));
            }
            Call::Commit { mut parts, .. } => {
                let transfer = transfer_ms(bytes);
                // If they arrive later, a participant that has its part aborts the transaction: objects are not held for long if the
                // coordinator is gone.
                let queued = self.backlog.bytes() + bytes;
                parts.values_mut().for_each(|part| part.transfer_ms = brick_transfer_ms(queued));
                self.coordinate(from, txn, (bytes, now), |now, out| {
                    Coordinator::commit(txn, parts, now, out).with_transfer(transfer)
                });
            }
            Call::Resolve { participants, patched } => {
                self.give_up(txn, now);
                self.coordinate(from, txn, (bytes, now), |now, out| {
                    Coordinator::finish(txn, participants, now, out).with_appends(patched)
                });
            }
            Call::Check { reads, seen } => {
                self.clock.learn(seen, now)?;
                self.check(from, txn, reads, now);
            }
            Call::Lock { first, oid, mode } => {
                self.out.push(Output::Ask(oid.page().node, Request::Lock { txn, first, oid, mode }));
                // The locks of a transaction that is committing are renewed; it waits for none.
                if self.coordinators.contains_key(&txn) {
                    return Ok(());
                }
                let fresh =
                    || LockingTxn { client: from.clone(), waiting: BTreeMap::new(), participants: BTreeSet::new() };
                let locking = self.locking.entry(txn).or_insert_with(fresh);
                locking.participants.insert(oid.page().node);
                locking.client = from;
                let waiting = locking.waiting.entry(oid).or_insert((first, mode));
                waiting.1 = waiting.1.join(mode);
            }
            Call::Heard { nodes, mark } => {
                let request = || Request::Heard { txn, mark: mark.clone() };
                self.out.extend(nodes.into_iter().map(|node| Output::Ask(node, request())));
            }
            Call::Release { participants } => {
                self.locking.remove(&txn);
                // A question, not an outcome: a client that has sent a commit, too, does not abort what may be committed elsewhere (C1).
                let request = || match planted(Bug::ReleaseDecides) {
                    true => Request::Decide { txn, outcome: Outcome::Aborted },
                    false => Request::Ask { txn, round: 0 },
                };
                self.out.extend(participants.into_iter().map(|node| Output::Ask(node, request())));
            }
        }
        Ok(())
    }

    /// Starts a coordinator for a transaction, unless one is running.
    fn coordinate(
        &mut self,
        from: A,
        txn: TxnId,
        (bytes, now): (usize, Ms),
        begin: impl FnOnce(Ms, &mut Vec<coordinator::Output<T>>) -> Coordinator<T>,
    ) {
        self.locking.remove(&txn);
        let mut out = Vec::new();
        match self.coordinators.get_mut(&txn) {
            Some(one) => {
                (one.client, one.last_call) = (from.clone(), now);
                if let Some(reply) = one.coordinator.reply().cloned() {
                    self.out.push(Output::Reply(from, txn, Reply::Ended(reply)));
                }
            }
            None => {
                let coordinator = begin(now, &mut out);
                self.backlog.begin(txn, bytes, coordinator.unanswered_participants().collect(), now);
                self.coordinators.insert(txn, PendingCommit { client: from, last_call: now, coordinator });
            }
        }
        self.handle_coordinator_outputs(txn, out);
    }

    /// Abandons the commit of a transaction, if one is running.
    fn give_up(&mut self, txn: TxnId, now: Ms) {
        let mut out = Vec::new();
        if let Some(one) = self.coordinators.get_mut(&txn) {
            one.coordinator.give_up(now, &mut out);
        }
        self.handle_coordinator_outputs(txn, out);
    }

    fn handle_coordinator_outputs(&mut self, txn: TxnId, out: Vec<coordinator::Output<T>>) {
        let Some(PendingCommit { client, coordinator, .. }) = self.coordinators.get(&txn) else { return };
        let mut first = Vec::new();
        for output in out {
            match output {
                coordinator::Output::Send(node, request) => first.push((node, request)),
                coordinator::Output::Repeat(node, request) => self.out.push(Output::Ask(node, request)),
                coordinator::Output::Reply(reply) => {
                    self.out.push(Output::Reply(client.clone(), txn, Reply::Ended(reply)))
                }
            }
        }
        let joined = joint::join(first, |node| self.bricks.get(&node).copied());
        self.out.extend(joined.into_iter().map(|(node, request)| Output::Ask(node, request)));
        self.coordinating.set(txn, coordinator.deadline());
        self.backlog.update(txn, coordinator.unanswered_participants(), coordinator.has_parts());
        if coordinator.is_done() {
            if let Some(mixed) = coordinator.mixed_outcome() {
                self.out.push(Output::MixedOutcome(txn, mixed));
            }
            self.coordinators.remove(&txn);
            self.backlog.end(txn);
        }
        let (coordinators, counted) = (self.coordinators.len(), self.backlog.len());
        assert!(coordinators == counted, "C3: {coordinators} coordinators are running, but {counted} are counted");
    }

    fn check(&mut self, from: A, txn: TxnId, reads: BTreeMap<NodeId, ReadList>, now: Ms) {
        let at = match self.checking.get(&txn) {
            Some(before) => before.at,
            None => self.clock.tick(now),
        };
        if reads.is_empty() {
            return self.out.push(Output::Reply(from, txn, Reply::Checked(Ok(at))));
        }
        let open = reads.keys().copied().collect();
        let request = |(node, reads): (&NodeId, &ReadList)| (*node, Request::Check { txn, reads: reads.clone(), at });
        let joined = joint::join(reads.iter().map(request), |node| self.bricks.get(&node).copied());
        self.out.extend(joined.into_iter().map(|(node, request)| Output::Ask(node, request)));
        let repeat = repeat_at(&reads, now);
        self.end_check(txn);
        let bytes = TRANSACTION_OVERHEAD_BYTES + bytes_of_reads(&reads);
        self.checking_bytes.add(txn.client, bytes);
        self.checking.insert(txn, PendingCheck { from, at, reads, bytes, open, repeat });
        self.asking.set(txn, Some(repeat));
    }

    /// Ends the check of a read-only transaction, if one is running. Returns it.
    fn end_check(&mut self, txn: TxnId) -> Option<PendingCheck<A>> {
        let ended = self.checking.remove(&txn)?;
        self.asking.set(txn, None);
        self.checking_bytes.remove(txn.client, ended.bytes);
        Some(ended)
    }

    /// Repeats the unanswered questions of a read-only transaction, if they are due.
    fn repeat_checks(&mut self, txn: TxnId, now: Ms) {
        let Some(checking) = self.checking.get_mut(&txn).filter(|checking| checking.repeat <= now) else { return };
        assert!(!checking.open.is_empty(), "V4: the check of {txn:?} waits for no participant");
        checking.repeat = repeat_at(&checking.reads, now);
        self.asking.set(txn, Some(checking.repeat));
        for node in &checking.open {
            let reads = checking.reads[node].clone();
            self.out.push(Output::Ask(*node, Request::Check { txn, reads, at: checking.at }));
        }
    }

    /// Handles the answer of a participant. `locked` is the object's state with [`Answer::Locked`].
    pub fn handle_answer(&mut self, node: NodeId, answer: Answer, locked: Option<LockedObject<T>>, now: Ms) {
        let txn = answer.txn();
        if let Answer::Joint { answers, .. } = answer {
            return self.handle_joint_answer(answers, now);
        }
        match (&answer, locked) {
            (Answer::Checked { verdict, .. }, _) => return self.handle_checked(node, txn, *verdict),
            (Answer::Locked { .. }, Some(locked)) => {
                if let Some(locking) = self.locking.get_mut(&txn) {
                    if locking.waiting.get(&locked.oid).is_some_and(|(_, mode)| locked.mode.covers(*mode)) {
                        locking.waiting.remove(&locked.oid);
                    }
                    self.out.push(Output::Reply(locking.client.clone(), txn, Reply::Locked(locked)));
                }
                return;
            }
            _ => {}
        }
        let mut out = Vec::new();
        match self.coordinators.get_mut(&txn) {
            Some(one) => one.coordinator.handle_answer(node, answer, now, &mut out),
            // The transaction was wounded, or its locks have expired.
            None => {
                if let (Some(locking), Answer::Refused { why, .. }) = (self.locking.remove(&txn), answer) {
                    let reply = Reply::Ended(coordinator::CommitReply::Refused(why));
                    self.out.push(Output::Reply(locking.client, txn, reply));
                }
            }
        }
        self.handle_coordinator_outputs(txn, out);
    }

    /// Handles the answers of several participants: first the votes to commit, so that one that refuses ends the transaction at the
    /// others by one message.
    fn handle_joint_answer(&mut self, answers: BTreeMap<NodeId, Answer>, now: Ms) {
        let is_vote = |(_, answer): &(NodeId, Answer)| matches!(answer, Answer::Prepared { .. });
        let (votes, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_vote);
        for (node, answer) in votes.into_iter().chain(others) {
            self.handle_answer(node, answer, None, now);
        }
    }

    fn handle_checked(&mut self, node: NodeId, txn: TxnId, verdict: Result<(), crate::validate::ValidationConflict>) {
        let Some(checking) = self.checking.get_mut(&txn) else { return };
        checking.open.remove(&node);
        let result = match verdict {
            Err(conflict) => Err(Refusal::Conflict(conflict)),
            Ok(()) if checking.open.is_empty() => Ok(checking.at),
            Ok(()) => return,
        };
        if let Some(checking) = self.end_check(txn) {
            self.out.push(Output::Reply(checking.from, txn, Reply::Checked(result)));
        }
    }

    /// Removes a client whose connection has ended.
    ///
    /// Its commits are finished, because the client may ask for their outcomes at another gateway. Its checks are
    /// dropped. Its datastore transactions are ended at once, so that their locks do not stay until they expire (W1):
    /// each participant is asked for the outcome of the transaction (C2). A participant that has not prepared the
    /// transaction marks it aborted and releases its locks. A participant that has prepared it, for a commit through
    /// another gateway, keeps it.
    pub fn handle_disconnected(&mut self, client: &A) {
        let gone = self.checking.iter().filter(|(_, checking)| checking.from == *client).map(|(txn, _)| *txn);
        gone.collect::<Vec<_>>().into_iter().for_each(|txn| drop(self.end_check(txn)));
        let ended: Vec<(TxnId, LockingTxn<A>)> =
            self.locking.extract_if(.., |_, locking| locking.client == *client).collect();
        for (txn, locking) in ended.into_iter().filter(|_| !planted(Bug::LocksOutlive)) {
            let ask = |node| Output::Ask(node, Request::Ask { txn, round: 0 });
            self.out.extend(locking.participants.into_iter().map(ask));
        }
    }

    /// Forgets the transactions in which a logical node takes part that will never answer again: its space was removed, and the
    /// other participants with it. Their clients are told nothing, because they have lost their connections.
    pub fn remove_node(&mut self, node: NodeId) {
        for (txn, _) in self.coordinators.extract_if(.., |_, one| one.coordinator.involves(node)) {
            self.coordinating.set(txn, None);
            self.backlog.end(txn);
        }
        let gone = self.checking.iter().filter(|(_, checking)| checking.reads.contains_key(&node)).map(|(txn, _)| *txn);
        gone.collect::<Vec<_>>().into_iter().for_each(|txn| drop(self.end_check(txn)));
        self.locking.retain(|_, locking| !locking.participants.contains(&node));
    }

    /// A question to a participant was not sent, or has to be asked again: it is, as soon as one that takes no time to send.
    pub fn ask_again_soon(&mut self, txn: TxnId, node: NodeId, now: Ms) {
        if let Some(one) = self.coordinators.get_mut(&txn) {
            one.coordinator.ask_again_soon(node, now);
            self.coordinating.set(txn, one.coordinator.deadline());
        }
    }

    /// Repeats the unanswered questions to a participant that is reachable again, perhaps at another brick.
    pub fn retry_now(&mut self, node: NodeId) {
        let mut asked = Vec::new();
        for one in self.coordinators.values() {
            one.coordinator.retry_now(node, &mut asked);
        }
        self.out.extend(asked.into_iter().filter_map(|output| match output {
            coordinator::Output::Send(node, request) | coordinator::Output::Repeat(node, request) => {
                Some(Output::Ask(node, request))
            }
            coordinator::Output::Reply(_) => None,
        }));
        for (txn, checking) in self.checking.iter().filter(|(_, checking)| checking.open.contains(&node)) {
            let reads = checking.reads[&node].clone();
            self.out.push(Output::Ask(node, Request::Check { txn: *txn, reads, at: checking.at }));
        }
        for (txn, locking) in &self.locking {
            let waiting = locking.waiting.iter().filter(|(oid, _)| oid.page().node == node);
            let request = |(oid, (first, mode)): (&Oid, &(TxnId, LockMode))| Request::Lock {
                txn: *txn,
                first: *first,
                oid: *oid,
                mode: *mode,
            };
            self.out.extend(waiting.map(|lock| Output::Ask(node, request(lock))));
        }
    }

    /// Performs the actions that are due.
    pub fn poll(&mut self, now: Ms) {
        for txn in self.coordinating.due(now) {
            let mut out = Vec::new();
            if let Some(one) = self.coordinators.get_mut(&txn) {
                let patience = ABANDON_AFTER_MS + ABANDON_AFTER_TRANSFERS * one.coordinator.transfer();
                if one.last_call + patience <= now {
                    one.coordinator.give_up(now, &mut out);
                }
                one.coordinator.poll(now, &mut out);
            }
            self.handle_coordinator_outputs(txn, out);
        }
        self.asking.due(now).into_iter().for_each(|txn| self.repeat_checks(txn, now));
    }

    /// When [`Gateway::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        self.coordinating.first().into_iter().chain(self.asking.first()).min()
    }
}

fn bytes_of_reads(reads: &BTreeMap<NodeId, ReadList>) -> usize {
    reads.values().map(MemorySize::memory_size).sum()
}

/// When the questions of a read-only transaction that are sent now are repeated.
fn repeat_at(reads: &BTreeMap<NodeId, ReadList>, now: Ms) -> Ms {
    now + REPEAT_MS + transfer_ms(bytes_of_reads(reads))
}

#[cfg(test)]
mod tests;
