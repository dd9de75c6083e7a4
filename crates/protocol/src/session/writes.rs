//! A client's writes outside of transactions, in their order ([`crate::pram`], N1).

use model::{NodeId, Oid};

use super::Session;
use crate::ident::{HolderId, TxnId};
use crate::lease::Ms;
use crate::memory_size::MemorySize;
use crate::page_cache::ObjectState;
use crate::tree::Up;

impl<T: Clone + MemorySize> Session<T> {
    /// Writes an object. [`Output::Written`](super::Output::Written) reports this number when the write is durable.
    pub fn put(&mut self, oid: Oid, content: ObjectState<T>, number: u64, now: Ms) {
        self.pram.put(oid, content, number);
        self.send_writes(now);
    }

    /// Withdraws the write with this number. Returns whether it was not written and never will be: [`Pram::withdraw`](crate::pram::Pram::withdraw).
    pub fn withdraw(&mut self, number: u64, now: Ms) -> bool {
        let is_withdrawn = self.pram.withdraw(number);
        self.send_writes(now);
        is_withdrawn
    }

    /// Whether writes outside of transactions are sent under this number, and not known to be durable.
    #[must_use]
    pub fn is_writing(&self, write: TxnId) -> bool {
        self.pram.is_sent(write)
    }

    /// The node above has refused writes for good, in this session, and not written them. If they are several, sends them in halves, because
    /// the reason may concern one of them: `true` then. Otherwise, and if they may have been written before, nothing has changed.
    pub fn halve_writes(&mut self, node: NodeId, session: HolderId, write: TxnId, now: Ms) -> bool {
        let is_halved = self.holder(node) == Some(session) && self.pram.halve(write);
        if is_halved {
            self.send_writes(now);
        }
        is_halved
    }

    /// Whether a write outside of transactions was sent again: one that is refused may have been written before.
    #[must_use]
    pub fn is_sent_again(&self, write: TxnId) -> bool {
        self.pram.is_sent_again(write)
    }

    /// Whether all writes are durable and settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.pram.is_settled()
    }

    pub(super) fn send_writes(&mut self, now: Ms) {
        let Some(node) = self.pram.next_node().filter(|_| self.retry.is_none_or(|retry| retry <= now)) else { return };
        if !self.is_valid(node, now) {
            return self.open(node, now);
        }
        self.retry = None;
        let write = self.next_txn(now);
        if let Some(batch) = self.pram.send(write) {
            assert!(batch.node == node, "N1: writes to {:?} go to {node:?}", batch.node);
            let writes = batch.writes.clone();
            self.send_up(node, Up::Write { write, writes });
        }
    }
}
