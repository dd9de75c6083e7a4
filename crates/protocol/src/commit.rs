//! How a transaction commits: all of it, once, or nothing of it.
//!
//! With one participant a commit is one message and one record in its log. With several it is a *parallel commit*: all
//! prepare at once, and there is no coordinator's log. It does what the two-phase commit of TODS does (section 4.5), whose
//! peer servers keep the state of each transaction on disk, and recover by it.
//!
//! ```text
//!   client ── commit ──▶ peer server ══ Prepare ══▶ every participant: check, hold, log, force
//!                             ║◀═══════ Prepared, with a proposed timestamp ═══════╝
//!          ◀── committed ─────╢  all have prepared: it is committed, at the largest proposal (C1)
//!                             ╚══ Decide ══▶ every participant: log, apply, release
//! ```
//!
//! - **C1.** Committed iff every participant holds a durable prepared record; the timestamp is the largest proposal.
//! - **C2.** Anyone may finish a transaction whose coordinator is gone, by asking every participant. One that knows nothing of
//!   it first makes an *abort mark* durable; so does one that refuses, before it says so. So an answer stays true.
//! - **C3.** A repeated message gets the first answer. Outcomes and marks are kept until every participant has
//!   acknowledged the outcome and the horizon, which is logged and only rises, has passed the transaction's start; older
//!   transactions are refused.
//! - **C4.** After a restart a participant has its prepared transactions, marks, outcomes and bounds back, and what they hold,
//!   before it serves anything.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use model::{NodeId, Oid, PageId};

use crate::clock::ClockSkewError;
use crate::ident::{HlcTimestamp, TxnId, Version};
use crate::locks::LockMode;
use crate::page_cache::{ObjectState, SlotStates};
use crate::validate::{Footprint, Read, ValidationConflict};

pub mod coordinator;
pub mod participant;

/// The new states of objects.
pub type Writes<T> = BTreeMap<Oid, ObjectState<T>>;

/// The new states, page by page.
pub fn group_by_page<T>(writes: impl IntoIterator<Item = (Oid, ObjectState<T>)>) -> BTreeMap<PageId, SlotStates<T>> {
    let mut pages: BTreeMap<PageId, SlotStates<T>> = BTreeMap::new();
    for (oid, content) in writes {
        pages.entry(oid.page()).or_default().insert(oid.slot(), content);
    }
    pages
}

/// What a transaction has done at one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// What it read there.
    pub reads: Vec<Read>,
    /// What it writes there.
    pub writes: Writes<T>,
    /// What it touches there: [guards](LockMode::Touch) of what others may have looked for.
    pub touches: BTreeSet<Oid>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { reads: Vec::new(), writes: Writes::new(), touches: BTreeSet::new() }
    }
}

impl<T> Part<T> {
    /// Whether all of it is about pages of this logical node.
    #[must_use]
    pub fn is_at(&self, node: NodeId) -> bool {
        let reads = self.reads.iter().map(|read| &read.oid);
        reads.chain(self.writes.keys()).chain(&self.touches).all(|oid| oid.page().node == node)
    }

    /// What it holds until it is over. Who reads what it touches has it alone: neither others who touch it nor others who read
    /// it may be there.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        let read: BTreeSet<Oid> = self.reads.iter().map(|read| read.oid).collect();
        let both = self.touches.intersection(&read);
        let writes: BTreeSet<Oid> = self.writes.keys().chain(both).copied().collect();
        let reads = read.difference(&writes).copied().collect();
        let touches = self.touches.difference(&writes).copied().collect();
        Footprint { reads, writes, touches }
    }
}

/// What a transaction has changed at one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// The transaction.
    pub txn: TxnId,
    /// When it committed.
    pub timestamp: HlcTimestamp,
    /// What it wrote.
    pub writes: Writes<T>,
    /// What it touched.
    pub touches: BTreeSet<Oid>,
}

impl<T> Change<T> {
    /// What a transaction has changed that is aborted.
    pub(crate) fn empty(txn: TxnId) -> Self {
        Self { txn, timestamp: HlcTimestamp::ZERO, writes: Writes::new(), touches: BTreeSet::new() }
    }

    /// Whether no page has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.touches.is_empty()
    }

    /// The pages that have another version since, each with the slots that changed and the new states. What was touched has no
    /// state.
    #[must_use]
    pub fn pages(self) -> BTreeMap<PageId, (BTreeSet<u16>, SlotStates<T>)> {
        let mut pages: BTreeMap<PageId, (BTreeSet<u16>, SlotStates<T>)> = BTreeMap::new();
        for (page, contents) in group_by_page(self.writes) {
            pages.insert(page, (contents.keys().copied().collect(), contents));
        }
        for oid in self.touches {
            pages.entry(oid.page()).or_default().0.insert(oid.slot());
        }
        pages
    }
}

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it happened, at this time.
    Committed(HlcTimestamp),
    /// Nothing of it happened, and nothing will.
    Aborted,
}

/// Why a participant does not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something stands against it.
    Conflict(ValidationConflict),
    /// It was aborted before: somebody finished it, or it was wounded.
    Aborted,
    /// It is older than what is remembered (C3): whether it ever happened is not known any more.
    TooOld,
}

/// What a participant is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<T> {
    /// Take part in a transaction of several participants.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// All of them.
        participants: Vec<NodeId>,
        /// What is to be done here.
        part: Part<T>,
    },
    /// Commit a transaction that has no other participant.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// All that it has done.
        part: Part<T>,
    },
    /// A transaction is decided.
    Decide {
        /// The transaction.
        txn: TxnId,
        /// How.
        outcome: Outcome,
    },
    /// What is known of a transaction? Nothing is a reason to abort it (C2).
    Ask {
        /// The transaction.
        txn: TxnId,
        /// Which round of questions it is: the answer says it again.
        round: u32,
    },
    /// Every participant has acknowledged the outcome: it may be forgotten when it is old (C3).
    Forget {
        /// The transaction.
        txn: TxnId,
    },
    /// Are these reads current, for a transaction that only reads, at this time? If so, nothing is committed at or before
    /// it any more.
    Check {
        /// The transaction.
        txn: TxnId,
        /// What it read here.
        reads: Vec<Read>,
        /// When it is to have happened.
        at: HlcTimestamp,
    },
    /// Lock an object for a datastore transaction, and look at it. Asked again, it says that the transaction is still there.
    Lock {
        /// The transaction.
        txn: TxnId,
        /// Its first try: how old it is (W1).
        first: TxnId,
        /// The object.
        oid: Oid,
        /// What for.
        mode: LockMode,
    },
}

impl<T> Request<T> {
    /// Whether it is about this logical node, and all that it names.
    #[must_use]
    pub fn is_at(&self, node: NodeId) -> bool {
        match self {
            Self::Prepare { participants, part, .. } => participants.contains(&node) && part.is_at(node),
            Self::Commit { part, .. } => part.is_at(node),
            Self::Check { reads, .. } => reads.iter().all(|read| read.oid.page().node == node),
            Self::Lock { oid, .. } => oid.page().node == node,
            Self::Decide { .. } | Self::Ask { .. } | Self::Forget { .. } => true,
        }
    }

    /// The transaction that it is about.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        match self {
            Self::Prepare { txn, .. }
            | Self::Commit { txn, .. }
            | Self::Decide { txn, .. }
            | Self::Ask { txn, .. }
            | Self::Forget { txn }
            | Self::Check { txn, .. }
            | Self::Lock { txn, .. } => *txn,
        }
    }
}

/// Why a request cannot be from anybody who follows the rules. Nothing has happened, and whoever sent it should be
/// disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// It knows a time that is further ahead than clocks may differ (L1).
    Ahead(ClockSkewError),
    /// It is about a page of another logical node, or leaves this one out of the participants.
    Elsewhere(TxnId),
    /// This page is of another logical node than what is said of it.
    Foreign(PageId),
    /// It says that a transaction has ended otherwise than it has, or than it can have (C1).
    Contradiction(TxnId),
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(ahead) => ahead.fmt(f),
            Self::Elsewhere(txn) => write!(f, "transaction {txn:?} has nothing to do with this logical node"),
            Self::Foreign(page) => write!(f, "{page:?} is not a page of the logical node that the message is for"),
            Self::Contradiction(txn) => write!(f, "transaction {txn:?} has not ended as the message says"),
        }
    }
}

impl Error for Rejected {}

impl From<ClockSkewError> for Rejected {
    fn from(ahead: ClockSkewError) -> Self {
        Self::Ahead(ahead)
    }
}

/// What a participant answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its prepared record is durable.
    Prepared {
        /// The transaction.
        txn: TxnId,
        /// When it may commit, as far as this participant is concerned; not earlier.
        proposal: HlcTimestamp,
        /// All participants: for whoever finishes it.
        participants: Vec<NodeId>,
        /// The round of the question; 0 if that was a prepare.
        round: u32,
    },
    /// It is over here, durably.
    Ended {
        /// The transaction.
        txn: TxnId,
        /// How.
        outcome: Outcome,
        /// The version of what it wrote here, if it wrote anything.
        version: Option<Version>,
    },
    /// It will never commit here.
    Refused {
        /// The transaction.
        txn: TxnId,
        /// Why.
        why: Refusal,
    },
    /// The reads of a transaction that only reads were checked.
    Checked {
        /// The transaction.
        txn: TxnId,
        /// What stands against it, if anything does.
        verdict: Result<(), ValidationConflict>,
    },
    /// An object is locked: whoever drives the participant reads it, and sends its state along.
    Locked {
        /// The transaction.
        txn: TxnId,
        /// The object.
        oid: Oid,
        /// What for.
        mode: LockMode,
    },
}

impl Answer {
    /// The transaction that it is about.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        match self {
            Self::Prepared { txn, .. }
            | Self::Ended { txn, .. }
            | Self::Refused { txn, .. }
            | Self::Checked { txn, .. }
            | Self::Locked { txn, .. } => *txn,
        }
    }
}

/// What a participant writes to its log, in this order; what follows from a record happens when it is durable.
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
        /// When.
        timestamp: HlcTimestamp,
        /// What it writes.
        writes: Writes<T>,
        /// What it touches: its pages get another version.
        touches: BTreeSet<Oid>,
    },
    /// The outcome of a prepared transaction, with all that counts of it from now on: the prepared record is not needed any
    /// more.
    Decided {
        /// The transaction.
        txn: TxnId,
        /// How.
        outcome: Outcome,
        /// What it writes: nothing, if it is aborted.
        writes: Writes<T>,
        /// What it touches: nothing, if it is aborted.
        touches: BTreeSet<Oid>,
        /// Who has to acknowledge the outcome.
        participants: Vec<NodeId>,
    },
    /// An abort mark: it has not been here, and is refused from now on.
    Marked {
        /// The transaction.
        txn: TxnId,
    },
    /// Nothing is promised or closed at or above this before a later bound is durable (V4).
    Bound(HlcTimestamp),
    /// Transactions that began at or before this are refused if nothing is known of them (C3).
    Horizon(HlcTimestamp),
    /// An outcome, as it counts when its pages are stored: said again when everybody has acknowledged it, when the segment of
    /// the log that it was in is freed, and when its node moves.
    Ended {
        /// The transaction.
        txn: TxnId,
        /// How.
        outcome: Outcome,
        /// The version of what it wrote here, if it wrote anything.
        version: Option<Version>,
        /// Who has still to acknowledge the outcome, if that is not known of all.
        participants: Vec<NodeId>,
    },
}

impl<T> Record<T> {
    /// The transaction that it is about, if it is about one.
    #[must_use]
    pub fn txn(&self) -> Option<TxnId> {
        match self {
            Self::Prepared { txn, .. }
            | Self::Committed { txn, .. }
            | Self::Decided { txn, .. }
            | Self::Marked { txn }
            | Self::Ended { txn, .. } => Some(*txn),
            Self::Bound(_) | Self::Horizon(_) => None,
        }
    }

    /// What it changes, if it changes anything.
    #[must_use]
    pub fn change(&self) -> Option<Change<T>>
    where
        T: Clone,
    {
        let (txn, timestamp, writes, touches) = match self {
            Self::Committed { txn, timestamp, writes, touches } => (*txn, *timestamp, writes, touches),
            Self::Decided { txn, outcome: Outcome::Committed(timestamp), writes, touches, .. } => {
                (*txn, *timestamp, writes, touches)
            }
            _ => return None,
        };
        let change = Change { txn, timestamp, writes: writes.clone(), touches: touches.clone() };
        (!change.is_empty()).then_some(change)
    }

    /// What a brick keeps of a record that was appended `at` this version, if it stores the pages together with it and has
    /// no log to read again: one row for each [transaction](Record::txn), one for the bound and one for the horizon, each
    /// in the place of the row before. What is written is in the pages.
    #[must_use]
    pub fn into_row(self, at: Version) -> Self {
        let (txn, outcome, is_changed, participants) = match self {
            Self::Committed { txn, timestamp, writes, touches } => {
                let is_changed = !writes.is_empty() || !touches.is_empty();
                (txn, Outcome::Committed(timestamp), is_changed, Vec::new())
            }
            Self::Decided { txn, outcome, writes, touches, participants } => {
                (txn, outcome, !writes.is_empty() || !touches.is_empty(), participants)
            }
            other => return other,
        };
        Self::Ended { txn, outcome, version: is_changed.then_some(at), participants }
    }
}
