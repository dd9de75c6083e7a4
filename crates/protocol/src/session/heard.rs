//! Tells the participants of transactions which outcomes the client has heard, so that they need not keep them (C3).

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;

use super::{Output, Session};
use crate::commit::client_mark::ClientMark;
use crate::gateway::Call;
use crate::ident::{HlcTimestamp, TxnId};
use crate::memory_size::MemorySize;
use crate::plant::{Bug, planted};

/// Outcomes at a participant after which it is told.
const BATCH: u32 = 16;

/// Numbers of outcomes that participants keep for the client, and that it has heard.
#[derive(Clone, Debug)]
pub(super) struct HeardOutcomes {
    at: BTreeMap<NodeId, u32>,
    batch: u32,
}

impl Default for HeardOutcomes {
    fn default() -> Self {
        Self { at: BTreeMap::new(), batch: BATCH }
    }
}

impl HeardOutcomes {
    /// Adds an outcome at some participants. Returns those that are to be told now.
    fn add(&mut self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        let mut full = Vec::new();
        for node in nodes {
            let count = self.at.entry(node).or_default();
            *count += 1;
            if *count >= self.batch {
                self.at.remove(&node);
                full.push(node);
            }
        }
        full
    }
}

impl<T: Clone + MemorySize> Session<T> {
    /// Sets the number of outcomes at a participant after which the client sends its mark there. The default is 16.
    #[must_use]
    pub fn with_heard_batch(mut self, batch: u32) -> Self {
        self.heard.batch = batch;
        self
    }

    /// The client has heard the outcome of a transaction with these participants, or does not want it any more.
    pub(super) fn note_heard(&mut self, txn: TxnId, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes = self.heard.add(nodes);
        if !nodes.is_empty() {
            let mark = self.mark();
            self.out.push(Output::Call(txn, Call::Heard { nodes, mark }));
        }
    }

    /// What the client has heard: everything but its running transactions and unsettled writes.
    fn mark(&self) -> ClientMark {
        let is_open = |txn: &&TxnId| self.calls_of(**txn).next().is_none() || !planted(Bug::CommittingIsHeard);
        let running = self.running.keys().filter(is_open).map(|txn| txn.start);
        let open: BTreeSet<HlcTimestamp> = running.chain(self.pram.unsettled_batches().map(|txn| txn.start)).collect();
        ClientMark::of_client(open, self.clock.last())
    }
}
