//! What a logical node needs after a repair gave up rows of its brick: nothing that is left may be taken for what it was with them.
//!
//! 1. *Pages.* A page of which a part is left gets a version above all that it had, so no copy of it is current. A page of which nothing is
//!    left has the version of a page that was never changed, which no copy has.
//! 2. *Page numbers* go on above all that are left.
//! 3. *Transactions.* A record of which a piece is lost is removed, as if all of it were.
//! 4. *Positions* go on above those of the records and pages that are left.
//!
//! Entries of extents, indexes and collections, and counts, are for `mortar scrub --repair`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use model::planted_bug::planted;
use model::{NodeId, PageId, Result, SpaceId};
use protocol::ident::{ClientId, HlcTimestamp, TxnId, Version};
use store::{KeyRange, RowChanges, Store};
use wire::cluster::decode_record;

use crate::brick::plant::Bug;
use crate::brick::{RESERVABLE, page_rows, recover_transactions};

/// Rows of one change of the store.
const BATCH: usize = 10_000;

/// A logical node of a brick that has lost rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct DamagedNode {
    pub(super) node: NodeId,
    /// How often it has moved, the acceptance of the loss included.
    pub(super) moves: u32,
    /// The time of the loss: no copy is older.
    pub(super) time: HlcTimestamp,
}

impl DamagedNode {
    /// Commits what it needs, apart from the page numbers.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn mend(&self, store: &Store, lost: &[KeyRange]) -> Result<()> {
        let mut changes = RowChanges::new();
        let pages = if planted(Bug::VersionsKept) { BTreeSet::new() } else { self.pages(store, lost)? };
        for page in pages {
            let head = page_rows::Head { version: Version { moves: self.moves, position: 0 }, timestamp: self.time };
            changes.put(&page_rows::head_key(page), head.encode());
            if changes.len() == BATCH {
                store.commit_rows(std::mem::take(&mut changes))?;
            }
        }
        self.remove_broken_records(store, lost, &mut changes)?;
        store.commit_rows(changes)?;
        let limit = page_rows::limit_key(self.node);
        if store.row(&limit)?.is_none() {
            let mut changes = RowChanges::new();
            changes.put(&limit, page_rows::encode_number(self.last_position(store)?));
            store.commit_rows(changes)?;
        }
        Ok(())
    }

    /// The pages with rows that are left and perhaps others that are lost.
    fn pages(&self, store: &Store, lost: &[KeyRange]) -> Result<BTreeSet<PageId>> {
        let (first, behind) = page_rows::table_range(b'P', self.node);
        let mut pages = BTreeSet::new();
        for range in lost.iter().filter(|range| range.overlaps(&first, &behind)) {
            // From the beginning of the first page to the end of the last one.
            let from = page_rows::page_at(&range.from)
                .map_or_else(|| first.to_vec(), |page| page_rows::head_key(page).to_vec());
            let to = range.to.as_deref().and_then(page_rows::page_at);
            let to = to.map_or_else(|| behind.to_vec(), |page| page_rows::page_end(page).to_vec());
            store.rows(&from.max(first.to_vec()), &to.min(behind.to_vec()), |key, _| {
                pages.extend(page_rows::page_at(key));
                ControlFlow::Continue(())
            })?;
        }
        Ok(pages)
    }

    /// Removes the rows of records of transactions that are not whole.
    fn remove_broken_records(&self, store: &Store, lost: &[KeyRange], changes: &mut RowChanges) -> Result<()> {
        let (from, to) = page_rows::txn_range(self.node);
        if !lost.iter().any(|range| range.overlaps(&from, &to)) || planted(Bug::BrokenRecordsKept) {
            return Ok(());
        }
        let mut record = TxnPieces::default();
        let mut end = |record: TxnPieces| {
            if !record.is_whole() {
                let keys = record.pieces.iter().map(|piece| page_rows::txn_key(self.node, record.txn, *piece));
                keys.for_each(|key| changes.remove(&key));
            }
        };
        store.rows(&from, &to, |key, row| {
            let Ok((txn, piece)) = page_rows::parse_txn(key) else { return ControlFlow::Continue(()) };
            if record.txn != txn {
                end(std::mem::replace(&mut record, TxnPieces { txn, ..TxnPieces::default() }));
            }
            record.add(piece, row);
            ControlFlow::Continue(())
        })?;
        end(record);
        Ok(())
    }

    /// The last position of a record or a page that is left.
    fn last_position(&self, store: &Store) -> Result<u64> {
        let mut last = 0;
        recover_transactions(self.node, store, |at, _, _| last = last.max(at.position))?;
        let mut note = |row: &[u8]| {
            if let Ok((at, _)) = decode_record(row) {
                last = last.max(at.position);
            }
        };
        let (from, to) = page_rows::mark_range(self.node);
        store.rows(&from, &to, |_, row| {
            note(row);
            ControlFlow::Continue(())
        })?;
        for key in [page_rows::bound_key(self.node), page_rows::horizon_key(self.node)] {
            store.row(&key)?.iter().for_each(|row| note(row));
        }
        let (from, to) = page_rows::table_range(b'P', self.node);
        store.rows(&from, &to, |key, row| {
            if let Some((page, None)) = page_rows::parse_key(key)
                && let Ok(head) = page_rows::Head::decode(page, row)
            {
                last = last.max(head.version.position);
            }
            ControlFlow::Continue(())
        })?;
        Ok(last)
    }
}

/// The first page number of a space at a logical node above all pages that are left.
pub(super) fn free_page(store: &Store, node: NodeId, space: SpaceId) -> Result<u64> {
    let page = |number| PageId { space, node, number };
    let (from, to) = (page_rows::head_key(page(0)), page_rows::head_key(page(RESERVABLE)));
    let mut free = 0;
    store.rows_back(&from, &to, |key, _| {
        free = page_rows::page_at(key).map_or(0, |page| page.number + 1);
        ControlFlow::Break(())
    })?;
    Ok(free)
}

/// The rows of the record of a transaction.
struct TxnPieces {
    /// That of no transaction at first.
    txn: TxnId,
    pieces: Vec<u16>,
    bytes: Vec<u8>,
}

impl Default for TxnPieces {
    fn default() -> Self {
        let none = TxnId { start: HlcTimestamp::ZERO, client: ClientId(0) };
        Self { txn: none, pieces: Vec::new(), bytes: Vec::new() }
    }
}

impl TxnPieces {
    fn add(&mut self, piece: u16, row: &[u8]) {
        self.pieces.push(piece);
        self.bytes.extend_from_slice(row);
    }

    /// Whether no piece is missing. A record says how long it is.
    fn is_whole(&self) -> bool {
        self.pieces.is_empty()
            || self.pieces.iter().copied().eq(0..self.pieces.len() as u16)
                && decode_record(&self.bytes).is_ok_and(|(_, record)| record.txn() == Some(self.txn))
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;
    use protocol::commit::{AppendOffsets, Outcome, Record};
    use store::Options;
    use wire::cluster::encode_record;

    use super::*;

    const NODE: NodeId = NodeId(3);
    const SPACE: SpaceId = SpaceId(1);
    const DAMAGED: DamagedNode = DamagedNode { node: NODE, moves: 8, time: HlcTimestamp(77) };

    fn page(number: u64) -> PageId {
        PageId { space: SPACE, node: NODE, number }
    }

    fn txn(number: u64) -> TxnId {
        TxnId { start: HlcTimestamp(number), client: ClientId(1) }
    }

    fn ended_record(number: u64, position: u64) -> bytes::Bytes {
        let (outcome, participants) = (Outcome::Committed(HlcTimestamp(number + 1)), vec![NodeId(4), NodeId(5)]);
        let (txn, offsets) = (txn(number), AppendOffsets::default());
        let record = Record::Ended { txn, outcome, version: None, offsets, participants, acknowledged: false };
        encode_record(&record, Version { moves: 7, position })
    }

    /// A store with four pages of three objects each, and their heads.
    fn store() -> Store {
        let store = Store::in_memory(Options::default()).unwrap();
        let mut changes = RowChanges::new();
        for number in 1..5 {
            let head = page_rows::Head { version: Version { moves: 7, position: number }, timestamp: HlcTimestamp(5) };
            changes.put(&page_rows::head_key(page(number)), head.encode());
            for slot in 0..3 {
                changes.put(&page_rows::object_key(page(number), slot), "object".into());
            }
        }
        store.commit_rows(changes).unwrap();
        store
    }

    fn heads(store: &Store) -> Vec<Option<Version>> {
        let head = |number| store.row(&page_rows::head_key(page(number))).unwrap();
        let version = |number, row: bytes::Bytes| page_rows::Head::decode(page(number), &row).unwrap().version;
        (1..5).map(|number| head(number).map(|row| version(number, row))).collect()
    }

    /// Loses the rows from one key to another.
    fn lose(store: &Store, from: &[u8], to: &[u8]) -> Vec<KeyRange> {
        let mut changes = RowChanges::new();
        store
            .rows(from, to, |key, _| {
                changes.remove(key);
                ControlFlow::Continue(())
            })
            .unwrap();
        store.commit_rows(changes).unwrap();
        vec![KeyRange::new(from, Some(to))]
    }

    fn pages_that_lost_objects_have_no_version_of_before() {
        let new = Some(Version { moves: 8, position: 0 });
        let before = |number| Some(Version { moves: 7, position: number });
        // The end of one page, all of the next, and the head and an object of another one.
        let store = store();
        let lost = lose(&store, &page_rows::object_key(page(1), 2), &page_rows::object_key(page(3), 1));
        DAMAGED.mend(&store, &lost).unwrap();
        assert_eq!(heads(&store), [new, None, new, before(4)]);
        assert_eq!(free_page(&store, NODE, SPACE).unwrap(), 5);
        // A page whose rows begin the range, and rows behind the pages.
        let store = self::store();
        let lost = lose(&store, &page_rows::head_key(page(4)), b"Q");
        DAMAGED.mend(&store, &lost).unwrap();
        assert_eq!(heads(&store), [before(1), before(2), before(3), None]);
        assert_eq!(free_page(&store, NODE, SPACE).unwrap(), 4);
        // Rows of another table.
        let store = self::store();
        DAMAGED.mend(&store, &[KeyRange::new(b"R", None)]).unwrap();
        assert_eq!(heads(&store), [before(1), before(2), before(3), before(4)]);
    }

    fn records_without_a_piece_are_removed_and_positions_go_on() {
        let store = store();
        let mut changes = RowChanges::new();
        for number in 1..5 {
            let record = ended_record(number, 10 * number);
            let half = record.len() / 2;
            changes.put(&page_rows::txn_key(NODE, txn(number), 0), record.slice(..half));
            changes.put(&page_rows::txn_key(NODE, txn(number), 1), record.slice(half..));
        }
        store.commit_rows(changes).unwrap();
        // The end of the second record, and the beginning of the third one.
        let (from, to) = (page_rows::txn_key(NODE, txn(2), 1), page_rows::txn_key(NODE, txn(3), 1));
        let lost = lose(&store, &from, &to);
        DAMAGED.mend(&store, &lost).unwrap();
        let mut left = Vec::new();
        recover_transactions(NODE, &store, |at, record, pieces| left.push((record.txn(), at.position, pieces)))
            .unwrap();
        assert_eq!(left, [(Some(txn(1)), 10, 2), (Some(txn(4)), 40, 2)]);
        let limit = page_rows::read_number(&store, &page_rows::limit_key(NODE)).unwrap();
        assert_eq!(limit, 40, "the row of the limit was missing");
    }

    #[test]
    fn nothing_that_is_left_is_taken_for_what_it_was() {
        pages_that_lost_objects_have_no_version_of_before();
        records_without_a_piece_are_removed_and_positions_go_on();
        assert_noticed(&[Bug::VersionsKept], pages_that_lost_objects_have_no_version_of_before);
        assert_noticed(&[Bug::BrokenRecordsKept], records_without_a_piece_are_removed_and_positions_go_on);
    }
}
