//! The running transactions of a client, and what they have read, so that a change of a page costs what its readers have read of it.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::RangeInclusive;

use model::{ClassId, NodeId, Oid, PageId, SpaceId};

use super::{ObjectState, ReadVersion};
use crate::ident::{ClientId, HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};

/// The smallest and the largest identifier of a transaction.
const FIRST_TXN: TxnId = TxnId { start: HlcTimestamp::ZERO, client: ClientId(0) };
const LAST_TXN: TxnId = TxnId { start: HlcTimestamp(u64::MAX), client: ClientId(u64::MAX) };

/// A read of a running transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackedRead {
    pub(super) seen: ReadVersion,
    pub(super) copy: u64,
    /// Its interval (G2): from here,
    pub(super) from: HlcTimestamp,
    /// to before here, if it has ended.
    pub(super) until: Option<HlcTimestamp>,
}

impl TrackedRead {
    /// Its interval ends here, unless it has ended before.
    pub(super) fn end_interval(&mut self, end: HlcTimestamp) {
        self.until = Some(self.until.map_or(end, |until| until.min(end)));
    }
}

/// The key of a read: those of one page are a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReadKey(u128);

impl ReadKey {
    fn new(oid: Oid) -> Self {
        Self::of_slot(oid.page(), oid.slot(), oid.class())
    }

    fn of_slot(page: PageId, slot: u16, class: ClassId) -> Self {
        let place = u128::from(page.space.0) << 112 | u128::from(page.node.0) << 88 | u128::from(page.number) << 40;
        Self(place | u128::from(slot) << 24 | u128::from(class.0))
    }

    fn oid(self) -> Oid {
        let class = ClassId(self.0 as u32 & ClassId::MAX.0);
        Oid::new(class, self.page(), (self.0 >> 24) as u16)
    }

    fn page(self) -> PageId {
        let (space, node) = (SpaceId((self.0 >> 112) as u16), NodeId((self.0 >> 88) as u32 & NodeId::MAX.0));
        PageId { space, node, number: (self.0 >> 40) as u64 & PageId::MAX_NUMBER }
    }

    fn of_page(page: PageId) -> RangeInclusive<Self> {
        Self::of_slot(page, 0, ClassId(0))..=Self::of_slot(page, u16::MAX, ClassId::MAX)
    }
}

/// A running transaction.
#[derive(Clone, Debug)]
pub(super) struct RunningTxn<T> {
    pub(super) reads: TxnReads,
    pub(super) writes: BTreeMap<Oid, ObjectState<T>>,
    /// The object that prevents it from committing.
    pub(super) doomed: Option<Oid>,
}

/// What a transaction has read.
#[derive(Clone, Debug, Default)]
pub(super) struct TxnReads(BTreeMap<ReadKey, TrackedRead>);

impl TxnReads {
    /// All reads, each with its object, in the order of pages.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Oid, &TrackedRead)> {
        self.0.iter().map(|(key, read)| (key.oid(), read))
    }

    /// The page of each read, in order.
    fn pages(&self) -> impl Iterator<Item = PageId> {
        self.0.keys().map(|key| key.page())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Records a read of an object, and its transaction among the readers of the page. Returns whether an earlier read
    /// has seen another state: a message has named the object, or another copy has replaced that of the first read.
    pub(super) fn record(&mut self, oid: Oid, read: TrackedRead, readers: Readers<'_>) -> bool {
        match self.0.entry(ReadKey::new(oid)) {
            Entry::Vacant(new) => {
                new.insert(read);
                if !planted(Bug::ReaderForgotten) {
                    readers.all.insert((oid.page(), readers.txn));
                }
                false
            }
            Entry::Occupied(first) if first.get().seen == read.seen => false,
            Entry::Occupied(mut first) => {
                first.get_mut().until = Some(HlcTimestamp::ZERO);
                true
            }
        }
    }
}

/// Where a transaction is entered as a reader of pages.
pub(super) struct Readers<'a> {
    txn: TxnId,
    all: &'a mut BTreeSet<(PageId, TxnId)>,
}

/// All running transactions.
#[derive(Clone, Debug)]
pub(super) struct RunningTxns<T> {
    txns: BTreeMap<TxnId, RunningTxn<T>>,
    /// The transactions that have read an object of a page.
    readers: BTreeSet<(PageId, TxnId)>,
}

impl<T> Default for RunningTxns<T> {
    fn default() -> Self {
        Self { txns: BTreeMap::new(), readers: BTreeSet::new() }
    }
}

impl<T> RunningTxns<T> {
    /// Begins one. Returns whether it was running.
    pub(super) fn begin(&mut self, txn: TxnId) -> bool {
        let running = RunningTxn { reads: TxnReads::default(), writes: BTreeMap::new(), doomed: None };
        self.txns.insert(txn, running).is_some()
    }

    pub(super) fn get(&self, txn: TxnId) -> Option<&RunningTxn<T>> {
        self.txns.get(&txn)
    }

    pub(super) fn get_mut(&mut self, txn: TxnId) -> Option<&mut RunningTxn<T>> {
        self.txns.get_mut(&txn)
    }

    /// One that reads.
    pub(super) fn get_reader(&mut self, txn: TxnId) -> Option<(&mut RunningTxn<T>, Readers<'_>)> {
        Some((self.txns.get_mut(&txn)?, Readers { txn, all: &mut self.readers }))
    }

    /// Ends one.
    pub(super) fn remove(&mut self, txn: TxnId) -> Option<RunningTxn<T>> {
        let running = self.txns.remove(&txn)?;
        let mut last = None;
        for page in running.reads.pages() {
            if last.replace(page) != Some(page) {
                self.readers.remove(&(page, txn));
            }
        }
        Some(running)
    }

    /// Calls `act` with each object of a page that was read, with its read, and with the object that dooms its transaction.
    pub(super) fn each_read_of(&mut self, page: PageId, mut act: impl FnMut(Oid, &mut TrackedRead, &mut Option<Oid>)) {
        let readers = self.readers.range((page, FIRST_TXN)..=(page, LAST_TXN));
        for (_, txn) in readers {
            let Some(running) = self.txns.get_mut(txn) else { continue };
            for (key, read) in running.reads.0.range_mut(ReadKey::of_page(page)) {
                act(key.oid(), read, &mut running.doomed);
            }
        }
    }

    /// Checks that [`RunningTxns::each_read_of`] finds all reads.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check_invariants(&self) -> Result<(), String> {
        let read = self.txns.iter().flat_map(|(txn, running)| running.reads.pages().map(|page| (page, *txn)));
        match read.collect::<BTreeSet<_>>() == self.readers {
            true => Ok(()),
            false => Err("P3: the readers of pages differ from the reads of transactions".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_reads_tell_their_objects_and_those_of_a_page_are_a_range() {
        let page = |number| PageId { space: SpaceId::MAX, node: NodeId::MAX, number };
        for number in [0, 7, PageId::MAX_NUMBER] {
            for (class, slot) in [(ClassId::NONE, 0), (ClassId(9), 300), (ClassId::MAX, u16::MAX)] {
                let oid = Oid::new(class, page(number), slot);
                assert_eq!(ReadKey::new(oid).oid(), oid);
                assert!(ReadKey::of_page(page(number)).contains(&ReadKey::new(oid)));
                assert!(!ReadKey::of_page(page(8)).contains(&ReadKey::new(oid)));
            }
        }
    }
}
