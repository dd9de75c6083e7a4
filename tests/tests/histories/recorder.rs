//! What clients do and see, written down while they do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use protocol::ident::TxnId;
use sim::history::{History, Kind, Operation, Outcome};

/// The observer of a run: it has the only clock that counts, and gives out all numbers.
pub(crate) struct Recorder {
    began: Instant,
    operations: Mutex<Vec<Operation>>,
    unexpected_errors: Mutex<Vec<String>>,
    numbers: AtomicU64,
    clients: AtomicU64,
    elements: AtomicI64,
    /// Whether clients may be told that the space is stopped.
    pub(crate) may_stop: bool,
}

/// A transaction of which its client could not find out in time how it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InDoubt {
    /// The operation.
    pub(crate) number: u64,
    /// Whose.
    pub(crate) client: u64,
    pub(crate) txn: TxnId,
}

impl Recorder {
    pub(crate) fn new(may_stop: bool) -> Self {
        let (operations, troubles) = (Mutex::default(), Mutex::default());
        let (numbers, clients, elements) = (AtomicU64::new(1), AtomicU64::new(1), AtomicI64::new(1));
        Self { began: Instant::now(), operations, unexpected_errors: troubles, numbers, clients, elements, may_stop }
    }

    /// Milliseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The number of a new client.
    pub(crate) fn next_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// Something to append or to write that nobody else ever does.
    pub(crate) fn next_element(&self) -> i64 {
        self.elements.fetch_add(1, Ordering::Relaxed)
    }

    /// A client begins something.
    pub(crate) fn begin_operation(&self, client: u64, kind: Kind) -> Operation {
        Operation::begin(self.numbers.fetch_add(1, Ordering::Relaxed), client, kind, self.now())
    }

    /// It knows how that has ended, or waits no longer.
    pub(crate) fn end_operation(&self, mut operation: Operation, outcome: Outcome) {
        operation.finish(outcome, self.now());
        self.operations.lock().unwrap().push(operation);
    }

    /// Something that no client should ever be told.
    pub(crate) fn record_unexpected(&self, what: String) {
        self.unexpected_errors.lock().unwrap().push(what);
    }

    pub(crate) fn unexpected_errors(&self) -> Vec<String> {
        self.unexpected_errors.lock().unwrap().clone()
    }

    /// It was found out later that an operation has not happened, and never will.
    pub(crate) fn mark_failed(&self, number: u64) {
        let mut operations = self.operations.lock().unwrap();
        let operation = operations.iter_mut().find(|operation| operation.number == number);
        operation.unwrap().outcome = Outcome::Failed;
    }

    pub(crate) fn history(&self) -> History {
        History { operations: self.operations.lock().unwrap().clone() }
    }
}
