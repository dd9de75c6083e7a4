//! The unfinished calls of a driver, with the condition and the deadline of each.

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, ErrorKind, NodeId, Oid, PageId};
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::locks::LockMode;

use super::super::transaction::IsolationLevel;

/// The number of a call. A driver never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// A read in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The transaction.
    pub txn: TxnId,
    /// Its level: copies are read, or objects are locked.
    pub level: IsolationLevel,
    /// The object.
    pub oid: Oid,
    /// The lock that a transaction with locks takes.
    pub mode: LockMode,
}

/// A condition that finishes a call or makes it retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitKey {
    /// A page has arrived, or the session of its logical node has changed.
    Page(PageId),
    /// A message about a transaction has arrived.
    Txn(TxnId),
    /// A transaction has ended.
    Outcome(TxnId),
    /// A write outside of transactions is durable.
    Write(u64),
    /// The status of the space has changed.
    SpaceStatus,
    /// The connection to a peer server has changed.
    PeerServer,
}

/// Why a transaction's outcome is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutcomeGoal {
    /// It is being committed.
    Commit,
    /// It is being committed, a brick has deferred it for this reason, and the driver has given it up.
    Deferred(ErrorKind, String),
    /// Its outcome was unknown.
    Resolve,
}

/// A request that a peer server answers once, and that may be repeated.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The logical nodes that it needs.
    pub(super) nodes: Vec<NodeId>,
    /// Whether it was sent and neither answered nor lost.
    pub(super) is_sent: bool,
    /// Why its last attempt has failed.
    pub(super) last_error: Option<Error>,
}

/// A call that is not finished.
#[derive(Debug)]
pub(super) enum PendingCall<T> {
    Read(ReadRequest),
    Get(Oid),
    /// Waits until the object is in another state than this one.
    Change(Oid, Option<T>),
    Put {
        oid: Oid,
        number: u64,
    },
    Outcome {
        txn: TxnId,
        goal: OutcomeGoal,
    },
    Reachable(Vec<NodeId>),
    Request(PendingRequest),
}

impl<T> PendingCall<T> {
    fn keys(&self) -> [Option<WaitKey>; 2] {
        match self {
            Self::Read(read) if read.level == IsolationLevel::Locks => [Some(WaitKey::Txn(read.txn)), None],
            Self::Read(read) => [Some(WaitKey::Txn(read.txn)), Some(WaitKey::Page(read.oid.page()))],
            Self::Get(oid) | Self::Change(oid, _) => [Some(WaitKey::Page(oid.page())), None],
            Self::Put { number, .. } => [Some(WaitKey::Write(*number)), None],
            Self::Outcome { txn, .. } => [Some(WaitKey::Outcome(*txn)), None],
            Self::Reachable(_) => [Some(WaitKey::SpaceStatus), None],
            Self::Request(_) => [Some(WaitKey::PeerServer), None],
        }
    }

    /// Whether it has been sent and its effect may be unknown: it is waited for only briefly once the space is stopped.
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Outcome { .. })
    }
}

#[derive(Debug)]
struct Entry<T> {
    call: PendingCall<T>,
    /// When it fails.
    deadline: Ms,
    /// When it is looked at next: at its deadline, or before, to be repeated.
    wake: Ms,
}

/// The calls that are not finished.
#[derive(Debug)]
pub(super) struct CallTable<T> {
    last: u64,
    entries: BTreeMap<CallId, Entry<T>>,
    by_key: BTreeMap<(WaitKey, CallId), ()>,
    by_time: BTreeSet<(Ms, CallId)>,
}

impl<T> Default for CallTable<T> {
    fn default() -> Self {
        Self { last: 0, entries: BTreeMap::new(), by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<T> CallTable<T> {
    /// A number for a call.
    pub(super) fn next_id(&mut self) -> CallId {
        self.last += 1;
        CallId(self.last)
    }

    /// Adds a call that fails at `deadline`.
    ///
    /// # Panics
    /// If the number is in use: an answer would reach the wrong caller.
    pub(super) fn insert(&mut self, id: CallId, call: PendingCall<T>, deadline: Ms) {
        for key in call.keys().into_iter().flatten() {
            self.by_key.insert((key, id), ());
        }
        self.by_time.insert((deadline, id));
        let before = self.entries.insert(id, Entry { call, deadline, wake: deadline });
        assert!(before.is_none(), "call {id:?} was started twice");
    }

    pub(super) fn get(&self, id: CallId) -> Option<&PendingCall<T>> {
        self.entries.get(&id).map(|entry| &entry.call)
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut PendingCall<T>> {
        self.entries.get_mut(&id).map(|entry| &mut entry.call)
    }

    pub(super) fn remove(&mut self, id: CallId) -> Option<PendingCall<T>> {
        let entry = self.entries.remove(&id)?;
        for key in entry.call.keys().into_iter().flatten() {
            self.by_key.remove(&(key, id));
        }
        self.by_time.remove(&(entry.wake, id));
        Some(entry.call)
    }

    /// The calls that wait for this, in the order in which they were started.
    pub(super) fn waiting_for(&self, key: WaitKey) -> Vec<CallId> {
        let range = (key, CallId(0))..=(key, CallId(u64::MAX));
        self.by_key.range(range).map(|((_, id), ())| *id).collect()
    }

    pub(super) fn is_awaited(&self, key: WaitKey) -> bool {
        self.by_key.range((key, CallId(0))..=(key, CallId(u64::MAX))).next().is_some()
    }

    /// The calls that wait for pages of a logical node, or of any.
    pub(super) fn waiting_for_pages(&self, node: Option<NodeId>) -> Vec<CallId> {
        let is_of = |key: &WaitKey| matches!(key, WaitKey::Page(page) if node.is_none_or(|node| page.node == node));
        self.by_key.keys().filter(|(key, _)| is_of(key)).map(|(_, id)| *id).collect()
    }

    pub(super) fn ids(&self) -> Vec<CallId> {
        self.entries.keys().copied().collect()
    }

    /// Lets a call fail at `deadline`, if it would fail later.
    pub(super) fn shorten(&mut self, id: CallId, deadline: Ms) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.deadline = entry.deadline.min(deadline);
            let wake = entry.wake;
            self.wake_at(id, wake);
        }
    }

    /// Lets a call go on until `deadline`.
    pub(super) fn set_deadline(&mut self, id: CallId, deadline: Ms) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.deadline = deadline;
            self.wake_at(id, deadline);
        }
    }

    /// Looks at a call at `at`, or at its deadline if that is earlier.
    pub(super) fn wake_at(&mut self, id: CallId, at: Ms) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.by_time.remove(&(entry.wake, id));
            entry.wake = at.min(entry.deadline);
            self.by_time.insert((entry.wake, id));
        }
    }

    /// A call whose time has come, and whether that is its deadline.
    pub(super) fn next_due(&self, now: Ms) -> Option<(CallId, bool)> {
        let (_, id) = *self.by_time.first().filter(|(at, _)| *at <= now)?;
        Some((id, self.entries.get(&id).is_some_and(|entry| entry.deadline <= now)))
    }

    /// When the first call is looked at; `None` if all wait without a timeout.
    pub(super) fn first_due(&self) -> Option<Ms> {
        self.by_time.first().map(|(at, _)| *at).filter(|at| *at < Ms::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
