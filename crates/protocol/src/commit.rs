//! How a transaction commits: completely and once, or not at all.
//!
//! With one participant a commit is one message and one record in its log. With several it is a *parallel commit*: all
//! prepare at once, and there is no coordinator log. It replaces the two-phase commit of TODS (section 4.5), whose peer
//! servers keep the state of each transaction on disk.
//!
//! ```text
//!   client ── commit ──▶ peer server ══ Prepare ══▶ every participant: check, hold, log, force
//!                             ║◀═══════ Prepared, with a proposed timestamp ═══════╝
//!          ◀── committed ─────╢  all have prepared: it is committed, at the largest proposal (C1)
//!                             ╚══ Decide ══▶ every participant: log, apply, release
//! ```
//!
//! - **C1.** Committed iff every participant holds a durable prepared record; the timestamp is the largest proposal.
//! - **C2.** Any node may finish a transaction whose coordinator is gone by asking every participant. A participant
//!   that knows nothing of it first makes an *abort mark* durable; one that refuses does so before it answers. So an
//!   answer stays true.
//! - **C3.** A repeated message gets the first answer. Outcomes and marks are kept until every participant has
//!   acknowledged the outcome and the horizon, which is logged and only rises, has passed the transaction's start;
//!   older transactions are refused.
//! - **C4.** After a restart a participant restores its prepared transactions with their locks, marks, outcomes and
//!   bounds before it serves requests.
//! - **C5.** Logical nodes of one brick share the messages of a transaction. If there are no other participants, one of
//!   them is its coordinator ([`joint`]).
//!
//! A transaction may append to a blob without knowing where it ends. The participant of the blob answers with the
//! [offset](AppendOffsets), which is fixed when the transaction is prepared or committed there: a prepared patch bars
//! others of the same blob (V2), and a logged one is final. The offset is part of the records of the transaction, so a
//! repeated answer has it as long as the outcome is known (C3).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use model::{Entry, ErrorKind, NodeId, Oid, PageId};

use client_mark::ClientMark;
use coordinator::CommitReply;

use crate::clock::ClockSkewError;
use crate::entries::{collection_guard, entry_guard, is_unique_values};
use crate::ident::{ClientId, HlcTimestamp, TxnId, Version};
use crate::lease::Ms;
use crate::locks::LockMode;
use crate::page_cache::{ObjectState, SlotStates};
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::validate::{Footprint, ValidationConflict};

pub mod client_mark;
pub mod coordinator;
pub mod joint;
pub mod participant;
pub mod reconcile;

/// The new states of objects.
pub type Writes<T> = BTreeMap<Oid, ObjectState<T>>;

/// The new targets of entries of collections; `None` removes the entry.
pub type EntryChanges = BTreeMap<Entry, Option<Oid>>;

/// Where a transaction appends: the offset at which its first append to each blob puts its bytes, in bytes. Its own
/// changes determine the offsets of the others.
pub type AppendOffsets = BTreeMap<Oid, u64>;

/// Whether a transaction with these changes changes nothing.
fn is_unchanged<T>(writes: &Writes<T>, touches: &BTreeSet<Oid>, entries: &EntryChanges) -> bool {
    writes.is_empty() && touches.is_empty() && entries.is_empty()
}

/// The guards of changed entries that a transaction writes, and those that it touches.
fn guards_of(entries: &EntryChanges) -> (BTreeSet<Oid>, BTreeSet<Oid>) {
    let written = entries.keys().filter(|_| !planted(Bug::KeyGuardNotWritten)).map(entry_guard).collect();
    let listed = entries.keys().filter(|entry| !is_unique_values(entry.collection));
    let all = listed.filter(|_| !planted(Bug::CollectionGuardNotTouched));
    let mut touched: BTreeSet<Oid> = BTreeSet::new();
    let mut last = None;
    for collection in all.map(|entry| entry.collection) {
        // Entries are ordered by collections.
        if last.replace(collection) != Some(collection) {
            touched.insert(collection_guard(collection));
        }
    }
    (written, touched)
}

/// The new states, page by page.
pub fn group_by_page<T>(writes: impl IntoIterator<Item = (Oid, ObjectState<T>)>) -> BTreeMap<PageId, SlotStates<T>> {
    let mut pages: BTreeMap<PageId, SlotStates<T>> = BTreeMap::new();
    for (oid, content) in writes {
        pages.entry(oid.page()).or_default().insert(oid.slot(), content);
    }
    pages
}

/// The reads and writes of a transaction at one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// Its reads.
    pub reads: ReadList,
    /// Its writes.
    pub writes: Writes<T>,
    /// The [guards](LockMode::Touch) that it touches, apart from those of its entries.
    pub touches: BTreeSet<Oid>,
    /// The entries of collections that it changes. It writes the guards of their keys, and touches the guards of their
    /// collections ([`crate::entries`]).
    pub entries: EntryChanges,
    /// The offsets of its appends. The driver of the participant computes them from the newest states of the blobs
    /// before it passes the part on; a coordinator does not know them.
    pub offsets: AppendOffsets,
    /// How long the parts of the other participants may take to arrive, in milliseconds: so long a participant does not miss the
    /// outcome (C2). It is not logged.
    pub transfer_ms: Ms,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self {
            reads: ReadList::default(),
            writes: Writes::new(),
            touches: BTreeSet::new(),
            entries: EntryChanges::new(),
            offsets: AppendOffsets::new(),
            transfer_ms: 0,
        }
    }
}

impl<T> Part<T> {
    /// Whether all objects are on pages of this logical node.
    #[must_use]
    pub fn is_at(&self, node: NodeId) -> bool {
        let collections = self.entries.keys().map(|entry| &entry.collection);
        let changed = self.writes.keys().chain(&self.touches).chain(collections);
        self.reads.pages().chain(changed.map(|oid| oid.page())).all(|page| page.node == node)
    }

    /// What the transaction holds until it ends. A guard that it both reads and touches is held exclusively.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        let read: BTreeSet<Oid> = self.reads.iter().map(|read| read.oid).collect();
        let (mut writes, mut touches) = guards_of(&self.entries);
        touches.extend(&self.touches);
        writes.extend(touches.intersection(&read));
        let mut patches = BTreeSet::new();
        for (oid, written) in &self.writes {
            let is_unread_patch = matches!(written, ObjectState::Changed(_)) && !read.contains(oid);
            let held = if is_unread_patch { &mut patches } else { &mut writes };
            held.insert(*oid);
        }
        let reads = read.difference(&writes).copied().collect();
        touches.retain(|oid| !writes.contains(oid));
        Footprint { reads, writes, patches, touches }
    }

    /// Whether it changes a part of an object, and may append to it.
    fn has_patches(&self) -> bool {
        self.writes.values().any(|written| matches!(written, ObjectState::Changed(_)))
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        is_unchanged(&self.writes, &self.touches, &self.entries)
    }
}

impl<T> Part<T> {
    /// The bytes of the part in a message, at most, without the contents of objects.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        let changes = changes_head_bytes(self.writes.len(), self.touches.len(), self.entries.keys());
        self.reads.message_bytes() + changes
    }
}

/// The bytes that changes take in a message, at most, without the contents of objects: an identifier and a state of each write, the
/// identifiers and the key of each entry.
pub fn changes_head_bytes<'a>(writes: usize, touches: usize, entries: impl Iterator<Item = &'a Entry>) -> usize {
    writes * 20 + touches * 16 + entries.map(|entry| 33 + entry.key.as_bytes().len()).sum::<usize>()
}

/// The bytes that the requests to so many participants take together, at most, without their parts: each request may name all of them.
#[must_use]
pub fn participants_head_bytes(participants: usize) -> usize {
    let named = participants.saturating_mul(participants).min(joint::MAX_NAMED_PARTICIPANTS);
    participants * 128 + named * 4
}

/// The participants at which a transaction changes a part of an object, and may append to it.
pub(crate) fn patched_nodes<T>(parts: &BTreeMap<NodeId, Part<T>>) -> Vec<NodeId> {
    parts.iter().filter(|(_, part)| part.has_patches()).map(|(node, _)| *node).collect()
}

/// The changes of a transaction at one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// The transaction.
    pub txn: TxnId,
    /// When it committed.
    pub timestamp: HlcTimestamp,
    /// What it wrote.
    pub writes: Writes<T>,
    /// What it touched, apart from the guards of its entries.
    pub touches: BTreeSet<Oid>,
    /// The entries of collections that it changed.
    pub entries: EntryChanges,
    /// The offsets of its appends.
    pub offsets: AppendOffsets,
}

impl<T> Change<T> {
    /// The changes of an aborted transaction: none.
    pub(crate) fn empty(txn: TxnId) -> Self {
        Self::of_part(txn, HlcTimestamp::ZERO, Part::default())
    }

    /// The changes of a transaction that commits at this time.
    pub(crate) fn of_part(txn: TxnId, timestamp: HlcTimestamp, part: Part<T>) -> Self {
        let Part { writes, touches, entries, offsets, .. } = part;
        Self { txn, timestamp, writes, touches, entries, offsets }
    }

    /// Whether no page has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        is_unchanged(&self.writes, &self.touches, &self.entries)
    }

    /// A page that has a new version, if any has.
    #[must_use]
    pub fn any_page(&self) -> Option<PageId> {
        let entry = || self.entries.keys().next().map(entry_guard);
        let changed = self.writes.keys().chain(&self.touches).next().copied();
        changed.or_else(entry).map(Oid::page)
    }

    /// The pages with a new version, each with the changed slots and the new states. Guards have no state: those that
    /// are touched, and those of changed entries.
    #[must_use]
    pub fn pages(self) -> BTreeMap<PageId, (BTreeSet<u16>, SlotStates<T>)> {
        let mut pages: BTreeMap<PageId, (BTreeSet<u16>, SlotStates<T>)> = BTreeMap::new();
        for (page, contents) in group_by_page(self.writes) {
            pages.insert(page, (contents.keys().copied().collect(), contents));
        }
        let (keys, collections) = guards_of(&self.entries);
        for oid in self.touches.into_iter().chain(keys).chain(collections) {
            pages.entry(oid.page()).or_default().0.insert(oid.slot());
        }
        pages
    }
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It committed, with this timestamp.
    Committed(HlcTimestamp),
    /// It did not commit and never will.
    Aborted,
}

/// Why a participant refuses a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It conflicts.
    Conflict(ValidationConflict),
    /// It was aborted before: another coordinator finished it, or it was wounded.
    Aborted,
    /// It is older than the horizon (C3): its outcome is no longer known.
    TooOld,
}

/// A request to a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<T> {
    /// Prepare a transaction of several participants.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// All of them.
        participants: Vec<NodeId>,
        /// The reads and writes here.
        part: Part<T>,
    },
    /// Commit a transaction that has no other participant.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// All its reads and writes.
        part: Part<T>,
    },
    /// The outcome of a transaction.
    Decide {
        /// The transaction.
        txn: TxnId,
        /// The outcome.
        outcome: Outcome,
    },
    /// Return the state of a transaction. If nothing is known of it, it is aborted (C2).
    Ask {
        /// The transaction.
        txn: TxnId,
        /// The round of the question, which the answer repeats.
        round: u32,
    },
    /// Every participant has acknowledged the outcome: it may be forgotten when it is old (C3).
    Forget {
        /// The transaction.
        txn: TxnId,
    },
    /// The client has heard these outcomes, which may be forgotten (C3). Not answered.
    Heard {
        /// A transaction of the client.
        txn: TxnId,
        /// What it has heard.
        mark: ClientMark,
    },
    /// Check the reads of a read-only transaction at this time. If they are current, no later commit gets a timestamp
    /// at or before it.
    Check {
        /// The transaction.
        txn: TxnId,
        /// What it read here.
        reads: ReadList,
        /// The time of the transaction.
        at: HlcTimestamp,
    },
    /// Lock an object for a datastore transaction and return its state. Repeating the request renews the transaction's
    /// locks.
    Lock {
        /// The transaction.
        txn: TxnId,
        /// Its first attempt, which determines its age (W1).
        first: TxnId,
        /// The object.
        oid: Oid,
        /// The mode of the lock.
        mode: LockMode,
    },
    /// Requests of one transaction to several logical nodes of a brick, for the first of them (C5): see [`joint`].
    Joint {
        /// The transaction.
        txn: TxnId,
        /// The request for each logical node: neither a lock request nor a joint one.
        requests: BTreeMap<NodeId, Request<T>>,
    },
}

impl<T> Request<T> {
    /// Whether the request and all objects in it belong to this logical node.
    #[must_use]
    pub fn is_at(&self, node: NodeId) -> bool {
        match self {
            Self::Joint { txn, requests } => {
                let is_first = requests.first_key_value().is_some_and(|(first, _)| *first == node);
                let mut all = requests.iter();
                is_first && all.all(|(at, one)| one.may_be_joint() && one.txn() == *txn && one.is_at(*at))
            }
            Self::Prepare { participants, part, .. } => participants.contains(&node) && part.is_at(node),
            Self::Commit { part, .. } => part.is_at(node),
            Self::Check { reads, .. } => reads.pages().all(|page| page.node == node),
            Self::Lock { oid, .. } => oid.page().node == node,
            Self::Decide { .. } | Self::Ask { .. } | Self::Forget { .. } | Self::Heard { .. } => true,
        }
    }

    /// The transaction of the message.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        match self {
            Self::Prepare { txn, .. }
            | Self::Commit { txn, .. }
            | Self::Decide { txn, .. }
            | Self::Ask { txn, .. }
            | Self::Forget { txn }
            | Self::Heard { txn, .. }
            | Self::Check { txn, .. }
            | Self::Lock { txn, .. }
            | Self::Joint { txn, .. } => *txn,
        }
    }

    /// Whether it may be part of a joint request.
    fn may_be_joint(&self) -> bool {
        !matches!(self, Self::Lock { .. } | Self::Joint { .. })
    }

    /// Whether its participant makes, logs or promises a timestamp for it (L2). Others end transactions.
    fn needs_time(&self) -> bool {
        match self {
            Self::Prepare { .. } | Self::Commit { .. } | Self::Check { .. } | Self::Lock { .. } => true,
            Self::Joint { .. } | Self::Heard { .. } => true,
            Self::Decide { .. } | Self::Ask { .. } | Self::Forget { .. } => false,
        }
    }

    /// Whether it is answered.
    fn is_answered(&self) -> bool {
        !matches!(self, Self::Forget { .. } | Self::Heard { .. })
    }
}

/// Why a message breaks the rules. The state is unchanged; disconnect the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// It contains a timestamp that is further ahead than clocks may differ (L1).
    Ahead(ClockSkewError),
    /// It names a page of another logical node, or omits this node from the participants.
    Elsewhere(TxnId),
    /// The page belongs to another logical node than the message.
    Foreign(PageId),
    /// The clock of this process is wrong: it makes no timestamps (L2).
    UntrustedClock,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(ahead) => ahead.fmt(f),
            Self::Elsewhere(txn) => write!(f, "transaction {txn:?} does not involve this logical node"),
            Self::Foreign(page) => write!(f, "{page:?} is not a page of the logical node that the message is for"),
            Self::UntrustedClock => f.write_str("the clock of this process is wrong: set it right, or try again"),
        }
    }
}

impl Error for Rejected {}

impl From<Rejected> for model::Error {
    fn from(why: Rejected) -> Self {
        // The sender of the message has done nothing wrong if the clock here is.
        let kind = if why == Rejected::UntrustedClock { ErrorKind::Unavailable } else { ErrorKind::Invalid };
        Self::new(kind, why.to_string())
    }
}

impl From<ClockSkewError> for Rejected {
    fn from(ahead: ClockSkewError) -> Self {
        Self::Ahead(ahead)
    }
}

/// The answer of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its prepared record is durable.
    Prepared {
        /// The transaction.
        txn: TxnId,
        /// The earliest commit timestamp for this participant.
        proposal: HlcTimestamp,
        /// All participants, for a coordinator that finishes the transaction.
        participants: Vec<NodeId>,
        /// The round of the question; 0 if that was a prepare.
        round: u32,
        /// The offsets of the transaction's appends here.
        offsets: AppendOffsets,
    },
    /// The outcome is durable here.
    Ended {
        /// The transaction.
        txn: TxnId,
        /// The outcome.
        outcome: Outcome,
        /// The version of what it wrote here, if it wrote anything.
        version: Option<Version>,
        /// The offsets of its appends here, if it committed.
        offsets: AppendOffsets,
    },
    /// The transaction will never commit here.
    Refused {
        /// The transaction.
        txn: TxnId,
        /// The reason.
        why: Refusal,
    },
    /// The reads of a read-only transaction were checked.
    Checked {
        /// The transaction.
        txn: TxnId,
        /// The conflict, if there is one.
        verdict: Result<(), ValidationConflict>,
    },
    /// An object is locked. The driver of the participant reads its state and sends it with the answer.
    Locked {
        /// The transaction.
        txn: TxnId,
        /// The object.
        oid: Oid,
        /// The mode of the lock.
        mode: LockMode,
    },
    /// The answers to a joint request (C5).
    Joint {
        /// The transaction.
        txn: TxnId,
        /// The answer of each logical node: neither [`Answer::Locked`] nor a joint one.
        answers: BTreeMap<NodeId, Answer>,
    },
    /// The answer to a joint request that prepares all participants: this participant coordinates the transaction, has
    /// decided it, and tells the others (C5).
    Concluded {
        /// The transaction.
        txn: TxnId,
        /// The answer for the client.
        reply: CommitReply,
    },
}

impl Answer {
    /// The transaction of the message.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        match self {
            Self::Prepared { txn, .. }
            | Self::Ended { txn, .. }
            | Self::Refused { txn, .. }
            | Self::Checked { txn, .. }
            | Self::Locked { txn, .. }
            | Self::Joint { txn, .. }
            | Self::Concluded { txn, .. } => *txn,
        }
    }
}

/// A record in the log of a participant. Its effects happen when it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<T> {
    /// Prepared, and waiting for the outcome.
    Prepared {
        /// The transaction.
        txn: TxnId,
        /// All participants.
        participants: Vec<NodeId>,
        /// What it read and writes here.
        part: Part<T>,
        /// The proposed timestamp.
        proposal: HlcTimestamp,
    },
    /// Committed, with no other participant.
    Committed {
        /// The transaction.
        txn: TxnId,
        /// The commit timestamp.
        timestamp: HlcTimestamp,
        /// What it writes.
        writes: Writes<T>,
        /// What it touches: the pages get a new version.
        touches: BTreeSet<Oid>,
        /// The entries that it changes.
        entries: EntryChanges,
        /// The offsets of its appends.
        offsets: AppendOffsets,
    },
    /// The outcome of a prepared transaction with everything that matters later: the prepared record is no longer
    /// needed.
    Decided {
        /// The transaction.
        txn: TxnId,
        /// The outcome.
        outcome: Outcome,
        /// What it writes: nothing, if it is aborted.
        writes: Writes<T>,
        /// What it touches: nothing, if it is aborted.
        touches: BTreeSet<Oid>,
        /// The entries that it changes: none, if it is aborted.
        entries: EntryChanges,
        /// The offsets of its appends: none, if it is aborted.
        offsets: AppendOffsets,
        /// Participants that have to acknowledge the outcome.
        participants: Vec<NodeId>,
    },
    /// An abort mark: the transaction was unknown here, and is refused from now on.
    Marked {
        /// The transaction.
        txn: TxnId,
    },
    /// The bound: nothing is promised or closed at or above it before a later bound is durable (V4).
    Bound(HlcTimestamp),
    /// The horizon: unknown transactions that began at or before it are refused (C3).
    Horizon(HlcTimestamp),
    /// What a client has heard: its other transactions are refused if they are unknown (C3).
    Heard {
        /// The client.
        client: ClientId,
        /// What it has heard.
        mark: ClientMark,
    },
    /// An outcome whose pages are stored. It is written when all participants have acknowledged the outcome, when its
    /// log segment is freed, and when the node moves.
    Ended {
        /// The transaction.
        txn: TxnId,
        /// The outcome.
        outcome: Outcome,
        /// The version of what it wrote here, if it wrote anything.
        version: Option<Version>,
        /// The offsets of its appends: none, if it is aborted.
        offsets: AppendOffsets,
        /// All participants, if there are several: after a loss, those that have records name the others ([`reconcile`]).
        participants: Vec<NodeId>,
        /// Whether all of them have acknowledged the outcome.
        acknowledged: bool,
    },
}

impl<T> Record<T> {
    /// The transaction of the record, if it has one.
    #[must_use]
    pub fn txn(&self) -> Option<TxnId> {
        match self {
            Self::Prepared { txn, .. }
            | Self::Committed { txn, .. }
            | Self::Decided { txn, .. }
            | Self::Marked { txn }
            | Self::Ended { txn, .. } => Some(*txn),
            Self::Bound(_) | Self::Horizon(_) | Self::Heard { .. } => None,
        }
    }

    /// The changes of the record, if it has any.
    #[must_use]
    pub fn change(&self) -> Option<Change<T>>
    where
        T: Clone,
    {
        let (txn, timestamp, writes, touches, entries, offsets) = match self {
            Self::Committed { txn, timestamp, writes, touches, entries, offsets } => {
                (*txn, *timestamp, writes, touches, entries, offsets)
            }
            Self::Decided {
                txn, outcome: Outcome::Committed(timestamp), writes, touches, entries, offsets, ..
            } => (*txn, *timestamp, writes, touches, entries, offsets),
            _ => return None,
        };
        let (writes, touches, entries) = (writes.clone(), touches.clone(), entries.clone());
        let change = Change { txn, timestamp, writes, touches, entries, offsets: offsets.clone() };
        (!change.is_empty()).then_some(change)
    }

    /// The row that a brick stores for a record that was appended `at` this version, if it stores the pages together
    /// with the row and has no log to read again: one row for each [transaction](Record::txn), one for the bound,
    /// one for the horizon and one for each client, each replacing the previous row. The writes are in the pages.
    #[must_use]
    pub fn into_row(self, at: Version) -> Self {
        let (txn, outcome, is_changed, offsets, participants) = match self {
            Self::Committed { txn, timestamp, writes, touches, entries, offsets } => {
                let is_changed = !is_unchanged(&writes, &touches, &entries);
                (txn, Outcome::Committed(timestamp), is_changed, offsets, Vec::new())
            }
            Self::Decided { txn, outcome, writes, touches, entries, offsets, participants } => {
                let is_changed = !is_unchanged(&writes, &touches, &entries);
                (txn, outcome, is_changed, offsets, participants)
            }
            other => return other,
        };
        let version = is_changed.then_some(at);
        Self::Ended { txn, outcome, version, offsets, participants, acknowledged: false }
    }
}
