//! The clients that wait for replies to calls which a redirector has forwarded.

use std::collections::BTreeMap;

use crate::ident::{ClientId, HlcTimestamp, TxnId};

/// Most transactions of one client with calls that are not answered. A client has fewer: a peer server takes 8,192 that lock, and bounds the
/// bytes of the others.
pub(super) const MAX_OF_CLIENT: usize = 65_536;

/// The callers, by their transactions.
#[derive(Clone, Debug)]
pub(super) struct Callers<A> {
    of_client: BTreeMap<ClientId, BTreeMap<HlcTimestamp, Caller<A>>>,
}

/// A client that waits for the reply to a forwarded call about a transaction.
#[derive(Clone, Debug)]
struct Caller<A> {
    address: A,
    /// Whether a commit or a check of the transaction was forwarded for it and is not answered.
    is_ending: bool,
}

impl<A> Default for Callers<A> {
    fn default() -> Self {
        Self { of_client: BTreeMap::new() }
    }
}

impl<A: PartialEq> Callers<A> {
    fn get(&self, txn: TxnId) -> Option<&Caller<A>> {
        self.of_client.get(&txn.client)?.get(&txn.start)
    }

    /// Whether a call is one more than those that the transaction's client may wait for.
    pub(super) fn is_full(&self, txn: TxnId) -> bool {
        let waiting = self.of_client.get(&txn.client);
        waiting.is_some_and(|waiting| waiting.len() >= MAX_OF_CLIENT && !waiting.contains_key(&txn.start))
    }

    /// A call was forwarded; `ends` if it is a commit or a check.
    pub(super) fn add(&mut self, address: A, txn: TxnId, ends: bool) {
        let is_ending = ends || self.is_ending(&address, txn);
        self.of_client.entry(txn.client).or_default().insert(txn.start, Caller { address, is_ending });
    }

    /// Whether a commit or a check of the transaction, from this address, is not answered.
    pub(super) fn is_ending(&self, address: &A, txn: TxnId) -> bool {
        self.get(txn).is_some_and(|caller| caller.is_ending && caller.address == *address)
    }

    /// Who waits for a reply about the transaction.
    pub(super) fn address(&self, txn: TxnId) -> Option<&A> {
        self.get(txn).map(|caller| &caller.address)
    }

    /// The transaction has ended. Returns who has waited for that.
    pub(super) fn remove(&mut self, txn: TxnId) -> Option<A> {
        let waiting = self.of_client.get_mut(&txn.client)?;
        let caller = waiting.remove(&txn.start);
        if waiting.is_empty() {
            self.of_client.remove(&txn.client);
        }
        caller.map(|caller| caller.address)
    }

    /// The connection to this address has ended.
    pub(super) fn disconnect(&mut self, address: &A) {
        self.of_client.retain(|_, waiting| {
            waiting.retain(|_, caller| caller.address != *address);
            !waiting.is_empty()
        });
    }
}
