//! Mortar's store in this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::{ClassId, Kind, Oid, Op, Outcome, SpaceId, Transaction, limits};
use store::{Options, Store};

use crate::Result;
use crate::load::Data;
use crate::osbdb::{Collections, Objects, Reopens};

/// The space that exists in every store.
const MAIN: SpaceId = SpaceId(1);
/// Objects of one transaction while a store is filled.
const FILL_BATCH: usize = 256;
/// Most transactions in flight while none is waited for.
const MAX_PENDING: usize = 1024;
const NAME: &[u8] = b"name";

/// Opens or creates a store with the settings of a server.
pub(crate) fn open(directory: &Path) -> Result<Store> {
    std::fs::create_dir_all(directory)?;
    Ok(Store::open(directory, Options::default())?)
}

/// A store with an object for each value, all in the B-tree, and the identifiers of the objects.
pub(crate) fn create_filled(directory: &Path, data: &Data) -> Result<(Store, Vec<Oid>)> {
    let store = open(directory)?;
    let mut oids = Vec::with_capacity(data.keys());
    for first in (0..data.keys()).step_by(FILL_BATCH) {
        let keys = first..(first + FILL_BATCH).min(data.keys());
        let contents: Vec<Bytes> = keys.map(|key| Bytes::copy_from_slice(data.value(key))).collect();
        oids.extend(commit_new(&store, &contents)?);
    }
    // Closing the store installs the rest of the modified object buffer.
    store.close()?;
    Ok((open(directory)?, oids))
}

/// Creates a blob for each content, all in one transaction.
pub(crate) fn commit_new(store: &Store, contents: &[Bytes]) -> Result<Vec<Oid>> {
    created_oids(store.commit(create_transaction(contents))?)
}

/// A transaction that creates a blob for each content.
pub(crate) fn create_transaction(contents: &[Bytes]) -> Transaction {
    let ops = contents.iter().enumerate();
    Transaction { ops: ops.map(|(index, data)| create_op(index as u64, Kind::Blob, data.clone())).collect() }
}

fn create_op(index: u64, kind: Kind, data: Bytes) -> Op {
    Op::Create { oid: temporary_oid(index), kind, data, near: None }
}

fn temporary_oid(index: u64) -> Oid {
    Oid::temporary(MAIN, ClassId::NONE, index)
}

/// The identifiers that a transaction created. Fails on a conflict, which no transaction of a benchmark should have.
pub(crate) fn created_oids(outcome: Outcome) -> Result<Vec<Oid>> {
    match outcome {
        Outcome::Committed(committed) => Ok(committed.created),
        Outcome::Conflict(conflict) => Err(format!("a transaction met a conflict: {conflict:?}").into()),
    }
}

/// The store with the interface of the osbdb workloads.
pub(crate) struct Embedded {
    directory: PathBuf,
    store: Option<Store>,
    pending: Arc<Pending>,
    buffer: Vec<u8>,
}

/// Transactions that were submitted and have not ended.
#[derive(Default)]
struct Pending {
    state: Mutex<PendingState>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingState {
    under_way: usize,
    /// The created identifiers, with the number of their transaction.
    created: Vec<(usize, Oid)>,
    failure: Option<String>,
}

impl Embedded {
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        let store = Some(open(directory)?);
        Ok(Self { directory: directory.to_owned(), store, pending: Arc::default(), buffer: Vec::new() })
    }

    fn store(&self) -> Result<&Store> {
        self.store.as_ref().ok_or_else(|| "the store is closed".into())
    }

    /// Submits a transaction with a number for its results.
    fn submit(&self, number: usize, transaction: Transaction) -> Result<()> {
        let store = self.store()?;
        self.pending.wait_below(MAX_PENDING)?.under_way += 1;
        let pending = Arc::clone(&self.pending);
        store.submit(transaction, move |result| pending.complete(number, result));
        Ok(())
    }

    /// Creates an object of a kind with a name in `parent`.
    fn create_named(&self, kind: Kind, parent: Option<Oid>, name: &str) -> Result<Oid> {
        let oid = temporary_oid(0);
        let (key, value) = (Bytes::from_static(NAME), Bytes::copy_from_slice(name.as_bytes()));
        let mut ops = vec![create_op(0, kind, Bytes::new()), Op::SetAttribute { oid, key, value }];
        ops.extend(parent.map(|collection| Op::Add { collection, member: oid }));
        let oids = created_oids(self.store()?.commit(Transaction { ops })?)?;
        oids.first().copied().ok_or_else(|| "a transaction created nothing".into())
    }
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until fewer than `limit` transactions are in flight.
    fn wait_below(&self, limit: usize) -> Result<MutexGuard<'_, PendingState>> {
        let mut state = self.lock();
        while state.under_way >= limit {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.failure.take() {
            None => Ok(state),
            Some(failure) => Err(failure.into()),
        }
    }

    fn complete(&self, number: usize, result: model::Result<Outcome>) {
        let mut state = self.lock();
        match result.map_err(|error| error.to_string()).and_then(|o| created_oids(o).map_err(|error| error.to_string()))
        {
            Ok(oids) => state.created.extend(oids.into_iter().map(|oid| (number, oid))),
            Err(failure) => state.failure = Some(failure),
        }
        state.under_way -= 1;
        // One thread waits, for zero or for half of the maximum. Waking it for each transaction would cost more than
        // the transaction.
        let wake = state.under_way == 0 || state.under_way == MAX_PENDING / 2;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }
}

impl Reopens for Embedded {
    fn reopen(&mut self) -> Result<()> {
        if let Some(store) = self.store.take() {
            store.close()?;
        }
        self.store = Some(open(&self.directory)?);
        Ok(())
    }
}

impl Objects for Embedded {
    fn create_all(&mut self, contents: &[Bytes]) -> Result<Vec<Oid>> {
        for (number, content) in contents.iter().enumerate() {
            self.submit(number, create_transaction(std::slice::from_ref(content)))?;
        }
        let mut created = std::mem::take(&mut self.pending.wait_below(1)?.created);
        created.sort_unstable_by_key(|(number, _)| *number);
        if created.len() != contents.len() {
            return Err(format!("{} objects were created of {}", created.len(), contents.len()).into());
        }
        Ok(created.into_iter().map(|(_, oid)| oid).collect())
    }

    fn write(&mut self, oid: Oid, offset: u64, data: &Bytes) -> Result<()> {
        self.submit(0, Transaction { ops: vec![Op::Write { oid, offset, data: data.clone() }] })
    }

    fn force(&mut self) -> Result<()> {
        self.pending.wait_below(1).map(drop)
    }

    fn read(&mut self, oid: Oid, offset: u64, len: usize, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let read = self.store()?.read_into(oid, offset, &mut buffer[..len])?;
        look(&buffer[..read]);
        self.buffer = buffer;
        Ok(())
    }
}

impl Collections for Embedded {
    fn create_collection(&mut self, parent: Option<Oid>, name: &str) -> Result<Oid> {
        self.create_named(Kind::Collection, parent, name)
    }

    fn create_object(&mut self, parent: Oid, name: &str) -> Result<Oid> {
        self.create_named(Kind::Blob, Some(parent), name)
    }

    fn members(&mut self, collection: Oid) -> Result<Vec<Oid>> {
        let store = self.store()?;
        let mut all = store.members(collection, None, limits::LISTING)?;
        let mut full = all.len() == limits::LISTING;
        while full {
            let next = store.members(collection, all.last().copied(), limits::LISTING)?;
            full = next.len() == limits::LISTING;
            all.extend(next);
        }
        Ok(all)
    }

    fn describe(&mut self, oid: Oid) -> Result<(bool, Bytes)> {
        let store = self.store()?;
        let stat = store.stat(oid)?.ok_or_else(|| format!("{oid} does not exist"))?;
        let name = store.attribute(oid, NAME)?.ok_or_else(|| format!("{oid} has no name"))?;
        Ok((stat.kind == Kind::Collection, name))
    }
}
