//! The rows that keep what is known of transactions: a record each, in as many pieces as it takes.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use model::NodeId;
use protocol::ident::{ClientId, TxnId};
use store::RowChanges;

use crate::brick::page_rows::{self as rows, Key};
use crate::brick::plant::{Bug, planted};

/// Bytes of a record that go into one row.
pub(super) const PIECE_BYTES: usize = if cfg!(test) { 256 } else { 4 << 20 };
/// Rows of forgotten transactions that are removed at a time: changes have a largest number.
const REMOVE_BATCH: usize = if cfg!(test) { 4 } else { 256 };

/// The rows of the record of a transaction.
pub(crate) fn txn_pieces(node: NodeId, txn: TxnId, record: &Bytes) -> impl Iterator<Item = (Key, Bytes)> {
    (0..record.len().div_ceil(PIECE_BYTES)).map(move |piece| {
        let from = piece * PIECE_BYTES;
        let row = record.slice(from..record.len().min(from + PIECE_BYTES));
        (rows::txn_key(node, txn, piece as u16), row)
    })
}

/// The rows of the transactions of a logical node.
#[derive(Debug)]
pub(super) struct TxnRows {
    node: NodeId,
    /// How many rows a transaction has, if more than one.
    pieces: HashMap<TxnId, u16>,
    /// Transactions of which nothing is known any more and whose rows are still there.
    forgotten: VecDeque<TxnId>,
    /// Clients whose marks are not needed any more and whose rows are still there.
    old_marks: BTreeSet<ClientId>,
}

impl TxnRows {
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, pieces: HashMap::new(), forgotten: VecDeque::new(), old_marks: BTreeSet::new() }
    }

    /// A transaction has this many rows in the store.
    pub(super) fn recover(&mut self, txn: TxnId, pieces: u16) {
        if pieces > 1 {
            self.pieces.insert(txn, pieces);
        }
    }

    /// Replaces the record of a transaction. An empty one removes its rows.
    pub(super) fn write(&mut self, txn: TxnId, record: &Bytes, changes: &mut RowChanges) {
        let mut pieces = 0;
        for (key, piece) in txn_pieces(self.node, txn, record) {
            changes.put(&key, piece);
            pieces += 1;
        }
        let before = self.pieces.remove(&txn).unwrap_or(1);
        if !planted(Bug::OldPiecesKept) {
            (pieces..before).for_each(|piece| changes.remove(&rows::txn_key(self.node, txn, piece)));
        }
        if pieces > 1 {
            self.pieces.insert(txn, pieces);
        }
    }

    /// Nothing is known of these any more.
    pub(super) fn forget(&mut self, txns: Vec<TxnId>) {
        self.forgotten.extend(txns);
    }

    /// Replaces the mark of a client.
    pub(super) fn write_mark(&mut self, client: ClientId, mark: Bytes, changes: &mut RowChanges) {
        // Its former row is not removed later.
        if !planted(Bug::MarkRowRemovedLate) {
            self.old_marks.remove(&client);
        }
        changes.put(&rows::mark_key(self.node, client), mark);
    }

    /// These clients need no marks any more.
    pub(super) fn forget_marks(&mut self, clients: Vec<ClientId>) {
        self.old_marks.extend(clients);
    }

    /// Removes rows of some forgotten transactions and clients.
    pub(super) fn remove_forgotten(&mut self, changes: &mut RowChanges) {
        for client in (0..REMOVE_BATCH).map_while(|_| self.old_marks.pop_first()) {
            changes.remove(&rows::mark_key(self.node, client));
        }
        for txn in self.forgotten.drain(..self.forgotten.len().min(REMOVE_BATCH)).collect::<Vec<_>>() {
            self.write(txn, &Bytes::new(), changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::plant;
    use protocol::ident::HlcTimestamp;

    use super::*;

    const TXN: TxnId = TxnId { start: HlcTimestamp(9), client: ClientId(1) };

    fn keys(changes: &RowChanges) -> Vec<Vec<u8>> {
        changes.keys().map(<[u8]>::to_vec).collect()
    }

    fn pieces(range: std::ops::Range<u16>) -> Vec<Vec<u8>> {
        range.map(|piece| rows::txn_key(NodeId(3), TXN, piece).to_vec()).collect()
    }

    #[test]
    fn record_that_shrinks_leaves_no_pieces_behind() {
        let mut txns = TxnRows::new(NodeId(3));
        let mut large = RowChanges::new();
        txns.write(TXN, &vec![1; 3 * PIECE_BYTES].into(), &mut large);
        assert_eq!(keys(&large), pieces(0..3));
        let mut small = RowChanges::new();
        txns.write(TXN, &vec![1; PIECE_BYTES].into(), &mut small);
        assert_eq!(keys(&small), pieces(0..3), "one is written and two are removed");
        let mut none = RowChanges::new();
        txns.forget(vec![TXN]);
        txns.remove_forgotten(&mut none);
        assert_eq!(keys(&none), pieces(0..1));
    }

    #[test]
    fn new_mark_of_a_client_outlives_the_removal_of_its_old_one() {
        let last = ClientId(REMOVE_BATCH as u64);
        let removed_last = || {
            let (mut txns, mut first, mut second) = (TxnRows::new(NodeId(3)), RowChanges::new(), RowChanges::new());
            txns.forget_marks((0..=REMOVE_BATCH as u64).map(ClientId).collect());
            txns.remove_forgotten(&mut first);
            assert_eq!(first.keys().count(), REMOVE_BATCH);
            txns.write_mark(last, Bytes::from_static(b"new"), &mut second);
            assert_eq!(keys(&second), [rows::mark_key(NodeId(3), last).to_vec()]);
            std::mem::take(&mut txns.old_marks)
        };
        assert!(removed_last().is_empty());
        let _planted = plant(Bug::MarkRowRemovedLate);
        assert_eq!(removed_last(), [last].into(), "the bug is noticed");
    }

    #[test]
    fn pieces_found_in_the_store_are_removed_with_their_transaction() {
        let mut txns = TxnRows::new(NodeId(3));
        txns.recover(TXN, 2);
        txns.forget(vec![TXN]);
        let mut changes = RowChanges::new();
        txns.remove_forgotten(&mut changes);
        assert_eq!(keys(&changes), pieces(0..2));
    }
}
