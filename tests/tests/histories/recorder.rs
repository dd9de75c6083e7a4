//! Records the operations of clients and their results.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use check::history::{History, Kind, Operation, Outcome};
use protocol::ident::TxnId;

/// The observer of a run. It has the clock of the history and assigns all numbers.
pub(crate) struct Recorder {
    began: Instant,
    operations: Mutex<Vec<Operation>>,
    unexpected_errors: Mutex<Vec<String>>,
    numbers: AtomicU64,
    clients: AtomicU64,
    elements: AtomicI64,
    /// Whether clients may get the error that the space is stopped.
    pub(crate) may_stop: bool,
}

/// A transaction whose client could not determine the outcome in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InDoubt {
    /// The operation.
    pub(crate) number: u64,
    /// The client.
    pub(crate) client: u64,
    pub(crate) txn: TxnId,
}

impl Recorder {
    pub(crate) fn new(may_stop: bool) -> Self {
        let (operations, troubles) = (Mutex::default(), Mutex::default());
        let (numbers, clients, elements) = (AtomicU64::new(1), AtomicU64::new(1), AtomicI64::new(1));
        Self { began: Instant::now(), operations, unexpected_errors: troubles, numbers, clients, elements, may_stop }
    }

    /// Milliseconds since the start of the run.
    pub(crate) fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The number of a new client.
    pub(crate) fn next_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// A unique element to append or write.
    pub(crate) fn next_element(&self) -> i64 {
        self.elements.fetch_add(1, Ordering::Relaxed)
    }

    /// Records the start of an operation.
    pub(crate) fn begin_operation(&self, client: u64, kind: Kind) -> Operation {
        Operation::begin(self.numbers.fetch_add(1, Ordering::Relaxed), client, kind, self.now())
    }

    /// Records the outcome of an operation, or that its client stopped waiting.
    pub(crate) fn end_operation(&self, operation: Operation, outcome: Outcome) {
        self.end_operation_at(operation, outcome, self.now());
    }

    /// Records the outcome of an operation that ended at this time.
    pub(crate) fn end_operation_at(&self, mut operation: Operation, outcome: Outcome, ended: u64) {
        operation.finish(outcome, ended);
        self.operations.lock().unwrap().push(operation);
    }

    /// Records the last operation of a client that was killed meanwhile. Its outcome is unknown.
    pub(crate) fn abandon_operation(&self, operation: Operation) {
        self.operations.lock().unwrap().push(operation);
    }

    /// Records an error that no client should get.
    pub(crate) fn record_unexpected(&self, what: String) {
        self.unexpected_errors.lock().unwrap().push(what);
    }

    pub(crate) fn unexpected_errors(&self) -> Vec<String> {
        self.unexpected_errors.lock().unwrap().clone()
    }

    /// Records that an operation in doubt has not happened and never will.
    pub(crate) fn mark_failed(&self, number: u64) {
        let mut operations = self.operations.lock().unwrap();
        let operation = operations.iter_mut().find(|operation| operation.number == number);
        operation.unwrap().outcome = Outcome::Failed;
    }

    /// The number of operations that have ended.
    pub(crate) fn operation_count(&self) -> usize {
        self.operations.lock().unwrap().len()
    }

    pub(crate) fn history(&self) -> History {
        History { operations: self.operations.lock().unwrap().clone() }
    }
}
