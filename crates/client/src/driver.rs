//! The client as a state machine, without sockets, clocks, threads or tasks.
//!
//! ```text
//!   user ── call, cancel ──▶ ┌──────────────┐ ── up, call, watch, request ─────────▶ peer server
//!        ◀── finished, event │ ClientDriver │ ◀── down, reply, deferred, status ──
//!                            └──────────────┘ ◀── connected, disconnected, refused, poll
//! ```
//!
//! [`Session`] has the rules of transactions and copies. The driver adds the user's unfinished calls, the status of the space, and
//! the limit of the cache. `Core` drives it over a
//! connection; the simulator drives it over a simulated network.
//!
//! - A call finishes exactly once: with its result, with an error, or by [`ClientDriver::cancel`].
//! - A call fails at the latest when the client's timeout has passed, but for one that waits for a change of an object. A write, or a
//!   commit, fails about a second after the space was stopped or every peer server refused the client; calls that have changed nothing
//!   fail at once then.
//! - When the caller of a commit goes away, or its time is up, the driver asks for the outcome: a participant that has not prepared
//!   the transaction by then never will (C2). A transaction that has only read ends at once: there is no outcome to ask for.
//! - When the caller of a write outside of transactions goes away, or its time is up, and the write was not sent yet, it is not written. Later
//!   writes do not wait for it then.
//! - An outcome that no call waits for is kept until a call requests it.

mod calls;
mod derived_values;
mod expiry;
mod inputs;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use model::{ClassId, Entry, Error, ErrorKind, NodeId, Object, Oid, PageId, Result};
use protocol::clock::ClusterTime;
use protocol::eviction::EvictionPolicy;
use protocol::gateway;
use protocol::ident::{HlcTimestamp, HolderId, TxnId};
use protocol::lease::Ms;
use protocol::memory_size::MemorySize;
use protocol::page_cache::{Lookup, ObjectState};
use protocol::session::{Level, Session, TxnOutcome, WriteError};
use protocol::tree::Up;
use protocol::validate::Read;
use wire::cluster::{SpaceStatus, is_final};

pub use self::calls::{CallId, ReadRequest};
use self::calls::{CallTable, OutcomeGoal, PendingCall, PendingRequest, WaitKey};
use self::derived_values::DerivedBytes;
use super::events::{Event, SpaceMonitor};
use super::outcome::{CommitOutcome, ConflictReason, commit_outcome};
use super::timeout_error::damage_error;
use super::transaction::IsolationLevel;
pub use crate::classes::{KnownClasses, StructMapping};
use crate::plant::{Bug, planted};

/// Memory that an object takes beside its data, in bytes.
const OVERHEAD: usize = 96;
/// Maximum outcomes, and maximum reasons for refusals, retained for transactions that no call waits for.
const MAX_OUTCOMES: usize = 4_096;
/// How long a call waits for a change that was sent before the space was stopped, or the client was refused, in milliseconds: long
/// enough if it needs no unreachable brick.
const SHORT_WAIT_MS: Ms = 1_000;
/// After this time the driver fetches a page again that it has evicted and in which an object is watched, in milliseconds. So objects that
/// do not fit into the cache together are polled, at this rate, instead of being fetched without end.
const WATCH_RETRY_MS: Ms = 1_000;
/// The delay before a failed request is sent again, in milliseconds.
const REQUEST_RETRY_MS: Ms = 20;

/// An object of a driver.
pub trait DriverObject: Clone + PartialEq + MemorySize {
    /// Whether the object belongs to this class. An identifier names the class of its object; another object in the same slot
    /// is not the one that is read.
    fn is_of_class(&self, class: ClassId) -> bool;
}

impl DriverObject for Object {
    fn is_of_class(&self, class: ClassId) -> bool {
        self.class == class
    }
}

/// A call of the user.
#[derive(Debug)]
pub enum ClientCall<T> {
    /// Reads an object in a transaction.
    Read(ReadRequest),
    /// Reads an object outside of transactions.
    Get(Oid),
    /// Waits, without a timeout, until an object is in another state than this one. The result is that state.
    Change(Oid, Option<T>),
    /// Writes an object outside of transactions.
    Put(Oid, ObjectState<T>),
    /// Writes objects in a transaction and commits it.
    Commit(TxnId, Vec<(Oid, ObjectState<T>)>),
    /// Finds out how a transaction has ended, and ends it if it has not.
    Resolve(TxnId),
    /// Waits until the bricks of these logical nodes can be reached.
    Reachable(Vec<NodeId>),
    /// Sends a request, which needs these logical nodes, to the peer server, and repeats it if the connection is lost.
    Request(Vec<NodeId>),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult<T> {
    /// A read: the object, or `None` if there is none.
    Object(Option<T>),
    /// A write outside of transactions is durable.
    Written,
    /// How a transaction has ended.
    Outcome(CommitOutcome),
    /// The bricks can be reached.
    Reachable,
}

/// An action for the shell. Actions are carried out in order.
#[derive(Debug)]
pub enum Output<T> {
    /// Send this up the cache tree of a logical node, in this session.
    Up(NodeId, HolderId, Up<T>),
    /// Send this call to the gateway.
    Call(TxnId, gateway::Call<T>),
    /// Send this call again. It need not be sent if the former one may still be on its way.
    Repeat(TxnId, gateway::Call<T>),
    /// Ask the peer server for the status of the space, now and whenever it changes.
    Watch,
    /// Send the request of this call to the peer server; [`ClientDriver::handle_answered`] or [`ClientDriver::handle_failed`] follows.
    Request(CallId),
    /// A call has finished.
    Finished(CallId, Result<CallResult<T>>),
    /// Tell the service about this event.
    Event(Event),
}

/// A client. `T` is an object.
#[derive(Debug)]
pub struct ClientDriver<T> {
    session: Session<T>,
    monitor: SpaceMonitor,
    is_connected: bool,
    /// Why no peer server admits the client, if the last attempts have ended so.
    access_refused: Option<(ErrorKind, Arc<str>)>,
    calls: CallTable<T>,
    /// Outcomes of transactions that no call waits for.
    outcomes: BTreeMap<TxnId, TxnOutcome>,
    /// Why transactions and writes are deferred, or refused for good: those that the session runs or sends, and those in `outcomes`.
    deferred: HashMap<TxnId, (ErrorKind, String)>,
    /// Why the write that is being reported was refused, and whether it was sent again before.
    refused_write: Option<(ErrorKind, String, bool)>,
    last_write: u64,
    residents: EvictionPolicy,
    derived: DerivedBytes,
    timeout: Duration,
    is_closed: bool,
    out: Vec<Output<T>>,
}

/// The error of a call to a client that was closed.
pub(super) fn closed_error() -> Error {
    Error::new(ErrorKind::Invalid, "the client was closed, or the runtime that it was connected on has ended")
}

impl<T: DriverObject> ClientDriver<T> {
    /// A driver that is not connected. Calls fail after `timeout`; copies of `cache_bytes` bytes are kept.
    #[must_use]
    pub fn new(session: Session<T>, timeout: Duration, cache_bytes: usize) -> Self {
        Self {
            session,
            monitor: SpaceMonitor::default(),
            is_connected: false,
            access_refused: None,
            calls: CallTable::default(),
            outcomes: BTreeMap::new(),
            deferred: HashMap::new(),
            refused_write: None,
            last_write: 0,
            residents: EvictionPolicy::new(cache_bytes),
            derived: DerivedBytes::default(),
            timeout,
            is_closed: false,
            out: Vec::new(),
        }
    }

    /// The time of the cluster, by which transactions begin from now on (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.session.set_time(time);
    }

    /// Takes the pending actions, in order.
    pub fn outputs(&mut self) -> Vec<Output<T>> {
        std::mem::take(&mut self.out)
    }

    /// When [`ClientDriver::poll`] has to be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        self.session.deadline().into_iter().chain(self.calls.first_due()).min()
    }

    /// Handles timeouts.
    pub fn poll(&mut self, now: Ms) {
        self.session.poll(now);
        self.drain();
        while let Some((id, is_late)) = self.calls.next_due(now) {
            match is_late {
                true if planted(Bug::DeadlineIgnored) => drop(self.calls.remove(id)),
                true => self.expire(id, now),
                false => {
                    self.calls.wake_at(id, Ms::MAX);
                    match self.calls.get(id) {
                        Some(PendingCall::Change(..)) => self.attempt(id, now),
                        _ => self.send_request(id),
                    }
                }
            }
        }
        self.drain();
    }

    // -------------------------------------------------------------------------------------------- reading available objects

    /// Reads an object in a transaction if it is available. `Some(None)`: there is no such object. `None`: it is being fetched or
    /// locked; [`ClientCall::Read`] waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`]; [`ErrorKind::Conflict`] if the transaction cannot commit any more; the refusal, if it was
    /// refused for good.
    pub fn read(&mut self, read: &ReadRequest, now: Ms) -> Result<Option<Option<T>>> {
        self.check_not_stopped()?;
        self.try_read(read, now)
    }

    /// Reads an object outside of transactions if it is available; see [`ClientDriver::read`].
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`].
    pub fn get(&mut self, oid: Oid, now: Ms) -> Result<Option<Option<T>>> {
        self.check_not_stopped()?;
        Ok(self.try_get(oid, now))
    }

    /// Reads an object in a transaction if its copy has a [derived value](ClientDriver::attach): returns that value. Otherwise
    /// [`ClientDriver::read`] reads it; this fetches and locks nothing.
    ///
    /// # Errors
    /// As [`ClientDriver::read`].
    pub fn read_derived(&mut self, read: &ReadRequest, now: Ms) -> Result<Option<Arc<dyn Any + Send + Sync>>> {
        self.check_not_stopped()?;
        let ReadRequest { txn, level, oid, .. } = *read;
        self.check_readable(txn)?;
        let derived = match self.session.read_copy(txn, oid, now) {
            (Lookup::Value(object), Some(derived)) if object.is_of_class(oid.class()) => Some(derived.value.clone()),
            _ => None,
        };
        self.check_not_doomed(txn, level)?;
        if derived.is_some() {
            self.residents.record_use(oid.page());
        }
        Ok(derived)
    }

    fn try_read(&mut self, read: &ReadRequest, now: Ms) -> Result<Option<Option<T>>> {
        let ReadRequest { txn, level, oid, mode } = *read;
        self.check_readable(txn)?;
        self.residents.record_use(oid.page());
        // A copy is looked up once; only a miss fetches or locks.
        let copy = found_object(oid, self.session.read_copy(txn, oid, now).0);
        let found = copy.or_else(|| found_object(oid, self.session.read_for(txn, oid, mode, now)));
        self.check_not_doomed(txn, level)?;
        Ok(found)
    }

    /// Checks that a transaction runs and was not refused.
    fn check_readable(&self, txn: TxnId) -> Result<()> {
        if let Some((kind, why)) = self.deferred.get(&txn).filter(|(kind, _)| is_final(*kind)) {
            return Err(Error::new(*kind, why.clone()));
        }
        if let Some(ended) = self.outcomes.get(&txn) {
            return Err(ended_error(txn, ended.clone()));
        }
        // Another task may have aborted it.
        match self.session.is_running(txn) {
            true => Ok(()),
            false => Err(over_error()),
        }
    }

    fn check_not_doomed(&self, txn: TxnId, level: IsolationLevel) -> Result<()> {
        // An object that a snapshot has read may change later than the snapshot's time.
        let doomed = self.session.conflicting_object(txn).filter(|_| level != IsolationLevel::Snapshot);
        match doomed.filter(|_| !planted(Bug::DoomedGoesOn)) {
            Some(doomed) => Err(ConflictReason::Object(doomed, None).error()),
            None => Ok(()),
        }
    }

    fn try_get(&mut self, oid: Oid, now: Ms) -> Option<Option<T>> {
        self.residents.record_use(oid.page());
        // A copy is looked up once; only a miss fetches.
        found_object(oid, self.session.peek(oid, now)).or_else(|| found_object(oid, self.session.get(oid, now)))
    }

    /// The state of an object in its copy, or in a write of this client. Fetches nothing.
    #[must_use]
    pub fn peek(&self, oid: Oid, now: Ms) -> Lookup<'_, T> {
        self.session.peek(oid, now)
    }

    /// The session, for checks.
    #[must_use]
    pub fn session(&self) -> &Session<T> {
        &self.session
    }

    // -------------------------------------------------------------------------------------------- transactions

    /// Begins a transaction.
    pub fn begin(&mut self, level: Level, now: Ms) -> TxnId {
        self.session.begin(level, now)
    }

    /// See [`Session::rely_on`].
    ///
    /// # Errors
    /// As [`ClientDriver::read`]; [`ErrorKind::Invalid`] if the transaction only reads, or is being committed.
    pub fn rely_on(&mut self, txn: TxnId, reads: Vec<Read>, at: HlcTimestamp) -> Result<()> {
        self.check_readable(txn)?;
        self.session.rely_on(txn, reads, at).map_err(not_written_error)
    }

    /// See [`Session::touch`].
    ///
    /// # Errors
    /// As [`ClientDriver::rely_on`].
    pub fn touch(&mut self, txn: TxnId, guard: Oid, now: Ms) -> Result<bool> {
        self.check_readable(txn)?;
        let touched = self.session.touch(txn, guard, now).map_err(not_written_error);
        self.drain();
        touched
    }

    /// Writes an object in a transaction; see [`Session::write`]. [`ClientCall::Commit`] can do the same.
    ///
    /// # Errors
    /// As there.
    pub fn write(&mut self, txn: TxnId, oid: Oid, content: ObjectState<T>) -> Result<(), WriteError> {
        self.session.write(txn, oid, content)
    }

    /// A call was not sent again, because its connection still sends: it is repeated soon.
    pub fn repeat_soon(&mut self, txn: TxnId, now: Ms) {
        self.session.repeat_soon(txn, now);
    }

    /// How many reads a transaction relies on.
    #[must_use]
    pub fn read_count(&self, txn: TxnId) -> usize {
        self.session.read_count(txn)
    }

    /// The bytes of the commit of a transaction without the contents of objects; see [`Session::head_bytes`].
    pub fn head_bytes<'a>(
        &self,
        txn: TxnId,
        writes: impl Iterator<Item = Oid>,
        entries: impl Iterator<Item = &'a Entry> + Clone,
    ) -> usize {
        self.session.head_bytes(txn, writes, entries)
    }

    /// Changes an entry of a collection in a transaction; see [`Session::change_entry`].
    ///
    /// # Errors
    /// As there.
    pub fn change_entry(&mut self, txn: TxnId, entry: Entry, target: Option<Oid>) -> Result<(), WriteError> {
        self.session.change_entry(txn, entry, target)
    }

    /// Ends a transaction without its writes. Its waiting reads fail.
    pub fn abort(&mut self, txn: TxnId) {
        self.session.abort(txn);
        self.outcomes.remove(&txn);
        self.deferred.remove(&txn);
        for id in self.calls.waiting_for(WaitKey::Txn(txn)) {
            self.finish(id, Err(over_error()));
        }
        self.drain();
    }

    /// Bytes of the available objects of a page, without the one in this slot.
    #[must_use]
    pub fn page_bytes(&self, page: PageId, except: Option<u16>) -> usize {
        let valid = self.session.cache().valid_objects(page);
        valid.filter(|(slot, ..)| Some(*slot) != except).map(|(_, object, _)| object.memory_size()).sum()
    }

    /// The first of these places, all in one page, that is free. The transaction reads it, so that another one that
    /// takes the same place conflicts with it in validation.
    pub fn claim_slot(&mut self, txn: TxnId, mut places: impl Iterator<Item = Oid>, now: Ms) -> Option<Oid> {
        // A slot whose object is not valid here is not free.
        let free = places.find(|place| {
            matches!(self.session.cache().lookup(*place), Lookup::Absent)
                && matches!(self.session.read(txn, *place, now), Lookup::Absent)
        });
        self.drain();
        free
    }

    /// Removes a copy.
    pub fn evict(&mut self, page: PageId) {
        self.session.evict(page);
        self.drain();
    }

    // -------------------------------------------------------------------------------------------- the space

    /// The last status of the space that the peer server sent.
    #[must_use]
    pub fn status(&self) -> Option<&SpaceStatus> {
        self.monitor.status()
    }

    /// The monitor of the space.
    pub(super) fn monitor(&mut self) -> &mut SpaceMonitor {
        &mut self.monitor
    }

    /// Whether a call can succeed now.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if no peer server admits the client; [`ErrorKind::NotFound`] if the space was removed;
    /// [`ErrorKind::Stopped`] if it is stopped.
    pub fn check_serving(&self) -> Result<()> {
        self.check_access()?;
        self.monitor.check()
    }

    /// Whether a write outside of transactions can be sent now.
    fn check_writable(&self, oid: Oid) -> Result<()> {
        self.check_serving()?;
        self.damage_of(&[oid.page().node]).map_or(Ok(()), Err)
    }

    /// Whether the space is stopped. What a client knows of that is older than that no peer server admits it, which is the reason then.
    fn check_not_stopped(&self) -> Result<()> {
        match self.monitor.check() {
            Err(stopped) if planted(Bug::StopOutlivesAccess) => Err(stopped),
            Err(_) => self.check_serving(),
            Ok(()) => Ok(()),
        }
    }

    fn check_access(&self) -> Result<()> {
        match &self.access_refused {
            Some((kind, why)) => Err(Error::new(*kind, &**why)),
            None => Ok(()),
        }
    }

    /// Whether a call is not finished.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Why the space is stopped or the client is not admitted, if so.
    fn why_stopped(&self) -> Option<Arc<str>> {
        self.access_refused.as_ref().map(|(_, why)| why.clone()).or_else(|| self.monitor.why_stopped())
    }

    // -------------------------------------------------------------------------------------------- calls

    /// Starts a call. Its end comes as [`Output::Finished`] with this number, perhaps at once.
    pub fn start(&mut self, call: ClientCall<T>, now: Ms) -> CallId {
        let id = self.calls.next_id();
        let timeout = Ms::try_from(self.timeout.as_millis()).unwrap_or(Ms::MAX);
        let deadline = now.saturating_add(timeout);
        if self.is_closed {
            self.out.push(Output::Finished(id, Err(closed_error())));
            return id;
        }
        match call {
            ClientCall::Read(read) => {
                self.calls.insert(id, PendingCall::Read(read), deadline);
                self.attempt(id, now);
            }
            ClientCall::Get(oid) => {
                self.calls.insert(id, PendingCall::Get(oid), deadline);
                self.attempt(id, now);
            }
            ClientCall::Change(oid, known) => {
                self.calls.insert(id, PendingCall::Change(oid, known), Ms::MAX);
                self.attempt(id, now);
            }
            ClientCall::Reachable(nodes) => {
                self.calls.insert(id, PendingCall::Reachable(nodes), deadline);
                self.attempt(id, now);
            }
            ClientCall::Put(oid, content) => match self.check_writable(oid) {
                Ok(()) => {
                    self.last_write += 1;
                    let number = self.last_write;
                    self.calls.insert(id, PendingCall::Put { oid, number }, deadline);
                    self.session.put(oid, content, number, now);
                }
                Err(error) => self.out.push(Output::Finished(id, Err(error))),
            },
            ClientCall::Commit(txn, writes) => {
                let written = writes.into_iter().try_for_each(|(oid, content)| self.session.write(txn, oid, content));
                match written {
                    // A transaction that is over has an outcome.
                    Ok(()) | Err(WriteError::NotRunning) => {
                        self.session.commit(txn, now);
                        self.wait_for_outcome(id, txn, OutcomeGoal::Commit, deadline);
                    }
                    Err(why @ WriteError::ReadOnly) => {
                        self.session.abort(txn);
                        self.out.push(Output::Finished(id, Err(not_written_error(why))));
                    }
                }
            }
            ClientCall::Resolve(txn) if !self.session.is_committing(txn) && !self.outcomes.contains_key(&txn) => {
                let what =
                    format!("the outcome of transaction {txn:?} was told already, or this client did not commit it");
                self.out.push(Output::Finished(id, Err(Error::new(ErrorKind::Invalid, what))));
            }
            ClientCall::Resolve(txn) => {
                self.session.resolve(txn, now);
                self.wait_for_outcome(id, txn, OutcomeGoal::Resolve, deadline);
            }
            ClientCall::Request(nodes) => match self.check_access() {
                Ok(()) => {
                    let request = PendingRequest { nodes, is_sent: false, last_error: None };
                    self.calls.insert(id, PendingCall::Request(request), deadline);
                    self.send_request(id);
                }
                Err(error) => self.out.push(Output::Finished(id, Err(error))),
            },
        }
        if self.calls.get(id).is_some_and(PendingCall::is_write) && self.why_stopped().is_some() {
            self.calls.shorten(id, now + SHORT_WAIT_MS);
        }
        self.drain();
        id
    }

    fn wait_for_outcome(&mut self, id: CallId, txn: TxnId, goal: OutcomeGoal, deadline: Ms) {
        self.calls.insert(id, PendingCall::Outcome { txn, goal }, deadline);
        if let Some(ended) = self.outcomes.remove(&txn) {
            self.handle_ended(txn, ended);
        }
    }

    /// Ends a call whose caller does not wait any more. The outcome of a commit is requested, as after a timeout.
    pub fn cancel(&mut self, id: CallId, now: Ms) {
        match self.calls.remove(id) {
            Some(PendingCall::Outcome { txn, .. })
                if !self.calls.is_awaited(WaitKey::Outcome(txn)) && !planted(Bug::CancelKeepsCommit) =>
            {
                self.deferred.remove(&txn);
                match self.session.is_committing(txn) {
                    true => self.session.resolve(txn, now),
                    false => self.abort(txn),
                }
            }
            Some(PendingCall::Put { number, .. }) => {
                self.session.withdraw(number, now);
            }
            Some(PendingCall::Read(read)) => self.forget_lock(&read),
            _ => {}
        }
        self.drain();
    }

    /// A read has ended without its lock. The lock leaves its place to others of the transaction, unless another read waits for it.
    fn forget_lock(&mut self, read: &ReadRequest) {
        let is_same =
            |id: &CallId| matches!(self.calls.get(*id), Some(PendingCall::Read(other)) if other.oid == read.oid);
        let has_lock = read.level == IsolationLevel::Locks && !planted(Bug::EndedReadWaits);
        if has_lock && !self.calls.waiting_for(WaitKey::Txn(read.txn)).iter().any(is_same) {
            self.session.forget_lock(read.txn, read.oid);
        }
    }

    /// Ends the client: its locks and copies are released, and all calls fail.
    pub fn close(&mut self) {
        if !planted(Bug::LocksKeptAtClose) {
            self.session.close();
        }
        self.drain();
        self.is_closed = true;
        for id in self.calls.ids() {
            let error = match self.calls.get(id) {
                Some(PendingCall::Outcome { txn, .. }) => self.unknown_outcome_error(*txn),
                _ => closed_error(),
            };
            self.finish(id, Err(error));
        }
    }

    fn finish(&mut self, id: CallId, result: Result<CallResult<T>>) {
        if self.calls.remove(id).is_some() {
            self.out.push(Output::Finished(id, result));
        }
    }

    /// Retries a call that waits for a page, a lock or the status of the space.
    fn attempt(&mut self, id: CallId, now: Ms) {
        let result = match self.calls.get(id) {
            Some(PendingCall::Read(read)) => {
                let read = *read;
                let found = self.check_serving().and_then(|()| self.try_read(&read, now));
                found.map(|found| found.map(CallResult::Object))
            }
            Some(PendingCall::Get(oid)) => {
                let oid = *oid;
                self.check_serving().map(|()| self.try_get(oid, now).map(CallResult::Object))
            }
            Some(PendingCall::Change(oid, known)) => {
                let (oid, known) = (*oid, known.clone());
                let found = self.check_serving().map(|()| self.try_get(oid, now));
                found.map(|found| found.filter(|found| *found != known).map(CallResult::Object))
            }
            Some(PendingCall::Reachable(nodes)) => {
                let unavailable = self.monitor.unavailable_nodes();
                let are_reachable = !nodes.iter().any(|node| unavailable.contains(node));
                self.check_serving().map(|()| are_reachable.then_some(CallResult::Reachable))
            }
            Some(PendingCall::Put { .. } | PendingCall::Outcome { .. } | PendingCall::Request(_)) | None => return,
        };
        match result.transpose() {
            Some(result) => self.finish(id, result),
            None => self.give_up_damaged(id),
        }
    }

    /// Ends a call that waits for something of a logical node that cannot be served because its rows are damaged.
    fn give_up_damaged(&mut self, id: CallId) {
        let (nodes, read): (&[NodeId], _) = match self.calls.get(id) {
            Some(PendingCall::Get(oid) | PendingCall::Change(oid, _)) => (&[oid.page().node], None),
            Some(PendingCall::Read(read)) => (&[read.oid.page().node], Some(*read)),
            Some(PendingCall::Reachable(nodes)) => (nodes, None),
            _ => return,
        };
        let Some(damage) = self.damage_of(nodes) else { return };
        self.finish(id, Err(damage));
        if let Some(read) = read.filter(|_| !planted(Bug::EndedReadWaits)) {
            self.forget_lock(&read);
        }
    }

    /// The error of what needs one of these logical nodes that cannot be served because its rows are damaged, as its peer server says now.
    fn damage_of(&self, nodes: &[NodeId]) -> Option<Error> {
        let status = self.monitor.current_status().filter(|_| !planted(Bug::DamagedNodeAwaited))?;
        damage_error(status, nodes)
    }

    fn attempt_all(&mut self, ids: Vec<CallId>, now: Ms) {
        ids.into_iter().for_each(|id| self.attempt(id, now));
    }

    /// Retries all calls that wait for a page.
    fn attempt_page(&mut self, page: PageId, now: Ms) {
        let ids = self.calls.waiting_for(WaitKey::Page(page));
        if planted(Bug::AnswerToWrongCall)
            && let Some(PendingCall::Get(oid)) = ids.first().and_then(|id| self.calls.get(*id))
            && let oid = *oid
            && let Some(found) = self.try_get(oid, now)
        {
            return ids.into_iter().for_each(|id| self.finish(id, Ok(CallResult::Object(found.clone()))));
        }
        self.attempt_all(ids, now);
    }
}

/// The error of a call in a transaction that was aborted, or whose outcome the caller has.
fn over_error() -> Error {
    Error::new(ErrorKind::Invalid, "the transaction is over: begin another")
}

/// The error of a change that a transaction cannot make.
fn not_written_error(why: WriteError) -> Error {
    Error::new(ErrorKind::Invalid, why.to_string())
}

/// The error of a read in a transaction that has ended.
fn ended_error(txn: TxnId, ended: TxnOutcome) -> Error {
    match commit_outcome(txn, ended) {
        CommitOutcome::Conflict(reason) => reason.error(),
        CommitOutcome::Committed(_) | CommitOutcome::Unknown(_) => ConflictReason::Aborted.error(),
    }
}

fn unknown_write_error(oid: Oid, why: &str) -> Error {
    Error::new(ErrorKind::Unknown, format!("it is not known whether {oid} was written: read it{why}"))
}

/// The object that was found: `Some(None)` if there is none, `None` if that is unknown.
fn found_object<T: DriverObject>(oid: Oid, found: Lookup<'_, T>) -> Option<Option<T>> {
    match found {
        Lookup::Value(object) if object.is_of_class(oid.class()) || planted(Bug::ClassIgnored) => {
            Some(Some(object.clone()))
        }
        Lookup::Value(_) | Lookup::Absent => Some(None),
        Lookup::Miss => None,
    }
}

#[cfg(test)]
mod tests;
