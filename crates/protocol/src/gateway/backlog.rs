//! Transactions that wait for participants, and whether more are accepted.
//!
//! A participant may be unreachable for long while clients continue. So the memory has a limit in bytes. Above it, no
//! transaction is accepted that has a participant with an overdue answer. Others continue.
//!
//! Participants that answer in time may still be slower than clients. So the transactions of one client have at most twice the limit, and
//! those of all clients four times, whatever they wait for.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;

use crate::ident::{ClientId, TxnId};
use crate::lease::Ms;
use crate::transfer::brick_transfer_ms;

/// An answer is overdue after this time, besides the time in which all that waits is sent.
const OVERDUE_MS: Ms = 1_000;
/// The memory of a transaction without its reads and writes, in bytes.
pub(super) const TRANSACTION_OVERHEAD_BYTES: usize = 512;

/// The memory of one client's transactions, and of all, as multiples of the limit.
const CLIENT_FACTOR: usize = 2;
const TOTAL_FACTOR: usize = 4;

/// How much memory the waiting transactions of each client take, in bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientBytes {
    total: usize,
    by_client: BTreeMap<ClientId, usize>,
}

impl ClientBytes {
    pub(super) fn add(&mut self, client: ClientId, bytes: usize) {
        self.total += bytes;
        *self.by_client.entry(client).or_default() += bytes;
    }

    pub(super) fn remove(&mut self, client: ClientId, bytes: usize) {
        let Some(of_client) = self.by_client.get_mut(&client) else { return };
        assert!(*of_client >= bytes, "C3: {client:?} has {of_client} bytes, and {bytes} of them end");
        (self.total, *of_client) = (self.total - bytes, *of_client - bytes);
        if *of_client == 0 {
            self.by_client.remove(&client);
        }
    }

    fn of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).copied().unwrap_or_default()
    }

    /// Whether a client has as much memory as its transactions may take.
    pub(super) fn is_client_full(&self, client: ClientId, limit: usize) -> bool {
        self.of(client) >= CLIENT_FACTOR * limit
    }

    /// Whether all transactions together have as much memory as they may take.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.total >= TOTAL_FACTOR * limit
    }
}

/// The transactions that wait.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    limit: usize,
    bytes: ClientBytes,
    by_txn: BTreeMap<TxnId, PendingTxn>,
    /// When the answer of each participant to each of its transactions is overdue.
    by_participant: BTreeMap<NodeId, BTreeSet<(Ms, TxnId)>>,
}

#[derive(Clone, Debug)]
struct PendingTxn {
    overdue_at: Ms,
    bytes: usize,
    nodes: BTreeSet<NodeId>,
}

impl Backlog {
    /// An empty backlog with a limit in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: ClientBytes::default(), by_txn: BTreeMap::new(), by_participant: BTreeMap::new() }
    }

    /// How many transactions wait.
    pub(super) fn len(&self) -> usize {
        self.by_txn.len()
    }

    /// The approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.total
    }

    /// The limit in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether no further transaction of a client may wait, whatever it waits for. Calls that need little memory may use twice the limit.
    pub(super) fn is_client_full(&self, client: ClientId, is_little: bool) -> bool {
        self.bytes.is_client_full(client, self.limit_for(is_little))
    }

    /// Whether no further transaction of any client may wait.
    pub(super) fn is_full(&self, is_little: bool) -> bool {
        self.bytes.is_full(self.limit_for(is_little))
    }

    fn limit_for(&self, is_little: bool) -> usize {
        if is_little { 2 * self.limit } else { self.limit }
    }

    /// The first of these participants for which no further transaction may wait. Calls that resolve outcomes or delete
    /// objects need little memory and help others to complete: they may use twice the limit.
    pub(super) fn full_participant(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
        is_little: bool,
        now: Ms,
    ) -> Option<NodeId> {
        let limit = self.limit_for(is_little);
        let overdue = |node: &NodeId| {
            let first = self.by_participant.get(node).and_then(BTreeSet::first);
            first.is_some_and(|(overdue_at, _)| *overdue_at <= now)
        };
        nodes.into_iter().find(overdue).filter(|_| self.bytes() >= limit)
    }

    /// Adds a transaction with this memory that waits for these participants.
    pub(super) fn begin(&mut self, txn: TxnId, bytes: usize, nodes: BTreeSet<NodeId>, now: Ms) {
        let bytes = TRANSACTION_OVERHEAD_BYTES + bytes;
        self.bytes.add(txn.client, bytes);
        let overdue_at = now + OVERDUE_MS + brick_transfer_ms(self.bytes());
        for node in &nodes {
            self.by_participant.entry(*node).or_default().insert((overdue_at, txn));
        }
        let before = self.by_txn.insert(txn, PendingTxn { overdue_at, bytes, nodes });
        assert!(before.is_none(), "C3: {txn:?} waits twice");
    }

    /// Sets the participants that a transaction still waits for, and whether it keeps its writes. A participant that
    /// has answered once is not overdue because of this transaction.
    pub(super) fn update(&mut self, txn: TxnId, open: impl Iterator<Item = NodeId>, keeps: bool) {
        let Some(waiting) = self.by_txn.get_mut(&txn) else { return };
        if !keeps {
            self.bytes.remove(txn.client, waiting.bytes - TRANSACTION_OVERHEAD_BYTES);
            waiting.bytes = TRANSACTION_OVERHEAD_BYTES;
        }
        let open: BTreeSet<NodeId> = open.filter(|node| waiting.nodes.contains(node)).collect();
        for node in waiting.nodes.difference(&open) {
            if let Some(of_node) = self.by_participant.get_mut(node) {
                of_node.remove(&(waiting.overdue_at, txn));
                if of_node.is_empty() {
                    self.by_participant.remove(node);
                }
            }
        }
        waiting.nodes = open;
    }

    /// Removes a transaction that has ended.
    pub(super) fn end(&mut self, txn: TxnId) {
        self.update(txn, std::iter::empty(), false);
        if let Some(waiting) = self.by_txn.remove(&txn) {
            self.bytes.remove(txn.client, waiting.bytes);
        }
        assert!(
            !self.by_txn.is_empty() || self.bytes() == 0 && self.by_participant.is_empty(),
            "C3: no transaction waits, and {} bytes are counted for {:?}",
            self.bytes(),
            self.by_participant
        );
    }
}
