//! What waits for participants that do not answer, and how much more of it is taken.
//!
//! Whoever cannot be reached may be away for long, and clients go on. So there is a bound in bytes for all that is kept: above it
//! nothing is taken any more that takes part where an answer is overdue. What takes part elsewhere only goes on.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;

use crate::ident::TxnId;
use crate::lease::Ms;

/// How long an answer may take before it is overdue.
const OVERDUE_MS: Ms = 1_000;
/// What a transaction takes beside what it reads and writes, in bytes.
const TRANSACTION_OVERHEAD_BYTES: usize = 512;

/// What waits.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    limit: usize,
    bytes: usize,
    by_txn: BTreeMap<TxnId, PendingTxn>,
    /// The same by participants, the oldest first.
    by_participant: BTreeMap<NodeId, BTreeSet<(Ms, TxnId)>>,
}

#[derive(Clone, Debug)]
struct PendingTxn {
    since: Ms,
    bytes: usize,
    nodes: BTreeSet<NodeId>,
}

impl Backlog {
    /// With a bound in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, by_txn: BTreeMap::new(), by_participant: BTreeMap::new() }
    }

    /// How many transactions wait.
    pub(super) fn len(&self) -> usize {
        self.by_txn.len()
    }

    /// About how many bytes are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The participant for which no more may wait, if there is one among these. To find out how transactions have ended, or to delete
    /// objects, takes little, and makes others end: that may take as much again.
    pub(super) fn full_participant(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
        is_little: bool,
        now: Ms,
    ) -> Option<NodeId> {
        let limit = if is_little { 2 * self.limit } else { self.limit };
        let overdue = |node: &NodeId| {
            let oldest = self.by_participant.get(node).and_then(BTreeSet::first);
            oldest.is_some_and(|(since, _)| since + OVERDUE_MS <= now)
        };
        nodes.into_iter().find(overdue).filter(|_| self.bytes >= limit)
    }

    /// A transaction of which so many bytes are kept waits for these from now on.
    pub(super) fn begin(&mut self, txn: TxnId, bytes: usize, nodes: BTreeSet<NodeId>, now: Ms) {
        let bytes = TRANSACTION_OVERHEAD_BYTES + bytes;
        for node in &nodes {
            self.by_participant.entry(*node).or_default().insert((now, txn));
        }
        self.bytes += bytes;
        let before = self.by_txn.insert(txn, PendingTxn { since: now, bytes, nodes });
        assert!(before.is_none(), "C3: {txn:?} waits twice");
    }

    /// It waits for these only, and keeps what it writes or nothing any more. Who has answered once is not overdue because of it any more.
    pub(super) fn update(&mut self, txn: TxnId, open: impl Iterator<Item = NodeId>, keeps: bool) {
        let Some(waiting) = self.by_txn.get_mut(&txn) else { return };
        if !keeps {
            self.bytes -= waiting.bytes - TRANSACTION_OVERHEAD_BYTES;
            waiting.bytes = TRANSACTION_OVERHEAD_BYTES;
        }
        let open: BTreeSet<NodeId> = open.filter(|node| waiting.nodes.contains(node)).collect();
        for node in waiting.nodes.difference(&open) {
            if let Some(of_node) = self.by_participant.get_mut(node) {
                of_node.remove(&(waiting.since, txn));
                if of_node.is_empty() {
                    self.by_participant.remove(node);
                }
            }
        }
        waiting.nodes = open;
    }

    /// It has ended.
    pub(super) fn end(&mut self, txn: TxnId) {
        self.update(txn, std::iter::empty(), false);
        if let Some(waiting) = self.by_txn.remove(&txn) {
            assert!(self.bytes >= waiting.bytes, "C3: {txn:?} has {} of {} bytes", waiting.bytes, self.bytes);
            self.bytes -= waiting.bytes;
        }
        assert!(
            !self.by_txn.is_empty() || self.bytes == 0 && self.by_participant.is_empty(),
            "C3: no transaction waits, and {} bytes are counted for {:?}",
            self.bytes,
            self.by_participant
        );
    }
}
