//! The running transactions of a client, and what they have read, so that a change of a page costs what its readers have read of it.

use std::collections::{BTreeMap, BTreeSet};

use model::{Oid, PageId};

use super::ObjectState;
use super::txn_reads::{Recorded, TrackedRead, TxnReads};
use crate::ident::TxnId;
use crate::page_map::PageMap;
use crate::plant::{Bug, planted};

/// A running transaction.
#[derive(Clone, Debug)]
pub(super) struct RunningTxn<T> {
    pub(super) reads: TxnReads,
    pub(super) writes: BTreeMap<Oid, ObjectState<T>>,
    /// The object that prevents it from committing.
    pub(super) doomed: Option<Oid>,
}

impl<T> RunningTxn<T> {
    /// Records a read of an object, and the transaction among the readers of the page. If an earlier read has seen another state, the
    /// transaction is doomed.
    pub(super) fn record_read(&mut self, oid: Oid, read: TrackedRead, readers: Readers<'_>) {
        match self.reads.record(oid, read) {
            Recorded::NewPage if planted(Bug::ReaderForgotten) => {}
            Recorded::NewPage => readers.all.entry(oid.page()).or_default().push(readers.txn),
            Recorded::Consistent => {}
            Recorded::Changed => drop(self.doomed.get_or_insert(oid)),
        }
    }
}

/// Where a transaction is entered as a reader of pages.
pub(super) struct Readers<'a> {
    txn: TxnId,
    all: &'a mut PageMap<Vec<TxnId>>,
}

/// All running transactions.
#[derive(Clone, Debug)]
pub(super) struct RunningTxns<T> {
    txns: BTreeMap<TxnId, RunningTxn<T>>,
    /// The transactions that have read an object of a page.
    readers: PageMap<Vec<TxnId>>,
}

impl<T> Default for RunningTxns<T> {
    fn default() -> Self {
        Self { txns: BTreeMap::new(), readers: PageMap::default() }
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
        for page in running.reads.pages() {
            let Some(readers) = self.readers.get_mut(&page) else { continue };
            readers.retain(|reader| *reader != txn);
            if readers.is_empty() {
                self.readers.swap_remove(&page);
            }
        }
        Some(running)
    }

    /// Calls `act` with each object of a page that was read, with its read, and with the object that dooms its transaction.
    pub(super) fn each_read_of(&mut self, page: PageId, mut act: impl FnMut(Oid, &mut TrackedRead, &mut Option<Oid>)) {
        for txn in self.readers.get(&page).into_iter().flatten() {
            let Some(RunningTxn { reads, doomed, .. }) = self.txns.get_mut(txn) else { continue };
            reads.update(page, |oid, read| act(oid, read, doomed));
        }
    }

    /// Checks that [`RunningTxns::each_read_of`] finds all reads.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check_invariants(&self) -> Result<(), String> {
        let read = self.txns.iter().flat_map(|(txn, running)| running.reads.pages().map(|page| (page, *txn)));
        let listed = self.readers.iter().flat_map(|(page, txns)| txns.iter().map(|txn| (*page, *txn)));
        let (read, count) = (read.collect::<BTreeSet<_>>(), listed.clone().count());
        match count == read.len() && listed.collect::<BTreeSet<_>>() == read {
            true => Ok(()),
            false => Err("P3: the readers of pages differ from the reads of transactions".to_owned()),
        }
    }
}
